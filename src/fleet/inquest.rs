//! Why a case did not come back: from the ranks' logs to a verdict, and to a message for people.
//!
//! Before a verdict, timed launches that were only counted are put in place (`batch`), and what queues must have got through
//! is taken for done (`queue`).

mod batch;
mod message;
mod queue;

use std::collections::BTreeMap;
use std::fmt::Write;

use super::log::{Batch, Doing, Log};
use super::recorder::TWIN;
use batch::unroll;
use message::{append, headline, message};
use queue::{Queue, run_down};

use crate::trace::call::{Call, Operation, State};
use crate::trace::messages::{Sign, sign};
use crate::trace::ring::{Snapshot, snapshot};
use crate::trace::text;
use crate::trace::{Class, Communicator, Diagnosis, Incident, Liveness, RankEvidence, Setup, judge};

/// The communicator's name in verdicts.
const WORLD: &str = "the communicator";

/// That of one made beside it, with what is added to the case's number to be its id.
const BESIDE: &str = "one more communicator";
const FORMED: u64 = 1 << 62;

/// That of its twin.
const SECOND: &str = "the second communicator";

/// Those of both in the case before.
const BEFORE: &str = "the case before";
const SECOND_BEFORE: &str = "the second communicator in the case before";

/// The workers' meetings, as calls that ranks wait in where no call of the library is left open.
const MEETING: u64 = u64::MAX;
const MEETING_NAME: &str = "the workers' meeting between two steps";

/// Lines of the library's that a message ends with.
const LINES: usize = 4;

/// What is known of one rank when its case is given up.
pub struct Witness {
    /// Which.
    pub rank: u32,
    /// The host that it runs on; empty where all are on one.
    pub host: String,
    /// Whether whatever drives it lives.
    pub liveness: Liveness,
    /// Its log, as far as it had got one.
    pub log: Option<Log>,
    /// What it said before: the text of a panic, an asynchronous error.
    pub messages: Vec<String>,
}

/// What the library has said, and which rank of its ranks, where that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Which rank.
    pub rank: Option<u32>,
    /// One line.
    pub text: String,
}

/// Why nobody waits any longer.
#[derive(Debug, Clone, PartialEq)]
pub enum Cause {
    /// No end within so many seconds.
    Deadline(f64),
    /// These ranks are gone.
    Died(Vec<u32>),
    /// Nothing is heard from the hosts of these ranks.
    Silent(Vec<u32>),
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
    host: String,
    liveness: Liveness,
    /// Calls of this case; `None` where there is no record.
    calls: Option<Vec<Call>>,
    lost: u64,
    doing: Doing,
    since_ns: u64,
    messages: Vec<String>,
    /// The case's last batches, oldest first.
    batches: Vec<Batch>,
    /// The communicator made beside the case's: of how many ranks, and whether it came about.
    formed: Option<(u32, bool)>,
}

impl Stand {
    /// The batch that begins with call `first`.
    fn batch(&self, first: u64) -> Option<Batch> {
        self.batches.iter().find(|batch| batch.first == first).copied()
    }
}

/// Judges a case with this number (see `Log::begin`) that began at `began_ns`. `said` is the library's, oldest first.
pub fn hold(witnesses: Vec<Witness>, said: Vec<Said>, case: u64, cause: Cause, began_ns: u64, now_ns: u64) -> Findings {
    let mut states = stands(witnesses, case);
    let mut unowned = Vec::new();
    for Said { rank, text } in said.into_iter().rev() {
        match states.iter_mut().find(|state| Some(state.rank) == rank) {
            Some(state) => state.messages.push(text), // the newest first
            None => unowned.push(text),
        }
    }
    let diagnosis = judge(&incident(&states, case));
    let mut message = message(&states, case, &cause, &diagnosis, began_ns, now_ns);
    for text in unowned.iter().take(LINES).rev() {
        let _ = write!(message, "\nthe library: {}", text::line(text));
    }
    Findings { cause, diagnosis, message }
}

/// Judges a case in which calls returned errors, from what ranks have said of those and how far each got. `None` where that
/// tells no more than the errors do: neither a way that failed, nor a communicator that did not come about, nor calls that do
/// not fit each other.
pub fn failed(witnesses: Vec<Witness>, case: u64) -> Option<Diagnosis> {
    let states = stands(witnesses, case);
    let speaks = |state: &Stand| {
        let mut signs = state.messages.iter().filter_map(|text| sign(text));
        signs.any(|sign| matches!(sign, Sign::Fabric | Sign::PeerGone | Sign::Device))
    };
    let unmade = |state: &Stand| state.formed.is_some_and(|(_, done)| !done);
    let hurt = states.iter().any(|state| speaks(state) || unmade(state));
    let diagnosis = judge(&incident(&states, case));
    let told = match diagnosis.verdict.class {
        // what was called is certain; who called less may have done so because of the error
        Class::ASize | Class::ADtype | Class::CUnpaired => true,
        Class::None | Class::Undetermined => false,
        _ => hurt,
    };
    told.then_some(diagnosis)
}

/// A diagnosis as it is told behind the error of a case that came to its end.
pub fn explained(diagnosis: &Diagnosis) -> String {
    let verdict = &diagnosis.verdict;
    let mut message = format!("\n{}: {}", verdict.class, verdict.summary);
    append(&mut message, diagnosis);
    message
}

/// All ranks at the time of the inquest.
fn stands(witnesses: Vec<Witness>, case: u64) -> Vec<Stand> {
    let mut states: Vec<Stand> = witnesses.into_iter().map(|witness| state(witness, case)).collect();
    unroll(&mut states);
    let queues = states.iter_mut().filter_map(|state| {
        let waits = state.doing == Doing::Waiting;
        Some(Queue { rank: state.rank, calls: state.calls.as_mut()?, waits })
    });
    run_down(&mut queues.collect::<Vec<_>>());
    states
}

/// Compares the calls of a case that has come to its end, and of the one before it on the same communicator: what of them
/// does not belong together, though it ended. `None` if nothing.
pub fn compare(witnesses: Vec<Witness>, case: u64) -> Option<Diagnosis> {
    let before = case.wrapping_sub(1);
    let names = [(before, BEFORE), (before | TWIN, SECOND_BEFORE), (case, WORLD), (case | TWIN, SECOND)];
    let known = |comm: u64| names.iter().any(|(id, _)| *id == comm);
    let world: Vec<u32> = witnesses.iter().map(|witness| witness.rank).collect();
    let evidence = witnesses.into_iter().map(|Witness { rank, host, liveness, log, messages }| {
        let read = log.and_then(|log| snapshot(&log).ok());
        let (calls, lost) = read.map_or((None, 0), |read| {
            let (calls, lost) = own(read, known);
            (Some(calls), lost)
        });
        RankEvidence { rank, host, liveness, calls, lost, finished: true, messages, ..RankEvidence::default() }
    });
    let mut incident =
        Incident { ranks: evidence.collect(), communicators: Vec::new(), world: u32::try_from(world.len()).ok() };
    let used = |id: u64| incident.ranks.iter().flat_map(|rank| rank.calls.iter().flatten()).any(|call| call.comm == id);
    let used: Vec<(u64, &str)> = names.into_iter().filter(|(id, _)| used(*id)).collect();
    let communicator = |(id, label): (u64, &str)| Communicator { id, label: label.to_owned(), ranks: world.clone() };
    incident.communicators = used.into_iter().map(communicator).collect();
    let diagnosis = judge(&incident);
    (!matches!(diagnosis.verdict.class, Class::None | Class::Undetermined)).then_some(diagnosis)
}

/// For each call that all ranks made in a case: who was the last, and by how many nanoseconds, by the clock that all ranks of a
/// host share.
pub fn last_to_call(witnesses: &[Witness], case: u64) -> Vec<(u32, u64)> {
    let mut calls: BTreeMap<u64, Vec<(u64, u32)>> = BTreeMap::new();
    for witness in witnesses {
        let read = witness.log.as_ref().and_then(|log| snapshot(log).ok());
        for call in read.iter().flat_map(|read| &read.calls).filter(|call| call.comm == case) {
            let made = calls.entry(call.seq).or_default();
            // a send and a receive of one call are made together
            if made.last().is_none_or(|(_, rank)| *rank != witness.rank) {
                made.push((call.created_ns, witness.rank));
            }
        }
    }
    let last = |mut made: Vec<(u64, u32)>| {
        made.sort_unstable();
        match made[..] {
            [.., (second, _), (last, rank)] if made.len() == witnesses.len() => Some((rank, last - second)),
            _ => None,
        }
    };
    calls.into_values().filter_map(last).collect()
}

/// Judges a communicator that was not made. `begun` are the ranks that are known to have begun, and `states` says how
/// those are of which anything is known, and `hosts` where they run.
pub fn unmade(states: &[Liveness], hosts: &[String], ranks: u32, begun: &[u32], cause: Cause) -> Findings {
    let setup =
        |rank: u32| if begun.contains(&rank) { vec![Setup { comm: 0, done: false, ranks: None }] } else { Vec::new() };
    let evidence = (0..ranks).map(|rank| RankEvidence {
        rank,
        host: hosts.get(rank as usize).cloned().unwrap_or_default(),
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
    let Witness { rank, host, liveness, log, messages } = witness;
    let begun = log.as_ref().is_some_and(|log| log.case() == case);
    let (doing, since_ns) = log.as_ref().filter(|_| begun).map_or((Doing::Nothing, 0), Log::doing);
    let batches = log.as_ref().filter(|_| begun).map(Log::batches).unwrap_or_default();
    let formed = log.as_ref().filter(|_| begun).and_then(Log::formed);
    let read = log.and_then(|log| snapshot(&log).ok());
    let (calls, lost) = read.map_or((None, 0), |read| {
        let (calls, lost) = own(read, |comm| comm & !TWIN == case);
        (Some(calls), lost)
    });
    Stand { rank, host, liveness, calls, lost, doing, since_ns, messages, batches, formed }
}

/// The calls on such communicators, and how many of them were overwritten: none as long as anything older is left.
fn own(read: Snapshot, on: impl Fn(u64) -> bool) -> (Vec<Call>, u64) {
    let all = read.calls.len();
    let calls: Vec<Call> = read.calls.into_iter().filter(|call| on(call.comm)).collect();
    let lost = if calls.len() == all { read.lost } else { 0 };
    (calls, lost)
}

fn incident(states: &[Stand], case: u64) -> Incident {
    let open = |state: &Stand| state.calls.iter().flatten().any(|call| call.state != State::Completed);
    // A rank that waits for the others elsewhere than in a call holds that it has made its calls. Where all do, or are busy,
    // the meeting itself is what they wait in.
    let meeting = !states.iter().any(open);
    let setup =
        |state: &Stand| state.formed.map(|(ranks, done)| Setup { comm: case | FORMED, done, ranks: Some(ranks) });
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
            host: state.host.clone(),
            liveness: state.liveness,
            calls,
            lost: state.lost,
            finished: waits && !meeting,
            setups: setup(state).into_iter().collect(),
            messages: state.messages.clone(),
        }
    });
    let ranks: Vec<u32> = states.iter().map(|state| state.rank).collect();
    let communicator = |id, label: &str| Communicator { id, label: label.to_owned(), ranks: ranks.clone() };
    let mut communicators = vec![communicator(case, WORLD)];
    if states.iter().flat_map(|state| state.calls.iter().flatten()).any(|call| call.comm == case | TWIN) {
        communicators.push(communicator(case | TWIN, SECOND));
    }
    if states.iter().any(|state| state.formed.is_some()) {
        communicators.push(communicator(case | FORMED, BESIDE));
    }
    if meeting {
        communicators.push(communicator(MEETING, MEETING_NAME));
    }
    Incident { ranks: evidence.collect(), communicators, world: u32::try_from(states.len()).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_case_is_lost_as_long_as_older_calls_are_left() {
        let call = |comm, seq| Call::new(comm, seq, Operation::Send { peer: 0 });
        let read = |calls| Snapshot { rank: 0, calls, lost: 7, dropped: 0 };
        let of = |calls| own(read(calls), |comm| comm == 4);
        assert_eq!(of(vec![call(3, 9), call(4, 1)]), (vec![call(4, 1)], 0));
        assert_eq!(of(vec![call(4, 5), call(4, 6)]), (vec![call(4, 5), call(4, 6)], 7));
    }
}
