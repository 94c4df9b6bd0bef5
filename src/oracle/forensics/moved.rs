//! Faults that put the right data in the wrong place: shifts, swapped blocks, what belongs elsewhere in the buffer.

use std::collections::HashMap;

use super::candidate::Candidate;
use super::clue::{Clue, Scene, value_at};
use super::fault::Fault;
use super::values::bits_of_values;

/// Elements on either side that are searched one by one.
const NEAR: i64 = 1 << 14;

/// Clues that the search starts from: two of them may be of one half of swapped blocks by chance, hardly four.
const PROBES: usize = 8;

/// Shifts that are kept either way, at most.
const KEPT: usize = 64;

/// Every such fault.
pub(super) fn candidates(scene: &Scene<'_>, clues: &[Clue]) -> Vec<Candidate> {
    let mut found = shifts(scene, clues);
    found.extend(swaps(&found));
    found.extend(other_places(scene, clues));
    found
}

/// Distances that blocks, chunks, vectors and segments have: powers of two and small multiples of them.
pub(super) fn usual_distances(scene: &Scene<'_>) -> Vec<i64> {
    let powers = (0..34).flat_map(|power| [1i64, 3, 5, 7].map(|times| times << power));
    let segments = scene.segments.iter().take(4).map(|segment| segment.len as i64);
    let mut distances: Vec<i64> = powers.chain(segments).flat_map(|d| [d, -d]).collect();
    distances.sort_unstable();
    distances.dedup();
    distances
}

/// Whether a clue holds what belongs so many logical elements further on.
fn is_shifted(scene: &Scene<'_>, clue: &Clue, by: i64) -> bool {
    let element = clue.element().checked_add_signed(by);
    by != 0 && element.is_some_and(|e| scene.plan.accepts(clue.actual, clue.value(scene.plan, e)))
}

fn shifts(scene: &Scene<'_>, clues: &[Clue]) -> Vec<Candidate> {
    let usual = usual_distances(scene);
    let mut votes: HashMap<i64, usize> = HashMap::new();
    let step = (clues.len() / PROBES).max(1);
    let probes: Vec<&Clue> = clues.iter().step_by(step).take(PROBES).collect();
    for probe in &probes {
        let far = usual.iter().copied().filter(|by| by.abs() > NEAR);
        for by in (-NEAR..=NEAR).chain(far) {
            if is_shifted(scene, probe, by) {
                *votes.entry(by).or_insert(0) += 1;
            }
        }
    }
    // Few elements can be searched near one, but many agree by chance where values are few: the agreed ones first.
    let mut voted: Vec<(usize, i64)> = votes.into_iter().map(|(by, votes)| (votes, by)).collect();
    voted.sort_by_key(|(votes, by)| (std::cmp::Reverse(*votes), by.abs(), *by));
    let tried = (2 * NEAR) as f64 + usual.len() as f64;
    // with each its opposite: the other half of swapped blocks, which has probes of its own
    let mut kept: Vec<i64> = voted.into_iter().take(KEPT).flat_map(|(_, by)| [by, -by]).collect();
    kept.sort_by_key(|by| (by.abs(), *by));
    kept.dedup();
    kept.into_iter()
        .map(|by| {
            let shifted = |clue: &Clue| is_shifted(scene, clue, by);
            Candidate::new(Fault::Shifted(by), clues, bits_of_values(scene), tried, shifted)
        })
        .collect()
}

/// A shift one way in some clues, and as far the other way in others.
fn swaps(shifts: &[Candidate]) -> Vec<Candidate> {
    let by = |candidate: &Candidate| if let Fault::Shifted(by) = candidate.fault { by } else { 0 };
    let mut found = Vec::new();
    for up in shifts.iter().filter(|candidate| by(candidate) > 0) {
        let Some(down) = shifts.iter().find(|candidate| by(candidate) == -by(up)) else { continue };
        let explains: Vec<bool> = up.explains.iter().zip(&down.explains).map(|(a, b)| *a || *b).collect();
        let only = |a: &Candidate, b: &Candidate| a.explains.iter().zip(&b.explains).any(|(a, b)| *a && !*b);
        if only(up, down) && only(down, up) {
            let fault = Fault::Swapped(by(up).unsigned_abs());
            found.push(Candidate { fault, explains, bits: up.bits - 1.0, tried: up.tried });
        }
    }
    found
}

/// What belongs into another segment, at the same place of it.
fn other_places(scene: &Scene<'_>, clues: &[Clue]) -> Vec<Candidate> {
    let Some(first) = clues.first() else { return Vec::new() };
    if scene.segments.len() < 2 {
        return Vec::new();
    }
    let own = scene.segments.iter().rev().find(|segment| segment.start <= first.index).map_or(0, |s| s.start);
    let tried = scene.segments.len() as f64;
    let holds = |clue: &Clue, by: i64| {
        let index = clue.index.checked_add_signed(by);
        index.and_then(|i| value_at(scene, i)).is_some_and(|value| scene.plan.accepts(clue.actual, value))
    };
    let distances = scene.segments.iter().map(|segment| segment.start as i64 - own as i64).filter(|by| *by != 0);
    distances
        .filter(|by| holds(first, *by))
        .map(|by| Candidate::new(Fault::OtherPlace(by), clues, bits_of_values(scene), tried, |clue| holds(clue, by)))
        .collect()
}
