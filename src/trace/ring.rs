//! The recorder: a ring of fixed-size records in one region of memory, written without locks or allocation.
//!
//! One writer appends; anyone may read meanwhile, also after the writer is stuck or dead. The region is plain words:
//!
//! ```text
//! word 0       magic, written last               slot, 24 words:
//!      1       slots                              0   lock: odd while the slot is being written
//!      2       records ever created               1   ordinal + 1 of the record; 0 where there is none
//!      3       rank                               2,3 communicator, sequence number
//!      8..     slots                              4   kind, op, dtype, flags, peer or root
//!                                                 5   count
//!                                                 6,7,8  ns created, started, completed; 0 where not yet
//!                                                 9   bytes of label
//!                                                 10..24 label, cut to 112 bytes
//! ```
//!
//! Creation holds the slot's lock (a seqlock). Start and completion are one store each, so that a writer that dies at the
//! wrong moment never takes the record of its last call with it. A reader believes nothing in the region: a slot whose
//! lock moves, or that does not decode, is dropped and counted.

mod code;
mod mapped;

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::call::{Call, Operation, State};
use crate::case::{DType, Op};

pub use mapped::{MappedRing, read_file};

/// The region: any words that writer and reader share.
pub type RingMemory = [AtomicU64];

const MAGIC: u64 = u64::from_be_bytes(*b"collrng1");
const HEADER: usize = 8;
const SLOT: usize = 24;
const LABEL: usize = 10;
/// Longer labels are cut.
pub const LABEL_BYTES: usize = (SLOT - LABEL) * 8;

/// Why a region is no ring.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// Not even one slot.
    #[error("{words} words hold no record: a ring of n records takes {HEADER} + {SLOT} n words")]
    TooSmall {
        /// Its size.
        words: usize,
    },
    /// Not written by this recorder, or not yet set up.
    #[error("this is not a ring of records: it does not start with the magic word")]
    NotARing,
    /// The header claims more than there is.
    #[error("the header claims {claimed} slots, the region holds {held}: it is damaged or cut off")]
    Damaged {
        /// Slots by the header.
        claimed: u64,
        /// Slots that fit.
        held: usize,
    },
    /// Files.
    #[error("failed to {doing} {}", path.display())]
    File {
        /// What was tried.
        doing: &'static str,
        /// Which file.
        path: std::path::PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
}

/// Words that a ring of `slots` records takes.
pub const fn words(slots: usize) -> usize {
    HEADER + SLOT * slots
}

/// A region in this process's own memory, for recorder and reader in one process.
pub fn allocate(slots: usize) -> std::sync::Arc<RingMemory> {
    (0..words(slots)).map(|_| AtomicU64::new(0)).collect()
}

/// A call about to be made.
#[derive(Clone, Copy, Debug)]
pub struct Creation<'a> {
    /// See [`Call::comm`].
    pub comm: u64,
    /// See [`Call::seq`].
    pub seq: u64,
    /// See [`Call::operation`]. Of [`Operation::Other`] the name is not kept.
    pub operation: &'a Operation,
    /// See [`Call::op`].
    pub op: Option<Op>,
    /// See [`Call::dtype`].
    pub dtype: Option<DType>,
    /// See [`Call::count`].
    pub count: Option<u64>,
    /// See [`Call::root`]; kept for collectives only.
    pub root: Option<u32>,
    /// See [`Call::label`].
    pub label: &'a str,
}

/// Stands for a record until it is overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

/// The one writer of a region.
#[derive(Debug)]
pub struct Writer<M: Deref<Target = RingMemory>> {
    memory: M,
    slots: u64,
    next: u64,
}

impl<M: Deref<Target = RingMemory>> Writer<M> {
    /// Sets the region up; what it held is lost.
    pub fn new(memory: M, rank: u32) -> Result<Self, RingError> {
        let slots = memory.len().saturating_sub(HEADER) / SLOT;
        let ([magic, claimed, created, whose, ..], true) = (&*memory, slots > 0) else {
            return Err(RingError::TooSmall { words: memory.len() });
        };
        magic.store(0, Ordering::Release);
        for slot in memory.get(HEADER..).unwrap_or_default().chunks_exact(SLOT) {
            for word in slot {
                word.store(0, Ordering::Relaxed);
            }
        }
        claimed.store(slots as u64, Ordering::Relaxed);
        created.store(0, Ordering::Relaxed);
        whose.store(u64::from(rank), Ordering::Relaxed);
        magic.store(MAGIC, Ordering::Release);
        Ok(Writer { slots: slots as u64, next: 0, memory })
    }

    /// Records a call before it is made.
    pub fn created(&mut self, call: &Creation<'_>, now_ns: u64) -> Ticket {
        let ordinal = self.next;
        self.next += 1;
        if let Some(slot) = self.slot(ordinal) {
            let lock = slot[0].load(Ordering::Relaxed) & !1;
            slot[0].store(lock.wrapping_add(1), Ordering::Relaxed);
            fence(Ordering::Release);
            let (packed, count) = code::pack(call);
            let (label, bytes) = code::label(call.label);
            for (word, value) in slot[1..LABEL].iter().zip([
                ordinal.wrapping_add(1),
                call.comm,
                call.seq,
                packed,
                count,
                now_ns,
                0,
                0,
                bytes as u64,
            ]) {
                word.store(value, Ordering::Relaxed);
            }
            for (word, value) in slot[LABEL..].iter().zip(label).take(bytes.div_ceil(8)) {
                word.store(value, Ordering::Relaxed);
            }
            slot[0].store(lock.wrapping_add(2), Ordering::Release);
        }
        if let Some(created) = self.memory.get(2) {
            created.store(self.next, Ordering::Release);
        }
        Ticket(ordinal)
    }

    /// Records that the call has started. Without effect once the record is overwritten.
    pub fn started(&mut self, ticket: Ticket, now_ns: u64) {
        self.stamp(ticket, 7, now_ns);
    }

    /// Records that the call is done. Without effect once the record is overwritten.
    pub fn completed(&mut self, ticket: Ticket, now_ns: u64) {
        self.stamp(ticket, 8, now_ns);
    }

    /// The region, for a reader in this process.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    fn stamp(&self, ticket: Ticket, word: usize, now_ns: u64) {
        if let Some(slot) = self.slot(ticket.0)
            && slot[1].load(Ordering::Relaxed) == ticket.0.wrapping_add(1)
        {
            slot[word].store(now_ns.max(1), Ordering::Release);
        }
    }

    fn slot(&self, ordinal: u64) -> Option<&[AtomicU64; SLOT]> {
        slot(&self.memory, (ordinal % self.slots) as usize)
    }
}

/// What a ring held when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Whose.
    pub rank: u32,
    /// The records, oldest first.
    pub calls: Vec<Call>,
    /// Older records that were overwritten.
    pub lost: u64,
    /// Slots dropped because they were being written or do not decode.
    pub dropped: u64,
}

/// Reads a ring, whatever its writer is doing and whatever is in it.
pub fn snapshot(memory: &RingMemory) -> Result<Snapshot, RingError> {
    let held = memory.len().saturating_sub(HEADER) / SLOT;
    let ([magic, claimed, created, whose, ..], true) = (memory, held > 0) else {
        return Err(RingError::TooSmall { words: memory.len() });
    };
    if magic.load(Ordering::Acquire) != MAGIC {
        return Err(RingError::NotARing);
    }
    let slots = match claimed.load(Ordering::Relaxed) {
        claimed if claimed == 0 || claimed > held as u64 => return Err(RingError::Damaged { claimed, held }),
        claimed => claimed,
    };
    let rank = whose.load(Ordering::Relaxed) as u32;
    let mut records: Vec<(u64, Call)> = Vec::with_capacity(slots as usize);
    let mut dropped = 0;
    for index in 0..slots {
        let Some(slot) = slot(memory, index as usize) else { continue };
        match read_slot(slot) {
            Read::Empty => {}
            Read::Record(ordinal, call) if ordinal % slots == index => records.push((ordinal, call)),
            _ => dropped += 1,
        }
    }
    // The writer counts a record when it is written, so it is at most one behind. One damaged ordinal must not make all
    // others look overtaken.
    let (created, before) = (created.load(Ordering::Acquire), records.len());
    records.retain(|(ordinal, _)| *ordinal <= created);
    dropped += (before - records.len()) as u64;
    records.sort_by_key(|(ordinal, _)| *ordinal);
    let newest = records.last().map_or(0, |(ordinal, _)| ordinal + 1);
    // A record that a full turn has overtaken can only be debris: the writer has reused its slot since.
    let oldest = newest.saturating_sub(slots);
    let before = records.len();
    records.retain(|(ordinal, _)| *ordinal >= oldest);
    dropped += (before - records.len()) as u64;
    Ok(Snapshot { rank, calls: records.into_iter().map(|(_, call)| call).collect(), lost: oldest, dropped })
}

fn slot(memory: &RingMemory, index: usize) -> Option<&[AtomicU64; SLOT]> {
    let start = HEADER + index * SLOT;
    memory.get(start..start + SLOT)?.try_into().ok()
}

enum Read {
    Empty,
    Record(u64, Call),
    Bad,
}

fn read_slot(slot: &[AtomicU64; SLOT]) -> Read {
    // A live writer is done in well under a microsecond; a dead one never is.
    for _ in 0..64 {
        let lock = slot[0].load(Ordering::Acquire);
        if lock % 2 == 1 {
            std::hint::spin_loop();
            continue;
        }
        let words: [u64; SLOT] = std::array::from_fn(|i| slot[i].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        if slot[0].load(Ordering::Relaxed) == lock {
            return decode(&words);
        }
    }
    Read::Bad
}

fn decode(words: &[u64; SLOT]) -> Read {
    let [_, ordinal, comm, seq, packed, count, created_ns, started, completed, label_bytes, label @ ..] = words;
    let Some(ordinal) = ordinal.checked_sub(1) else { return Read::Empty };
    if ordinal > u64::MAX / 2 {
        return Read::Bad;
    }
    let Some(arguments) = code::unpack(*packed, *count) else { return Read::Bad };
    let Some(label) = code::text(label, *label_bytes) else { return Read::Bad };
    let state = match (*started, *completed) {
        (_, 1..) => State::Completed,
        (1.., _) => State::Running,
        _ => State::Queued,
    };
    let call = Call {
        comm: *comm,
        seq: *seq,
        operation: arguments.operation,
        op: arguments.op,
        dtype: arguments.dtype,
        count: arguments.count,
        root: arguments.root,
        state,
        created_ns: *created_ns,
        started_ns: (*started != 0).then_some(*started),
        completed_ns: (*completed != 0).then_some(*completed),
        label,
    };
    Read::Record(ordinal, call)
}

#[cfg(test)]
mod tests;
