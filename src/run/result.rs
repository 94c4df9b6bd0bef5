//! Results of cases: the `cases[]` of `collcheck.results/1`.

use serde::{Deserialize, Deserializer, Serialize};

use crate::case::{DType, Op, Primitive, Variant};
use crate::fault::{Detector, Family, Kind};
use crate::trace::Verdict;

/// The schema's name.
pub const SCHEMA: &str = "collcheck.results/1";

/// How a case ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All that was asserted holds.
    Pass,
    /// Something that was asserted does not hold: see the kind.
    Fail,
    /// Not run: see the message.
    Skip,
}

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailKind {
    /// A wrong element, a damaged send buffer or guard zone.
    Data,
    /// busbw below the lower bound of a measured reference.
    Slow,
    /// busbw above the upper bound of a measured reference.
    TooFast,
    /// No end before the deadline.
    Hang,
    /// A rank died.
    Crash,
    /// The library refused, or the device failed.
    Error,
}

impl FailKind {
    /// As in the JSON.
    pub const fn name(self) -> &'static str {
        match self {
            FailKind::Data => "data",
            FailKind::Slow => "slow",
            FailKind::TooFast => "too_fast",
            FailKind::Hang => "hang",
            FailKind::Crash => "crash",
            FailKind::Error => "error",
        }
    }
}

/// Reads `null`, which is how JSON writers put what is not a finite number, as NaN.
fn null_is_nan<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

/// One case's result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    /// The case's name.
    pub name: String,
    /// Its parts.
    pub primitive: Primitive,
    /// `None` for primitives that move data only.
    pub op: Option<Op>,
    /// The element type.
    pub dtype: DType,
    /// Bytes really moved: nccl-tests' size column.
    pub bytes: u64,
    /// nccl-tests' count column.
    pub count: u64,
    /// Ranks of the communicator.
    pub ranks: u32,
    /// The root, -1 where there is none, as in nccl-tests' table.
    pub root: i64,
    /// Name suffixes.
    pub variants: Vec<Variant>,
    /// How it ended.
    pub outcome: Outcome,
    /// What failed.
    pub kind: Option<FailKind>,
    /// Out-of-place, then in-place, where they exist.
    pub placements: Vec<PlacementResult>,
    /// How bandwidth was judged.
    pub reference: Judgement,
    /// The algorithm that ran, where it is known.
    pub path: Option<Path>,
    /// Why it failed or was skipped; empty otherwise.
    pub message: String,
    /// Who held whom up, of a case that hung or lost a rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// What became of the deliberate fault, of a case that carries one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<FaultRecord>,
    /// Seconds from request to verdict.
    #[serde(deserialize_with = "null_is_nan")]
    pub duration_s: f64,
}

/// A deliberate fault, and what was said of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FaultRecord {
    /// Which.
    pub name: Kind,
    /// Its family.
    pub family: Family,
    /// Who did what, and how often; empty where it was not done.
    pub armed: Vec<Deed>,
    /// What noticed it, whether asked to or not.
    pub noticed_by: Vec<Detector>,
    /// What it was called, as `A.size`, `data: bit 2 flipped` or `slow: all sizes`; empty where nothing noticed it.
    pub class: String,
    /// Whose it was said to be.
    pub culprits: Vec<u32>,
    /// The grounds, in one line.
    pub explanation: String,
    /// From the request with the fault to the verdict.
    #[serde(deserialize_with = "null_is_nan")]
    pub seconds: f64,
}

/// What one rank did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deed {
    /// Who.
    pub rank: u32,
    /// How often.
    pub times: u64,
    /// What, as in "rank 1 ...".
    pub what: String,
}

/// One placement's figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlacementResult {
    /// One buffer for both.
    pub in_place: bool,
    /// Mean time per launch by nccl-tests' definition: host clock, averaged over ranks.
    #[serde(deserialize_with = "null_is_nan")]
    pub mean_us: f64,
    /// Device times of single launches; each is the slowest rank's.
    pub time_us: Option<TimeStats>,
    /// Bytes over mean time, GB/s (1e9).
    #[serde(deserialize_with = "null_is_nan")]
    pub algbw_gbs: f64,
    /// algbw times the primitive's factor.
    #[serde(deserialize_with = "null_is_nan")]
    pub busbw_gbs: f64,
    /// Wrong elements over all ranks; `None` where not checked.
    pub wrong: Option<u64>,
    /// The first of them.
    pub first_wrong: Option<FirstWrong>,
    /// Whether ranks that get the same reduction hold the same bits; absent where none do, or it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agree: Option<bool>,
    /// Whether launches on the same inputs give the same bits; absent where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<bool>,
}

/// Statistics of single launches, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct TimeStats {
    #[serde(deserialize_with = "null_is_nan")]
    pub median: f64,
    #[serde(deserialize_with = "null_is_nan")]
    pub p50: f64,
    #[serde(deserialize_with = "null_is_nan")]
    pub p90: f64,
    #[serde(deserialize_with = "null_is_nan")]
    pub p99: f64,
    #[serde(deserialize_with = "null_is_nan")]
    pub min: f64,
    #[serde(deserialize_with = "null_is_nan")]
    pub max: f64,
    /// Standard deviation over mean.
    #[serde(deserialize_with = "null_is_nan")]
    pub cv: f64,
    pub n: usize,
}

/// A wrong element, told for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstWrong {
    /// Whose output.
    pub rank: u32,
    /// Which element.
    pub index: u64,
    /// Value and bits, as `1.5 (0x3fc00000)`.
    pub expected: String,
    /// Likewise.
    pub actual: String,
    /// Where this rank's wrong elements lie, as `elements 4096 to 4127, up to a multiple of 128B`; empty where it is alone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ranges: String,
    /// What they are, as far as the oracle can tell, and how many of them that covers: `never written (all 32)`.
    pub explanation: String,
}

/// Whether and how bandwidth was asserted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// Asserted, warned or unasserted.
    pub status: Assertion,
    /// Lower bound of busbw in GB/s.
    pub lower_gbs: Option<f64>,
    /// Upper bound.
    pub upper_gbs: Option<f64>,
    /// Where the range comes from.
    pub source: String,
    /// Why it is unasserted, or what the warning says; empty otherwise.
    pub note: String,
}

/// How far a performance figure was judged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Assertion {
    /// Against a measured range: outside of it the case fails.
    Asserted,
    /// Against a published figure or a gate only, and outside of it: the case passes with a warning.
    Warned,
    /// Against a published figure or a gate only, and inside of it.
    Published,
    /// No reference applies.
    #[default]
    Unasserted,
}

/// What the library chose to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Path {
    pub algo: String,
    pub proto: String,
    pub channels: u32,
}

/// Counts over a run. The performance counts are over cases that ran.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Summary {
    pub cases: u64,
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
    pub asserted: u64,
    pub published: u64,
    pub warned: u64,
    pub unasserted: u64,
    pub wrong_elements: u64,
    #[serde(deserialize_with = "null_is_nan")]
    pub duration_s: f64,
}

impl Summary {
    /// Counts one more case.
    pub fn add(&mut self, case: &CaseResult) {
        self.cases += 1;
        match case.outcome {
            Outcome::Pass => self.passed += 1,
            Outcome::Fail => self.failed += 1,
            Outcome::Skip => self.skipped += 1,
        }
        if case.outcome != Outcome::Skip {
            match case.reference.status {
                Assertion::Asserted => self.asserted += 1,
                Assertion::Published => self.published += 1,
                Assertion::Warned => self.warned += 1,
                Assertion::Unasserted => self.unasserted += 1,
            }
        }
        self.wrong_elements += case.placements.iter().filter_map(|p| p.wrong).sum::<u64>();
    }
}
