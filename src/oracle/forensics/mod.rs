//! Forensics: from wrong values to what went wrong.
//!
//! The oracle knows every input of every rank, so it can work out what each of many faults would have made of an
//! element, and compare. Faults that explain the most of the sampled wrong elements are named, with how many these are.
//! One that could have been hit upon by chance, as a value of 8 bits among a thousand ranks, is not. What is left stays
//! unexplained.

mod candidate;
mod clue;
mod contributions;
mod fault;
mod inputs;
mod moved;
mod shape;
mod values;

#[cfg(test)]
mod tests;

use std::fmt;

pub use clue::Scene;
pub use fault::Fault;
pub use shape::Shape;

use super::Method;
use crate::backend::Verdict;
use crate::case::primitive::Source;
use candidate::Candidate;
use clue::Clue;

/// Faults that are named of one verdict, at most.
const FINDINGS: usize = 3;

/// Other faults that are named where they explain the same.
const ALTERNATIVES: usize = 3;

/// A fault that explains some wrong elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The likeliest fault.
    pub fault: Fault,
    /// Sampled elements that it explains, beyond those of the findings before it.
    pub covers: usize,
    /// Others that explain just as many.
    pub alternatives: Vec<Fault>,
}

/// What wrong elements turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// Faults, the one that explains most first; empty if nothing explains them.
    pub findings: Vec<Finding>,
    /// Sampled wrong elements that no finding explains.
    pub unexplained: usize,
    /// Where they lie.
    pub shape: Shape,
}

/// Explains what a check found. `None` if it found nothing.
///
/// Works on the sample in the verdict; takes some milliseconds for a thousand ranks.
pub fn explain(scene: &Scene<'_>, verdict: &Verdict) -> Option<Explanation> {
    if verdict.wrong == 0 {
        return None;
    }
    let sample = clue::sampled(verdict);
    let clues = clue::clues(scene, &sample);
    let end = scene.segments.last().map_or(0, |segment| segment.start + segment.len);
    let shape = Shape::new(&sample, verdict.wrong, scene.plan.dtype().size(), end);
    let candidates = search(scene, &clues);
    let (findings, explained) = name(&candidates, &clues);
    Some(Explanation { findings, unexplained: sample.len() - explained, shape })
}

/// Tries all faults, the likely ones first; where they leave nothing open, the long searches are spared.
fn search(scene: &Scene<'_>, clues: &[Clue]) -> Vec<Candidate> {
    if scene.plan.params().method == Method::Table {
        // a handful of values, many of them the same: whatever else agrees with one does so by chance
        return values::plain(scene, clues);
    }
    let all = vec![true; clues.len()];
    let done = |candidates: &[Candidate]| {
        candidates.iter().any(|c| c.covers(&all) == clues.len() && c.is_proven_by(clues.len(), clues.len()))
    };
    let mut candidates = values::candidates(scene, clues);
    candidates.extend(inputs::candidates(scene, clues));
    let reduces = clues.iter().any(|clue| matches!(clue.source, Source::Reduced { .. }));
    let contributions = reduces.then(|| contributions::Contributions::new(scene, clues));
    if let Some(contributions) = &contributions {
        candidates.extend(contributions.lost_or_doubled());
    }
    if !done(&candidates) {
        candidates.extend(moved::candidates(scene, clues));
    }
    if let Some(contributions) = contributions.filter(|_| !done(&candidates)) {
        candidates.extend(contributions.replaced());
    }
    candidates
}

/// Picks the faults that explain most, one after the other, and counts what they explain.
fn name(candidates: &[Candidate], clues: &[Clue]) -> (Vec<Finding>, usize) {
    let mut left = vec![true; clues.len()];
    let mut findings = Vec::new();
    while findings.len() < FINDINGS {
        let open = left.iter().filter(|left| **left).count();
        let mut proven: Vec<(usize, &Candidate)> = candidates
            .iter()
            .map(|candidate| (candidate.covers(&left), candidate))
            .filter(|(covers, candidate)| *covers > 0 && candidate.is_proven_by(*covers, open))
            .collect();
        proven.sort_by_key(|(covers, candidate)| (std::cmp::Reverse(*covers), candidate.fault.order(clues.len())));
        let Some(&(covers, best)) = proven.first() else { break };
        let same = proven.iter().skip(1).take_while(|(other, _)| *other == covers);
        let alternatives = same.map(|(_, candidate)| candidate.fault).take(ALTERNATIVES).collect();
        findings.push(Finding { fault: best.fault, covers, alternatives });
        left.iter_mut().zip(&best.explains).for_each(|(left, explained)| *left &= !explained);
    }
    (findings, left.iter().filter(|left| !**left).count())
}

impl Explanation {
    /// How many of the wrong elements a number of them is: `120 of 200 sampled`, or `all 32`.
    fn share(&self, covers: usize) -> String {
        let Shape { sampled, complete, .. } = self.shape;
        match (covers < sampled, complete) {
            (true, true) => format!("{covers} of {sampled}"),
            (true, false) => format!("{covers} of {sampled} sampled"),
            (false, true) => format!("all {covers}"),
            (false, false) => format!("all {covers} sampled"),
        }
    }
}

/// Faults and what they cover: `never written (all 32)`. Where and what the wrong elements are is in other fields.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let alone = self.shape.wrong == 1;
        for (k, finding) in self.findings.iter().enumerate() {
            let separator = if k == 0 { "" } else { "; " };
            write!(f, "{separator}{}", finding.fault)?;
            if !alone {
                write!(f, " ({})", self.share(finding.covers))?;
            }
            if !finding.alternatives.is_empty() {
                let others: Vec<String> = finding.alternatives.iter().map(Fault::to_string).collect();
                write!(f, ", or: {}", others.join(", or: "))?;
            }
        }
        match (self.findings.is_empty(), self.unexplained) {
            (true, _) => write!(f, "unexplained"),
            (false, 0) => Ok(()),
            (false, left) => write!(f, "; unexplained ({})", self.share(left)),
        }
    }
}
