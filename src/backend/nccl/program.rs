//! What a case makes the ranks of one thread call: phases of steps, ready to be issued.
//!
//! Compiled once for each case and placement, so that a launch is a walk over finished arguments. Pure data movement that
//! NCCL has no collective for is derived from [`Unit::expected`](crate::case::primitive::Unit::expected), by
//! [`transfers`]: who sends what to whom is written nowhere else.

use crate::backend::{Placement, Twist};
use crate::case::primitive::{Direction, InPlace, Transfer, Unit, transfers};
use crate::case::{Primitive, Workload};

/// One call on one lane. Addresses are the device's; counts are elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Step {
    AllReduce {
        send: u64,
        recv: u64,
        count: usize,
    },
    Broadcast {
        send: u64,
        recv: u64,
        count: usize,
        root: i32,
    },
    Reduce {
        send: u64,
        recv: u64,
        count: usize,
        root: i32,
    },
    AllGather {
        send: u64,
        recv: u64,
        count: usize,
    },
    ReduceScatter {
        send: u64,
        recv: u64,
        count: usize,
    },
    Alltoall {
        send: u64,
        recv: u64,
        count: usize,
    },
    Gather {
        send: u64,
        recv: u64,
        count: usize,
        root: i32,
    },
    Scatter {
        send: u64,
        recv: u64,
        count: usize,
        root: i32,
    },
    Send {
        from: u64,
        count: usize,
        peer: i32,
    },
    Recv {
        to: u64,
        count: usize,
        peer: i32,
    },
    /// A copy within the device; `bytes` long.
    Copy {
        from: u64,
        to: u64,
        bytes: usize,
    },
}

/// Which of the younger collectives the library has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Native {
    pub alltoall: bool,
    pub gather: bool,
    pub scatter: bool,
}

impl Native {
    /// None of them.
    pub const NONE: Native = Native { alltoall: false, gather: false, scatter: false };
}

/// A lane as a program sees it: its rank, and the first bytes of its buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Site {
    pub rank: u32,
    pub send: u64,
    pub recv: u64,
}

impl Site {
    /// The same with both buffers' first bytes further back.
    pub fn moved(self, bytes: u64) -> Site {
        Site { rank: self.rank, send: self.send + bytes, recv: self.recv + bytes }
    }
}

/// Steps that may be in flight together. Each phase starts where the one before it has been queued.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Phase {
    /// Steps with their lanes.
    pub steps: Vec<(usize, Step)>,
}

/// Bytes that a placement needs of each buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Extent {
    pub send: u64,
    pub recv: u64,
}

/// What the buffers must hold for `rank`; `None` where the primitive has no such placement.
pub fn extent(unit: &dyn Unit, w: &Workload, placement: Placement, rank: u32) -> Option<Extent> {
    let shape = unit.shape(w);
    let size = w.dtype.size();
    Some(match placement {
        Placement::OutOfPlace => Extent { send: shape.send * size, recv: shape.recv * size },
        Placement::InPlace => {
            let place = unit.in_place(w, rank)?;
            Extent { send: 0, recv: (place.send + shape.send).max(place.recv + shape.recv) * size }
        }
    })
}

/// The phases of all lanes; `None` where the primitive has no such placement. A twisted call is made of sends and receives
/// whatever the library has.
pub fn compile(
    primitive: Primitive,
    w: &Workload,
    placement: Placement,
    native: Native,
    twist: Option<Twist>,
    sites: &[Site],
) -> Option<Vec<Phase>> {
    let native = if twist.is_some() { Native::NONE } else { native };
    let mut phases: Vec<Phase> = Vec::new();
    for (lane, site) in sites.iter().enumerate() {
        for (index, steps) in of_rank(primitive, w, placement, native, twist, site)?.into_iter().enumerate() {
            if phases.len() <= index {
                phases.resize_with(index + 1, Phase::default);
            }
            phases[index].steps.extend(steps.into_iter().map(|step| (lane, step)));
        }
    }
    phases.retain(|phase| !phase.steps.is_empty());
    Some(phases)
}

/// Steps of one or several calls that are issued as one group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Group {
    /// Steps with their call and lane.
    pub steps: Vec<(usize, usize, Step)>,
    /// Whether they must be one group: several NCCL calls of one thread, which may wait for each other.
    pub grouped: bool,
}

/// Puts calls together: the first phases of all calls are one group, then the second ones, and so on. For all primitives of
/// one phase that is one group of all calls; a later phase sends what an earlier one has received. Within a group the calls
/// keep their order on every rank, which is how NCCL tells them apart.
pub fn together(calls: &[Vec<Phase>]) -> Vec<Group> {
    let longest = calls.iter().map(Vec::len).max().unwrap_or(0);
    let mut groups: Vec<Group> = vec![Group::default(); longest];
    for (call, phases) in calls.iter().enumerate() {
        for (group, phase) in groups.iter_mut().zip(phases) {
            group.steps.extend(phase.steps.iter().map(|(lane, step)| (call, *lane, *step)));
        }
    }
    for group in &mut groups {
        group.grouped = group.steps.iter().filter(|(_, _, step)| !matches!(step, Step::Copy { .. })).count() > 1;
    }
    groups
}

/// One rank's steps, phase by phase.
fn of_rank(
    primitive: Primitive,
    w: &Workload,
    placement: Placement,
    native: Native,
    twist: Option<Twist>,
    site: &Site,
) -> Option<Vec<Vec<Step>>> {
    let unit = primitive.unit();
    let size = w.dtype.size();
    let (send, recv) = match placement {
        Placement::OutOfPlace => (site.send, site.recv),
        Placement::InPlace => {
            let InPlace { send, recv } = unit.in_place(w, site.rank)?;
            (site.recv + send * size, site.recv + recv * size)
        }
    };
    let count = unit.shape(w).count as usize;
    let root = w.root as i32;
    let one = |step| vec![vec![step]];
    Some(match primitive {
        Primitive::AllReduce => one(Step::AllReduce { send, recv, count }),
        Primitive::Broadcast => one(Step::Broadcast { send, recv, count, root }),
        Primitive::Reduce => one(Step::Reduce { send, recv, count, root }),
        Primitive::AllGather => one(Step::AllGather { send, recv, count }),
        Primitive::ReduceScatter => one(Step::ReduceScatter { send, recv, count }),
        Primitive::Alltoall if native.alltoall => one(Step::Alltoall { send, recv, count }),
        Primitive::Gather if native.gather => one(Step::Gather { send, recv, count, root }),
        Primitive::Scatter if native.scatter => one(Step::Scatter { send, recv, count, root }),
        Primitive::Alltoall | Primitive::Alltoallv | Primitive::Gather | Primitive::Scatter | Primitive::Sendrecv => {
            vec![exchange(unit, w, twist, site.rank, send, recv)]
        }
        Primitive::Hypercube => hypercube(w, site.rank, send, recv),
    })
}

/// Sends and receives that move every segment from its source to its receiver, but for what `twist` does to them.
fn exchange(unit: &dyn Unit, w: &Workload, twist: Option<Twist>, rank: u32, send: u64, recv: u64) -> Vec<Step> {
    let size = w.dtype.size();
    let step = |transfer: Transfer| {
        let Transfer { direction, peer, start, len } = transfer;
        let count = len as usize;
        Some(match direction {
            Direction::Send => {
                let peer = twist.map_or(Some(peer), |twist| twist.send(rank, peer))?;
                Step::Send { from: send + start * size, count, peer: peer as i32 }
            }
            Direction::Recv => {
                let peer = twist.map_or(Some(peer), |twist| twist.recv(rank, peer))?;
                Step::Recv { to: recv + start * size, count, peer: peer as i32 }
            }
        })
    };
    transfers(unit, w, rank).into_iter().filter_map(step).collect()
}

/// The own block is copied to its place; then, dimension by dimension, a rank swaps all blocks it has with the rank
/// whose number differs in that bit. A dimension sends what the one before it received, so each is a phase.
fn hypercube(w: &Workload, rank: u32, send: u64, recv: u64) -> Vec<Vec<Step>> {
    let block = w.block();
    let bytes = block * w.dtype.size();
    let at = |rank: u32| recv + u64::from(rank) * bytes;
    let copy = Step::Copy { from: send, to: at(rank), bytes: bytes as usize };
    let mut phases = vec![if send == at(rank) { Vec::new() } else { vec![copy] }];
    let mut width = 1;
    while width < w.ranks {
        let own = rank & !(width - 1);
        let peer = (rank ^ width) as i32;
        let count = block as usize * width as usize;
        phases.push(vec![Step::Send { from: at(own), count, peer }, Step::Recv { to: at(own ^ width), count, peer }]);
        width *= 2;
    }
    phases
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
