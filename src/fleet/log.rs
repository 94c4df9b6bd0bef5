//! What a rank leaves behind for whoever has to tell why it does not come back: its last calls, and what it is doing.
//!
//! It is memory that outlives the worker, written without locks, and read while the worker is at work, stuck or dead: a
//! ring of calls (see [`ring`]) and a few words behind it.

use std::fs::File;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::trace::ring::{self, MappedRing, RingError, RingMemory};

/// Calls that are kept: more than any launch or pipeline has, and small enough to stay in the cache.
const CALLS: usize = 128;

/// Words behind the ring. They are fewer than a record has, so that the ring does not take them for one.
const DOING: usize = 0;
const SINCE: usize = 1;
const CASE: usize = 2;
const ARMED: usize = 3;
const ARMED_AT: usize = 4;
const OWN: usize = 5;

/// Words that a log takes.
const WORDS: usize = ring::words(CALLS) + OWN;

/// One rank's log.
#[derive(Clone)]
pub struct Log {
    words: Arc<dyn Deref<Target = RingMemory> + Send + Sync>,
    /// The name of the case begun last, for whoever records.
    label: Arc<Mutex<String>>,
}

/// What a worker is doing. The order is that of the numbers in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// Waiting for a case.
    Nothing,
    /// It has a case.
    Beginning,
    /// Making buffers.
    Preparing,
    /// Writing inputs or poison.
    Filling,
    /// In the library's call.
    Launching,
    /// Waiting for what it has launched.
    Waiting,
    /// Checking what came out.
    Checking,
    /// Waiting for the other workers.
    Meeting,
    /// It has reported.
    Reported,
}

impl Doing {
    const ALL: [Doing; 9] = [
        Doing::Nothing,
        Doing::Beginning,
        Doing::Preparing,
        Doing::Filling,
        Doing::Launching,
        Doing::Waiting,
        Doing::Checking,
        Doing::Meeting,
        Doing::Reported,
    ];

    /// In words, after "rank 1: ".
    pub const fn words(self) -> &'static str {
        match self {
            Doing::Nothing => "not begun",
            Doing::Beginning => "between two steps",
            Doing::Preparing => "making buffers",
            Doing::Filling => "writing inputs",
            Doing::Launching => "in the launch",
            Doing::Waiting => "waiting for its launches",
            Doing::Checking => "checking results",
            Doing::Meeting => "waiting for the other workers",
            Doing::Reported => "has reported",
        }
    }
}

/// Bytes from one rank's log to the next in memory that processes share: whole pages, as only those can be mapped.
const STRIDE: u64 = ((WORDS * 8) as u64).next_multiple_of(64 << 10);

impl Log {
    /// Bytes of each rank in memory that processes share.
    pub const SHARED_BYTES: u64 = STRIDE;

    /// A rank's log in a file that other processes map too.
    pub fn shared(file: &File, rank: u32) -> Result<Log, RingError> {
        let ring = MappedRing::over(file, u64::from(rank) * STRIDE, WORDS)?;
        Ok(Log::new(Arc::new(ring)))
    }

    /// A log in memory of this process.
    pub fn allocate() -> Log {
        let words: Arc<RingMemory> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        Log::new(Arc::new(words))
    }

    /// A log in these words, of which there are [`WORDS`].
    pub fn new(words: Arc<dyn Deref<Target = RingMemory> + Send + Sync>) -> Log {
        Log { words, label: Arc::default() }
    }

    /// Starts a case, under a number that no other case of the run has.
    pub fn begin(&self, case: u64, name: &str) {
        name.clone_into(&mut self.label.lock().unwrap_or_else(PoisonError::into_inner));
        self.set(ARMED, 0);
        self.set(ARMED_AT, 0);
        self.set(CASE, case);
        self.at(Doing::Beginning);
    }

    /// Notes that a deliberate fault is about to be done.
    pub fn armed(&self) {
        self.set(ARMED_AT, now_ns());
        self.set(ARMED, self.get(ARMED).saturating_add(1));
    }

    /// How often deliberate faults were done in the case begun last, and when the last time.
    pub fn times_armed(&self) -> (u64, u64) {
        (self.get(ARMED), self.get(ARMED_AT))
    }

    /// The name of the case begun last; empty for who reads another process's log.
    pub fn label(&self) -> String {
        self.label.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The case begun last.
    pub fn case(&self) -> u64 {
        self.get(CASE)
    }

    /// Notes what the worker does from now on.
    pub fn at(&self, doing: Doing) {
        self.set(SINCE, now_ns());
        self.set(DOING, doing as u64);
    }

    /// Notes a launch without asking the clock: when it was is in the ring.
    pub fn launching(&self) {
        self.set(DOING, Doing::Launching as u64);
    }

    /// What the worker does, and since when; of launches see the ring.
    pub fn doing(&self) -> (Doing, u64) {
        let doing = usize::try_from(self.get(DOING)).ok().and_then(|code| Doing::ALL.get(code));
        (doing.copied().unwrap_or(Doing::Nothing), self.get(SINCE))
    }

    fn set(&self, word: usize, value: u64) {
        if let Some(word) = self.get_word(word) {
            word.store(value, Ordering::Release);
        }
    }

    fn get(&self, word: usize) -> u64 {
        self.get_word(word).map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn get_word(&self, word: usize) -> Option<&AtomicU64> {
        self.words.get(ring::words(CALLS) + word)
    }
}

impl Deref for Log {
    type Target = RingMemory;

    fn deref(&self) -> &RingMemory {
        &self.words
    }
}

/// Nanoseconds of the host's clock, which all processes of the host share.
pub fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::call::Operation;
    use crate::trace::ring::{Creation, Writer, snapshot};

    #[test]
    fn the_ring_and_the_words_behind_it_do_not_touch() {
        let log = Log::allocate();
        log.begin(7, "all_reduce::sum::float::8B");
        log.at(Doing::Checking);
        let mut writer = Writer::new(log.clone(), 3).unwrap();
        let call = Creation {
            comm: u64::MAX,
            seq: u64::MAX,
            operation: &Operation::Send { peer: u32::MAX },
            op: None,
            dtype: None,
            count: Some(u64::MAX),
            root: None,
            label: &"x".repeat(ring::LABEL_BYTES),
        };
        for _ in 0..2 * CALLS {
            writer.created(&call, u64::MAX);
        }
        log.armed();
        assert_eq!((log.case(), log.doing().0, log.times_armed().0), (7, Doing::Checking, 1));
        assert_eq!(snapshot(&log).unwrap().calls.len(), CALLS);
        log.begin(8, "");
        assert_eq!(log.times_armed(), (0, 0));
    }

    #[test]
    fn every_number_reads_back_as_what_it_was() {
        let log = Log::allocate();
        for doing in Doing::ALL {
            log.at(doing);
            assert_eq!(log.doing().0, doing);
        }
    }
}
