//! What checks found on one lane, and on which occasion.

use super::occasion::Occasion;
use crate::backend::{GuardBreach, Verdict};

/// The outcome of checking one lane after one call, or the first fault of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The output; `None` where there is none or checks are off.
    pub output: Option<Verdict>,
    /// What must be left alone.
    pub input: Option<Verdict>,
    /// A guard zone that was written to.
    pub guard: Option<GuardBreach>,
    /// When.
    pub occasion: Occasion,
}

impl Found {
    /// Nothing was checked.
    pub fn nothing(occasion: Occasion) -> Found {
        Found { output: None, input: None, guard: None, occasion }
    }

    /// Whether anything is wrong.
    pub fn faulty(&self) -> bool {
        let wrong = |verdict: &Option<Verdict>| verdict.as_ref().is_some_and(|v| v.wrong > 0);
        wrong(&self.output) || wrong(&self.input) || self.guard.is_some()
    }

    /// Both together: the first that is faulty is kept whole, so that its numbers and its occasion belong together.
    pub fn then(self, later: Found) -> Found {
        if self.faulty() {
            return self;
        }
        if later.faulty() {
            return later;
        }
        Found { output: self.output.or(later.output), input: self.input.or(later.input), ..self }
    }
}

/// As [`Found::then`], lane by lane.
pub fn then(earlier: Vec<Found>, later: Vec<Found>) -> Vec<Found> {
    earlier.into_iter().zip(later).map(|(first, second)| first.then(second)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::occasion::Launch;
    use super::*;
    use crate::case::DType;

    fn found(launch: Launch, wrong: u64) -> Found {
        let occasion = Occasion { launch, call: None, dtype: DType::Int8, epoch: Some(0) };
        Found { output: Some(Verdict { wrong, ..Verdict::default() }), ..Found::nothing(occasion) }
    }

    #[test]
    fn the_first_fault_is_kept_with_its_occasion() {
        let replay = |number| Launch::Replay { number, of: 3 };
        let all = [(replay(1), 0), (replay(2), 5), (replay(3), 70)].map(|(launch, wrong)| found(launch, wrong));
        let kept = all.into_iter().reduce(Found::then).unwrap();
        assert_eq!(kept, found(replay(2), 5));
    }

    #[test]
    fn a_check_that_found_nothing_is_not_lost_among_unchecked_launches() {
        let unchecked = Found::nothing(found(Launch::First, 0).occasion);
        let kept = unchecked.then(found(Launch::Timed, 0));
        assert_eq!(kept.output, Some(Verdict::default()));
    }
}
