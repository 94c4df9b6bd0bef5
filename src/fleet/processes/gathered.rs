//! What is awaited of every rank: its count is kept, so that a message costs the same however many ranks there are.

use std::time::{Duration, Instant};

/// One thing from each rank.
pub(super) struct Gathered<T> {
    pub(super) places: Vec<Option<T>>,
    missing: usize,
}

impl<T> Gathered<T> {
    pub(super) fn new(ranks: u32) -> Gathered<T> {
        let places: Vec<Option<T>> = (0..ranks).map(|_| None).collect();
        Gathered { missing: places.len(), places }
    }

    /// A later one replaces an earlier one.
    pub(super) fn put(&mut self, rank: u32, thing: T) {
        if let Some(place) = self.places.get_mut(rank as usize)
            && place.replace(thing).is_none()
        {
            self.missing -= 1;
        }
    }

    pub(super) fn complete(&self) -> bool {
        self.missing == 0
    }

    /// All that have come, in the order of ranks; it is empty then.
    pub(super) fn take(&mut self) -> Vec<T> {
        self.missing = self.places.len();
        self.places.iter_mut().filter_map(Option::take).collect()
    }
}

/// One meeting. Those of one host may come together, with one of them to speak.
pub(super) struct Round {
    ranks: u32,
    here: u32,
    speakers: Vec<u32>,
    well: bool,
    unwell_since: Option<Instant>,
}

impl Round {
    pub(super) fn new(ranks: u32) -> Round {
        Round { ranks, here: 0, speakers: Vec::new(), well: true, unwell_since: None }
    }

    /// `speaker` comes with `together` ranks, itself among them. Once all are here: who waits for the answer, and whether all
    /// are well.
    pub(super) fn arrive(&mut self, speaker: u32, together: u32, well: bool) -> Option<(Vec<u32>, bool)> {
        self.speakers.push(speaker);
        self.here = self.here.saturating_add(together);
        self.well &= well;
        if self.here < self.ranks {
            if !well {
                self.unwell_since.get_or_insert_with(Instant::now);
            }
            return None;
        }
        let all = std::mem::replace(self, Round::new(self.ranks));
        Some((all.speakers, all.well))
    }

    /// Who waits for the answer.
    pub(super) fn speakers(&self) -> &[u32] {
        &self.speakers
    }

    pub(super) fn unwell_for(&self) -> Option<Duration> {
        self.unwell_since.map(|since| since.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meeting_ends_when_all_ranks_are_here_whether_alone_or_together() {
        let mut round = Round::new(6);
        for _ in 0..2 {
            assert_eq!(round.arrive(1, 3, true), None);
            assert_eq!(round.arrive(4, 1, false), None);
            assert!(round.unwell_for().is_some());
            assert_eq!(round.arrive(3, 1, true), None);
            assert_eq!(round.speakers(), [1, 4, 3]);
            assert_eq!(round.arrive(5, 1, true), Some((vec![1, 4, 3, 5], false)));
            assert_eq!((round.unwell_for(), round.speakers()), (None, &[][..]));
            assert_eq!(round.arrive(0, 6, true), Some((vec![0], true)));
        }
    }
}
