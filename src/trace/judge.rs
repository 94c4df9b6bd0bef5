//! The rules: from an incident to a diagnosis.
//!
//! The first question is whether ranks differ in what they called last. If so it is the program: another argument (A),
//! another call (B), a lonely send or recv (C), crossed communicators (D). If not, it is the surroundings: a host is
//! silent (F), a rank is gone or busy elsewhere (E), or network or hardware (F). Rules are tried in that order of force; what speaks against the
//! one that fits is kept as evidence, and where two causes are equally good the verdict is undetermined.

mod arguments;
mod circles;
mod fabric;
mod presence;
mod unreachable;

use super::advice;
use super::align::{Alignment, Group, Key};
use super::call::{Call, Operation};
use super::incident::{Incident, Liveness};
use super::messages::{Sign, sign};
use super::p2p::{self, Pair};
use super::text;
use super::verdict::{Class, Diagnosis, Evidence, Verdict};
use super::waits::Waits;

/// Lines of evidence kept per kind.
const MOST: usize = 8;

/// Judges a hang. Any input has an answer.
pub fn judge(incident: &Incident) -> Diagnosis {
    let facts = Facts::new(incident);
    let arguments = arguments::find(&facts);
    let presence = unreachable::find(&facts).or_else(|| presence::find(&facts));
    let mut found = match (arguments.decisive, presence) {
        (Some(a), Some(p)) => weigh(a, p),
        (Some(a), None) => a,
        (None, Some(p)) => p,
        (None, None) => {
            let rules = [circles::find, fabric::find, presence::aftermath];
            match (rules.iter().find_map(|rule| rule(&facts)), arguments.silent) {
                (Some(hang), Some(silent)) => left_behind(&facts, hang, silent),
                (found, silent) => found.or(silent).unwrap_or_else(|| fabric::nothing(&facts)),
            }
        }
    };
    found.evidence.extend(arguments.notes);
    found.evidence.extend(facts.surroundings());
    found.finish(&facts)
}

/// All ranks make a call alike and it does not end, but not all made an earlier one alike: it left behind bytes that nobody
/// took, or took some of this one. Only a message that names a failure speaks against it.
fn left_behind(facts: &Facts<'_>, hang: Finding, silent: Finding) -> Finding {
    if hang.class != Class::FFabric || facts.signs.iter().any(|signs| !signs.is_empty()) {
        return hang;
    }
    let mut both = silent;
    both.candidates
        .extend(hang.candidates.iter().filter(|class| !both.candidates.contains(class)).copied().collect::<Vec<_>>());
    both.says("calls", format!("{}: what came of it", hang.summary));
    both.evidence.extend(hang.evidence);
    both
}

/// A rank's argument and a rank's absence both could be the cause.
fn weigh(arguments: Finding, presence: Finding) -> Finding {
    let class = presence.class;
    let mut both = arguments;
    // Who passed the wrong argument may well have died of it, and who died after that call is no cause of its hang.
    let later = matches!((presence.after, both.at), (Some((a, last)), Some((b, key))) if a == b && last >= key);
    let same = presence.culprits.iter().all(|rank| both.culprits.contains(rank));
    both.evidence.extend(presence.evidence);
    if same || later || !presence.certain {
        // That a rank with other calls comes late, or not at all, at the end is what other calls lead to.
        let follows = same && class == Class::EStuck;
        if !follows && !both.candidates.contains(&class) {
            both.candidates.push(class);
        }
        return both;
    }
    let mut candidates = presence.candidates;
    candidates.extend(both.candidates.iter().filter(|c| !candidates.contains(c)).copied().collect::<Vec<_>>());
    both.culprits.extend(presence.culprits);
    Finding {
        class: Class::Undetermined,
        candidates,
        summary: format!("two causes, and nothing tells which came first: {}; {}", presence.summary, both.summary),
        ..both
    }
}

/// One rule's answer.
#[derive(Clone, Debug, Default)]
struct Finding {
    class: Class,
    candidates: Vec<Class>,
    /// Global ranks.
    culprits: Vec<u32>,
    place: Option<Place>,
    summary: String,
    evidence: Vec<Evidence>,
    /// The place in its communicator, to compare with others there.
    at: Option<(u64, Key)>,
    /// For a rank that is gone: the last place that it had reached there.
    after: Option<(u64, Key)>,
    /// Whether it would stand without any other.
    certain: bool,
}

/// The call that hangs.
#[derive(Clone, Debug)]
struct Place {
    communicator: String,
    sequence: u64,
    operation: String,
}

impl Finding {
    fn new(candidates: Vec<Class>, summary: String) -> Self {
        let class = candidates.first().copied().unwrap_or(Class::Undetermined);
        Finding { class, candidates, summary, certain: true, ..Finding::default() }
    }

    fn says(&mut self, source: impl Into<String>, says: impl Into<String>) {
        self.evidence.push(Evidence { source: source.into(), says: says.into() });
    }

    fn finish(mut self, facts: &Facts<'_>) -> Diagnosis {
        self.culprits.sort_unstable();
        self.culprits.dedup();
        let hosts = facts.hosts(&self.culprits);
        let verdict = Verdict {
            class: self.class,
            candidates: self.candidates,
            culprit_ranks: self.culprits,
            communicator: self.place.as_ref().map(|p| p.communicator.clone()),
            sequence: self.place.as_ref().map(|p| p.sequence),
            operation: self.place.map(|p| p.operation),
            summary: self.summary,
        };
        let next_steps = advice::next_steps(&verdict, &hosts);
        Diagnosis { verdict, evidence: self.evidence, next_steps }
    }
}

/// An incident, laid out for the rules.
struct Facts<'a> {
    alignment: Alignment<'a>,
    pairs: Vec<Pair>,
    waits: Waits,
    /// Per rank: what its messages mean.
    signs: Vec<Vec<(Sign, &'a str)>>,
    /// Every process has ended: then an end tells nothing of the cause, unless it is one that no clean-up makes.
    post_mortem: bool,
}

impl<'a> Facts<'a> {
    fn new(incident: &'a Incident) -> Self {
        let alignment = Alignment::new(incident);
        let pairs = p2p::pairs(&alignment);
        let waits = Waits::new(&alignment, &pairs);
        let messages = |evidence: Option<&'a super::incident::RankEvidence>| {
            let all = evidence.map_or(&[][..], |e| &e.messages);
            all.iter().filter_map(|text| sign(text).map(|sign| (sign, text.as_str()))).collect()
        };
        let signs = alignment.ranks.iter().map(|rank| messages(rank.evidence)).collect();
        let mut known =
            alignment.ranks.iter().filter(|r| !matches!(r.liveness(), Liveness::Unknown | Liveness::NoDump)).peekable();
        let post_mortem = known.peek().is_some() && known.all(|rank| rank.liveness().exited());
        Facts { alignment, pairs, waits, signs, post_mortem }
    }

    fn rank(&self, track: usize) -> u32 {
        self.alignment.ranks.get(track).map_or(0, |rank| rank.rank)
    }

    fn ranks(&self, tracks: &[usize]) -> Vec<u32> {
        tracks.iter().map(|track| self.rank(*track)).collect()
    }

    fn liveness(&self, track: usize) -> Liveness {
        self.alignment.ranks.get(track).map_or(Liveness::Unknown, |rank| rank.liveness())
    }

    fn silent(&self, track: usize) -> bool {
        self.alignment.ranks.get(track).is_some_and(|rank| rank.silent())
    }

    fn call(&self, track: usize, index: usize) -> Option<&'a Call> {
        self.alignment.ranks.get(track).and_then(|rank| rank.calls.get(index))
    }

    fn shows(&self, track: usize, wanted: Sign) -> Option<&'a str> {
        self.signs.get(track).into_iter().flatten().find(|(sign, _)| *sign == wanted).map(|(_, text)| *text)
    }

    /// Ended by something that is no clean-up and no watchdog, or while others live on.
    fn crashed(&self, track: usize) -> bool {
        let liveness = self.liveness(track);
        match liveness.signal() {
            Some(4 | 7 | 8 | 11) => true,
            _ => liveness.exited() && !self.post_mortem,
        }
    }

    /// `rank 3 on host-a`.
    fn source(&self, track: usize) -> String {
        let host = self.alignment.ranks.get(track).and_then(|rank| rank.evidence).map_or("", |e| &e.host);
        let rank = self.rank(track);
        if host.is_empty() { format!("rank {rank}") } else { format!("rank {rank} on {host}") }
    }

    fn hosts(&self, ranks: &[u32]) -> Vec<String> {
        let known =
            ranks.iter().filter_map(|rank| self.alignment.track(*rank)).filter_map(|at| self.alignment.ranks.get(at));
        let mut hosts: Vec<String> = known.filter_map(|rank| rank.evidence).map(|e| e.host.clone()).collect();
        hosts.retain(|host| !host.is_empty());
        hosts.sort();
        hosts.dedup();
        hosts
    }

    fn place(&self, group: &Group<'_>, key: Key, call: &Call) -> Place {
        Place { communicator: group.name.clone(), sequence: key.0, operation: call.operation.to_string() }
    }

    /// The place of a send or recv: `send 0->1`.
    fn p2p_place(&self, track: usize, call: &Call) -> Option<Place> {
        let group = self.alignment.group(call.comm)?;
        let own = self.rank(track);
        let operation = match call.operation {
            Operation::Send { peer } => format!("send {own}->{}", group.global(peer)),
            Operation::Recv { peer } => format!("recv {own}<-{}", group.global(peer)),
            _ => call.operation.to_string(),
        };
        Some(Place { communicator: group.name.clone(), sequence: call.seq, operation })
    }

    /// Some rank's call at a place; all agree there, or the caller does not care.
    fn any_call(&self, group: &Group<'a>, key: Key) -> Option<&'a Call> {
        group.lanes.iter().find_map(|lane| self.alignment.call(lane, key))
    }

    /// What any verdict should come with: ends, stops, messages, losses.
    fn surroundings(&self) -> Vec<Evidence> {
        let mut all = Vec::new();
        let mut ends = Vec::new();
        let mut lost = Vec::new();
        for (track, rank) in self.alignment.ranks.iter().enumerate() {
            if matches!(rank.liveness(), Liveness::Exited { .. } | Liveness::Stopped | Liveness::Unreachable { .. }) {
                ends.push(Evidence { source: self.source(track), says: format!("the process is {}", rank.liveness()) });
            }
            if rank.silent() {
                ends.push(Evidence { source: self.source(track), says: "left no record of its calls".to_owned() });
            }
            let texts = self.signs.get(track).into_iter().flatten().take(2);
            all.extend(texts.map(|(_, message)| Evidence { source: self.source(track), says: text::line(message) }));
            if rank.evidence.is_some_and(|e| e.lost > 0) {
                lost.push(rank.rank);
            }
        }
        let spare = all.len().saturating_sub(MOST);
        all.truncate(MOST);
        if spare > 0 {
            all.push(Evidence { source: "messages".to_owned(), says: format!("{spare} more of their kind") });
        }
        let spare = ends.len().saturating_sub(MOST);
        ends.truncate(MOST);
        if spare > 0 {
            ends.push(Evidence { source: "processes".to_owned(), says: format!("{spare} more like these") });
        }
        ends.extend(all);
        if !lost.is_empty() {
            let says = format!("older calls of {} are overwritten: aligned by sequence number", text::ranks(&lost));
            ends.push(Evidence { source: "records".to_owned(), says });
        }
        ends
    }
}
