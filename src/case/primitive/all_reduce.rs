//! all_reduce: every rank gets the reduction of all ranks' buffers.

use super::{InPlace, Segment, Shape, Source, Unit, Workload};

pub(super) struct AllReduce;

impl Unit for AllReduce {
    fn name(&self) -> &'static str {
        "all_reduce"
    }

    fn reduces(&self) -> bool {
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

    /// A ring sends each element `n - 1` times to reduce it and `n - 1` times to spread it, over `n` ranks:
    /// `2 (n - 1) / n` (nccl-tests, doc/PERFORMANCE.md).
    fn busbw_factor(&self, ranks: u32) -> f64 {
        2.0 * super::all_but_own(ranks)
    }

    fn expected(&self, w: &Workload, _rank: u32) -> Vec<Segment> {
        vec![Segment { start: 0, len: w.elements(), source: Source::Reduced { element: 0 } }]
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::workload;
    use super::*;

    #[test]
    fn busbw_of_eight_ranks_is_seven_quarters_of_algbw() {
        assert_eq!(AllReduce.busbw_factor(8), 1.75);
        assert_eq!(AllReduce.busbw_factor(1), 0.0);
        assert_eq!(AllReduce.shape(&workload(1 << 20, 8)), Shape { send: 1 << 18, recv: 1 << 18, count: 1 << 18 });
    }
}
