//! sendrecv: a ring; every rank sends its buffer to the next rank and receives the previous one's.

use super::{InPlace, Segment, Shape, Source, Unit, Workload};

pub(super) struct Sendrecv;

impl Unit for Sendrecv {
    fn name(&self) -> &'static str {
        "sendrecv"
    }

    fn shape(&self, w: &Workload) -> Shape {
        let n = w.elements();
        Shape { send: n, recv: n, count: n }
    }

    fn in_place(&self, _w: &Workload, _rank: u32) -> Option<InPlace> {
        None
    }

    fn algbw_bytes(&self, w: &Workload) -> u64 {
        w.elements() * w.dtype.size()
    }

    /// The whole buffer crosses each link once: 1 (nccl-tests, src/sendrecv.cu).
    fn busbw_factor(&self, _ranks: u32) -> f64 {
        1.0
    }

    fn expected(&self, w: &Workload, rank: u32) -> Vec<Segment> {
        let previous = (rank + w.ranks - 1) % w.ranks;
        vec![Segment { start: 0, len: w.elements(), source: Source::Rank { rank: previous, element: 0 } }]
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::workload;
    use super::*;

    #[test]
    fn rank_zero_receives_from_the_last_rank() {
        let w = workload(64, 4);
        assert_eq!(
            Sendrecv.expected(&w, 0),
            [Segment { start: 0, len: 16, source: Source::Rank { rank: 3, element: 0 } }]
        );
    }
}
