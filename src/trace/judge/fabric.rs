//! F, and what is left: all ranks do the same, or too little is known.

use super::{Facts, Finding};
use crate::trace::align::Cell;
use crate::trace::messages::Sign;
use crate::trace::text::{line, ranks, verb};
use crate::trace::verdict::Class;
use crate::trace::waits::Meeting;

/// Ranks whose own words name a failed device, and whether anybody's name a failed link.
fn failures<'a>(facts: &Facts<'a>) -> (Vec<usize>, Option<&'a str>) {
    let tracks = 0..facts.alignment.ranks.len();
    let devices = tracks.clone().filter(|track| facts.shows(*track, Sign::Device).is_some()).collect();
    let link = tracks.clone().find_map(|track| facts.shows(track, Sign::Fabric));
    (devices, link.or_else(|| tracks.into_iter().find_map(|track| facts.shows(track, Sign::PeerGone))))
}

/// A call that everybody made alike and that does not end.
pub(super) fn find(facts: &Facts<'_>) -> Option<Finding> {
    let when = |meeting: &Meeting| {
        let group = facts.alignment.groups.get(meeting.group);
        let call = group.and_then(|group| facts.any_call(group, meeting.key));
        (call.map_or(u64::MAX, |call| call.created_ns), meeting.group, meeting.key)
    };
    if let Some(meeting) = facts.waits.complete().min_by_key(|meeting| when(meeting)) {
        return alike(facts, meeting);
    }
    if facts.waits.anybody() {
        return Some(pairs_alike(facts));
    }
    reported(facts)
}

fn alike(facts: &Facts<'_>, meeting: &Meeting) -> Option<Finding> {
    let group = facts.alignment.groups.get(meeting.group)?;
    let call = facts.any_call(group, meeting.key)?;
    let (mut started, mut queued, mut done, mut lost) = (Vec::new(), Vec::new(), Vec::new(), 0usize);
    for lane in &group.lanes {
        let Cell::Called(index) = facts.alignment.cell(lane, meeting.key) else {
            lost += 1;
            continue;
        };
        let is_done = facts.alignment.ranks.get(lane.track).is_some_and(|rank| rank.done.get(index) == Some(&true));
        match facts.call(lane.track, index) {
            _ if is_done => done.push(lane.track),
            Some(call) if call.start_seen() => started.push(lane.track),
            _ => queued.push(lane.track),
        }
    }
    let (devices, link) = failures(facts);
    let what = format!("collective {} of {} ({})", meeting.key.0, group.name, call.operation);
    let reported = !devices.is_empty() || link.is_some();
    let mut finding = if facts.alignment.starts_recorded && !queued.is_empty() && !reported {
        held_up(facts, &what, &started, &queued)
    } else if !done.is_empty() && done.len() >= started.len() + queued.len() {
        let rest: Vec<usize> = started.iter().chain(&queued).copied().collect();
        let named = facts.ranks(&rest);
        let mut finding = Finding::new(
            vec![Class::FFabric],
            format!("{what} is done on {} ranks and not on {}: its data did not arrive", done.len(), ranks(&named)),
        );
        finding.culprits = named;
        finding
    } else {
        let why = match (devices.is_empty(), link) {
            (false, _) => format!("{} reported a device error", ranks(&facts.ranks(&devices))),
            (true, Some(_)) => "the network or the other end failed, by the ranks' own messages".to_owned(),
            (true, None) => "no rank differs and no message names a cause".to_owned(),
        };
        let mut finding =
            Finding::new(vec![Class::FFabric], format!("all ranks made {what} alike, and it does not end: {why}"));
        finding.culprits = facts.ranks(&devices);
        finding
    };
    let source = format!("calls of {}", group.name);
    let says = format!("{} started, {} called, {} done", started.len(), queued.len(), done.len());
    finding.says(&source, format!("{what}: arguments agree; {says}"));
    if !facts.alignment.starts_recorded {
        finding.says(&source, "starts are not recorded: that the calls run on the device is taken for granted");
    }
    if lost > 0 {
        finding.says(&source, format!("{lost} ranks' records of it are lost"));
    }
    finding.place = Some(facts.place(group, meeting.key, call));
    Some(finding)
}

/// Called by all, begun by some or none: something is in front of it on the device.
fn held_up(facts: &Facts<'_>, what: &str, started: &[usize], queued: &[usize]) -> Finding {
    let named = facts.ranks(queued);
    if started.is_empty() {
        let summary = format!(
            "all ranks made {what} alike, and it began on none: whether something in front of it holds the streams up or \
             the device failed is missing from the evidence"
        );
        return Finding { class: Class::Undetermined, ..Finding::new(vec![Class::EStuck, Class::FFabric], summary) };
    }
    let summary = format!(
        "{what} is called everywhere and has not begun on {}: {} is held up on the device by something in front of it",
        ranks(&named),
        verb(named.len(), "its stream", "each one's stream")
    );
    let mut finding = Finding::new(vec![Class::EStuck, Class::FFabric], summary);
    finding.culprits = named;
    finding
}

/// Only sends and recvs are under way, and each has its partner.
fn pairs_alike(facts: &Facts<'_>) -> Finding {
    let (devices, _) = failures(facts);
    let held =
        (0..facts.waits.fronts.len()).filter(|t| facts.waits.fronts.get(*t).is_some_and(|front| !front.is_empty()));
    let held: Vec<usize> = held.collect();
    let is = verb(held.len(), "is", "are");
    let (broken, certain) = broken_ways(facts);
    let summary = if broken.is_empty() {
        format!("{} {is} held in sends and recvs that all have their partners", ranks(&facts.ranks(&held)))
    } else {
        let ends = ranks(&facts.ranks(&broken));
        format!("what is sent between {ends} does not arrive: {} {is} held up", ranks(&facts.ranks(&held)))
    };
    let mut finding = Finding::new(vec![Class::FFabric], summary);
    if !certain {
        finding.candidates.push(Class::CUnpaired);
        finding
            .says("sends and recvs", "where they are not grouped, a send in front of a recv on both ends blocks both");
    }
    let first = held.first().and_then(|track| Some((*track, *facts.waits.fronts.get(*track)?.first()?)));
    finding.place = first.and_then(|(track, index)| facts.p2p_place(track, facts.call(track, index)?));
    finding.culprits = if devices.is_empty() { facts.ranks(&broken) } else { facts.ranks(&devices) };
    finding
}

/// The two ends of the way that does not pass messages on, where progress tells it, and whether it is certain; else nothing.
///
/// A message is suspect if both have made their calls and the receiver's is not done. A rank's calls that are under way may
/// be one group, which ends as a whole: so one of its messages must be stuck, and which one is certain only where one is
/// suspect. Where ranks themselves say that a way has failed, it is one of which both ends do: a rank that has given up its
/// call sends nothing to others either. Where several ways are left, nothing is told.
fn broken_ways(facts: &Facts<'_>) -> (Vec<usize>, bool) {
    let under_way = |track: usize, index: Option<usize>| {
        index.is_some_and(|index| facts.waits.fronts.get(track).is_some_and(|front| front.contains(&index)))
    };
    let done = |track: usize, index: Option<usize>| {
        let rank = facts.alignment.ranks.get(track);
        index.is_some_and(|index| rank.is_some_and(|rank| rank.done.get(index) == Some(&true)))
    };
    let suspects: Vec<[usize; 2]> = facts
        .pairs
        .iter()
        .filter(|pair| under_way(pair.to, pair.recv))
        .filter(|pair| done(pair.from, pair.send) || under_way(pair.from, pair.send))
        .map(|pair| [pair.from.min(pair.to), pair.from.max(pair.to)])
        .collect();
    let speaks =
        |track: &usize| facts.shows(*track, Sign::Fabric).or_else(|| facts.shows(*track, Sign::PeerGone)).is_some();
    let spoken = (0..facts.waits.fronts.len()).any(|track| speaks(&track));
    let of = |track: usize| suspects.iter().filter(move |ends| ends.contains(&track));
    let waits_for_another = |track: usize| facts.waits.lonely.iter().any(|(_, waits, _)| *waits == track);
    let sure = (0..facts.waits.fronts.len()).filter(|track| !waits_for_another(*track) && of(*track).count() == 1);
    let mut ways: Vec<[usize; 2]> = if spoken {
        suspects.iter().filter(|ends| ends.iter().all(speaks)).copied().collect()
    } else {
        sure.flat_map(of).copied().collect()
    };
    let certain = !ways.is_empty();
    if !certain && !spoken {
        ways.clone_from(&suspects);
    }
    ways.sort_unstable();
    ways.dedup();
    match ways[..] {
        [ends] => (ends.to_vec(), certain),
        _ => (Vec::new(), false),
    }
}

/// Nothing waits, and yet a failure is reported.
fn reported(facts: &Facts<'_>) -> Option<Finding> {
    let (devices, link) = failures(facts);
    let first = devices.first().and_then(|track| facts.shows(*track, Sign::Device));
    let text = first.or_else(|| {
        let fabric = (0..facts.alignment.ranks.len()).find_map(|track| facts.shows(track, Sign::Fabric));
        fabric.or(link)
    })?;
    let mut finding = Finding::new(vec![Class::FFabric], format!("a failure is reported: {}", line(text)));
    finding.culprits = facts.ranks(&devices);
    Some(finding)
}

/// Nothing fits.
pub(super) fn nothing(facts: &Facts<'_>) -> Finding {
    let all: Vec<usize> = (0..facts.alignment.ranks.len()).collect();
    let silent: Vec<usize> = all.iter().copied().filter(|track| facts.silent(*track)).collect();
    if !silent.is_empty() || all.is_empty() {
        let which = if silent.len() == all.len() {
            "no rank left a record of its calls".to_owned()
        } else {
            format!("{} left no record, and nobody else waits", ranks(&facts.ranks(&silent)))
        };
        let summary = format!("{which}: records of all ranks are missing to tell why");
        return Finding { class: Class::Undetermined, candidates: Vec::new(), summary, ..Finding::default() };
    }
    let calls: usize = facts.alignment.ranks.iter().map(|rank| rank.calls.len()).sum();
    let summary = format!("nothing hangs: all {calls} recorded calls of {} ranks are done", all.len());
    Finding { class: Class::None, candidates: Vec::new(), summary, ..Finding::default() }
}
