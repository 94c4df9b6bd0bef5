//! A thread of a rank's own that works beside the one that drives the station, as a second stream does.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::wait::Abort;
use crate::backend::RankError;

/// How often one who waits looks whether the thread lives.
const LOOK: Duration = Duration::from_millis(20);

/// How long work in flight has to end when the station is dropped, before the communicator is aborted.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often who sleeps looks whether the communicator was aborted.
const NAP: Duration = Duration::from_millis(5);

/// Something to be done.
pub(super) type Job = Box<dyn FnOnce() -> Result<(), RankError> + Send>;

/// The thread, and what it has to do. Jobs are done in order; after one that fails the others are dropped until that was
/// told.
#[derive(Debug)]
pub(super) struct Side {
    jobs: Option<Sender<Job>>,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
    abort: Abort,
}

#[derive(Debug, Default)]
struct State {
    open: Mutex<Open>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Open {
    jobs: u64,
    failed: Option<RankError>,
}

impl State {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, jobs: &Receiver<Job>) {
        for job in jobs {
            let skip = self.open().failed.is_some();
            let done = if skip { Ok(()) } else { job() };
            let mut open = self.open();
            open.jobs = open.jobs.saturating_sub(1);
            open.failed = open.failed.take().or(done.err());
            self.changed.notify_all();
        }
    }
}

impl Side {
    /// Starts the thread.
    pub(super) fn new(rank: u32, abort: &Abort) -> Result<Side, RankError> {
        let (jobs, queue) = channel();
        let state = Arc::new(State::default());
        let own = Arc::clone(&state);
        let thread = std::thread::Builder::new().name(format!("beside rank {rank}")).spawn(move || own.work(&queue));
        let thread = thread.map_err(|e| broken(e.to_string()))?;
        Ok(Side { jobs: Some(jobs), state, thread: Some(thread), abort: abort.clone() })
    }

    /// Queues a job.
    pub(super) fn push(&self, job: Job) -> Result<(), RankError> {
        self.state.open().jobs += 1;
        match self.jobs.as_ref().map(|jobs| jobs.send(job)) {
            Some(Ok(())) => Ok(()),
            _ => Err(broken("its thread has ended".to_owned())),
        }
    }

    /// Waits until all jobs are done, and returns what the first that failed said. An abort ends jobs, and so this.
    pub(super) fn wait(&self) -> Result<(), RankError> {
        let mut open = self.state.open();
        while open.jobs > 0 {
            if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
                return Err(broken("its thread has ended".to_owned()));
            }
            let waited = self.state.changed.wait_timeout(open, LOOK);
            open = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(open, _)| open);
        }
        open.failed.take().map_or(Ok(()), Err)
    }

    /// Whether all jobs are done before patience ends.
    fn drained(&self) -> bool {
        let end = Instant::now() + PATIENCE;
        while self.state.open().jobs > 0 {
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(NAP);
        }
        true
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.jobs = None;
        if !self.drained() {
            self.abort.raise();
        }
        if let Some(thread) = self.thread.take() {
            // An error is a panic, which has been told.
            let _ = thread.join();
        }
    }
}

fn broken(message: String) -> RankError {
    RankError::Broken { call: "work beside the rank's thread".to_owned(), message }
}

/// Sleeps, unless the communicator is aborted.
pub(super) fn sleep(us: u32, abort: &Abort) -> Result<(), RankError> {
    let end = Instant::now() + Duration::from_micros(us.into());
    loop {
        abort.check()?;
        let rest = end.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Ok(());
        }
        std::thread::sleep(rest.min(NAP));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::super::memory::Region;
    use super::*;

    fn side() -> (Side, Abort) {
        let abort = Abort::new(Arc::new(Region::zeroed(64).unwrap()));
        (Side::new(0, &abort).unwrap(), abort)
    }

    #[test]
    fn jobs_are_done_in_order_and_after_a_failure_none_until_it_is_told() {
        let (side, _) = side();
        let sum = Arc::new(AtomicU32::new(0));
        let push = |add: u32, result: Result<(), RankError>| {
            let sum = Arc::clone(&sum);
            side.push(Box::new(move || {
                sum.fetch_add(add, Ordering::Relaxed);
                result
            }))
            .unwrap();
        };
        let failure = RankError::Unsupported("this".to_owned());
        push(1, Ok(()));
        push(2, Err(failure.clone()));
        push(4, Ok(()));
        assert_eq!((side.wait(), sum.load(Ordering::Relaxed)), (Err(failure), 3));
        push(8, Ok(()));
        assert_eq!((side.wait(), sum.load(Ordering::Relaxed)), (Ok(()), 11));
    }

    #[test]
    fn an_abort_ends_a_long_sleep() {
        let (side, abort) = side();
        let own = abort.clone();
        side.push(Box::new(move || sleep(60_000_000, &own))).unwrap();
        let start = Instant::now();
        abort.raise();
        assert_eq!(side.wait(), Err(RankError::Aborted));
        assert!(start.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn work_that_does_not_end_does_not_outlive_its_station() {
        let (side, abort) = side();
        let own = abort.clone();
        side.push(Box::new(move || sleep(60_000_000, &own))).unwrap();
        let start = Instant::now();
        drop(side);
        assert!(abort.raised() && start.elapsed() < Duration::from_secs(10));
    }
}
