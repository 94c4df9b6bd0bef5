//! scatter: rank r gets block r of the root's buffer.

use super::{InPlace, Segment, Shape, Source, Unit, Workload};

pub(super) struct Scatter;

impl Unit for Scatter {
    fn name(&self) -> &'static str {
        "scatter"
    }

    fn rooted(&self) -> bool {
        true
    }

    fn shape(&self, w: &Workload) -> Shape {
        let block = w.block();
        Shape { send: block * u64::from(w.ranks), recv: block, count: block }
    }

    fn sends(&self, w: &Workload, rank: u32) -> bool {
        rank == w.root
    }

    fn in_place(&self, w: &Workload, rank: u32) -> Option<InPlace> {
        Some(InPlace { send: 0, recv: u64::from(rank) * w.block() })
    }

    fn algbw_bytes(&self, w: &Workload) -> u64 {
        w.block() * u64::from(w.ranks) * w.dtype.size()
    }

    /// The root sends all blocks but its own: `(n - 1) / n` (nccl-tests, src/scatter.cu).
    fn busbw_factor(&self, ranks: u32) -> f64 {
        super::all_but_own(ranks)
    }

    fn expected(&self, w: &Workload, rank: u32) -> Vec<Segment> {
        let block = w.block();
        let source = Source::Rank { rank: w.root, element: u64::from(rank) * block };
        vec![Segment { start: 0, len: block, source }]
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::workload;
    use super::*;

    #[test]
    fn a_rank_gets_its_block_of_the_root() {
        let w = Workload { root: 3, ..workload(64, 4) };
        assert_eq!(
            Scatter.expected(&w, 2),
            [Segment { start: 0, len: 4, source: Source::Rank { rank: 3, element: 8 } }]
        );
        assert_eq!(Scatter.busbw_factor(4), 0.75);
    }
}
