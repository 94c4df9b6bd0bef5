//! Where worker processes meet that see each other's memory, so that one of them speaks to the coordinator for all.
//!
//! It is some words in memory that the workers share, whoever has started them (see [`hall`]). Whoever comes last, while all
//! are well, asks the coordinator on behalf of all (nobody, where no ranks are elsewhere), and hands the answer on. As soon as
//! one is not well the gate stands open for that meeting: each goes to the coordinator itself, which has to know who has come
//! and who is held up.
//!
//! The last meeting of a case has no question but reports, which all leave in [`slots`] for the last one to pass on. One with an
//! error sends it itself, and opens the gate for whatever meeting the others are at.
//!
//! Meetings have numbers that only grow, by case and then by meeting, so that nothing is ever reset: who is one meeting short in
//! a case that went wrong meets the others again in the next, and workers of an earlier communicator that are yet to be killed
//! are at meetings that are over.
//!
//! [`hall`]: super::hall
//! [`slots`]: super::slots

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::futex;
use serde_json::value::RawValue;

use super::hall::{self, Spot};
use super::slots::Slots;
use crate::backend::host::Region;
use crate::fleet::protocol::Report;

/// How long one who waits stays awake, where each process can have a core.
const AWAKE: Duration = Duration::from_micros(50);

/// Bits of a meeting's number within its case, and of how many have come to it.
const MEETINGS: u32 = 16;
const WORKERS: u32 = 16;

/// The number of a case's last meeting.
const LAST: u64 = (1 << MEETINGS) - 1;

/// Where the words are: what is slept on, the latest meeting that somebody has come to, with how many have, the last one that
/// stands open, and the last one that was answered, doubled, with the answer in its lowest bit.
const ARRIVED: usize = 8;
const OPEN: usize = 16;
const ANSWERED: usize = 24;

/// A worker's view of its gate.
pub struct Gate {
    memory: Region,
    slots: Slots,
    size: u64,
    awake: bool,
    /// Of the meeting that this worker has come to last.
    number: AtomicU64,
}

/// What a worker finds at the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// All who meet here have come and are well, this one as the last: it has to get an answer, and to say it.
    Speak,
    /// Go and ask yourself.
    Alone,
    /// The answer.
    Met(bool),
}

impl Gate {
    /// The gate at which a worker has this place, if it can get there.
    pub fn at(spot: &Spot) -> Option<Gate> {
        let file = spot.site.open()?;
        let memory = Region::mapped(&file, 0, hall::BYTES as usize)?;
        let awake = std::thread::available_parallelism().is_ok_and(|cores| cores.get() > spot.size as usize);
        let slots = Slots::new(file, spot.size, spot.slot);
        Some(Gate { memory, slots, size: spot.size.into(), awake, number: AtomicU64::new(0) })
    }

    /// Workers that meet here.
    pub fn size(&self) -> u32 {
        self.size as u32
    }

    /// Starts a case. Its number is larger than those before.
    pub fn begin(&self, case: u64) {
        self.number.fetch_max(case << MEETINGS, Ordering::Relaxed);
    }

    /// Comes to the next meeting, and waits as long as others may come.
    pub fn arrive(&self, well: bool) -> Way {
        self.come(self.number.fetch_add(1, Ordering::Relaxed) + 1, well)
    }

    /// Comes to the last meeting of the case with a report, for whoever speaks to find it in [`Gate::reports`]. One with an
    /// error is not left to others, nor one that is too long.
    pub fn leave(&self, report: &Report) -> Way {
        let number = self.number.fetch_or(LAST, Ordering::Relaxed) | LAST;
        self.come(number, report.error.is_none() && self.slots.put(number >> MEETINGS, report))
    }

    /// The reports of all who have come to the last meeting of the present case.
    pub fn reports(&self) -> Vec<Box<RawValue>> {
        self.slots.all(self.number.load(Ordering::Relaxed) >> MEETINGS)
    }

    fn come(&self, number: u64, well: bool) -> Way {
        let (Some(bell), Some(arrived), Some(open)) =
            (self.memory.word(), self.memory.long(ARRIVED), self.memory.long(OPEN))
        else {
            return Way::Alone;
        };
        if !well {
            open.fetch_max(number, Ordering::AcqRel);
        }
        let here = join(arrived, number);
        if !well {
            ring(bell);
            return Way::Alone;
        }
        if here == 0 || open.load(Ordering::Acquire) >= number {
            return Way::Alone;
        }
        if here == self.size {
            return Way::Speak;
        }
        self.wait(number, bell)
    }

    /// Lets all go alone who wait in the present case, or come yet.
    pub fn open(&self) {
        let case = self.number.load(Ordering::Relaxed) >> MEETINGS;
        if let (Some(bell), Some(open)) = (self.memory.word(), self.memory.long(OPEN)) {
            open.fetch_max(((case + 1) << MEETINGS) - 1, Ordering::AcqRel);
            ring(bell);
        }
    }

    /// Says the answer to those who wait.
    pub fn answer(&self, all: bool) {
        let number = self.number.load(Ordering::Relaxed);
        if let (Some(bell), Some(answered)) = (self.memory.word(), self.memory.long(ANSWERED)) {
            answered.fetch_max(number << 1 | u64::from(all), Ordering::AcqRel);
            ring(bell);
        }
    }

    fn wait(&self, number: u64, bell: &AtomicU32) -> Way {
        if self.awake {
            let end = Instant::now() + AWAKE;
            while self.found(number).is_none() && Instant::now() < end {
                std::hint::spin_loop();
            }
        }
        loop {
            let rung = bell.load(Ordering::Acquire);
            if let Some(way) = self.found(number) {
                return way;
            }
            // an error is a bell that has rung, or a signal: either way it is looked again
            let _ = futex::wait(bell, futex::Flags::empty(), rung, None);
        }
    }

    fn found(&self, number: u64) -> Option<Way> {
        let load = |at| self.memory.long(at).map_or(0, |word| word.load(Ordering::Acquire));
        let answered = load(ANSWERED);
        if answered >> 1 == number {
            return Some(Way::Met(answered & 1 == 1));
        }
        (load(OPEN) >= number).then_some(Way::Alone)
    }
}

/// How many have come to this meeting, the caller among them; 0 where others are at a later one.
fn join(arrived: &AtomicU64, number: u64) -> u64 {
    let one_more = |word: u64| match (word >> WORKERS).cmp(&number) {
        std::cmp::Ordering::Less => Some(number << WORKERS | 1),
        std::cmp::Ordering::Equal => Some(word + 1),
        std::cmp::Ordering::Greater => None,
    };
    let before = arrived.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
    before.map_or(0, |word| if word >> WORKERS == number { (word + 1) & ((1 << WORKERS) - 1) } else { 1 })
}

/// Wakes all who wait.
fn ring(bell: &AtomicU32) {
    bell.fetch_add(1, Ordering::AcqRel);
    let _ = futex::wake(bell, futex::Flags::empty(), i32::MAX as u32);
}

#[cfg(test)]
mod tests {
    use super::super::hall::{Hall, KEY, Site};
    use super::*;
    use crate::backend::RankError;

    /// One worker's gate for each, all over the same memory.
    fn gates(size: u32) -> Vec<Gate> {
        gates_in(&Hall::new().unwrap(), size)
    }

    fn gates_in(hall: &Hall, size: u32) -> Vec<Gate> {
        (0..size).map(|slot| Gate::at(&Spot { site: hall.site(), size, slot }).unwrap()).collect()
    }

    fn report(rank: u32, error: Option<RankError>) -> Report {
        Report { rank, placements: Vec::new(), error }
    }

    fn ranks(gate: &Gate) -> Vec<u32> {
        gate.reports().iter().map(|raw| serde_json::from_str::<Report>(raw.get()).unwrap().rank).collect()
    }

    /// Whether all are well, and what each found, where the one who speaks gets this answer.
    fn meet(gates: &[Gate], unwell: Option<usize>, answer: bool) -> Vec<Way> {
        std::thread::scope(|scope| {
            let come = |(rank, gate): (usize, &'_ Gate)| {
                let way = gate.arrive(Some(rank) != unwell);
                if way == Way::Speak {
                    gate.answer(answer);
                }
                way
            };
            let threads: Vec<_> = gates.iter().enumerate().map(|g| scope.spawn(move || come(g))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// Waits until so many have come to the meeting that was come to last.
    fn until(gate: &Gate, came: u64) {
        let end = Instant::now() + Duration::from_secs(60);
        while gate.memory.long(ARRIVED).unwrap().load(Ordering::Acquire) & ((1 << WORKERS) - 1) != came {
            assert!(Instant::now() < end);
            std::thread::yield_now();
        }
    }

    #[test]
    fn one_speaks_for_all_and_all_have_its_answer() {
        let gates = gates(4);
        for meeting in 0..2000 {
            let answer = meeting % 3 != 0;
            let ways = meet(&gates, None, answer);
            let (spoke, met) = ways.iter().partition::<Vec<Way>, _>(|way| **way == Way::Speak);
            assert_eq!(spoke.len(), 1, "meeting {meeting}: {ways:?}");
            assert_eq!(met, [Way::Met(answer); 3], "meeting {meeting}");
        }
    }

    #[test]
    fn once_one_is_not_well_all_go_alone_and_meet_again_afterwards() {
        let gates = gates(3);
        for unwell in 0..3 {
            assert_eq!(meet(&gates, Some(unwell), true), [Way::Alone; 3]);
            assert_eq!(meet(&gates, None, true).iter().filter(|way| **way == Way::Met(true)).count(), 2);
        }
    }

    #[test]
    fn one_that_is_not_well_waits_for_nobody_and_frees_who_waits() {
        let gates = gates(3);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| gates[0].arrive(true));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waits.is_finished());
            assert_eq!(gates[1].arrive(false), Way::Alone);
            assert_eq!(waits.join().unwrap(), Way::Alone);
        });
        assert_eq!(gates[2].arrive(true), Way::Alone, "who comes later");
    }

    #[test]
    fn a_case_that_is_given_up_has_no_gate_and_the_next_one_has() {
        let gates = gates(3);
        gates.iter().for_each(|gate| gate.begin(4));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| gates[0].arrive(true));
            std::thread::sleep(Duration::from_millis(20));
            gates[2].open();
            assert_eq!(waits.join().unwrap(), Way::Alone);
        });
        assert_eq!([gates[1].arrive(true), gates[1].arrive(true)], [Way::Alone; 2]);
        gates.iter().for_each(|gate| gate.begin(5));
        assert_eq!(meet(&gates, None, true).iter().filter(|way| **way == Way::Met(true)).count(), 2);
    }

    #[test]
    fn who_has_missed_a_meeting_of_one_case_meets_the_others_in_the_next() {
        let gates = gates(3);
        let begin = |case| gates.iter().for_each(|gate| gate.begin(case));
        begin(7);
        assert_eq!(meet(&gates, Some(0), true), [Way::Alone; 3]);
        // rank 0 has reported; the others wait for it in vain, and are let go
        assert_eq!([gates[1].arrive(false), gates[2].arrive(true)], [Way::Alone; 2]);
        begin(8);
        for _ in 0..3 {
            assert_eq!(meet(&gates, None, true).iter().filter(|way| **way == Way::Met(true)).count(), 2);
        }
        gates[0].number.store(1, Ordering::Relaxed);
        assert_eq!(gates[0].arrive(true), Way::Alone, "who comes to a meeting that is over");
    }

    #[test]
    fn one_worker_always_speaks() {
        let gate = gates(1).remove(0);
        assert_eq!((gate.arrive(true), gate.arrive(false), gate.arrive(true)), (Way::Speak, Way::Alone, Way::Speak));
    }

    #[test]
    fn whoever_leaves_last_finds_the_reports_of_all_and_the_others_go_when_it_says_so() {
        let gates = gates(3);
        for case in 1..500 {
            let leave = |(rank, gate): (u32, &'_ Gate)| {
                gate.begin(case);
                let way = gate.leave(&report(rank, None));
                if way == Way::Speak {
                    assert_eq!(ranks(gate), [0, 1, 2], "case {case}");
                    gate.answer(true);
                }
                way
            };
            let ways: Vec<Way> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..).zip(&gates).map(|g| scope.spawn(move || leave(g))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(ways.iter().filter(|way| **way == Way::Met(true)).count(), 2, "case {case}: {ways:?}");
        }
    }

    #[test]
    fn one_that_leaves_with_an_error_frees_the_others_at_whatever_meeting_they_are() {
        let gates = gates(3);
        gates.iter().for_each(|gate| gate.begin(4));
        let ways = std::thread::scope(|scope| {
            let meets = scope.spawn(|| gates[0].arrive(true));
            until(&gates[0], 1);
            let leaves = scope.spawn(|| (gates[1].arrive(true), gates[1].leave(&report(1, None))));
            until(&gates[0], 2);
            (gates[2].leave(&report(2, Some(RankError::Aborted))), meets.join().unwrap(), leaves.join().unwrap())
        });
        assert_eq!(ways, (Way::Alone, Way::Alone, (Way::Alone, Way::Alone)));
        assert_eq!(gates[0].leave(&report(0, None)), Way::Alone, "who comes later");
    }

    #[test]
    fn who_waits_with_a_report_goes_alone_once_the_case_is_given_up() {
        let gates = gates(2);
        gates.iter().for_each(|gate| gate.begin(4));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| gates[0].leave(&report(0, None)));
            until(&gates[1], 1);
            gates[1].open();
            assert_eq!(waits.join().unwrap(), Way::Alone);
        });
    }

    /// Those of the later one have begun a case when those of the earlier one go on.
    #[test]
    fn workers_of_an_earlier_communicator_do_no_harm_to_those_of_a_later_one() {
        let hall = Hall::new().unwrap();
        let (earlier, later) = (gates_in(&hall, 2), gates_in(&hall, 2));
        earlier.iter().for_each(|gate| gate.begin(7));
        later.iter().for_each(|gate| gate.begin(8));
        let (ways, met) = std::thread::scope(|scope| {
            let waits = scope.spawn(|| later[0].arrive(true));
            until(&later[1], 1);
            let mut ways = vec![earlier[0].arrive(true)];
            earlier[0].answer(false);
            earlier[0].open();
            ways.extend([earlier[1].arrive(false), earlier[1].leave(&report(1, Some(RankError::Aborted)))]);
            ways.push(later[1].arrive(true));
            later[1].answer(true);
            earlier[0].answer(false);
            (ways, waits.join().unwrap())
        });
        assert_eq!(
            ways,
            [Way::Alone, Way::Alone, Way::Alone, Way::Speak],
            "those that are over, and that which is not"
        );
        assert_eq!(met, Way::Met(true));
    }

    #[test]
    fn there_is_no_gate_where_the_memory_is_too_short() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(KEY as u64 + 8).unwrap();
        let site = Site { path: file.path().into(), key: 0 };
        assert!(Gate::at(&Spot { site: site.clone(), size: 2, slot: 0 }).is_none());
        file.as_file().set_len(hall::BYTES).unwrap();
        assert!(Gate::at(&Spot { site, size: 2, slot: 0 }).is_some());
    }
}
