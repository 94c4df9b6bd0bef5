//! alltoallv: an alltoall in which a rank sends more to ranks further away.
//!
//! nccl-tests' generated pattern: the block from i to j is proportional to the distance `(j - i) mod n`, so that nothing
//! goes to oneself and every rank sends and receives the same total.

use super::{InPlace, Segment, Shape, Source, Unit, Workload};

pub(super) struct Alltoallv;

impl Alltoallv {
    /// Elements from a rank to the one `distance` further on.
    pub(super) fn block(w: &Workload, distance: u32) -> u64 {
        let n = u128::from(w.ranks);
        if n == 1 {
            return w.align(w.block());
        }
        if distance == 0 {
            return 0;
        }
        let total = u128::from(w.block()) * n;
        let share = total * 2 * u128::from(distance) / (n * (n - 1));
        // `share` is below `total`, which fits.
        w.align((share as u64).max(1))
    }

    /// Elements that a rank sends in front of its block for the rank `distance` further on, blocks lying in rank order
    /// of the receiver.
    fn before(w: &Workload, sender: u32, receiver: u32) -> u64 {
        (0..receiver).map(|to| Self::block(w, distance(w, sender, to))).sum()
    }
}

fn distance(w: &Workload, from: u32, to: u32) -> u32 {
    (to + w.ranks - from) % w.ranks
}

impl Unit for Alltoallv {
    fn name(&self) -> &'static str {
        "alltoallv"
    }

    fn shape(&self, w: &Workload) -> Shape {
        let total = (0..w.ranks).map(|d| Self::block(w, d)).sum();
        Shape { send: total, recv: total, count: w.block() }
    }

    fn in_place(&self, _w: &Workload, _rank: u32) -> Option<InPlace> {
        None
    }

    fn algbw_bytes(&self, w: &Workload) -> u64 {
        self.shape(w).send * w.dtype.size()
    }

    /// `(n - 1) / n`, as nccl-tests has it (src/alltoallv.cu), although nothing goes to oneself: figures must compare.
    fn busbw_factor(&self, ranks: u32) -> f64 {
        super::all_but_own(ranks)
    }

    fn expected(&self, w: &Workload, rank: u32) -> Vec<Segment> {
        let mut start = 0;
        (0..w.ranks)
            .map(|from| {
                let len = Self::block(w, distance(w, from, rank));
                let segment =
                    Segment { start, len, source: Source::Rank { rank: from, element: Self::before(w, from, rank) } };
                start += len;
                segment
            })
            .filter(|s| s.len > 0)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::workload;
    use super::*;

    #[test]
    fn every_rank_sends_and_receives_the_same_and_further_ranks_get_more() {
        let w = workload(96 << 10, 4);
        for rank in 0..4 {
            let got: u64 = Alltoallv.expected(&w, rank).iter().map(|s| s.len).sum();
            assert_eq!(got, Alltoallv.shape(&w).recv);
        }
        let blocks: Vec<u64> = (0..4).map(|d| Alltoallv::block(&w, d)).collect();
        assert_eq!(blocks, [0, 4096, 8192, 12288]);
    }
}
