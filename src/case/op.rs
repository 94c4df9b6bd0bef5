//! The six reduction operations.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

use super::Unknown;

/// A reduction operation, named as nccl-tests names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Op {
    Sum,
    Prod,
    Min,
    Max,
    Avg,
    /// Every rank's input times its own scalar, summed (`ncclRedOpCreatePreMulSum`).
    Mulsum,
}

impl Op {
    /// All of them, in the order of suites and reports.
    pub const ALL: [Op; 6] = [Op::Sum, Op::Prod, Op::Min, Op::Max, Op::Avg, Op::Mulsum];

    /// The name in case names and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Op::Sum => "sum",
            Op::Prod => "prod",
            Op::Min => "min",
            Op::Max => "max",
            Op::Avg => "avg",
            Op::Mulsum => "mulsum",
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Op {
    type Err = Unknown;

    fn from_str(s: &str) -> Result<Self, Unknown> {
        let wanted = s.to_ascii_lowercase();
        Op::ALL.into_iter().find(|op| op.name() == wanted).ok_or_else(|| Unknown::new("op", s, Op::ALL.map(Op::name)))
    }
}
