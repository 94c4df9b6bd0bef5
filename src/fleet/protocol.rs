//! What the runner asks of ranks, and what they answer: plain data, so that ranks can live anywhere.

use serde::{Deserialize, Serialize};

use super::occasion::Occasion;
use crate::backend::{GuardBreach, Placement, RankError, Verdict};
use crate::case::Case;
use crate::fault::Order;

/// Epochs that one placement of a case may use: one for each launch with inputs of its own.
const EPOCHS: u64 = 1 << 12;

/// One case to run on all ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The case.
    pub case: Case,
    /// Ranks of the communicator.
    pub ranks: u32,
    /// The seed of inputs.
    pub seed: u64,
    /// Counts up from case to case, so that no two placements of a run share inputs; see [`Request::first_epoch`].
    pub epoch: u64,
    /// Untimed launches in front of the timed ones.
    pub warmup: u32,
    /// Timed launches.
    pub iters: u32,
    /// Whether results are checked.
    pub check: bool,
    /// A deliberate error between collective and check.
    pub tamper: Option<Tamper>,
    /// A deliberate fault on the way.
    pub fault: Option<Order>,
}

impl Request {
    /// The first epoch of a placement. Those of its launches follow, and no other placement of the run has them.
    pub fn first_epoch(&self, placement: Placement) -> u64 {
        (2 * self.epoch + u64::from(placement == Placement::InPlace)) * EPOCHS
    }
}

/// Flips bits of one element of one rank's output, to prove that it is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tamper {
    /// Whose output.
    pub rank: u32,
    /// Which element; taken modulo the elements that the rank receives.
    pub index: u64,
    /// Which bit; taken modulo the bits of the element.
    pub bit: u32,
}

/// What one rank says of one case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Who.
    pub rank: u32,
    /// One per placement that the case has, out-of-place first.
    pub placements: Vec<Measured>,
    /// Why the rest is missing, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RankError>,
}

impl Report {
    /// Forgets on which occasions nothing was wrong: nobody asks, and to tell it costs as much as all that was measured.
    pub fn shorten(&mut self) {
        for measured in self.placements.iter_mut().filter(|measured| !measured.faulty()) {
            measured.occasion = Occasion::default();
        }
    }
}

/// One placement of a case on one rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Which.
    pub placement: Placement,
    /// Mean time of one timed call by the host's clock, in microseconds: nccl-tests' definition.
    pub mean_us: f64,
    /// Device time of each timed launch, in microseconds; of a group, divided by its calls.
    #[serde(with = "super::nanoseconds")]
    pub iteration_us: Vec<f32>,
    /// What the check of the inputs said before the first launch; `None` where checks are off or there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<Verdict>,
    /// What the check of the output said; `None` where checks are off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Verdict>,
    /// What the check of the send buffer said, where there is one to survive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Verdict>,
    /// A guard zone that was written to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<GuardBreach>,
    /// Fingerprints of the output, where results are not known bit for bit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bits: Option<Bits>,
    /// The launch that the three speak of: the first one with a fault, if there was any.
    #[serde(default, skip_serializing_if = "Occasion::is_default")]
    pub occasion: Occasion,
}

impl Measured {
    fn faulty(&self) -> bool {
        let verdicts = [&self.given, &self.output, &self.input];
        self.guard.is_some() || verdicts.into_iter().flatten().any(|verdict| verdict.wrong > 0)
    }
}

/// Fingerprints of one rank's output, see [`crate::oracle::fingerprint`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bits {
    /// Of the first launch.
    pub first: u64,
    /// Of the last one, on the same inputs, if there was one.
    pub again: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::super::occasion::Launch;
    use super::*;
    use crate::backend::Wrong;
    use crate::case::DType;

    fn measured(placement: Placement, wrong: u64) -> Measured {
        let first = (wrong > 0).then_some(Wrong { index: 7, actual: u64::MAX, expected: 1 });
        Measured {
            placement,
            mean_us: 12.345_678,
            iteration_us: vec![12.25, 13.5],
            given: None,
            output: Some(Verdict { wrong, first, samples: first.into_iter().collect() }),
            input: Some(Verdict::default()),
            guard: None,
            bits: Some(Bits { first: 1, again: Some(u64::MAX) }),
            occasion: Occasion { launch: Launch::Timed, call: Some((2, 4)), dtype: DType::Half, epoch: Some(9) },
        }
    }

    fn back(report: &Report) -> Report {
        serde_json::from_str(&serde_json::to_string(report).unwrap()).unwrap()
    }

    #[test]
    fn a_report_comes_back_as_it_went() {
        let placements = vec![measured(Placement::OutOfPlace, 3), measured(Placement::InPlace, 0)];
        let report = Report { rank: 5, placements, error: Some(RankError::Aborted) };
        assert_eq!(back(&report), report);
        let nothing = Report { rank: 5, placements: Vec::new(), error: None };
        assert_eq!(back(&nothing), nothing);
        assert_eq!(serde_json::to_string(&nothing).unwrap(), r#"{"rank":5,"placements":[]}"#);
    }

    #[test]
    fn a_short_report_keeps_the_occasions_on_which_something_was_wrong() {
        let guard = Some(GuardBreach { recv: true, offset: -1 });
        let given = Some(Verdict { wrong: 1, ..Verdict::default() });
        let all = vec![
            measured(Placement::OutOfPlace, 3),
            Measured { guard, ..measured(Placement::OutOfPlace, 0) },
            Measured { given, ..measured(Placement::OutOfPlace, 0) },
            measured(Placement::InPlace, 0),
        ];
        let mut short = Report { rank: 0, placements: all.clone(), error: None };
        short.shorten();
        assert_eq!(short.placements[..3], all[..3]);
        assert_eq!(short.placements[3], Measured { occasion: Occasion::default(), ..all[3].clone() });
        let text = serde_json::to_string(&short).unwrap();
        assert_eq!((text.matches("occasion").count(), back(&short)), (3, short));
    }
}
