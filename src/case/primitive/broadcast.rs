//! broadcast: every rank gets the root's buffer.

use super::{InPlace, Segment, Shape, Source, Unit, Workload};

pub(super) struct Broadcast;

impl Unit for Broadcast {
    fn name(&self) -> &'static str {
        "broadcast"
    }

    fn rooted(&self) -> bool {
        true
    }

    fn shape(&self, w: &Workload) -> Shape {
        let n = w.elements();
        Shape { send: n, recv: n, count: n }
    }

    fn sends(&self, w: &Workload, rank: u32) -> bool {
        rank == w.root
    }

    fn in_place(&self, _w: &Workload, _rank: u32) -> Option<InPlace> {
        Some(InPlace { send: 0, recv: 0 })
    }

    fn algbw_bytes(&self, w: &Workload) -> u64 {
        w.elements() * w.dtype.size()
    }

    /// The root's buffer crosses the link out of it once: 1 (nccl-tests, doc/PERFORMANCE.md).
    fn busbw_factor(&self, _ranks: u32) -> f64 {
        1.0
    }

    fn expected(&self, w: &Workload, _rank: u32) -> Vec<Segment> {
        vec![Segment { start: 0, len: w.elements(), source: Source::Rank { rank: w.root, element: 0 } }]
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::workload;
    use super::*;

    #[test]
    fn all_ranks_get_what_the_root_sends() {
        let w = Workload { root: 2, ..workload(64, 4) };
        assert_eq!(
            Broadcast.expected(&w, 1),
            [Segment { start: 0, len: 16, source: Source::Rank { rank: 2, element: 0 } }]
        );
        assert!(Broadcast.sends(&w, 2) && !Broadcast.sends(&w, 0));
    }
}
