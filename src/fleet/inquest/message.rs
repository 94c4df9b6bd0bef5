//! What people are told of a case that did not come back: where the time went, who was at fault, how the calls differ, and
//! what to do.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::super::log::Doing;
use super::super::recorder::TWIN;
use super::{Cause, SECOND, Stand, WORLD};
use crate::trace::call::{Call, State};
use crate::trace::text;
use crate::trace::{Class, Diagnosis, Liveness};

/// Groups of ranks that a message lists.
const MOST: usize = 12;

/// The first line.
pub(super) fn headline(cause: &Cause, diagnosis: &Diagnosis, what: &str) -> String {
    let verdict = &diagnosis.verdict;
    let class = match verdict.class {
        Class::None => "nothing to be seen".to_owned(),
        class => class.to_string(),
    };
    let why = match cause {
        Cause::Deadline(limit) => format!("{what} within {} s", seconds(*limit)),
        Cause::Silent(ranks) => format!("{} went silent", text::ranks(ranks)),
        Cause::Died(ranks) => format!("{} ended before the case did", text::ranks(ranks)),
    };
    format!("{why}: {class}: {}", verdict.summary)
}

/// Tells where the time went, who was at fault, how the calls differ, and what to do.
pub(super) fn message(
    states: &[Stand],
    case: u64,
    cause: &Cause,
    diagnosis: &Diagnosis,
    began_ns: u64,
    now_ns: u64,
) -> String {
    let mut message = headline(cause, diagnosis, "no end");
    let pending = states.iter().flat_map(|s| s.calls.iter().flatten()).filter(|c| c.state != State::Completed);
    if let Some(call) = pending.min_by_key(|call| (call.created_ns, call.seq)) {
        let before = since(began_ns, call.created_ns);
        let within = since(call.created_ns, now_ns);
        let _ = write!(message, "\ntime: {before:.1} s until call {} was made, {within:.1} s since", call.seq);
    } else {
        let _ = write!(message, "\ntime: {:.1} s, with no call open", since(began_ns, now_ns));
    }
    for (ranks, stage) in alike(states, stage).into_iter().take(MOST) {
        let longest = ranks.iter().filter_map(|rank| states.iter().find(|s| s.rank == *rank)).map(begun_ns).min();
        let age =
            longest.filter(|since| *since > 0).map_or(String::new(), |ns| format!(", for {:.1} s", since(ns, now_ns)));
        let _ = write!(message, "\n{}: {stage}{age}", text::ranks(&ranks));
    }
    let comm = match diagnosis.verdict.communicator.as_deref() {
        Some(WORLD) => Some(case),
        Some(SECOND) => Some(case | TWIN),
        _ => None,
    };
    if let (Some(comm), Some(sequence)) = (comm, diagnosis.verdict.sequence) {
        let _ = write!(message, "\ncall {sequence} side by side:");
        for (ranks, call) in alike(states, |state| at(state, comm, sequence)).into_iter().take(MOST) {
            let _ = write!(message, "\n  {}: {call}", text::ranks(&ranks));
        }
    }
    for state in states {
        for said in state.messages.iter().take(2) {
            let _ = write!(message, "\nrank {}: {}", state.rank, text::line(said));
        }
    }
    append(&mut message, diagnosis);
    message
}

pub(super) fn append(message: &mut String, diagnosis: &Diagnosis) {
    let verdict = &diagnosis.verdict;
    if !verdict.culprit_ranks.is_empty() {
        let _ = write!(message, "\nat fault: {}", text::ranks(&verdict.culprit_ranks));
    }
    if verdict.candidates.len() > 1 {
        let names: Vec<&str> = verdict.candidates.iter().map(|class| class.name()).collect();
        let _ = write!(message, "\npossible: {}", names.join(", "));
    }
    for evidence in diagnosis.evidence.iter().take(MOST) {
        let _ = write!(message, "\nevidence: {}: {}", evidence.source, evidence.says);
    }
    // who reads this runs collcheck's own programs
    for step in diagnosis.next_steps.iter().filter(|step| !step.contains("PyTorch")) {
        let _ = write!(message, "\nnext: {step}");
    }
}

/// Ranks of which the same can be said, in the order of their first.
fn alike(states: &[Stand], say: impl Fn(&Stand) -> String) -> Vec<(Vec<u32>, String)> {
    let mut groups: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for state in states {
        groups.entry(say(state)).or_default().push(state.rank);
    }
    let mut groups: Vec<(Vec<u32>, String)> = groups.into_iter().map(|(text, ranks)| (ranks, text)).collect();
    groups.sort();
    groups
}

/// Where a rank is: what it does, and how far its calls got.
fn stage(state: &Stand) -> String {
    let mut text = match state.liveness {
        // what it was doing is not known
        Liveness::Unreachable { .. } if state.calls.is_none() => return state.liveness.to_string(),
        Liveness::Exited { .. } | Liveness::Stopped => format!("{}, was {}", state.liveness, state.doing.words()),
        _ => state.doing.words().to_owned(),
    };
    match (&state.calls, state.calls.iter().flatten().find(|call| call.state != State::Completed)) {
        (None, _) => text.push_str("; no record of its calls"),
        (_, Some(call)) => {
            let how = if call.state == State::Running { "running" } else { "queued" };
            let _ = write!(text, "; call {} ({}) is {how}", call.seq, call.operation);
        }
        (Some(calls), None) => match calls.last() {
            Some(last) => {
                let _ = write!(text, "; its last call, {} ({}), is done", last.seq, last.operation);
            }
            None => text.push_str("; no call made"),
        },
    }
    text
}

fn begun_ns(state: &Stand) -> u64 {
    let open = state.calls.iter().flatten().find(|call| call.state != State::Completed);
    match state.doing {
        // the clock is not asked at a launch
        Doing::Launching => open.map_or(0, |call| call.created_ns),
        _ => state.since_ns,
    }
}

/// A rank's call with this number, with all its arguments; of an exchange, all its sends and receives.
fn at(state: &Stand, comm: u64, sequence: u64) -> String {
    let Some(calls) = &state.calls else { return "no record".to_owned() };
    let own = || calls.iter().filter(|call| call.comm == comm);
    let found: Vec<String> = own().filter(|call| call.seq == sequence).take(MOST).map(arguments).collect();
    if !found.is_empty() {
        return found.join("; ");
    }
    let passed = own().next_back().is_some_and(|last| last.seq > sequence);
    if passed { "record overwritten".to_owned() } else { "never called".to_owned() }
}

fn arguments(call: &Call) -> String {
    let mut text = call.operation.to_string();
    if let Some(op) = call.op {
        let _ = write!(text, " {op}");
    }
    if let Some(dtype) = call.dtype {
        let _ = write!(text, " {dtype}");
    }
    if let Some(count) = call.count {
        let _ = write!(text, ", {count} elements");
    }
    if let Some(root) = call.root {
        let _ = write!(text, ", root {root}");
    }
    let how = match call.state {
        State::Queued => "queued",
        State::Running => "running",
        State::Completed => "completed",
    };
    let _ = write!(text, ": {how}");
    text
}

fn since(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e9
}

/// Whole seconds as such.
fn seconds(s: f64) -> String {
    if s.fract().abs() < 0.05 { format!("{s:.0}") } else { format!("{s:.1}") }
}
