//! One thread's ranks on GPUs.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::api::{self, Code, Comm, DataType, RedOp};
use super::lane::{self, Lane};
use super::library::Library;
use super::program::{self, Group, Native, Phase, Step};
use super::version::Version;
use crate::backend::{
    Aborter, Buffer, Call, GuardBreach, Memory, Need, Placement, RankError, Region, Registration, Station, Verdict,
};
use crate::case::{DType, Op, Primitive, Workload};
use crate::kernels::Action;

/// How many polls of a stream pass between two looks at the communicator.
const POLLS_PER_LOOK: u32 = 256;

/// How long a station that is dropped waits for work in flight before it aborts.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long an aborted station has to close its communicators itself.
const ABORT_AFTER: Duration = Duration::from_secs(3);

/// What a program was compiled for.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    primitive: Primitive,
    op: Option<Op>,
    workload: Workload,
    placement: Placement,
    base: u64,
}

impl Key {
    fn of(call: &Call<'_>) -> Key {
        let Call { case, workload, placement, base, .. } = *call;
        Key { primitive: case.primitive, op: case.op, workload, placement, base }
    }
}

/// What an NCCL call takes besides the buffers.
#[derive(Clone, Copy)]
struct Handles {
    data_type: DataType,
    reduction: RedOp,
    communicator: Comm,
    stream: api::Stream,
}

/// Calls ready to be launched.
struct Program {
    keys: Vec<Key>,
    groups: Vec<Group>,
    /// By call, then by lane.
    handles: Vec<Vec<Handles>>,
}

impl Program {
    fn is_of(&self, calls: &[Call<'_>]) -> bool {
        self.keys.len() == calls.len() && self.keys.iter().zip(calls).all(|(key, call)| *key == Key::of(call))
    }
}

// SAFETY: the handles are those of the station's own lanes, which move with it.
unsafe impl Send for Program {}

/// One thread's ranks.
pub struct NcclStation {
    library: Arc<Library>,
    /// Ranks of the communicator.
    size: u32,
    ranks: Vec<u32>,
    lanes: Vec<Lane>,
    /// Whether the lanes are on different GPUs, so that the current context has to follow the lane.
    spread: bool,
    program: Option<Program>,
    /// Set by the first station whose communicator or GPU is lost; its peers then stop waiting for it.
    lost: Arc<AtomicBool>,
}

impl NcclStation {
    /// Takes over some lanes of a communicator of `size` ranks.
    pub fn new(library: Arc<Library>, size: u32, lanes: Vec<Lane>, lost: Arc<AtomicBool>) -> NcclStation {
        let ranks = lanes.iter().map(|lane| lane.rank).collect();
        let spread = lanes.windows(2).any(|pair| pair[0].device.ordinal != pair[1].device.ordinal);
        NcclStation { library, size, ranks, lanes, spread, program: None, lost }
    }

    /// Notes a lost communicator or GPU on the way out.
    fn note<T>(&self, result: Result<T, RankError>) -> Result<T, RankError> {
        if matches!(result, Err(RankError::Broken { .. })) {
            self.lost.store(true, Ordering::Relaxed);
        }
        result
    }

    /// The lane, with its GPU current.
    fn lane(&mut self, lane: usize) -> Result<&mut Lane, RankError> {
        let lanes = self.lanes.len();
        let lane = self.lanes.get_mut(lane).ok_or_else(|| RankError::Refused {
            call: "lane".to_owned(),
            code: "out of range".to_owned(),
            message: format!("lane {lane} of {lanes}"),
        })?;
        lane.device.context.activate()?;
        Ok(lane)
    }

    fn run_kernel(&mut self, lane: usize, action: Action, region: &Region<'_>) -> Result<(), RankError> {
        let lane = self.lane(lane)?;
        let call = match action {
            Action::Fill => "fill",
            Action::Poison => "poison",
            Action::Check => "check",
        };
        let address = lane.address(call, region)?;
        let Lane { device, kernels, stream, checker, .. } = lane;
        // SAFETY: the region was found to lie in its buffer, which lives until the stream was waited for.
        unsafe { checker.launch(action, address, region, device, kernels, stream)? };
        Ok(())
    }

    /// Makes the program of some calls: arguments checked, reductions made, addresses computed.
    fn compile(&mut self, calls: &[Call<'_>]) -> Result<Program, RankError> {
        let mut phases = Vec::with_capacity(calls.len());
        let mut handles = Vec::with_capacity(calls.len());
        for call in calls {
            let (own, at) = self.compile_one(call)?;
            phases.push(own);
            handles.push(at);
        }
        Ok(Program { keys: calls.iter().map(Key::of).collect(), groups: program::together(&phases), handles })
    }

    fn compile_one(&mut self, call: &Call<'_>) -> Result<(Vec<Phase>, Vec<Handles>), RankError> {
        let Call { case, workload, placement, plan, base } = call;
        let refused = |message: String| RankError::Refused {
            call: case.primitive.name().to_owned(),
            code: "refused".to_owned(),
            message,
        };
        if workload.ranks != self.size {
            return Err(refused(format!(
                "the case is for {} ranks, the communicator has {}",
                workload.ranks, self.size
            )));
        }
        if plan.dtype() != workload.dtype {
            return Err(refused(format!("the plan is for {}, the case for {}", plan.dtype(), workload.dtype)));
        }
        let unit = case.primitive.unit();
        if let Some(reason) = unit.refuses(workload.ranks) {
            return Err(refused(reason));
        }
        if matches!(workload.dtype, DType::F8e4m3 | DType::F8e5m2) {
            self.library.require(&format!("dtype {}", workload.dtype), Version::FLOAT8)?;
        }

        let none = || refused("there is no in-place form".to_owned());
        for lane in &self.lanes {
            let needed = program::extent(unit, workload, *placement, lane.rank).ok_or_else(none)?;
            for (which, bytes) in [(Buffer::Send, needed.send), (Buffer::Recv, needed.recv)] {
                let buffer = lane.buffer(which);
                if bytes > 0 && buffer.stretch(*base, 0, bytes, 1).is_none() {
                    return Err(lane::outside(case.primitive.name(), *base, bytes, 1, buffer));
                }
            }
        }

        let native = Native {
            alltoall: self.library.api.alltoall.is_some(),
            gather: self.library.api.gather.is_some(),
            scatter: self.library.api.scatter.is_some(),
        };
        let sites: Vec<_> = self.lanes.iter().map(|lane| lane.site().moved(*base)).collect();
        let phases = program::compile(case.primitive, workload, *placement, native, &sites).ok_or_else(none)?;
        let mut handles = Vec::new();
        for lane in &mut self.lanes {
            handles.push(Handles {
                data_type: api::data_type(workload.dtype),
                reduction: lane.communicator.reduction(case.op, plan)?,
                communicator: lane.communicator.raw(),
                stream: lane.stream.raw(),
            });
        }
        Ok((phases, handles))
    }

    /// Issues all groups. Nothing here allocates unless a call fails.
    fn issue(&self, program: &Program) -> Result<(), RankError> {
        let api = &self.library.api;
        let mut unfinished = false;
        for group in &program.groups {
            if group.grouped {
                // SAFETY: takes nothing.
                self.library.check("ncclGroupStart", unsafe { (api.group_start)() })?;
            }
            let mut issued = Ok(());
            for (call, lane, step) in &group.steps {
                issued = self.step(program, *call, *lane, step).map(|code| unfinished |= code == api::IN_PROGRESS);
                if issued.is_err() {
                    break;
                }
            }
            if group.grouped {
                // SAFETY: the group was opened above. It is closed after a failure too: NCCL then drops what was queued.
                let code = unsafe { (api.group_end)() };
                unfinished |= code == api::IN_PROGRESS;
                if issued.is_ok() && code != api::SUCCESS && code != api::IN_PROGRESS {
                    issued = Err(self.library.failure("ncclGroupEnd", code));
                }
            }
            issued?;
            if unfinished {
                for lane in &self.lanes {
                    lane.communicator.settle("a nonblocking launch")?;
                }
            }
        }
        Ok(())
    }

    /// Issues one step.
    #[inline]
    fn step(&self, program: &Program, call: usize, lane: usize, step: &Step) -> Result<Code, RankError> {
        let at = program.handles.get(call).and_then(|lanes| lanes.get(lane));
        let (Some(at), Some(own)) = (at, self.lanes.get(lane)) else { return Ok(api::SUCCESS) };
        let Handles { data_type: t, reduction: op, communicator: comm, stream } = *at;
        let api = &self.library.api;
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
                    if self.spread {
                        own.device.context.activate()?;
                    }
                    own.stream.copy(to, from, bytes)?;
                    return Ok(api::SUCCESS);
                }
            }
        };
        if code == api::SUCCESS || code == api::IN_PROGRESS { Ok(code) } else { Err(self.library.failure(call, code)) }
    }

    /// Polls until all lanes are idle, looking now and then whether they can still become so.
    fn poll(&self) -> Result<(), RankError> {
        let mut polls = 0u32;
        for lane in &self.lanes {
            if self.spread {
                lane.device.context.activate()?;
            }
            while !lane.stream.idle()? {
                polls = polls.wrapping_add(1);
                if polls.is_multiple_of(POLLS_PER_LOOK) {
                    self.look()?;
                }
                // As nccl-tests does: NCCL's own threads may need the core.
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    fn look(&self) -> Result<(), RankError> {
        for lane in &self.lanes {
            lane.communicator.check_async()?;
        }
        if self.lost.load(Ordering::Relaxed) { Err(RankError::Aborted) } else { Ok(()) }
    }

    /// Whether all work is done before patience ends.
    fn drained(&self) -> bool {
        let end = Instant::now() + PATIENCE;
        self.lanes.iter().all(|lane| {
            if lane.device.context.activate().is_err() {
                return false;
            }
            loop {
                match lane.stream.idle() {
                    Ok(true) => return true,
                    Ok(false) if Instant::now() < end => std::thread::yield_now(),
                    _ => return false,
                }
            }
        })
    }
}

impl Station for NcclStation {
    fn ranks(&self) -> &[u32] {
        &self.ranks
    }

    fn enter(&mut self) -> Result<(), RankError> {
        let activated = self.lanes.first().map_or(Ok(()), |lane| lane.device.context.activate());
        self.note(activated.map_err(RankError::from))
    }

    fn prepare(&mut self, need: &Need) -> Result<(), RankError> {
        if need.memory != Memory::Device || need.registration != Registration::None {
            return Err(RankError::Unsupported("buffers of NCCL's are not had yet".to_owned()));
        }
        // Buffers may move, and a program holds their addresses.
        self.program = None;
        let prepared = (0..self.lanes.len()).try_for_each(|lane| self.lane(lane)?.prepare(need));
        self.note(prepared)
    }

    fn fill(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        let done = self.run_kernel(lane, Action::Fill, region);
        self.note(done)
    }

    fn poison(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        let done = self.run_kernel(lane, Action::Poison, region);
        self.note(done)
    }

    fn check(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        let done = self.run_kernel(lane, Action::Check, region);
        self.note(done)
    }

    fn verdict(&mut self, lane: usize, _dtype: DType) -> Result<Verdict, RankError> {
        let verdict = self.lane(lane).and_then(|lane| Ok(lane.checker.verdict(&lane.stream)?));
        self.note(verdict)
    }

    fn guards(&mut self, lane: usize) -> Result<Option<GuardBreach>, RankError> {
        let breach = self.lane(lane).and_then(Lane::guards);
        self.note(breach)
    }

    fn tamper(&mut self, lane: usize, buffer: Buffer, dtype: DType, index: u64, xor: u64) -> Result<(), RankError> {
        let done = self.lane(lane).and_then(|lane| lane.tamper(buffer, dtype, index, xor));
        self.note(done)
    }

    fn launch(&mut self, calls: &[Call<'_>]) -> Result<(), RankError> {
        if self.program.as_ref().is_none_or(|program| !program.is_of(calls)) {
            self.program = None;
            let compiled = self.compile(calls);
            self.program = Some(self.note(compiled)?);
        }
        let issued = self.program.as_ref().map_or(Ok(()), |program| self.issue(program));
        self.note(issued)
    }

    fn fill_early(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        self.fill(lane, region)
    }

    fn delay(&mut self, lane: usize, us: u32) -> Result<(), RankError> {
        let queued = self.lane(lane).and_then(|lane| Ok(lane.stream.sleep(us)?));
        self.note(queued)
    }

    fn begin_capture(&mut self) -> Result<(), RankError> {
        Err(RankError::Unsupported("graphs are not had yet".to_owned()))
    }

    fn end_capture(&mut self) -> Result<(), RankError> {
        Err(RankError::Unsupported("graphs are not had yet".to_owned()))
    }

    fn replay(&mut self) -> Result<(), RankError> {
        Err(RankError::Unsupported("graphs are not had yet".to_owned()))
    }

    fn mark(&mut self) -> Result<(), RankError> {
        let spread = self.spread;
        let marked = self.lanes.iter_mut().try_for_each(|lane| {
            if spread {
                lane.device.context.activate()?;
            }
            lane.mark()
        });
        self.note(marked.map_err(RankError::from))
    }

    fn intervals(&mut self) -> Result<Vec<Vec<f32>>, RankError> {
        self.wait()?;
        let intervals = (0..self.lanes.len()).map(|lane| Ok(self.lane(lane)?.intervals()?)).collect();
        self.note(intervals)
    }

    fn wait(&mut self) -> Result<(), RankError> {
        let waited = self.poll();
        self.note(waited)
    }

    /// Waits end by themselves once the communicator counts as lost. Whoever is inside a call of NCCL's is freed by
    /// ncclCommAbort only, which comes a little later, as a thread that waits closes its communicators better itself.
    fn aborter(&self) -> Aborter {
        let lost = Arc::clone(&self.lost);
        let aborters: Vec<_> = self.lanes.iter().map(|lane| lane.communicator.aborter()).collect();
        Box::new(move || {
            lost.store(true, Ordering::Relaxed);
            std::thread::sleep(ABORT_AFTER);
            aborters.iter().for_each(|abort| abort());
        })
    }
}

impl Drop for NcclStation {
    fn drop(&mut self) {
        let abort = self.lost.load(Ordering::Relaxed) || !self.drained();
        if abort {
            self.lost.store(true, Ordering::Relaxed);
        }
        // All communicators before any buffer: one rank's kernel may still read another's.
        for lane in &mut self.lanes {
            // Without its GPU current NCCL still takes the communicator down.
            let _ = lane.device.context.activate();
            lane.communicator.close(abort);
        }
    }
}

/// Programs have native steps only where the library has the function, so this is never seen.
#[cold]
fn absent(call: &str) -> RankError {
    RankError::Unsupported(format!("the loaded NCCL has no {call}"))
}
