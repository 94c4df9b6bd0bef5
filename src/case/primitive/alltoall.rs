//! alltoall: rank r gets block r of every rank, in rank order.

use super::{InPlace, Segment, Shape, Source, Unit, Workload};

pub(super) struct Alltoall;

impl Unit for Alltoall {
    fn name(&self) -> &'static str {
        "alltoall"
    }

    fn shape(&self, w: &Workload) -> Shape {
        let block = w.block();
        let all = block * u64::from(w.ranks);
        Shape { send: all, recv: all, count: block }
    }

    fn in_place(&self, _w: &Workload, _rank: u32) -> Option<InPlace> {
        None
    }

    fn algbw_bytes(&self, w: &Workload) -> u64 {
        w.block() * u64::from(w.ranks) * w.dtype.size()
    }

    /// A rank sends all blocks but the one to itself: `(n - 1) / n` (nccl-tests, src/alltoall.cu).
    fn busbw_factor(&self, ranks: u32) -> f64 {
        super::all_but_own(ranks)
    }

    fn expected(&self, w: &Workload, rank: u32) -> Vec<Segment> {
        let block = w.block();
        (0..w.ranks)
            .map(|from| Segment {
                start: u64::from(from) * block,
                len: block,
                source: Source::Rank { rank: from, element: u64::from(rank) * block },
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::workload;
    use super::*;

    #[test]
    fn a_rank_gets_its_block_of_every_rank() {
        let w = workload(64, 4);
        assert_eq!(
            Alltoall.expected(&w, 1)[3],
            Segment { start: 12, len: 4, source: Source::Rank { rank: 3, element: 4 } }
        );
        assert_eq!(Alltoall.in_place(&w, 0), None);
    }
}
