//! gather: the root gets all ranks' blocks, in rank order.

use super::{InPlace, Segment, Shape, Unit, Workload};

pub(super) struct Gather;

impl Unit for Gather {
    fn name(&self) -> &'static str {
        "gather"
    }

    fn rooted(&self) -> bool {
        true
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

    /// The root receives all blocks but its own: `(n - 1) / n` (nccl-tests, src/gather.cu).
    fn busbw_factor(&self, ranks: u32) -> f64 {
        super::all_but_own(ranks)
    }

    fn expected(&self, w: &Workload, rank: u32) -> Vec<Segment> {
        if rank == w.root { super::blocks_of_all_ranks(w) } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::workload;
    use super::*;

    #[test]
    fn only_the_root_receives_all_blocks() {
        let w = Workload { root: 1, ..workload(64, 4) };
        assert_eq!(Gather.expected(&w, 1).len(), 4);
        assert!(Gather.expected(&w, 0).is_empty());
    }
}
