//! Where the workers of one process meet.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::worker::Meeting;

/// How long one who waits stays awake, where each thread can have a core: most come within a few microseconds of each other,
/// and to be woken takes some fifty.
const AWAKE: Duration = Duration::from_micros(50);

/// A meeting of threads.
pub struct Place {
    state: Mutex<State>,
    /// The state's round, to be seen without the lock.
    round: AtomicU64,
    changed: Condvar,
    size: usize,
    awake: bool,
}

#[derive(Default)]
struct State {
    arrived: usize,
    well: bool,
    round: u64,
    verdict: bool,
    /// Since when somebody who is not well waits for the others.
    unwell_since: Option<Instant>,
    /// Nobody waits here any more.
    closed: bool,
}

impl Place {
    /// For so many workers.
    pub fn new(size: usize) -> Place {
        let state = Mutex::new(State { well: true, ..State::default() });
        let awake = std::thread::available_parallelism().is_ok_and(|cores| cores.get() > size);
        Place { state, round: AtomicU64::new(0), changed: Condvar::new(), size, awake }
    }

    /// Lets all go who wait, now or later: not all will come.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// How long one who is not well has been waiting for the others, who may be held up because of it.
    pub fn unwell_for(&self) -> Option<Duration> {
        self.lock().unwell_since.map(|since| since.elapsed())
    }

    /// Waits for the end of a round, for a short while.
    fn stay_awake(&self, round: u64) {
        let end = Instant::now() + AWAKE;
        while self.round.load(Ordering::Acquire) == round && Instant::now() < end {
            std::hint::spin_loop();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Meeting for Place {
    fn all_well(&self, well: bool) -> bool {
        let mut state = self.lock();
        if state.closed {
            return false;
        }
        state.arrived += 1;
        state.well &= well;
        if state.arrived == self.size {
            let verdict = state.well;
            *state = State { well: true, verdict, round: state.round + 1, ..State::default() };
            self.round.store(state.round, Ordering::Release);
            self.changed.notify_all();
            return verdict;
        }
        if !well {
            state.unwell_since.get_or_insert_with(Instant::now);
        }
        let round = state.round;
        if self.awake {
            drop(state);
            self.stay_awake(round);
            state = self.lock();
        }
        while state.round == round && !state.closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.round != round && state.verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(place: &Place, bad: Option<usize>, came: usize) -> Vec<bool> {
        std::thread::scope(|s| {
            let threads: Vec<_> = (0..came).map(|i| s.spawn(move || place.all_well(Some(i) != bad))).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        })
    }

    #[test]
    fn one_that_is_not_well_is_known_to_all_and_forgotten_in_the_next_round() {
        let place = Place::new(3);
        for bad in [Some(1), None, Some(0)] {
            assert_eq!(verdicts(&place, bad, 3), [bad.is_none(); 3]);
            assert_eq!(place.unwell_for(), None);
        }
    }

    #[test]
    fn closing_frees_those_who_wait_and_those_who_come_later() {
        let place = Place::new(3);
        std::thread::scope(|s| {
            let two = s.spawn(|| verdicts(&place, Some(0), 2));
            while place.unwell_for().is_none() {
                std::thread::yield_now();
            }
            place.close();
            assert_eq!(two.join().unwrap(), [false, false]);
        });
        assert!(!place.all_well(true));
    }
}
