//! reduce: the root gets the reduction of all ranks' buffers.

use super::{InPlace, Segment, Shape, Source, Unit, Workload};

pub(super) struct Reduce;

impl Unit for Reduce {
    fn name(&self) -> &'static str {
        "reduce"
    }

    fn reduces(&self) -> bool {
        true
    }

    fn rooted(&self) -> bool {
        true
    }

    fn shape(&self, w: &Workload) -> Shape {
        let n = w.elements();
        Shape { send: n, recv: n, count: n }
    }

    fn in_place(&self, _w: &Workload, _rank: u32) -> Option<InPlace> {
        Some(InPlace { send: 0, recv: 0 })
    }

    fn algbw_bytes(&self, w: &Workload) -> u64 {
        w.elements() * w.dtype.size()
    }

    /// Each element crosses the link into the root once: 1 (nccl-tests, doc/PERFORMANCE.md).
    fn busbw_factor(&self, _ranks: u32) -> f64 {
        1.0
    }

    fn expected(&self, w: &Workload, rank: u32) -> Vec<Segment> {
        if rank != w.root {
            return Vec::new();
        }
        vec![Segment { start: 0, len: w.elements(), source: Source::Reduced { element: 0 } }]
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::workload;
    use super::*;

    #[test]
    fn only_the_root_receives() {
        let w = Workload { root: 1, ..workload(64, 4) };
        assert_eq!(Reduce.expected(&w, 1).len(), 1);
        assert!(Reduce.expected(&w, 0).is_empty());
    }
}
