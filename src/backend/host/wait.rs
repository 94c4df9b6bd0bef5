//! Waiting for another rank, and giving up.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::memory::Region;
use crate::backend::RankError;

/// Tries in which a waiting rank keeps its core.
const SPINS: u32 = 16;

/// How long a rank that found nothing then offers its core to others, but stays runnable.
const YIELDING: Duration = Duration::from_millis(2);

/// Sleeps after that, doubling from the first to the last: what a hung collective costs is next to nothing.
const FIRST_SLEEP: Duration = Duration::from_micros(50);
const LAST_SLEEP: Duration = Duration::from_millis(1);

/// The abort flag of a communicator. Once raised it stays: what is in the channels then has no meaning any more.
#[derive(Debug, Clone)]
pub struct Abort {
    region: Arc<Region>,
}

impl Abort {
    pub(super) fn new(region: Arc<Region>) -> Abort {
        Abort { region }
    }

    /// Makes every rank that waits, now or later, return [`RankError::Aborted`].
    pub fn raise(&self) {
        if let Some(flag) = self.region.word() {
            flag.store(1, Ordering::Release);
        }
    }

    /// Whether it was raised.
    pub fn raised(&self) -> bool {
        self.region.word().is_some_and(|flag| flag.load(Ordering::Acquire) != 0)
    }

    /// An error once raised.
    pub(super) fn check(&self) -> Result<(), RankError> {
        if self.raised() { Err(RankError::Aborted) } else { Ok(()) }
    }
}

/// Waits of one rank: spins, then yields, then sleeps, as there may be more ranks than cores.
#[derive(Debug)]
pub(super) struct Waiter {
    abort: Abort,
    tries: u32,
    yielding_since: Option<Instant>,
    sleep: Duration,
}

impl Waiter {
    pub(super) fn new(abort: Abort) -> Waiter {
        Waiter { abort, tries: 0, yielding_since: None, sleep: FIRST_SLEEP }
    }

    /// The flag that ends its waits.
    pub(super) fn abort(&self) -> &Abort {
        &self.abort
    }

    /// Something moved: the next wait starts afresh.
    pub(super) fn reset(&mut self) {
        self.tries = 0;
    }

    /// Nothing moved: lets time pass.
    pub(super) fn pause(&mut self) -> Result<(), RankError> {
        self.abort.check()?;
        self.tries = self.tries.saturating_add(1);
        if self.tries <= SPINS {
            std::hint::spin_loop();
            self.yielding_since = None;
            return Ok(());
        }
        let since = *self.yielding_since.get_or_insert_with(Instant::now);
        if since.elapsed() < YIELDING {
            self.sleep = FIRST_SLEEP;
            std::thread::yield_now();
        } else {
            std::thread::sleep(self.sleep);
            self.sleep = (2 * self.sleep).min(LAST_SLEEP);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raised_flag_ends_the_wait_and_stays() {
        let abort = Abort::new(Arc::new(Region::zeroed(64).unwrap()));
        let mut waiter = Waiter::new(abort.clone());
        assert_eq!(waiter.pause(), Ok(()));
        abort.clone().raise();
        assert_eq!(waiter.pause(), Err(RankError::Aborted));
        assert!(abort.raised());
    }

    #[test]
    fn a_long_wait_ends_up_asleep_for_no_longer_than_a_millisecond() {
        let abort = Abort::new(Arc::new(Region::zeroed(64).unwrap()));
        let mut waiter = Waiter::new(abort.clone());
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(20) {
            waiter.pause().unwrap();
        }
        assert_eq!(waiter.sleep, LAST_SLEEP);
        waiter.reset();
        waiter.pause().unwrap();
        assert_eq!(waiter.yielding_since, None);
    }
}
