//! A and B: ranks of a communicator pass different things to one call.

use super::{Facts, Finding, MOST};
use crate::trace::align::{Disagreement, Group};
use crate::trace::call::Field;
use crate::trace::p2p::Pair;
use crate::trace::shift::{Explanation, Story, explain};
use crate::trace::text::{ranks, verb};
use crate::trace::verdict::{Class, Evidence};

/// What disagreements there are.
#[derive(Default)]
pub(super) struct Arguments {
    /// One that explains the hang.
    pub decisive: Option<Finding>,
    /// One that all ranks got past: it explains wrong results, not a hang.
    pub silent: Option<Finding>,
    /// The others.
    pub notes: Vec<Evidence>,
}

/// Looks through all communicators.
pub(super) fn find(facts: &Facts<'_>) -> Arguments {
    let mut found = Arguments::default();
    let mut first: Option<(u64, Finding)> = None;
    for group in &facts.alignment.groups {
        let hung = facts.alignment.hung(group);
        for split in facts.alignment.disagreements(group).take(MOST) {
            let why = explain(&facts.alignment, group, &split);
            if hung.is_some_and(|hung| split.key > hung) {
                found.notes.push(note(group, &split, "queued behind the call that hangs: no cause of it"));
                break;
            }
            let passed = hung.is_none_or(|hung| split.key < hung);
            let finding = finding(facts, group, &split, &why);
            if passed && matches!(why.story, Story::Single | Story::Alien | Story::Open) {
                found.notes.push(note(group, &split, "all ranks got past it: results may be wrong"));
                found.silent.get_or_insert(finding);
                continue;
            }
            let when = created(facts, group, &split);
            if first.as_ref().is_none_or(|(earliest, _)| when < *earliest) {
                first = Some((when, finding));
            }
            break;
        }
    }
    found.decisive = first.map(|(_, finding)| finding);
    if found.decisive.is_none() {
        found.decisive = facts.pairs.iter().find_map(|pair| in_a_pair(facts, pair));
    }
    found
}

fn created(facts: &Facts<'_>, group: &Group<'_>, split: &Disagreement) -> u64 {
    let calls = group.lanes.iter().filter_map(|lane| facts.alignment.call(lane, split.key));
    calls.map(|call| call.created_ns).filter(|ns| *ns > 0).min().unwrap_or(u64::MAX)
}

fn camp_ranks(facts: &Facts<'_>, group: &Group<'_>, lanes: &[usize]) -> Vec<u32> {
    lanes.iter().filter_map(|lane| group.lanes.get(*lane)).map(|lane| facts.rank(lane.track)).collect()
}

fn note(group: &Group<'_>, split: &Disagreement, why: &str) -> Evidence {
    let says = format!("ranks also differ in the {} of collective {}: {why}", split.field.name(), split.key.0);
    Evidence { source: format!("calls of {}", group.name), says }
}

fn finding(facts: &Facts<'_>, group: &Group<'_>, split: &Disagreement, why: &Explanation) -> Finding {
    let culprits = camp_ranks(facts, group, &why.culprits);
    let right = split.camps.get(why.reference.unwrap_or(0));
    let lane = right.and_then(|camp| camp.lanes.first()).and_then(|lane| group.lanes.get(*lane));
    let call = lane.and_then(|lane| facts.alignment.call(lane, split.key));
    let name = call.map_or_else(String::new, |call| call.operation.to_string());
    let place = format!("collective {} of {} ({name})", split.key.0, group.name);
    let passes = |camp: &crate::trace::align::Camp| {
        let who = camp_ranks(facts, group, &camp.lanes);
        let what = match split.field {
            Field::Operation => format!("{} {}", verb(who.len(), "calls", "call"), camp.value),
            Field::Count => format!("{} {} elements", verb(who.len(), "passes", "pass"), camp.value),
            Field::Root | Field::DType | Field::Op => {
                format!("{} {} {}", verb(who.len(), "passes", "pass"), split.field.name(), camp.value)
            }
        };
        format!("{} {what}", ranks(&who))
    };
    let mut camps: Vec<String> = split.camps.iter().take(MOST).map(passes).collect();
    if split.camps.len() > MOST {
        camps.push(format!("{} more values on other ranks", split.camps.len() - MOST));
    }
    let camps = camps.join(", ");
    let count = why.classes.first() == Some(&Class::BCount);
    let who = ranks(&culprits);
    let summary = match (why.reference, why.story) {
        (None, _) => format!("{place}: {camps}; which of them is wrong cannot be told"),
        (_, Story::Skipped(1) | Story::Ahead) if count => {
            format!("{who} skipped {place}: {camps}")
        }
        (_, Story::Extra(1) | Story::Behind) if count => {
            format!("{who} made one call more before {place}: {camps}")
        }
        (_, Story::Swapped) => format!("{who} made {place} and the next in the other order: {camps}"),
        _ => format!(
            "{place} differs in {}: {camps}; {who} {} wrong",
            split.field.name(),
            verb(culprits.len(), "is", "are")
        ),
    };
    let mut finding = Finding::new(why.classes.clone(), summary);
    let source = format!("calls of {}", group.name);
    finding.says(&source, format!("{place}: {camps}"));
    for because in &why.because {
        finding.says(&source, because);
    }
    for lane in why.culprits.iter().take(MOST).filter_map(|lane| group.lanes.get(*lane)) {
        if let Some(label) = facts.alignment.call(lane, split.key).map(|call| &call.label).filter(|l| !l.is_empty()) {
            finding.says(facts.source(lane.track), format!("makes this call from {label}"));
        }
    }
    finding.culprits = culprits;
    finding.place = call.map(|call| facts.place(group, split.key, call));
    finding.at = Some((group.id, split.key));
    finding
}

/// A send and its recv that move different amounts.
fn in_a_pair(facts: &Facts<'_>, pair: &Pair) -> Option<Finding> {
    let (field, send, recv) = (pair.differs?, facts.call(pair.from, pair.send?)?, facts.call(pair.to, pair.recv?)?);
    let there = |track: usize, index: Option<usize>| {
        let done =
            facts.alignment.ranks.get(track).is_some_and(|r| index.is_some_and(|i| r.done.get(i) == Some(&true)));
        done || index.is_some_and(|i| facts.waits.fronts.get(track).is_some_and(|front| front.contains(&i)))
    };
    if !there(pair.from, pair.send) || !there(pair.to, pair.recv) {
        return None;
    }
    let class = if field == Field::DType { Class::ADtype } else { Class::ASize };
    let (from, to) = (facts.rank(pair.from), facts.rank(pair.to));
    let value = |call: &crate::trace::call::Call| call.value(field).unwrap_or_default();
    let culprits = match pair.expected.filter(|_| field == Field::Count) {
        Some(count) if send.count == Some(count) => vec![to],
        Some(count) if recv.count == Some(count) => vec![from],
        _ => vec![from, to],
    };
    let known = if culprits.len() == 1 {
        format!("{} departs from the pairs before", ranks(&culprits))
    } else {
        "which of them is wrong cannot be told".to_owned()
    };
    let (sent, received) = (value(send), value(recv));
    let unit = if field == Field::Count { "elements" } else { "elements' type" };
    let summary = format!("rank {from} sends {sent} {unit} to rank {to}, which receives {received}: {known}");
    let mut finding = Finding::new(vec![class, Class::CUnpaired], summary);
    finding.says("sends and recvs", format!("send {from}->{to}: {} {sent} against {received}", field.name()));
    finding.culprits = culprits;
    finding.place = facts.p2p_place(pair.from, send);
    Some(finding)
}
