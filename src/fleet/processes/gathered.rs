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

/// One meeting.
pub(super) struct Round {
    here: Gathered<()>,
    well: bool,
    unwell_since: Option<Instant>,
}

impl Round {
    pub(super) fn new(ranks: u32) -> Round {
        Round { here: Gathered::new(ranks), well: true, unwell_since: None }
    }

    /// Whether all are well, once all are here.
    pub(super) fn arrive(&mut self, rank: u32, well: bool) -> Option<bool> {
        self.here.put(rank, ());
        self.well &= well;
        if !self.here.complete() {
            if !well {
                self.unwell_since.get_or_insert_with(Instant::now);
            }
            return None;
        }
        self.here.take();
        self.unwell_since = None;
        Some(std::mem::replace(&mut self.well, true))
    }

    pub(super) fn arrived(&self) -> Vec<u32> {
        (0..).zip(&self.here.places).filter(|(_, here)| here.is_some()).map(|(rank, _)| rank).collect()
    }

    pub(super) fn unwell_for(&self) -> Option<Duration> {
        self.unwell_since.map(|since| since.elapsed())
    }
}
