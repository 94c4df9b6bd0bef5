//! all_gather: every rank gets all ranks' blocks, in rank order.

use super::{InPlace, Segment, Shape, Unit, Workload};

pub(super) struct AllGather;

impl Unit for AllGather {
    fn name(&self) -> &'static str {
        "all_gather"
    }

    fn shape(&self, w: &Workload) -> Shape {
        let block = w.block();
        Shape { send: block, recv: block * u64::from(w.ranks), count: block }
    }

    fn in_place(&self, w: &Workload, rank: u32) -> Option<InPlace> {
        Some(InPlace { send: u64::from(rank) * w.block(), recv: 0 })
    }

    fn algbw_bytes(&self, w: &Workload) -> u64 {
        w.block() * u64::from(w.ranks) * w.dtype.size()
    }

    /// A rank receives all blocks but its own: `(n - 1) / n` (nccl-tests, doc/PERFORMANCE.md).
    fn busbw_factor(&self, ranks: u32) -> f64 {
        super::all_but_own(ranks)
    }

    fn expected(&self, w: &Workload, _rank: u32) -> Vec<Segment> {
        super::blocks_of_all_ranks(w)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Source, tests::workload};
    use super::*;

    #[test]
    fn rank_order_and_in_place_offset() {
        let w = workload(64, 4);
        assert_eq!(AllGather.shape(&w), Shape { send: 4, recv: 16, count: 4 });
        assert_eq!(AllGather.in_place(&w, 3), Some(InPlace { send: 12, recv: 0 }));
        assert_eq!(
            AllGather.expected(&w, 0)[2],
            Segment { start: 8, len: 4, source: Source::Rank { rank: 2, element: 0 } }
        );
        assert_eq!(AllGather.busbw_factor(4), 0.75);
    }
}
