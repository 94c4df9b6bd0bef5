//! C and D: ranks that wait for each other in a circle.

use super::{Facts, Finding, MOST};
use crate::trace::call::{Call, Operation};
use crate::trace::pattern::repetition;
use crate::trace::text::{ranks, verb};
use crate::trace::verdict::Class;

/// A circle through a send or recv is C, one through communicators only is D.
pub(super) fn find(facts: &Facts<'_>) -> Option<Finding> {
    let circle = facts.waits.circle();
    let lonely: Vec<(usize, usize, usize)> = facts
        .waits
        .lonely
        .iter()
        .copied()
        .filter(|(_, waits, owes)| circle.contains(waits) && circle.contains(owes))
        .collect();
    if circle.is_empty() {
        return unanswered(facts).or_else(|| unpaired_and_unnoticed(facts));
    }
    Some(if lonely.is_empty() { crossed(facts, &circle) } else { unpaired(facts, &lonely, &blame(facts, &lonely)) })
}

/// `send 0->1`, and its call.
fn told<'a>(facts: &Facts<'a>, pair: usize, waits: usize) -> Option<(String, &'a Call)> {
    let pair = facts.pairs.get(pair)?;
    let call = facts.call(waits, if pair.from == waits && pair.send.is_some() { pair.send? } else { pair.recv? })?;
    Some((facts.p2p_place(waits, call)?.operation, call))
}

fn unpaired(facts: &Facts<'_>, lonely: &[(usize, usize, usize)], culprits: &[usize]) -> Finding {
    let named = facts.ranks(culprits);
    let mut parts = Vec::new();
    let mut finding = Finding::new(vec![Class::CUnpaired], String::new());
    for (pair, waits, owes) in lonely.iter().take(MOST) {
        let Some((what, call)) = told(facts, *pair, *waits) else { continue };
        let (owner, other) = (facts.rank(*waits), facts.rank(*owes));
        let wanted = if matches!(call.operation, Operation::Send { .. }) { "recv" } else { "send" };
        parts.push(format!("rank {owner}'s {what} has no {wanted} on rank {other}"));
        finding.says(facts.source(*waits), format!("is held in {what} (call {})", call.seq));
        let held = facts.waits.fronts.get(*owes).and_then(|front| front.first());
        if let Some(held) = held.and_then(|index| facts.call(*owes, *index)) {
            let comm = facts.alignment.group(held.comm).map_or(String::new(), |group| format!(" of {}", group.name));
            let says = match facts.pairs.get(*pair).map(|p| p.send.is_some() && p.recv.is_some()) {
                Some(true) => format!(
                    "has the {wanted} only behind {} (call {}{comm}), in which it is held",
                    held.operation, held.seq
                ),
                _ => format!("has no such {wanted} and is held in {} (call {}{comm})", held.operation, held.seq),
            };
            finding.says(facts.source(*owes), says);
        }
    }
    if lonely.len() > MOST {
        parts.push(format!("{} more like it", lonely.len() - MOST));
    }
    finding.summary = format!("{}: {} {} wrong", parts.join(", "), ranks(&named), verb(named.len(), "is", "are"));
    finding.place = lonely.first().and_then(|(pair, waits, _)| facts.p2p_place(*waits, told(facts, *pair, *waits)?.1));
    finding.culprits = named;
    finding
}

/// Sends and recvs without a partner that all have one rank in common which waits itself: it called the wrong peer, and who
/// does not answer it had no reason to. `outside` are in no call.
pub(super) fn astray(facts: &Facts<'_>, outside: &[usize]) -> Option<Finding> {
    let meets = facts.waits.meetings.iter().any(|meeting| !meeting.lacks.is_empty());
    // also those that were small enough to end
    let alone: Vec<(usize, usize)> =
        facts.pairs.iter().filter_map(|pair| pair.alone().map(|(owner, _, other)| (owner, other))).collect();
    let part = |track: usize| alone.iter().filter(|(a, b)| *a == track || *b == track).count();
    let culprits: Vec<usize> =
        (0..facts.alignment.ranks.len()).filter(|track| alone.len() > 1 && part(*track) == alone.len()).collect();
    let [culprit] = culprits[..] else { return None };
    if meets || outside.contains(&culprit) {
        return None;
    }
    Some(unpaired(facts, &facts.waits.lonely, &[culprit]))
}

/// Nobody is outside of all calls, and no circle is seen, as groups of sends and recvs end as a whole, or wait as a whole for a
/// connection: but some send or recv has no partner at all, on a rank that has got as far as the one who waits.
fn unanswered(facts: &Facts<'_>) -> Option<Finding> {
    let alone = |pair: usize| facts.pairs.get(pair).and_then(super::Pair::alone);
    let as_far = |(pair, _, owes): &(usize, usize, usize)| {
        let waiting = alone(*pair).and_then(|(owner, index, _)| facts.call(owner, index));
        let held = facts.waits.fronts.get(*owes).and_then(|front| facts.call(*owes, *front.first()?));
        waiting.zip(held).is_some_and(|(waiting, held)| held.comm == waiting.comm && held.seq >= waiting.seq)
    };
    let lonely: Vec<(usize, usize, usize)> = facts.waits.lonely.iter().copied().filter(as_far).collect();
    if lonely.is_empty() {
        return None;
    }
    astray(facts, &[]).or_else(|| Some(unpaired(facts, &lonely, &blame(facts, &lonely))))
}

/// Who departed from its own habit; else who has part in most of the lonely calls; else who does not answer.
fn blame(facts: &Facts<'_>, lonely: &[(usize, usize, usize)]) -> Vec<usize> {
    let mut concerned: Vec<usize> = lonely.iter().flat_map(|(_, waits, owes)| [*waits, *owes]).collect();
    concerned.sort_unstable();
    let parts: Vec<(usize, usize)> =
        concerned.chunk_by(|a, b| a == b).filter_map(|c| Some((*c.first()?, c.len()))).collect();
    let most = parts.iter().map(|(_, n)| *n).max().unwrap_or(0);
    if most > 1 {
        return parts.into_iter().filter(|(_, n)| *n == most).map(|(track, _)| track).collect();
    }
    let strayed: Vec<usize> =
        parts.iter().map(|(track, _)| *track).filter(|t| habit(facts, *t) == Some(false)).collect();
    let kept = |track: &usize| habit(facts, *track) == Some(true);
    match strayed[..] {
        [one] if parts.iter().any(|(track, _)| *track != one && kept(track)) => vec![one],
        _ => lonely.iter().map(|(_, _, owes)| *owes).collect(),
    }
}

/// Whether the call that a rank is held in is of the kind that followed the last time. `None` where nothing tells.
fn habit(facts: &Facts<'_>, track: usize) -> Option<bool> {
    let rank = facts.alignment.ranks.get(track)?;
    let held = *facts.waits.fronts.get(track)?.first()?;
    let history: Vec<&Call> = rank.calls.get(held.saturating_sub(4096)..held)?.iter().collect();
    let kin = |a: &Call, b: &Call| a.comm == b.comm && a.operation == b.operation;
    let expected = repetition(&history, 0, kin)?;
    Some(kin(expected, rank.calls.get(held)?))
}

fn crossed(facts: &Facts<'_>, circle: &[usize]) -> Finding {
    // Camps by the communicator that they are held in.
    let mut camps: Vec<(u64, Vec<usize>)> = Vec::new();
    for track in circle {
        let held = facts.waits.fronts.get(*track).and_then(|front| front.first());
        let Some(call) = held.and_then(|index| facts.call(*track, *index)) else { continue };
        match camps.iter_mut().find(|(comm, _)| *comm == call.comm) {
            Some((_, tracks)) => tracks.push(*track),
            None => camps.push((call.comm, vec![*track])),
        }
    }
    camps.sort_by_key(|(comm, tracks)| (std::cmp::Reverse(tracks.len()), *comm));
    let mut finding = Finding::new(vec![Class::DCrossed], String::new());
    let mut because = None;
    let strayed = |tracks: &[usize]| tracks.iter().all(|track| habit(facts, *track) == Some(false));
    let kept = |tracks: &[usize]| tracks.iter().all(|track| habit(facts, *track) == Some(true));
    let culprits: Vec<usize> = match &camps[..] {
        [(_, first), (_, second)] if first.len() > second.len() => second.clone(),
        [(_, first), (_, second)] if kept(first) && strayed(second) => {
            because = Some("entered them in another order than before");
            second.clone()
        }
        [(_, first), (_, second)] if strayed(first) && kept(second) => {
            because = Some("entered them in another order than before");
            first.clone()
        }
        _ => circle.to_vec(),
    };
    let name = |comm: u64| facts.alignment.group(comm).map_or_else(|| format!("{comm:#x}"), |group| group.name.clone());
    for (comm, tracks) in camps.iter().take(MOST) {
        let who = facts.ranks(tracks);
        let are = verb(who.len(), "is", "are");
        finding.says(
            format!("calls of {}", name(*comm)),
            format!("{} {are} held here, the other communicators wait", ranks(&who)),
        );
    }
    let named = facts.ranks(&culprits);
    let order: Vec<String> = camps
        .iter()
        .take(MOST)
        .map(|(comm, tracks)| {
            format!("{} {} in {} first", ranks(&facts.ranks(tracks)), verb(tracks.len(), "is", "are"), name(*comm))
        })
        .collect();
    let all = culprits.len() == circle.len();
    let blame = match because {
        Some(because) => format!("{} {because}", ranks(&named)),
        None if all => "which order is the right one cannot be told".to_owned(),
        None => format!("{} against the order of the others", ranks(&named)),
    };
    finding.summary = format!("communicators entered in crossed order: {}; {blame}", order.join(", "));
    if let Some((track, index)) = culprits.first().and_then(|t| Some((*t, *facts.waits.fronts.get(*t)?.first()?)))
        && let Some(call) = facts.call(track, index)
        && let Some(group) = facts.alignment.group(call.comm)
    {
        finding.place = Some(facts.place(group, (call.seq, 0), call));
    }
    finding.culprits = named;
    finding
}

/// Small sends end without a recv. Nobody hangs yet, and results may be of the wrong message.
fn unpaired_and_unnoticed(facts: &Facts<'_>) -> Option<Finding> {
    if facts.waits.anybody() {
        return None;
    }
    let (pair, owner, index, other) =
        facts.pairs.iter().find_map(|pair| pair.alone().map(|(owner, index, other)| (pair, owner, index, other)))?;
    let call = facts.call(owner, index)?;
    let place = facts.p2p_place(owner, call)?;
    let wanted = if pair.send.is_some() { "recv" } else { "send" };
    let (what, lacking) = (place.operation.clone(), facts.rank(other));
    let mut finding = Finding::new(
        vec![Class::CUnpaired],
        format!("rank {}'s {what} has no {wanted} on rank {lacking}; it is done all the same", facts.rank(owner)),
    );
    finding.says(facts.source(owner), format!("{what} (call {}) is done: small messages are buffered", call.seq));
    finding.culprits = vec![lacking];
    finding.place = Some(place);
    Some(finding)
}
