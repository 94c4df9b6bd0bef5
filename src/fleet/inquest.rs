//! Why a case did not come back: from the ranks' logs to a verdict, and to a message for people.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::log::{Doing, Log};
use super::recorder::TWIN;
use crate::trace::call::{Call, Operation, State};
use crate::trace::ring::snapshot;
use crate::trace::text;
use crate::trace::{Class, Communicator, Diagnosis, Incident, Liveness, RankEvidence, Setup, judge};

/// The communicator's name in verdicts.
const WORLD: &str = "the communicator";

/// That of its twin.
const SECOND: &str = "the second communicator";

/// The workers' meetings, as calls that ranks wait in where no call of the library is left open.
const MEETING: u64 = u64::MAX;
const MEETING_NAME: &str = "the workers' meeting between two steps";

/// Groups of ranks that a message lists.
const MOST: usize = 12;

/// What is known of one rank when its case is given up.
pub struct Witness {
    /// Which.
    pub rank: u32,
    /// Whether whatever drives it lives.
    pub liveness: Liveness,
    /// Its log, as far as it had got one.
    pub log: Option<Log>,
    /// What it said before: the text of a panic, an asynchronous error.
    pub messages: Vec<String>,
}

/// Why nobody waits any longer.
#[derive(Debug, Clone, PartialEq)]
pub enum Cause {
    /// No end within so many seconds.
    Deadline(f64),
    /// These ranks are gone.
    Died(Vec<u32>),
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Findings {
    /// Why nobody waits any longer.
    pub cause: Cause,
    /// Class, culprits, next steps.
    pub diagnosis: Diagnosis,
    /// All of it for people, the essence on the first line.
    pub message: String,
}

/// A rank at the time of the inquest.
struct Stand {
    rank: u32,
    liveness: Liveness,
    /// Calls of this case; `None` where there is no record.
    calls: Option<Vec<Call>>,
    lost: u64,
    doing: Doing,
    since_ns: u64,
    messages: Vec<String>,
}

/// Judges a case with this number (see [`Log::begin`]) that began at `began_ns`.
pub fn hold(witnesses: Vec<Witness>, case: u64, cause: Cause, began_ns: u64, now_ns: u64) -> Findings {
    let states: Vec<Stand> = witnesses.into_iter().map(|witness| state(witness, case)).collect();
    let diagnosis = judge(&incident(&states, case));
    let message = message(&states, case, &cause, &diagnosis, began_ns, now_ns);
    Findings { cause, diagnosis, message }
}

/// Judges a communicator that was not made. `begun` are the ranks that are known to have begun, and `states` says how
/// those are of which anything is known.
pub fn unmade(states: &[Liveness], ranks: u32, begun: &[u32], cause: Cause) -> Findings {
    let setup = |rank: u32| if begun.contains(&rank) { vec![Setup { comm: 0, done: false }] } else { Vec::new() };
    let evidence = (0..ranks).map(|rank| RankEvidence {
        rank,
        liveness: states.get(rank as usize).copied().unwrap_or(Liveness::Alive),
        calls: Some(Vec::new()),
        setups: setup(rank),
        ..RankEvidence::default()
    });
    let incident = Incident {
        ranks: evidence.collect(),
        communicators: vec![Communicator { id: 0, label: WORLD.to_owned(), ranks: (0..ranks).collect() }],
        world: Some(ranks),
    };
    let diagnosis = judge(&incident);
    let mut message = headline(&cause, &diagnosis, "the communicator was not made");
    append(&mut message, &diagnosis);
    Findings { cause, diagnosis, message }
}

fn state(witness: Witness, case: u64) -> Stand {
    let Witness { rank, liveness, log, messages } = witness;
    let begun = log.as_ref().is_some_and(|log| log.case() == case);
    let (doing, since_ns) = log.as_ref().filter(|_| begun).map_or((Doing::Nothing, 0), Log::doing);
    let read = log.and_then(|log| snapshot(&log).ok());
    let own = |read: crate::trace::ring::Snapshot| {
        let before = read.calls.len();
        let calls: Vec<Call> = read.calls.into_iter().filter(|call| call.comm & !TWIN == case).collect();
        // what was overwritten is of this case only if nothing older is left
        let lost = if calls.len() == before { read.lost } else { 0 };
        (calls, lost)
    };
    let (calls, lost) = read.map(own).map_or((None, 0), |(calls, lost)| (Some(calls), lost));
    Stand { rank, liveness, calls, lost, doing, since_ns, messages }
}

fn incident(states: &[Stand], case: u64) -> Incident {
    let open = |state: &Stand| state.calls.iter().flatten().any(|call| call.state != State::Completed);
    // A rank that waits for the others elsewhere than in a call holds that it has made its calls. Where all do, or are busy,
    // the meeting itself is what they wait in.
    let meeting = !states.iter().any(open);
    let evidence = states.iter().map(|state| {
        let mut calls = state.calls.clone();
        let waits = matches!(state.doing, Doing::Meeting | Doing::Reported);
        if meeting
            && waits
            && let Some(calls) = &mut calls
        {
            let meeting = Call::new(MEETING, 1, Operation::Other("meeting".to_owned()));
            let created_ns = state.since_ns;
            calls.push(Call { state: State::Running, created_ns, started_ns: Some(created_ns.max(1)), ..meeting });
        }
        RankEvidence {
            rank: state.rank,
            host: String::new(),
            liveness: state.liveness,
            calls,
            lost: state.lost,
            finished: waits && !meeting,
            setups: Vec::new(),
            messages: state.messages.clone(),
        }
    });
    let ranks: Vec<u32> = states.iter().map(|state| state.rank).collect();
    let communicator = |id, label: &str| Communicator { id, label: label.to_owned(), ranks: ranks.clone() };
    let mut communicators = vec![communicator(case, WORLD)];
    if states.iter().flat_map(|state| state.calls.iter().flatten()).any(|call| call.comm == case | TWIN) {
        communicators.push(communicator(case | TWIN, SECOND));
    }
    if meeting {
        communicators.push(communicator(MEETING, MEETING_NAME));
    }
    Incident { ranks: evidence.collect(), communicators, world: u32::try_from(states.len()).ok() }
}

fn headline(cause: &Cause, diagnosis: &Diagnosis, what: &str) -> String {
    let verdict = &diagnosis.verdict;
    let class = match verdict.class {
        Class::None => "nothing to be seen".to_owned(),
        class => class.to_string(),
    };
    let why = match cause {
        Cause::Deadline(limit) => format!("{what} within {} s", seconds(*limit)),
        Cause::Died(ranks) => format!("{} ended before the case did", text::ranks(ranks)),
    };
    format!("{why}: {class}: {}", verdict.summary)
}

/// Tells where the time went, who was at fault, how the calls differ, and what to do.
fn message(states: &[Stand], case: u64, cause: &Cause, diagnosis: &Diagnosis, began_ns: u64, now_ns: u64) -> String {
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

fn append(message: &mut String, diagnosis: &Diagnosis) {
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
