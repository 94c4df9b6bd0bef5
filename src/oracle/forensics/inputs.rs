//! Faults that leave one rank's plain input where something else belongs.

use super::candidate::Candidate;
use super::clue::{Clue, Scene};
use super::fault::Fault;
use crate::case::primitive::Source;

/// The input of every rank, this one's first.
pub(super) fn candidates(scene: &Scene<'_>, clues: &[Clue]) -> Vec<Candidate> {
    let p = scene.plan.params();
    let bits = f64::from(8 * p.width);
    let reduces = clues.iter().any(|clue| matches!(clue.source, Source::Reduced { .. }));
    let mut found = Vec::new();
    for rank in 0..p.ranks {
        let fault = match reduces {
            true if rank == scene.rank => Fault::OwnInput,
            true => Fault::InputOf(rank),
            false => Fault::OtherRank(rank),
        };
        let tried = if fault == Fault::OwnInput { 1.0 } else { f64::from(p.ranks) };
        let candidate = Candidate::new(fault, clues, bits, tried, |clue| {
            let meant = matches!(clue.source, Source::Rank { rank: owner, .. } if owner == rank);
            !meant && clue.actual == scene.plan.input(rank, clue.element())
        });
        if candidate.explains.contains(&true) {
            found.push(candidate);
        }
    }
    found
}
