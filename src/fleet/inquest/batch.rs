//! Timed launches, of which a log has one record and two counts.

use std::collections::BTreeSet;
use std::ops::Range;

use super::super::log::Batch;
use super::super::recorder::TWIN;
use super::Stand;
use crate::trace::call::{Call, State};

/// Launches of a batch that are looked at before and after the one that the slowest rank is at.
const AROUND: u64 = 8;

/// Where batches of launches were not ended by all: puts their launches in place of the records that stand for them, of each
/// those around the one that the slowest rank is at.
///
/// They may be several, as who waits for nobody goes on to the next batch.
pub(super) fn unroll(states: &mut [Stand]) {
    let under_way: BTreeSet<u64> = states.iter().flat_map(open).collect();
    for first in under_way {
        let made = |state: &Stand| state.batch(first).map_or(0, |batch| batch.made);
        let least = states.iter().filter(|s| s.calls.is_some()).map(made).min().unwrap_or(0);
        let window = least.saturating_sub(AROUND)..least.saturating_add(AROUND);
        for state in states.iter_mut() {
            if let (Some(batch), Some(calls)) = (state.batch(first), &mut state.calls) {
                put_in_place(&batch, calls, &window);
            }
        }
    }
}

/// The first calls of batches of which one of the rank's records is open.
fn open(state: &Stand) -> impl Iterator<Item = u64> {
    let under_way = |batch: &&Batch| {
        let mut calls = state.calls.iter().flatten();
        calls.any(|call| is_of_first(batch, call) && call.state != State::Completed)
    };
    state.batches.iter().filter(under_way).map(|batch| batch.first)
}

/// Whether the call has the number of one of the batch's first launch.
fn is_of_first(batch: &Batch, call: &Call) -> bool {
    call.comm & TWIN == 0 && (batch.first..batch.first.saturating_add(batch.calls)).contains(&call.seq)
}

/// Puts the launches of a batch that are in the window in place of their record.
fn put_in_place(batch: &Batch, calls: &mut Vec<Call>, window: &Range<u64>) {
    // a call that came in place of the first launch has its number too
    let mut left = batch.records;
    let stands = |call: &Call| {
        let first = left > 0 && is_of_first(batch, call);
        left -= u64::from(first);
        first
    };
    let (alike, others): (Vec<Call>, Vec<Call>) = calls.drain(..).partition(stands);
    let before = others.iter().filter(|call| call.seq < batch.first);
    let after = others.iter().filter(|call| call.seq >= batch.first);
    let launches = (window.start..window.end.min(batch.made)).flat_map(|launch| {
        alike.iter().map(move |call| Call {
            seq: call.seq.saturating_add(launch.saturating_mul(batch.calls)),
            state: if launch < batch.done { State::Completed } else { call.state },
            ..call.clone()
        })
    });
    *calls = before.cloned().chain(launches).chain(after.cloned()).collect();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Primitive;
    use crate::fleet::log::Doing;
    use crate::trace::Liveness;
    use crate::trace::call::Operation;

    /// A rank with batches of single calls: their first call, launches made, launches done.
    fn stand(rank: u32, batches: &[(u64, u64, u64)]) -> Stand {
        let call = |&(first, made, done): &(u64, u64, u64)| Call {
            state: if made == done { State::Completed } else { State::Queued },
            ..Call::new(1, first, Operation::Collective(Primitive::Broadcast))
        };
        let batch = |&(first, made, done): &(u64, u64, u64)| Batch { first, calls: 1, records: 1, made, done };
        Stand {
            rank,
            host: String::new(),
            liveness: Liveness::Alive,
            calls: Some(batches.iter().map(call).collect()),
            lost: 0,
            doing: Doing::Launching,
            since_ns: 0,
            messages: Vec::new(),
            batches: batches.iter().map(batch).collect(),
            formed: None,
        }
    }

    /// Numbers of the calls that are done, and of those that are open.
    fn numbers(stand: &Stand) -> [Vec<u64>; 2] {
        [true, false].map(|done| {
            let calls = stand.calls.iter().flatten();
            calls.filter(|call| (call.state == State::Completed) == done).map(|call| call.seq).collect()
        })
    }

    #[test]
    fn launches_around_the_one_that_the_slowest_rank_is_at_take_the_place_of_the_record() {
        let mut states = [stand(0, &[(3, 40, 0)]), stand(1, &[(3, 20, 19)])];
        unroll(&mut states);
        assert_eq!(numbers(&states[0]), [vec![], (15..31).collect()]);
        assert_eq!(numbers(&states[1]), [(15..22).collect::<Vec<_>>(), vec![22]]);
    }

    #[test]
    fn who_is_in_a_later_batch_has_made_all_of_the_one_before() {
        let mut states = [stand(0, &[(1, 20, 20), (21, 10, 0)]), stand(1, &[(1, 4, 3)])];
        unroll(&mut states);
        assert_eq!(numbers(&states[0]), [(1..13).collect::<Vec<_>>(), (21..29).collect()]);
        assert_eq!(numbers(&states[1]), [vec![1, 2, 3], vec![4]]);
    }

    #[test]
    fn a_batch_that_all_have_ended_stays_one_record() {
        let mut states = [stand(0, &[(1, 20, 20), (21, 2, 2)]), stand(1, &[(1, 20, 20), (21, 2, 1)])];
        unroll(&mut states);
        assert_eq!(numbers(&states[0]), [vec![1, 21, 22], vec![]]);
        assert_eq!(numbers(&states[1]), [vec![1, 21], vec![22]]);
    }
}
