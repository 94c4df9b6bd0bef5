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
    pub error: Option<RankError>,
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
    pub occasion: Occasion,
}

/// Fingerprints of one rank's output, see [`crate::oracle::fingerprint`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bits {
    /// Of the first launch.
    pub first: u64,
    /// Of the last one, on the same inputs, if there was one.
    pub again: Option<u64>,
}
