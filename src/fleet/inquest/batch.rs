//! Timed launches, of which a log has one record and two counts.

use super::super::log::Batch;
use super::super::recorder::TWIN;
use super::Stand;
use crate::trace::call::{Call, State};

/// Launches of a batch that are looked at before and after the one that the slowest rank is at.
const AROUND: u64 = 8;

/// Where a batch of launches was not ended by all: puts its launches in place of the record that stands for them, those
/// around the one that the slowest rank is at.
pub(super) fn unroll(states: &mut [Stand]) {
    let of_first = |batch: &Batch, call: &Call| {
        call.comm & TWIN == 0 && (batch.first..batch.first + batch.calls).contains(&call.seq)
    };
    let under_way = |state: &Stand| {
        let batch = state.batch?;
        let mut calls = state.calls.iter().flatten();
        calls.any(|call| of_first(&batch, call) && call.state != State::Completed).then_some(batch.first)
    };
    let Some(first) = states.iter().filter_map(under_way).max() else { return };
    let least = states.iter().filter(|s| s.calls.is_some()).map(|s| s.made(first)).min().unwrap_or(0);
    let (from, to) = (least.saturating_sub(AROUND), least.saturating_add(AROUND));
    for state in states {
        let (Some(batch), Some(calls)) = (state.batch.filter(|batch| batch.first == first), &mut state.calls) else {
            continue;
        };
        // a call that came in place of the first launch has its number too
        let mut left = batch.records;
        let stands = |call: &Call| {
            let first = left > 0 && of_first(&batch, call);
            left -= u64::from(first);
            first
        };
        let (alike, others): (Vec<Call>, Vec<Call>) = calls.drain(..).partition(stands);
        let before = others.iter().filter(|call| call.seq < first);
        let after = others.iter().filter(|call| call.seq >= first);
        let launches = (from..to.min(batch.made)).flat_map(|launch| {
            alike.iter().map(move |call| Call {
                seq: call.seq + launch * batch.calls,
                state: if launch < batch.done { State::Completed } else { call.state },
                ..call.clone()
            })
        });
        *calls = before.cloned().chain(launches).chain(after.cloned()).collect();
    }
}
