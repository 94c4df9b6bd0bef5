//! A fault that explains some clues, and how much that proves.

use super::clue::Clue;
use super::fault::Fault;

/// Bits of evidence beyond chance that a fault needs to be named.
const ENOUGH: f64 = 4.0;

/// A fault, with the clues that it explains.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Candidate {
    pub fault: Fault,
    /// One for each clue.
    pub explains: Vec<bool>,
    /// How unlikely it is, in bits, that a clue is explained by chance.
    pub bits: f64,
    /// Faults of this kind that were tried.
    pub tried: f64,
}

impl Candidate {
    /// A fault tried on all clues.
    pub fn new(fault: Fault, clues: &[Clue], bits: f64, tried: f64, explains: impl FnMut(&Clue) -> bool) -> Candidate {
        Candidate { fault, explains: clues.iter().map(explains).collect(), bits, tried }
    }

    /// Clues that it explains among those that are left.
    pub fn covers(&self, left: &[bool]) -> usize {
        self.explains.iter().zip(left).filter(|(explains, left)| **explains && **left).count()
    }

    /// Whether so many clues out of all prove more than chance would, in as many attempts.
    pub fn is_proven_by(&self, clues: usize, all: usize) -> bool {
        let attempts = self.tried.max(1.0).log2() + choices(all, clues);
        clues as f64 * self.bits - attempts >= ENOUGH
    }
}

/// In how many ways some can be chosen of all, as a power of two.
fn choices(all: usize, some: usize) -> f64 {
    (0..some.min(all - some.min(all))).map(|k| ((all - k) as f64 / (k + 1) as f64).log2()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_to_choose_are_counted() {
        assert_eq!(choices(5, 5), 0.0);
        assert!((choices(5, 2) - 10f64.log2()).abs() < 1e-9);
        assert!((choices(60, 59) - 60f64.log2()).abs() < 1e-9);
    }

    /// A byte among a thousand ranks proves nothing, three bytes do.
    #[test]
    fn evidence_is_weighed_against_attempts() {
        let candidate = Candidate { fault: Fault::Missing(3), explains: Vec::new(), bits: 8.0, tried: 1024.0 };
        assert!(!candidate.is_proven_by(1, 1) && candidate.is_proven_by(3, 3));
    }
}
