//! hypercube: an all_gather by pairwise exchange over the dimensions of a hypercube.

use super::{InPlace, Segment, Shape, Unit, Workload};

pub(super) struct Hypercube;

impl Unit for Hypercube {
    fn name(&self) -> &'static str {
        "hypercube"
    }

    fn refuses(&self, ranks: u32) -> Option<String> {
        (!ranks.is_power_of_two()).then(|| format!("hypercube needs a power of two of ranks, not {ranks}"))
    }

    fn shape(&self, w: &Workload) -> Shape {
        let block = w.block();
        Shape { send: block, recv: block * u64::from(w.ranks), count: block }
    }

    fn in_place(&self, w: &Workload, rank: u32) -> Option<InPlace> {
        Some(InPlace { send: u64::from(rank) * w.block(), recv: 0 })
    }

    /// Only what is exchanged counts: `A (n - 1)` elements (nccl-tests, src/hypercube.cu).
    fn algbw_bytes(&self, w: &Workload) -> u64 {
        w.block() * u64::from(w.ranks - 1) * w.dtype.size()
    }

    /// 1, as algbw already leaves the own block out (nccl-tests, src/hypercube.cu).
    fn busbw_factor(&self, _ranks: u32) -> f64 {
        1.0
    }

    fn expected(&self, w: &Workload, _rank: u32) -> Vec<Segment> {
        super::blocks_of_all_ranks(w)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::workload;
    use super::*;

    #[test]
    fn algbw_leaves_the_own_block_out_and_odd_ranks_are_refused() {
        let w = workload(64, 4);
        assert_eq!(Hypercube.algbw_bytes(&w), 48);
        assert!(Hypercube.refuses(6).is_some() && Hypercube.refuses(8).is_none());
    }
}
