//! Calls of all ranks, laid side by side per communicator, by sequence number and never by position.

use std::collections::{BTreeMap, HashMap};

use super::call::{Call, Field, State};
use super::incident::{Incident, Liveness, RankEvidence};

/// Ranks beyond this are not believed.
const MAX_WORLD: u32 = 1 << 20;

/// All of an incident, aligned.
pub struct Alignment<'a> {
    /// Per rank, ordered by rank; also those that are only known to be missing.
    pub ranks: Vec<RankTrack<'a>>,
    /// Per communicator, ordered by id.
    pub groups: Vec<Group<'a>>,
    /// Whether the evidence tells starts from mere calls.
    pub starts_recorded: bool,
}

/// One rank's calls in program order.
pub struct RankTrack<'a> {
    /// Global rank.
    pub rank: u32,
    /// Its evidence, if there is any.
    pub evidence: Option<&'a RankEvidence>,
    /// Its calls; empty also where it left no record.
    pub calls: &'a [Call],
    /// Whether each is done, by its own word or because a later one of the same kind on that communicator is.
    pub done: Vec<bool>,
}

impl RankTrack<'_> {
    /// Whether it left no record at all.
    pub fn silent(&self) -> bool {
        self.evidence.is_none_or(|e| e.calls.is_none())
    }

    /// Whether its process lives.
    pub fn liveness(&self) -> Liveness {
        self.evidence.map_or(Liveness::NoDump, |e| e.liveness)
    }

    /// Index of the first call that is not done.
    pub fn pending(&self) -> Option<usize> {
        self.done.iter().position(|done| !done)
    }
}

/// The place of a call in a lane: sequence number, and which of those that share it.
pub type Key = (u64, u32);

/// One rank's collectives on one communicator.
pub struct Lane {
    /// Index into [`Alignment::ranks`].
    pub track: usize,
    /// Place and index into the rank's calls, ordered.
    pub calls: Vec<(Key, usize)>,
    /// Whether older records of the rank are overwritten, so that an empty lane tells nothing.
    pub cut: bool,
}

/// What a rank has at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// The call at this index of its calls.
    Called(usize),
    /// It did not get there.
    Never,
    /// Overwritten or torn.
    Lost,
    /// It left no record at all.
    Silent,
}

/// One communicator.
pub struct Group<'a> {
    /// Its id.
    pub id: u64,
    /// Its name for people.
    pub name: String,
    /// Global ranks in the order of ranks within it; empty where unknown.
    members: &'a [u32],
    /// One per member, ordered as [`Alignment::ranks`].
    pub lanes: Vec<Lane>,
}

impl Group<'_> {
    /// The global rank of a rank within the communicator.
    pub fn global(&self, local: u32) -> u32 {
        self.members.get(local as usize).copied().unwrap_or(local)
    }
}

/// Ranks that agree among themselves at a place where not all do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Camp {
    /// The value that they agree on.
    pub value: String,
    /// Indices into [`Group::lanes`].
    pub lanes: Vec<usize>,
}

/// The first place at which ranks of a communicator passed different arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// Where.
    pub key: Key,
    /// The first field that differs.
    pub field: Field,
    /// Other fields that differ as well.
    pub also: Vec<Field>,
    /// Who passed what, the largest first.
    pub camps: Vec<Camp>,
    /// Whether the first camp is a majority: more than half, or at least twice the second.
    pub majority: bool,
}

impl<'a> Alignment<'a> {
    /// Lays out an incident.
    pub fn new(incident: &'a Incident) -> Self {
        let ranks = tracks(incident);
        let groups = groups(incident, &ranks);
        let starts_recorded = ranks.iter().any(|r| r.calls.iter().any(Call::start_seen));
        Alignment { ranks, groups, starts_recorded }
    }

    /// The communicator with this id.
    pub fn group(&self, id: u64) -> Option<&Group<'a>> {
        self.groups.binary_search_by_key(&id, |group| group.id).ok().and_then(|at| self.groups.get(at))
    }

    /// The index into [`Alignment::ranks`] of a global rank.
    pub fn track(&self, rank: u32) -> Option<usize> {
        self.ranks.binary_search_by_key(&rank, |track| track.rank).ok()
    }

    /// The rank that a lane belongs to.
    pub fn rank(&self, lane: &Lane) -> &RankTrack<'a> {
        &self.ranks[lane.track]
    }

    /// What a lane has at a place.
    pub fn cell(&self, lane: &Lane, key: Key) -> Cell {
        match lane.calls.binary_search_by_key(&key, |(k, _)| *k) {
            Ok(at) => lane.calls.get(at).map_or(Cell::Lost, |(_, index)| Cell::Called(*index)),
            Err(_) if self.rank(lane).silent() => Cell::Silent,
            Err(at) if at == lane.calls.len() && (at > 0 || !lane.cut) => Cell::Never,
            Err(_) => Cell::Lost,
        }
    }

    /// The call of a lane at a place, if there is one.
    pub fn call(&self, lane: &Lane, key: Key) -> Option<&'a Call> {
        match self.cell(lane, key) {
            Cell::Called(index) => self.rank(lane).calls.get(index),
            _ => None,
        }
    }

    /// All disagreements of a communicator, first to last, found as they are asked for.
    pub fn disagreements<'s>(&'s self, group: &'s Group<'a>) -> impl Iterator<Item = Disagreement> + 's {
        self.suspects(group).into_iter().filter_map(|key| {
            let call = |(at, lane): (usize, &Lane)| self.call(lane, key).map(|call| (at, call));
            let present: Vec<(usize, &Call)> = group.lanes.iter().enumerate().filter_map(call).collect();
            vote(key, &present)
        })
    }

    /// Places at which not all calls are literally the same. One pass in the order of memory: nearly all places agree,
    /// and there can be a million calls.
    fn suspects(&self, group: &Group<'a>) -> Vec<Key> {
        let places = places(group);
        let mut first: Vec<Option<&Call>> = vec![None; places.len()];
        let mut apart = vec![false; places.len()];
        for lane in &group.lanes {
            let calls = self.rank(lane).calls;
            let mut own = lane.calls.iter().peekable();
            for ((key, first), apart) in places.iter().zip(&mut first).zip(&mut apart) {
                let Some((_, index)) = own.next_if(|(k, _)| k == key) else {
                    if own.peek().is_none() {
                        break;
                    }
                    continue;
                };
                let Some(call) = calls.get(*index) else { continue };
                match first {
                    Some(first) => *apart |= !like(first, call),
                    None => *first = Some(call),
                }
            }
        }
        places.into_iter().zip(apart).filter(|(_, apart)| *apart).map(|(key, _)| key).collect()
    }

    /// The first place of a communicator at which somebody's call is not done.
    pub fn hung(&self, group: &Group<'a>) -> Option<Key> {
        let first = |lane: &Lane| {
            let done = &self.rank(lane).done;
            lane.calls.iter().find(|(_, index)| done.get(*index) == Some(&false)).map(|(key, _)| *key)
        };
        group.lanes.iter().filter_map(first).min()
    }
}

/// Votes field by field among those that tell the field.
fn vote(key: Key, present: &[(usize, &Call)]) -> Option<Disagreement> {
    let (_, first) = present.first()?;
    let complete = first.root.is_some() && first.count.is_some() && first.dtype.is_some() && first.op.is_some();
    if present.iter().all(|(_, call)| if complete { first.differs(call).is_none() } else { like(first, call) }) {
        return None;
    }
    let mut apart: Vec<(Field, Vec<Camp>)> = Vec::new();
    for field in Field::ALL {
        let mut camps: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (lane, call) in present {
            if let Some(value) = call.value(field) {
                camps.entry(value).or_default().push(*lane);
            }
        }
        if camps.len() > 1 {
            let mut camps: Vec<Camp> = camps.into_iter().map(|(value, lanes)| Camp { value, lanes }).collect();
            camps.sort_by_key(|camp| std::cmp::Reverse(camp.lanes.len()));
            apart.push((field, camps));
            if field == Field::Operation {
                break;
            }
        }
    }
    let mut apart = apart.into_iter();
    let (field, camps) = apart.next()?;
    let voters: usize = camps.iter().map(|camp| camp.lanes.len()).sum();
    let majority = match &camps[..] {
        [first, second, ..] => first.lanes.len() * 2 > voters || first.lanes.len() >= second.lanes.len() * 2,
        _ => false,
    };
    Some(Disagreement { key, field, also: apart.map(|(field, _)| field).collect(), camps, majority })
}

/// Equal in what is told and in what is not: then all like the first are like each other.
fn like(a: &Call, b: &Call) -> bool {
    (&a.operation, a.root, a.count, a.dtype, a.op) == (&b.operation, b.root, b.count, b.dtype, b.op)
}

fn tracks(incident: &Incident) -> Vec<RankTrack<'_>> {
    let mut known: BTreeMap<u32, Option<&RankEvidence>> = BTreeMap::new();
    let members = incident.communicators.iter().flat_map(|c| c.ranks.iter().copied());
    for rank in (0..incident.world.unwrap_or(0).min(MAX_WORLD)).chain(members) {
        known.insert(rank, None);
    }
    for evidence in &incident.ranks {
        known.insert(evidence.rank, Some(evidence));
    }
    let done = |calls: &[Call]| {
        let mut later: Vec<(u64, bool)> = Vec::new();
        let mut done: Vec<bool> = calls
            .iter()
            .rev()
            .map(|call| {
                let stream = (call.comm, call.operation.is_p2p());
                let followed = later.contains(&stream);
                if call.state == State::Completed && !followed {
                    later.push(stream);
                }
                followed || call.state == State::Completed
            })
            .collect();
        done.reverse();
        done
    };
    known
        .into_iter()
        .map(|(rank, evidence)| {
            let calls = evidence.and_then(|e| e.calls.as_deref()).unwrap_or_default();
            RankTrack { rank, evidence, calls, done: done(calls) }
        })
        .collect()
}

fn groups<'a>(incident: &'a Incident, ranks: &[RankTrack<'a>]) -> Vec<Group<'a>> {
    let position: HashMap<u32, usize> = ranks.iter().enumerate().map(|(i, r)| (r.rank, i)).collect();
    // Per communicator: per rank in it, its collectives.
    let mut lanes: BTreeMap<u64, BTreeMap<usize, Vec<(Key, usize)>>> = BTreeMap::new();
    for communicator in &incident.communicators {
        let group = lanes.entry(communicator.id).or_default();
        group.extend(communicator.ranks.iter().filter_map(|rank| position.get(rank)).map(|at| (*at, Vec::new())));
    }
    for (track, rank) in ranks.iter().enumerate() {
        let mut own: Vec<(u64, Vec<(Key, usize)>)> = Vec::new();
        let mut at: HashMap<u64, usize> = HashMap::new();
        let mut last = (0, usize::MAX);
        for (index, call) in rank.calls.iter().enumerate() {
            if (last.0, last.1 < own.len()) != (call.comm, true) {
                last = (call.comm, *at.entry(call.comm).or_insert(own.len()));
                if last.1 == own.len() {
                    own.push((call.comm, Vec::new()));
                }
            }
            let Some((_, lane)) = own.get_mut(last.1) else { continue };
            if !call.operation.is_p2p() {
                let nth = match lane.last() {
                    Some(((seq, nth), _)) if *seq == call.seq => nth + 1,
                    _ => 0,
                };
                lane.push(((call.seq, nth), index));
            }
        }
        for (comm, mut lane) in own {
            lane.sort_by_key(|(key, _)| *key);
            lane.dedup_by_key(|(key, _)| *key);
            lanes.entry(comm).or_default().insert(track, lane);
        }
    }
    lanes.into_iter().map(|(id, lanes)| group(incident, ranks, id, lanes)).collect()
}

fn group<'a>(
    incident: &'a Incident,
    ranks: &[RankTrack<'a>],
    id: u64,
    mut lanes: BTreeMap<usize, Vec<(Key, usize)>>,
) -> Group<'a> {
    let known = incident.communicators.iter().find(|c| c.id == id);
    let members = known.map_or(&[][..], |c| &c.ranks);
    if members.is_empty() {
        // Nobody says who belongs to it. Where all ranks that recorded anything do, those without a record do too.
        let seen = lanes.len();
        let outside = |(i, r): (usize, &RankTrack<'_>)| !lanes.contains_key(&i) && !r.calls.is_empty();
        if seen > 1 && !ranks.iter().enumerate().any(outside) {
            for track in 0..ranks.len() {
                lanes.entry(track).or_default();
            }
        }
    }
    let name = match known.map_or("", |c| &c.label) {
        "" => format!("{id:#x}"),
        label => label.to_owned(),
    };
    let lost = |track: usize| ranks.get(track).and_then(|r| r.evidence).is_some_and(|e| e.lost > 0);
    let lanes = lanes.into_iter().map(|(track, calls)| Lane { track, cut: lost(track), calls }).collect();
    Group { id, name, members, lanes }
}

/// All places that any lane has, ordered.
fn places(group: &Group<'_>) -> Vec<Key> {
    let longest = group.lanes.iter().max_by_key(|lane| lane.calls.len());
    let mut places: Vec<Key> = longest.into_iter().flat_map(|lane| &lane.calls).map(|(key, _)| *key).collect();
    let mut more: Vec<Key> = Vec::new();
    for lane in &group.lanes {
        // Lanes are mostly alike: only what the longest lacks has to be sorted in.
        let mut known = places.iter().peekable();
        for (key, _) in &lane.calls {
            while known.next_if(|k| *k < key).is_some() {}
            if known.next_if_eq(&key).is_none() {
                more.push(*key);
            }
        }
    }
    if !more.is_empty() {
        places.extend(more);
        places.sort_unstable();
        places.dedup();
    }
    places
}
