//! The reports of those who meet at a gate, in memory that they share, so that one of them can pass all on.
//!
//! Each writes to a slot of its own before it comes to the case's last meeting; who comes last reads them all. There is no
//! other order than that of the meeting. What is in a slot belongs to the case and is JSON, or it is not there. Workers of an
//! earlier communicator do not write here any more: each agent kills its own before it starts others, and a case begins when
//! all are there.

use std::fs::File;
use std::os::unix::fs::FileExt;

use serde_json::value::RawValue;

use super::hall;
use crate::fleet::protocol::Report;

/// Bytes of a slot. Pages that nobody writes to cost nothing.
const BYTES: u64 = 64 << 10;

/// What stands in front of a report: its case, and its bytes.
const HEAD: usize = 16;

/// A worker's view of the slots.
pub struct Slots {
    file: File,
    slots: u32,
    own: u32,
}

impl Slots {
    /// The slots behind a gate.
    pub fn new(file: File, slots: u32, own: u32) -> Slots {
        Slots { file, slots, own }
    }

    /// Leaves a report where others find it; false if it cannot.
    pub fn put(&self, case: u64, report: &Report) -> bool {
        let mut bytes = vec![0; HEAD];
        if serde_json::to_writer(&mut bytes, report).is_err() || bytes.len() as u64 > BYTES {
            return false;
        }
        let length = (bytes.len() - HEAD) as u64;
        bytes.iter_mut().zip([case, length].map(u64::to_ne_bytes).concat()).for_each(|(to, from)| *to = from);
        self.file.write_all_at(&bytes, at(self.own)).is_ok()
    }

    /// The reports of this case that are there.
    pub fn all(&self, case: u64) -> Vec<Box<RawValue>> {
        (0..self.slots).filter_map(|slot| self.get(slot, case)).collect()
    }

    fn get(&self, slot: u32, case: u64) -> Option<Box<RawValue>> {
        let mut head = [0; HEAD];
        self.file.read_exact_at(&mut head, at(slot)).ok()?;
        let (of, length) = (u64::from_ne_bytes(*head.first_chunk()?), u64::from_ne_bytes(*head.last_chunk()?));
        if of != case || length > BYTES - HEAD as u64 {
            return None;
        }
        let mut text = vec![0; length as usize];
        self.file.read_exact_at(&mut text, at(slot) + HEAD as u64).ok()?;
        RawValue::from_string(String::from_utf8(text).ok()?).ok()
    }
}

fn at(slot: u32) -> u64 {
    hall::BYTES + u64::from(slot) * BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::RankError;

    fn slots() -> (File, Vec<Slots>) {
        let file = tempfile::tempfile().unwrap();
        let slots = (0..3).map(|own| Slots::new(file.try_clone().unwrap(), 3, own)).collect();
        (file, slots)
    }

    fn report(rank: u32) -> Report {
        Report { rank, placements: Vec::new(), error: None }
    }

    /// The ranks whose reports the last one finds.
    fn found(slots: &[Slots], case: u64) -> Vec<u32> {
        slots[2].all(case).iter().map(|raw| serde_json::from_str::<Report>(raw.get()).unwrap().rank).collect()
    }

    #[test]
    fn reports_of_the_case_are_found_and_no_others() {
        let (_, slots) = slots();
        assert!(found(&slots, 0).is_empty(), "of memory that nobody has written to");
        for case in [1, 2] {
            assert!(slots.iter().zip(10..).all(|(slots, rank)| slots.put(case, &report(rank))));
            assert_eq!(found(&slots, case), [10, 11, 12]);
        }
        assert!(slots[1].put(3, &report(11)));
        assert_eq!((found(&slots, 3), found(&slots, 2)), (vec![11], vec![10, 12]));
    }

    #[test]
    fn half_a_report_and_garbage_are_left_out() {
        let (file, slots) = slots();
        for (bytes, at_byte) in [(&[0xff; 4][..], 20), (b"}", 16), (&[0xff; 8], 8), (&[3, 0], 8)] {
            assert!(slots.iter().zip(0..).all(|(slots, rank)| slots.put(1, &report(rank))));
            file.write_all_at(bytes, at(1) + at_byte).unwrap();
            assert_eq!(found(&slots, 1), [0, 2], "{bytes:?}");
        }
    }

    #[test]
    fn a_report_that_is_too_long_is_not_put_and_the_longest_that_fits_is() {
        let (_, slots) = slots();
        let long = |bytes| Report { error: Some(RankError::Unsupported("x".repeat(bytes))), ..report(1) };
        let around = serde_json::to_string(&long(0)).unwrap().len() + HEAD;
        assert!(!slots[1].put(1, &long(BYTES as usize - around + 1)));
        assert!(slots[1].put(1, &long(BYTES as usize - around)) && slots[2].put(1, &report(2)));
        assert_eq!(found(&slots, 1), [1, 2]);
    }
}
