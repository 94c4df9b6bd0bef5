//! The eleven collectives. Each is one unit in a file of its own: counts, placement, semantics, busbw formula, test.
//!
//! The conventions (size, count, placement, busbw) are nccl-tests', so that figures compare. With `N` = bytes / element
//! size and `n` ranks, gather-like primitives move blocks of `A = N / n` elements, see [`Workload::block`].

mod all_gather;
mod all_reduce;
mod alltoall;
mod alltoallv;
mod broadcast;
mod gather;
mod hypercube;
mod reduce;
mod reduce_scatter;
mod scatter;
mod sendrecv;
mod transfers;

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

use super::{DType, Unknown};

pub use transfers::{Direction, Transfer, transfers};

/// A collective, named as nccl-tests names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Primitive {
    AllReduce,
    AllGather,
    ReduceScatter,
    Broadcast,
    Reduce,
    Alltoall,
    Alltoallv,
    Scatter,
    Gather,
    Sendrecv,
    Hypercube,
}

impl Primitive {
    /// All of them, in the order of suites and reports.
    pub const ALL: [Primitive; 11] = [
        Primitive::AllReduce,
        Primitive::AllGather,
        Primitive::ReduceScatter,
        Primitive::Broadcast,
        Primitive::Reduce,
        Primitive::Alltoall,
        Primitive::Alltoallv,
        Primitive::Scatter,
        Primitive::Gather,
        Primitive::Sendrecv,
        Primitive::Hypercube,
    ];

    /// The unit that defines it.
    pub fn unit(self) -> &'static dyn Unit {
        match self {
            Primitive::AllReduce => &all_reduce::AllReduce,
            Primitive::AllGather => &all_gather::AllGather,
            Primitive::ReduceScatter => &reduce_scatter::ReduceScatter,
            Primitive::Broadcast => &broadcast::Broadcast,
            Primitive::Reduce => &reduce::Reduce,
            Primitive::Alltoall => &alltoall::Alltoall,
            Primitive::Alltoallv => &alltoallv::Alltoallv,
            Primitive::Scatter => &scatter::Scatter,
            Primitive::Gather => &gather::Gather,
            Primitive::Sendrecv => &sendrecv::Sendrecv,
            Primitive::Hypercube => &hypercube::Hypercube,
        }
    }

    /// The name in case names and reports.
    pub fn name(self) -> &'static str {
        self.unit().name()
    }

    /// Whether it is one group of sends and receives, where a library has no function for the whole: see [`transfers`].
    pub const fn is_exchange(self) -> bool {
        use Primitive::{Alltoall, Alltoallv, Gather, Scatter, Sendrecv};
        matches!(self, Alltoall | Alltoallv | Gather | Scatter | Sendrecv)
    }

    /// Whether its counts differ with and without rounding down to 16 bytes, asked of the unit itself.
    pub fn rounds_counts(self) -> bool {
        // 333 bytes for each of three ranks: no multiple of 16
        let rounded = Workload { bytes: 999, dtype: DType::Int8, ranks: 3, root: 0, aligned: true };
        self.unit().shape(&rounded) != self.unit().shape(&Workload { aligned: false, ..rounded })
    }
}

impl fmt::Display for Primitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Primitive {
    type Err = Unknown;

    fn from_str(s: &str) -> Result<Self, Unknown> {
        let wanted = s.to_ascii_lowercase();
        Primitive::ALL
            .into_iter()
            .find(|p| p.name() == wanted)
            .ok_or_else(|| Unknown::new("primitive", s, Primitive::ALL.map(Primitive::name)))
    }
}

/// One case as `ranks` ranks carry it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The size asked for.
    pub bytes: u64,
    /// The element type.
    pub dtype: DType,
    /// Ranks of the communicator, at least one.
    pub ranks: u32,
    /// The root, where the primitive has one.
    pub root: u32,
    /// Blocks are whole multiples of 16 bytes, as in nccl-tests.
    pub aligned: bool,
}

impl Workload {
    /// `N`: elements in the size asked for, at least one.
    pub fn elements(&self) -> u64 {
        (self.bytes / self.dtype.size()).max(1)
    }

    /// `A`: elements of one rank's block, `N / n`; rounded down to a multiple of 16 bytes where `aligned` and large enough.
    ///
    /// Where nccl-tests would round to zero and measure nothing, the block keeps at least one element.
    pub fn block(&self) -> u64 {
        self.align((self.elements() / u64::from(self.ranks)).max(1))
    }

    /// Rounds a block down to 16 bytes, unless that would leave nothing of it.
    pub fn align(&self, elements: u64) -> u64 {
        let pack = 16 / self.dtype.size();
        if self.aligned && elements > pack { elements - elements % pack } else { elements }
    }
}

/// Elements that one rank passes and gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Elements of the send buffer.
    pub send: u64,
    /// Elements of the receive buffer.
    pub recv: u64,
    /// The count argument: nccl-tests' count column.
    pub count: u64,
}

/// Where send and receive data lie in the one buffer of an in-place call, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InPlace {
    /// Start of the data sent.
    pub send: u64,
    /// Start of the data received.
    pub recv: u64,
}

/// Elements of a rank's receive buffer that come from one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First element in the receive buffer.
    pub start: u64,
    /// Number of elements.
    pub len: u64,
    /// Where they come from.
    pub source: Source,
}

/// What an output element is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The reduction over all ranks of element `element` (and following) of their send buffers.
    Reduced {
        /// First element in the send buffers.
        element: u64,
    },
    /// A copy of `rank`'s send buffer from `element` on.
    Rank {
        /// Who sent it.
        rank: u32,
        /// First element in that rank's send buffer.
        element: u64,
    },
}

/// One collective: all that the rest of collcheck knows of it.
///
/// Semantics are stated as [`Segment`]s: the checker, the poison and the forensics need nothing else.
pub trait Unit: Sync {
    /// The name in case names and reports.
    fn name(&self) -> &'static str;

    /// Whether it reduces, and so takes an op.
    fn reduces(&self) -> bool {
        false
    }

    /// Whether it has a root.
    fn rooted(&self) -> bool {
        false
    }

    /// Why it cannot run with this many ranks, if so.
    fn refuses(&self, _ranks: u32) -> Option<String> {
        None
    }

    /// Counts and buffer sizes; the same on every rank.
    fn shape(&self, w: &Workload) -> Shape;

    /// Whether `rank` passes data.
    fn sends(&self, _w: &Workload, _rank: u32) -> bool {
        true
    }

    /// How an in-place call lays out `rank`'s one buffer; `None` where there is no in-place form.
    fn in_place(&self, w: &Workload, rank: u32) -> Option<InPlace>;

    /// The bytes that algbw divides by the time.
    fn algbw_bytes(&self, w: &Workload) -> u64;

    /// busbw / algbw: the share of `algbw_bytes` that must cross the slowest link for n ranks.
    fn busbw_factor(&self, ranks: u32) -> f64;

    /// What `rank` must find in its receive buffer; elements in no segment must stay untouched.
    fn expected(&self, w: &Workload, rank: u32) -> Vec<Segment>;
}

/// `(n - 1) / n`, the busbw factor of primitives in which a rank keeps its own block.
fn all_but_own(ranks: u32) -> f64 {
    f64::from(ranks - 1) / f64::from(ranks)
}

/// All ranks' blocks in rank order, as all_gather, gather and hypercube deliver them.
fn blocks_of_all_ranks(w: &Workload) -> Vec<Segment> {
    let block = w.block();
    (0..w.ranks)
        .map(|rank| Segment { start: u64::from(rank) * block, len: block, source: Source::Rank { rank, element: 0 } })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn workload(bytes: u64, ranks: u32) -> Workload {
        Workload { bytes, dtype: DType::Float, ranks, root: 0, aligned: true }
    }

    /// What every unit owes: segments in order, without overlap, inside the buffers of all ranks, for any count.
    #[test]
    fn segments_tile_the_receive_buffer_and_read_inside_the_send_buffers() {
        for primitive in Primitive::ALL {
            let unit = primitive.unit();
            for ranks in [1u32, 2, 3, 4, 7, 8, 64] {
                if unit.refuses(ranks).is_some() {
                    continue;
                }
                for bytes in [1u64, 8, 60, 64, 1000, 4096, 100_003] {
                    for dtype in DType::ALL {
                        for aligned in [true, false] {
                            let w = Workload { bytes, dtype, ranks, root: ranks - 1, aligned };
                            let shape = unit.shape(&w);
                            for rank in 0..ranks {
                                let mut end = 0;
                                for s in unit.expected(&w, rank) {
                                    assert_eq!(s.start, end, "{primitive} {w:?} rank {rank}");
                                    assert!(s.len > 0);
                                    end = s.start + s.len;
                                    let from = match s.source {
                                        Source::Reduced { element } => element,
                                        Source::Rank { rank, element } => {
                                            assert!(unit.sends(&w, rank), "{primitive}: rank {rank} sends nothing");
                                            element
                                        }
                                    };
                                    assert!(from + s.len <= shape.send, "{primitive} {w:?} rank {rank}");
                                }
                                assert!(end == 0 || end == shape.recv, "{primitive} {w:?} rank {rank}");
                                if let Some(place) = unit.in_place(&w, rank) {
                                    let one = shape.send.max(shape.recv);
                                    assert!(place.send + shape.send <= one && place.recv + shape.recv <= one);
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn names_read_back() {
        for p in Primitive::ALL {
            assert_eq!(p.name().parse::<Primitive>().ok(), Some(p));
        }
    }
}
