//! Calls made ready for launching, and their launch.

use std::ffi::c_void;

use super::api::{self, Code, Comm, DataType, RedOp};
use super::lane::{self, Lane, Track};
use super::library::Library;
use super::peers::Peers;
use super::program::{self, Group, Native, Phase, Step};
use super::version::Version;
use crate::backend::{Buffer, Call, Placement, RankError, Twist};
use crate::case::{DType, Op, Primitive, Variant, Workload};

/// What a call was compiled for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Key {
    primitive: Primitive,
    op: Option<Op>,
    workload: Workload,
    placement: Placement,
    base: u64,
    on_device: bool,
    twist: Option<Twist>,
    /// Of mulsum, by lane.
    scalars: Vec<u64>,
}

impl Key {
    fn of(call: &Call<'_>, lanes: &[Lane]) -> Key {
        let Call { case, workload, placement, base, twist, .. } = *call;
        let (on_device, scalars) = (on_device(call), scalars(call, lanes).collect());
        Key { primitive: case.primitive, op: case.op, workload, placement, base, on_device, twist, scalars }
    }

    /// Whether the call is the same; allocates nothing.
    fn is_of(&self, call: &Call<'_>, lanes: &[Lane]) -> bool {
        self.primitive == call.case.primitive
            && self.op == call.case.op
            && self.workload == call.workload
            && self.placement == call.placement
            && self.base == call.base
            && self.on_device == on_device(call)
            && self.twist == call.twist
            && scalars(call, lanes).eq(self.scalars.iter().copied())
    }
}

/// Whether the scalar of mulsum lies in device memory.
fn on_device(call: &Call<'_>) -> bool {
    call.case.variants.contains(&Variant::DeviceScalars)
}

fn scalars<'a>(call: &Call<'a>, lanes: &'a [Lane]) -> impl Iterator<Item = u64> + use<'a> {
    let plan = call.plan;
    let lanes = if call.case.op == Some(Op::Mulsum) { lanes } else { &[] };
    lanes.iter().map(move |lane| plan.scalar(lane.rank))
}

/// What an NCCL call takes besides the buffers.
#[derive(Clone, Copy)]
struct Handles {
    data_type: DataType,
    reduction: RedOp,
    communicator: Comm,
    stream: api::Stream,
}

/// Calls ready to be launched on the lanes of one station.
pub struct Launch {
    track: Track,
    keys: Vec<Key>,
    groups: Vec<Group>,
    /// By call, then by lane.
    handles: Vec<Vec<Handles>>,
}

// SAFETY: the handles are those of the station's own lanes, which move with it.
unsafe impl Send for Launch {}

impl Launch {
    /// Makes some calls ready for a track: arguments checked, reductions made, addresses computed. `size`: ranks of the
    /// communicator.
    pub fn compile(
        library: &Library,
        size: u32,
        lanes: &mut [Lane],
        track: Track,
        calls: &[Call<'_>],
    ) -> Result<Launch, RankError> {
        let mut phases = Vec::with_capacity(calls.len());
        let mut handles = Vec::with_capacity(calls.len());
        for call in calls {
            phases.push(phases_of(library, size, lanes, call)?);
            handles.push(handles_of(lanes, track, call)?);
        }
        let keys = calls.iter().map(|call| Key::of(call, lanes)).collect();
        Ok(Launch { track, keys, groups: program::together(&phases), handles })
    }

    /// Whether it was made for these calls on this track.
    pub fn is_of(&self, track: Track, calls: &[Call<'_>], lanes: &[Lane]) -> bool {
        let alike = self.track == track && self.keys.len() == calls.len();
        alike && self.keys.iter().zip(calls).all(|(key, call)| key.is_of(call, lanes))
    }

    /// Issues all groups. Nothing here allocates unless a call fails.
    pub fn issue(&self, library: &Library, peers: &Peers, lanes: &[Lane]) -> Result<(), RankError> {
        // Others may have given their buffers back, and the handles may be of a communicator that is gone.
        if peers.lost() {
            return Err(RankError::Aborted);
        }
        let api = &library.api;
        let mut unfinished = false;
        for group in &self.groups {
            if group.grouped {
                // SAFETY: takes nothing.
                library.check("ncclGroupStart", unsafe { (api.group_start)() })?;
            }
            let mut issued = Ok(());
            for (call, lane, step) in &group.steps {
                let done = self.step(library, lanes, *call, *lane, step);
                issued = done.map(|code| unfinished |= code == api::IN_PROGRESS);
                if issued.is_err() {
                    break;
                }
            }
            if group.grouped {
                // SAFETY: the group was opened above. It is closed after a failure too: NCCL then drops what was queued.
                let code = unsafe { (api.group_end)() };
                unfinished |= code == api::IN_PROGRESS;
                if issued.is_ok() && code != api::SUCCESS && code != api::IN_PROGRESS {
                    issued = Err(library.failure("ncclGroupEnd", code));
                }
            }
            issued?;
            if unfinished {
                // Until then the stream lacks what was asked for, and what is queued next would come first.
                for lane in lanes {
                    lane.communicator(self.track).settle_with(peers, "a nonblocking launch")?;
                }
            }
        }
        Ok(())
    }

    /// Issues one step.
    #[inline]
    fn step(
        &self,
        library: &Library,
        lanes: &[Lane],
        call: usize,
        lane: usize,
        step: &Step,
    ) -> Result<Code, RankError> {
        let at = self.handles.get(call).and_then(|lanes| lanes.get(lane));
        let (Some(at), Some(own)) = (at, lanes.get(lane)) else { return Ok(api::SUCCESS) };
        let Handles { data_type: t, reduction: op, communicator: comm, stream } = *at;
        let api = &library.api;
        let input = |address: u64| address as *const c_void;
        let output = |address: u64| address as *mut c_void;
        // SAFETY: compiling has found that what each rank passes and gets lies in its buffers. They, the stream and the
        // communicator live until the station is dropped, and a buffer that moves takes the program with it.
        let (call, code) = unsafe {
            match *step {
                Step::AllReduce { send, recv, count } => {
                    ("ncclAllReduce", (api.all_reduce)(input(send), output(recv), count, t, op, comm, stream))
                }
                Step::Broadcast { send, recv, count, root } => {
                    ("ncclBroadcast", (api.broadcast)(input(send), output(recv), count, t, root, comm, stream))
                }
                Step::Reduce { send, recv, count, root } => {
                    ("ncclReduce", (api.reduce)(input(send), output(recv), count, t, op, root, comm, stream))
                }
                Step::AllGather { send, recv, count } => {
                    ("ncclAllGather", (api.all_gather)(input(send), output(recv), count, t, comm, stream))
                }
                Step::ReduceScatter { send, recv, count } => {
                    ("ncclReduceScatter", (api.reduce_scatter)(input(send), output(recv), count, t, op, comm, stream))
                }
                Step::Alltoall { send, recv, count } => match api.alltoall {
                    Some(alltoall) => ("ncclAlltoAll", alltoall(input(send), output(recv), count, t, comm, stream)),
                    None => return Err(absent("ncclAlltoAll")),
                },
                Step::Gather { send, recv, count, root } => match api.gather {
                    Some(gather) => ("ncclGather", gather(input(send), output(recv), count, t, root, comm, stream)),
                    None => return Err(absent("ncclGather")),
                },
                Step::Scatter { send, recv, count, root } => match api.scatter {
                    Some(scatter) => ("ncclScatter", scatter(input(send), output(recv), count, t, root, comm, stream)),
                    None => return Err(absent("ncclScatter")),
                },
                Step::Send { from, count, peer } => ("ncclSend", (api.send)(input(from), count, t, peer, comm, stream)),
                Step::Recv { to, count, peer } => ("ncclRecv", (api.recv)(output(to), count, t, peer, comm, stream)),
                Step::Copy { from, to, bytes } => {
                    own.device.context.activate()?;
                    own.stream(self.track).copy(to, from, bytes)?;
                    return Ok(api::SUCCESS);
                }
            }
        };
        if code == api::SUCCESS || code == api::IN_PROGRESS { Ok(code) } else { Err(library.failure(call, code)) }
    }
}

/// Programs have native steps only where the library has the function, so this is never seen.
#[cold]
fn absent(call: &str) -> RankError {
    RankError::Unsupported(format!("the loaded NCCL has no {call}"))
}

/// Checks a call's arguments, and says what all lanes do for it.
fn phases_of(library: &Library, size: u32, lanes: &[Lane], call: &Call<'_>) -> Result<Vec<Phase>, RankError> {
    let Call { case, workload, placement, plan, base, twist } = call;
    let refused = |message: String| RankError::Refused {
        call: case.primitive.name().to_owned(),
        code: "refused".to_owned(),
        message,
    };
    if workload.ranks != size {
        return Err(refused(format!("the case is for {} ranks, the communicator has {}", workload.ranks, size)));
    }
    if plan.dtype() != workload.dtype {
        return Err(refused(format!("the plan is for {}, the case for {}", plan.dtype(), workload.dtype)));
    }
    let unit = case.primitive.unit();
    if let Some(reason) = unit.refuses(workload.ranks) {
        return Err(refused(reason));
    }
    if let Some(twist) = twist {
        twist.refuses(case.primitive, workload.ranks)?;
    }
    if matches!(workload.dtype, DType::F8e4m3 | DType::F8e5m2) {
        library.require(&format!("dtype {}", workload.dtype), Version::FLOAT8)?;
    }

    let none = || refused("there is no in-place form".to_owned());
    for lane in lanes {
        let needed = program::extent(unit, workload, *placement, lane.rank).ok_or_else(none)?;
        for (which, bytes) in [(Buffer::Send, needed.send), (Buffer::Recv, needed.recv)] {
            let buffer = lane.buffer(which);
            if bytes > 0 && buffer.stretch(*base, 0, bytes, 1).is_none() {
                return Err(lane::outside(case.primitive.name(), *base, bytes, 1, buffer));
            }
        }
    }

    let native = Native {
        alltoall: library.api.alltoall.is_some(),
        gather: library.api.gather.is_some(),
        scatter: library.api.scatter.is_some(),
    };
    let sites: Vec<_> = lanes.iter().map(|lane| lane.site().moved(*base)).collect();
    program::compile(case.primitive, workload, *placement, native, *twist, &sites).ok_or_else(none)
}

fn handles_of(lanes: &mut [Lane], track: Track, call: &Call<'_>) -> Result<Vec<Handles>, RankError> {
    lanes
        .iter_mut()
        .map(|lane| {
            lane.device.context.activate()?;
            Ok(Handles {
                data_type: api::data_type(call.workload.dtype),
                reduction: lane.communicator_mut(track).reduction(call.case.op, call.plan, on_device(call))?,
                communicator: lane.communicator(track).raw(),
                stream: lane.stream(track).raw(),
            })
        })
        .collect()
}
