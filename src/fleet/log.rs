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

/// Batches that are kept: as many as a case has, by the clock and by marks in each of two placements. So one who is ahead takes none
/// away that others are in.
const BATCHES: usize = 4;

/// Words behind the ring.
const DOING: usize = 0;
const SINCE: usize = 1;
const CASE: usize = 2;
/// Deliberate faults done, and when the last.
const ARMED: usize = 3;
const ARMED_AT: usize = 4;
/// A text: its bytes, and so many words of it.
const TROUBLE_BYTES: usize = 5;
const TROUBLE: usize = 6;
const TROUBLE_WORDS: usize = 11;
/// Ranks asked for of one more communicator, and in the lowest bit whether it came about; 0 where there was none.
const FORMING: usize = TROUBLE + TROUBLE_WORDS;
/// Batches begun in the case.
const BEGUN: usize = FORMING + 1;
/// What is known of each that is kept, in turn.
const BATCH: usize = BEGUN + 1;
/// Of a batch: the number of its first call (0 where there is none), calls of a launch, launches made, launches done,
/// records of the announcement.
const FIRST: usize = 0;
const CALLS_EACH: usize = 1;
const MADE: usize = 2;
const DONE: usize = 3;
const RECORDS: usize = 4;
const BATCH_WORDS: usize = 5;
const OWN: usize = BATCH + BATCHES * BATCH_WORDS;

/// Words that a log takes.
const WORDS: usize = ring::words(CALLS) + OWN;

/// One rank's log.
#[derive(Clone)]
pub struct Log {
    words: Arc<dyn Deref<Target = RingMemory> + Send + Sync>,
    /// The name of the case begun last, for whoever records.
    label: Arc<Mutex<String>>,
}

/// Launches alike in a row, which are counted: to record each would cost more than the smallest launch may.
///
/// The ring holds the calls of the first launch, whether made or not; those of the others are like them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// The number of its first call.
    pub first: u64,
    /// Calls of a launch, by their numbers.
    pub calls: u64,
    /// Records of a launch: more, where a call is a send and a receive.
    pub records: u64,
    /// Launches made, the last of which may not have returned.
    pub made: u64,
    /// Launches known to be done.
    pub done: u64,
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
    /// Making one more communicator.
    Forming,
    /// Waiting for the other workers.
    Meeting,
    /// It has reported.
    Reported,
}

impl Doing {
    const ALL: [Doing; 10] = [
        Doing::Nothing,
        Doing::Beginning,
        Doing::Preparing,
        Doing::Filling,
        Doing::Launching,
        Doing::Waiting,
        Doing::Checking,
        Doing::Forming,
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
            Doing::Forming => "making one more communicator",
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

    /// A log of another host's, as [`Log::copy`] gave it.
    pub fn of_copy(words: &[u64]) -> Log {
        let padded = words.iter().copied().chain(std::iter::repeat(0)).take(WORDS);
        let words: Arc<RingMemory> = padded.map(AtomicU64::new).collect();
        Log::new(Arc::new(words))
    }

    /// What it holds now.
    pub fn copy(&self) -> Vec<u64> {
        self.words.iter().map(|word| word.load(Ordering::Acquire)).collect()
    }

    /// Starts a case, under a number that no other case of the run has.
    pub fn begin(&self, case: u64, name: &str) {
        name.clone_into(&mut self.label.lock().unwrap_or_else(PoisonError::into_inner));
        (0..BATCHES).for_each(|slot| self.set(BATCH + slot * BATCH_WORDS + FIRST, 0));
        self.set(BEGUN, 0);
        self.set(FORMING, 0);
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

    /// Notes what the worker does without asking the clock: when it began is in the ring.
    pub fn still(&self, doing: Doing) {
        self.set(DOING, doing as u64);
    }

    /// Starts a batch of launches, of `calls` calls and `records` records each, none of which is made yet.
    pub fn begin_batch(&self, first: u64, calls: u64, records: u64) {
        self.set(BEGUN, self.get(BEGUN).wrapping_add(1));
        let slot = self.present();
        for (word, value) in [(FIRST, 0), (CALLS_EACH, calls), (RECORDS, records), (MADE, 0), (DONE, 0), (FIRST, first)]
        {
            self.set(slot + word, value);
        }
    }

    /// Notes how many launches of the batch are made. This and the next one are all that a timed launch pays.
    #[inline]
    pub fn made(&self, launches: u64) {
        self.set(self.present() + MADE, launches);
        if let Some(doing) = self.get_word(DOING) {
            doing.store(Doing::Launching as u64, Ordering::Relaxed);
        }
    }

    /// Notes how many launches of the batch are done.
    #[inline]
    pub fn done(&self, launches: u64) {
        self.set(self.present() + DONE, launches);
    }

    /// The case's last batches, oldest first.
    pub fn batches(&self) -> Vec<Batch> {
        let begun = self.get(BEGUN);
        let kept = (begun.saturating_sub(BATCHES as u64)..begun).map(|number| slot(number.wrapping_add(1)));
        let batch = |slot: usize| {
            let first = self.get(slot + FIRST);
            (first > 0).then(|| Batch {
                first,
                calls: self.get(slot + CALLS_EACH),
                records: self.get(slot + RECORDS),
                made: self.get(slot + MADE),
                done: self.get(slot + DONE),
            })
        };
        kept.filter_map(batch).collect()
    }

    /// Where the words of the batch begun last are.
    #[inline]
    fn present(&self) -> usize {
        slot(self.get(BEGUN))
    }

    /// What the worker does, and since when; of launches see the ring.
    pub fn doing(&self) -> (Doing, u64) {
        let doing = usize::try_from(self.get(DOING)).ok().and_then(|code| Doing::ALL.get(code));
        (doing.copied().unwrap_or(Doing::Nothing), self.get(SINCE))
    }

    /// Notes that one more communicator is being made, of so many ranks as this one holds, or has come about.
    pub fn forming(&self, ranks: u32, done: bool) {
        self.set(FORMING, u64::from(ranks) << 1 | u64::from(done));
    }

    /// The communicator made beside the case's: of how many ranks it was to be, and whether it came about.
    pub fn formed(&self) -> Option<(u32, bool)> {
        let word = self.get(FORMING);
        (word > 0).then(|| (u32::try_from(word >> 1).unwrap_or(u32::MAX), word & 1 == 1))
    }

    /// Notes what has failed in the worker's calls or behind them. What does not fit is cut off.
    pub fn trouble(&self, text: &str) {
        let bytes = text.as_bytes().iter().take(8 * TROUBLE_WORDS).copied().collect::<Vec<_>>();
        for (word, part) in bytes.chunks(8).enumerate() {
            let mut value = [0; 8];
            value.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            self.set(TROUBLE + word, u64::from_le_bytes(value));
        }
        self.set(TROUBLE_BYTES, bytes.len() as u64);
    }

    /// What was noted as trouble.
    pub fn troubles(&self) -> Option<String> {
        let length = usize::try_from(self.get(TROUBLE_BYTES)).ok().filter(|length| *length > 0)?;
        let bytes = (0..TROUBLE_WORDS).flat_map(|word| self.get(TROUBLE + word).to_le_bytes());
        let bytes: Vec<u8> = bytes.take(length).collect();
        Some(String::from_utf8_lossy(&bytes).into_owned())
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

/// The ring.
impl Deref for Log {
    type Target = RingMemory;

    fn deref(&self) -> &RingMemory {
        self.words.get(..ring::words(CALLS)).unwrap_or(&self.words)
    }
}

/// Where the words of the batch of that number are.
#[inline]
fn slot(number: u64) -> usize {
    BATCH + (number % BATCHES as u64) as usize * BATCH_WORDS
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
        log.trouble(&"x".repeat(1000));
        log.forming(u32::MAX, true);
        assert_eq!(log.formed(), Some((u32::MAX, true)));
        assert_eq!((log.case(), log.doing().0, log.times_armed().0), (7, Doing::Checking, 1));
        assert_eq!(snapshot(&log).unwrap().calls.len(), CALLS);
        log.begin(8, "");
        assert_eq!((log.times_armed(), log.formed()), ((0, 0), None));
    }

    #[test]
    fn the_last_batches_of_the_case_are_kept() {
        let log = Log::allocate();
        log.begin(1, "");
        assert_eq!(log.batches(), []);
        for number in 1..=BATCHES as u64 + 2 {
            log.begin_batch(10 * number, 1, 2);
            log.made(number);
            log.done(number - 1);
            let kept: Vec<Batch> = log.batches();
            assert_eq!(kept.len(), BATCHES.min(number as usize));
            for (batch, number) in kept.iter().rev().zip((1..=number).rev()) {
                assert_eq!(*batch, Batch { first: 10 * number, calls: 1, records: 2, made: number, done: number - 1 });
            }
        }
        let copy = Log::of_copy(&log.copy());
        assert_eq!(copy.batches(), log.batches());
        log.begin(2, "");
        assert_eq!(log.batches(), []);
    }

    #[test]
    fn trouble_reads_back_and_a_long_one_is_cut() {
        let log = Log::allocate();
        assert_eq!(log.troubles(), None);
        log.trouble("ncclRemoteError");
        assert_eq!(log.troubles().as_deref(), Some("ncclRemoteError"));
        log.trouble(&"x".repeat(1000));
        assert_eq!(log.troubles(), Some("x".repeat(8 * TROUBLE_WORDS)));
        assert_eq!(log.case(), 0);
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
