//! init and E: who is not there.

use std::collections::BTreeMap;

use super::{Facts, Finding, circles};
use crate::trace::align::{Cell, Group, Key};
use crate::trace::call::Call;
use crate::trace::incident::Liveness;
use crate::trace::messages::Sign;
use crate::trace::text::{ranks, verb};
use crate::trace::verdict::Class;

/// A communicator that does not come to be, or ranks outside of communication that others wait for.
pub(super) fn find(facts: &Facts<'_>) -> Option<Finding> {
    init(facts).or_else(|| absent(facts)).or_else(|| fallen(facts)).or_else(|| stopped(facts))
}

fn init(facts: &Facts<'_>) -> Option<Finding> {
    let setups =
        facts.alignment.ranks.iter().enumerate().flat_map(|(track, rank)| {
            rank.evidence.into_iter().flat_map(|e| &e.setups).map(move |setup| (track, setup))
        });
    let comm = setups.clone().filter(|(_, setup)| !setup.done).map(|(_, setup)| setup.comm).min()?;
    let entered: Vec<usize> = setups.clone().filter(|(_, setup)| setup.comm == comm).map(|(track, _)| track).collect();
    let held: Vec<usize> = setups.filter(|(_, s)| s.comm == comm && !s.done).map(|(track, _)| track).collect();
    let group = facts.alignment.group(comm);
    let name = group.map_or_else(|| format!("{comm:#x}"), |group| group.name.clone());
    let listed: Vec<usize> = match group.filter(|group| group.lanes.len() > entered.len()) {
        Some(group) => group.lanes.iter().map(|lane| lane.track).collect(),
        None => (0..facts.alignment.ranks.len()).collect(),
    };
    let missing: Vec<usize> = listed.iter().copied().filter(|track| !entered.contains(track)).collect();
    let (waiting, culprits) = (ranks(&facts.ranks(&held)), facts.ranks(&missing));
    if let Some(odd) = odd_size(facts, comm, &name, &listed) {
        return Some(odd);
    }
    let mut classes = vec![Class::Init];
    let summary = if missing.is_empty() {
        classes.push(Class::FFabric);
        format!("{name} is not set up: all ranks have begun, {waiting} did not get through")
    } else {
        if missing.iter().any(|track| facts.crashed(*track) || facts.silent(*track)) {
            classes.push(Class::ECrash);
        }
        let came = verb(missing.len(), "has", "have");
        format!("{name} is not set up: {} {came} not begun, {waiting} waiting", ranks(&culprits))
    };
    let mut finding = Finding::new(classes, summary);
    finding.says(format!("set-up of {name}"), format!("begun by {}", ranks(&facts.ranks(&entered))));
    finding.culprits = culprits;
    Some(finding)
}

/// Ranks that do not agree how many they are: those are wrong that ask for another number than there are, or than most do.
fn odd_size(facts: &Facts<'_>, comm: u64, name: &str, members: &[usize]) -> Option<Finding> {
    let mut camps: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (track, rank) in facts.alignment.ranks.iter().enumerate() {
        let setups = rank.evidence.into_iter().flat_map(|e| &e.setups);
        for asked in setups.filter(|setup| setup.comm == comm).filter_map(|setup| setup.ranks) {
            camps.entry(asked).or_default().push(track);
        }
    }
    if camps.len() < 2 {
        return None;
    }
    let there_are = u32::try_from(members.len()).ok().filter(|members| camps.contains_key(members));
    let most = camps.values().map(Vec::len).max();
    let mut largest = camps.iter().filter(|(_, camp)| Some(camp.len()) == most);
    // of two camps alike in size nothing tells which is right
    let majority = match (largest.next(), largest.next()) {
        (Some((asked, _)), None) => Some(*asked),
        _ => None,
    };
    let right = there_are.or(majority);
    let wrong: Vec<usize> =
        camps.iter().filter(|(asked, _)| Some(**asked) != right).flat_map(|(_, camp)| camp).copied().collect();
    let asked = camps.iter().map(|(asked, camp)| {
        format!("{} {} for {asked} ranks", ranks(&facts.ranks(camp)), verb(camp.len(), "asks", "ask"))
    });
    let summary = format!("{name} is not set up: {}", asked.collect::<Vec<_>>().join(", "));
    let mut finding = Finding::new(vec![Class::Init], summary);
    finding.says(format!("set-up of {name}"), format!("{} ranks take part", members.len()));
    finding.culprits = facts.ranks(&wrong);
    Some(finding)
}

/// Whom a rank keeps waiting, and in what.
struct Debt<'f, 'a> {
    group: &'f Group<'a>,
    key: Key,
    call: &'a Call,
}

fn absent(facts: &Facts<'_>) -> Option<Finding> {
    let outside = facts.waits.outside();
    if outside.is_empty() {
        return None;
    }
    let of =
        |wanted: &dyn Fn(usize) -> bool| -> Vec<usize> { outside.iter().copied().filter(|t| wanted(*t)).collect() };
    // Alive and yet without a record: busy, not gone.
    let speaks = |track: usize| matches!(facts.liveness(track), Liveness::Alive | Liveness::Stopped);
    let gone = of(&|track| facts.crashed(track) || (facts.silent(track) && !speaks(track)));
    if !gone.is_empty() {
        return Some(crash(facts, &outside, &gone));
    }
    let halted = of(&|track| facts.liveness(track) == Liveness::Stopped);
    if halted.is_empty()
        && let Some(astray) = circles::astray(facts, &outside)
    {
        return Some(astray);
    }
    let culprits = if halted.is_empty() { outside } else { halted };
    Some(stuck(facts, &culprits))
}

fn debt<'f, 'a>(facts: &'f Facts<'a>, owing: &[usize]) -> Option<Debt<'f, 'a>> {
    let meetings = facts.waits.meetings.iter().filter(|m| m.lacks.iter().any(|track| owing.contains(track)));
    meetings
        .filter_map(|meeting| {
            let group = facts.alignment.groups.get(meeting.group)?;
            Some(Debt { group, key: meeting.key, call: facts.any_call(group, meeting.key)? })
        })
        .min_by_key(|debt| (debt.call.created_ns, debt.group.id, debt.key))
}

pub(super) fn attach(facts: &Facts<'_>, finding: &mut Finding, owing: &[usize]) {
    if let Some(debt) = debt(facts, owing) {
        finding.place = Some(facts.place(debt.group, debt.key, debt.call));
        finding.at = Some((debt.group.id, debt.key));
        let mut cells = debt.group.lanes.iter().filter(|lane| owing.contains(&lane.track));
        // Whether all of them had been where the others' arguments differ is for the caller to compare.
        finding.after = cells.clone().filter_map(|lane| lane.calls.last()).map(|(key, _)| (debt.group.id, *key)).min();
        if cells.any(|lane| facts.alignment.cell(lane, debt.key) == Cell::Silent) {
            finding.after = None;
        }
        let waiting =
            facts.waits.meetings.iter().filter(|m| m.key == debt.key).map(|m| m.held.len()).max().unwrap_or(0);
        let says = format!(
            "{waiting} {} in collective {} ({})",
            verb(waiting, "rank is", "ranks are"),
            debt.key.0,
            debt.call.operation
        );
        finding.says(format!("calls of {}", debt.group.name), says);
    } else if let Some((pair, waits, _)) = facts.waits.lonely.iter().find(|(_, _, owes)| owing.contains(owes)) {
        let call = facts.pairs.get(*pair).and_then(|pair| if pair.from == *waits { pair.send } else { pair.recv });
        let call = call.and_then(|index| facts.call(*waits, index));
        finding.place = call.and_then(|call| facts.p2p_place(*waits, call));
    }
    for track in owing.iter().take(super::MOST) {
        let Some(rank) = facts.alignment.ranks.get(*track) else { continue };
        if let Some(held) = facts.waits.fronts.get(*track).and_then(|front| front.first()) {
            let Some(call) = rank.calls.get(*held) else { continue };
            finding.says(facts.source(*track), format!("was in {} (call {})", call.operation, call.seq));
            let group = facts.alignment.group(call.comm).filter(|_| !call.operation.is_p2p());
            if finding.place.is_none() {
                finding.place = match group {
                    Some(group) => Some(facts.place(group, (call.seq, 0), call)),
                    None => facts.p2p_place(*track, call),
                };
                finding.after = Some((call.comm, (call.seq, 0)));
            }
        } else if let Some(last) = rank.calls.last() {
            let label = if last.label.is_empty() { String::new() } else { format!(", from {}", last.label) };
            let says = format!("its last call, {} (call {}), is done{label}", last.operation, last.seq);
            finding.says(facts.source(*track), says);
        }
    }
}

/// Whether a rank went because of others: a watchdog ended it, or it only says that the other end went away.
fn consequence(facts: &Facts<'_>, track: usize) -> bool {
    facts.shows(track, Sign::PeerGone).is_some() || facts.shows(track, Sign::Timeout).is_some()
}

/// Ranks that died in the call that the others are still in.
fn fallen(facts: &Facts<'_>) -> Option<Finding> {
    let held = |track: &usize| facts.waits.fronts.get(*track).is_some_and(|front| !front.is_empty());
    let fell: Vec<usize> =
        (0..facts.alignment.ranks.len()).filter(|t| facts.crashed(*t)).filter(|track| held(track)).collect();
    (!fell.is_empty()).then(|| crash(facts, &fell, &fell))
}

/// Whether any rank but these is in a call: what these had queued may have got through without them.
fn others_wait(facts: &Facts<'_>, besides: &[usize]) -> bool {
    facts.waits.fronts.iter().enumerate().any(|(track, front)| !front.is_empty() && !besides.contains(&track))
}

fn crash(facts: &Facts<'_>, outside: &[usize], gone: &[usize]) -> Finding {
    let first: Vec<usize> = gone.iter().copied().filter(|track| !consequence(facts, *track)).collect();
    let culprits = if first.is_empty() { gone.to_vec() } else { first };
    let device = culprits.iter().find_map(|track| facts.shows(*track, Sign::Device));
    let named = facts.ranks(&culprits);
    let who = ranks(&named);
    let seen = culprits.iter().filter(|track| facts.crashed(**track)).map(|track| facts.liveness(*track).to_string());
    let mut how: Vec<String> = seen.collect();
    how.sort();
    how.dedup();
    let mut classes = vec![Class::ECrash];
    let what = if how.is_empty() {
        classes.push(Class::EStuck);
        format!("left no record and {} taken for gone", verb(named.len(), "is", "are"))
    } else {
        format!("{} gone ({})", verb(named.len(), "is", "are"), how.join(", "))
    };
    if device.is_some() {
        classes.push(Class::FFabric);
    }
    if culprits.iter().all(|track| facts.liveness(*track).left_cleanly()) {
        classes.push(Class::BCount);
    }
    let others = outside.len() - gone.len();
    if others > 0 && !classes.contains(&Class::EStuck) {
        classes.push(Class::EStuck);
    }
    let mut finding = Finding::new(classes, String::new());
    attach(facts, &mut finding, &culprits);
    let they = if others_wait(facts, &culprits) { "others wait in" } else { "no call of others is open, it was in" };
    finding.summary = match &finding.place {
        Some(place) => {
            format!("{who} {what}: {they} call {} of {} ({})", place.sequence, place.communicator, place.operation)
        }
        None => format!("{who} {what}"),
    };
    finding.certain = !how.is_empty();
    finding.culprits = named;
    finding
}

fn stuck(facts: &Facts<'_>, culprits: &[usize]) -> Finding {
    let named = facts.ranks(culprits);
    let who = ranks(&named);
    let evidence = |track: &usize| facts.alignment.ranks.get(*track).and_then(|rank| rank.evidence);
    let finished =
        culprits.iter().all(|t| evidence(t).is_some_and(|e| e.finished) || facts.liveness(*t).left_cleanly());
    let halted = culprits.iter().all(|track| facts.liveness(*track) == Liveness::Stopped);
    let only_p2p = !facts.waits.meetings.iter().any(|m| m.lacks.iter().any(|track| culprits.contains(track)));
    let even = debt(facts, culprits).is_some_and(|debt| calls_before_are_even(facts, &debt));
    let device = culprits.iter().find_map(|track| facts.shows(*track, Sign::Device));
    let fewer = if only_p2p { Class::CUnpaired } else { Class::BCount };
    let mut classes = Vec::new();
    if device.is_some() {
        classes.push(Class::FFabric);
    }
    if finished {
        classes.extend([fewer, Class::EStuck]);
    } else {
        classes.push(Class::EStuck);
        if !halted && (even || only_p2p) {
            classes.push(fewer);
        }
    }
    let died = |track: usize| {
        facts.crashed(track) && !consequence(facts, track) && !matches!(facts.liveness(track).signal(), Some(6 | 15))
    };
    if culprits.iter().any(|track| facts.silent(*track) || facts.liveness(*track).exited())
        || (0..facts.alignment.ranks.len()).any(died)
    {
        classes.push(Class::ECrash);
    }
    let mut finding = Finding::new(classes, String::new());
    attach(facts, &mut finding, culprits);
    let did_not = match &finding.place {
        Some(place) if only_p2p => format!("did not answer {} of {}", place.operation, place.communicator),
        Some(place) => {
            format!("did not make collective {} of {} ({})", place.sequence, place.communicator, place.operation)
        }
        None => "did not make the call that the others wait in".to_owned(),
    };
    let is = verb(named.len(), "is", "are");
    let where_ = if halted {
        format!("{is} stopped")
    } else if device.is_some() {
        "reported a device error".to_owned()
    } else if finished {
        format!("{} to have made all calls", verb(named.len(), "holds", "hold"))
    } else {
        format!("{is} busy outside of communication")
    };
    finding.summary = format!("{who} {did_not} and {where_}: the last call is done");
    if even && classes_allow_a_skip(&finding.candidates) {
        let says = "all calls before are alike, so a call skipped earlier would only show here, as one too few at the end; \
                    at which step it was cannot be told";
        finding.says("calls", says);
    }
    finding.culprits = named;
    // A rank that is late because it made another call before is no cause of its own.
    finding.certain = halted;
    finding
}

fn classes_allow_a_skip(classes: &[Class]) -> bool {
    classes.contains(&Class::BCount)
}

/// Whether the call in question and some before it are all alike: then one of them may be missing unseen.
fn calls_before_are_even(facts: &Facts<'_>, debt: &Debt<'_, '_>) -> bool {
    let lanes = debt.group.lanes.iter().filter(|lane| facts.alignment.call(lane, debt.key).is_some());
    let Some(lane) = lanes.max_by_key(|lane| lane.calls.len()) else { return false };
    let end = lane.calls.partition_point(|(key, _)| *key < debt.key);
    let Some((_, last)) = end.checked_sub(1).and_then(|at| lane.calls.get(at)) else { return false };
    facts.call(lane.track, *last).is_some_and(|last| last.differs(debt.call).is_none())
}

/// A stopped process holds the others up even where its last call is queued.
fn stopped(facts: &Facts<'_>) -> Option<Finding> {
    if !facts.waits.anybody() {
        return None;
    }
    let halted: Vec<usize> =
        (0..facts.alignment.ranks.len()).filter(|track| facts.liveness(*track) == Liveness::Stopped).collect();
    if halted.is_empty() {
        return None;
    }
    let named = facts.ranks(&halted);
    let is = verb(named.len(), "is", "are");
    let they = if others_wait(facts, &halted) { "calls of others do not end" } else { "no call of others is open" };
    let mut finding = Finding::new(vec![Class::EStuck], format!("{} {is} stopped, and {they}", ranks(&named)));
    if let Some(meeting) = facts.waits.meetings.iter().find(|m| m.held.iter().any(|track| halted.contains(track)))
        && let Some(group) = facts.alignment.groups.get(meeting.group)
        && let Some(call) = facts.any_call(group, meeting.key)
    {
        finding.place = Some(facts.place(group, meeting.key, call));
    }
    finding.culprits = named;
    Some(finding)
}

/// Nobody waits for anybody, and yet processes have died.
pub(super) fn aftermath(facts: &Facts<'_>) -> Option<Finding> {
    let all = facts.alignment.ranks.len();
    let died: Vec<usize> =
        (0..all).filter(|track| facts.crashed(*track) && !facts.liveness(*track).left_cleanly()).collect();
    if died.is_empty() {
        return None;
    }
    let named = facts.ranks(&died);
    let mut finding =
        Finding::new(vec![Class::ECrash], format!("{} ended on an error; no call is left waiting", ranks(&named)));
    finding.culprits = named;
    Some(finding)
}
