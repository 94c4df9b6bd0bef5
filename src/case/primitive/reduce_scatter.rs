//! reduce_scatter: rank r gets block r of the reduction.

use super::{InPlace, Segment, Shape, Source, Unit, Workload};

pub(super) struct ReduceScatter;

impl Unit for ReduceScatter {
    fn name(&self) -> &'static str {
        "reduce_scatter"
    }

    fn reduces(&self) -> bool {
        true
    }

    fn shape(&self, w: &Workload) -> Shape {
        let block = w.block();
        Shape { send: block * u64::from(w.ranks), recv: block, count: block }
    }

    fn in_place(&self, w: &Workload, rank: u32) -> Option<InPlace> {
        Some(InPlace { send: 0, recv: u64::from(rank) * w.block() })
    }

    fn algbw_bytes(&self, w: &Workload) -> u64 {
        w.block() * u64::from(w.ranks) * w.dtype.size()
    }

    /// A rank sends all blocks but its own: `(n - 1) / n` (nccl-tests, doc/PERFORMANCE.md).
    fn busbw_factor(&self, ranks: u32) -> f64 {
        super::all_but_own(ranks)
    }

    fn expected(&self, w: &Workload, rank: u32) -> Vec<Segment> {
        let block = w.block();
        vec![Segment { start: 0, len: block, source: Source::Reduced { element: u64::from(rank) * block } }]
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::workload;
    use super::*;

    #[test]
    fn each_rank_gets_its_own_block() {
        let w = workload(64, 4);
        assert_eq!(ReduceScatter.shape(&w), Shape { send: 16, recv: 4, count: 4 });
        assert_eq!(
            ReduceScatter.expected(&w, 3),
            [Segment { start: 0, len: 4, source: Source::Reduced { element: 12 } }]
        );
        assert_eq!(ReduceScatter.in_place(&w, 3), Some(InPlace { send: 0, recv: 12 }));
    }
}
