//! The answer: what `diagnose --format json` prints.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Why ranks hang.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Class {
    /// Counts differ.
    #[serde(rename = "A.size")]
    ASize,
    /// Element types differ.
    #[serde(rename = "A.dtype")]
    ADtype,
    /// Different calls meet: another order, another collective, another root or reduction.
    #[serde(rename = "B.order")]
    BOrder,
    /// A rank skipped a call or made one more.
    #[serde(rename = "B.count")]
    BCount,
    /// A send without its recv, or the other way round.
    #[serde(rename = "C.unpaired")]
    CUnpaired,
    /// Two communicators, entered in crossed order.
    #[serde(rename = "D.crossed")]
    DCrossed,
    /// A rank is gone.
    #[serde(rename = "E.crash")]
    ECrash,
    /// A rank is busy or stopped outside of communication.
    #[serde(rename = "E.stuck")]
    EStuck,
    /// Network or hardware: all ranks do the same.
    #[serde(rename = "F.fabric")]
    FFabric,
    /// A communicator never came to be.
    #[serde(rename = "init")]
    Init,
    /// Nothing waits.
    #[default]
    #[serde(rename = "none")]
    None,
    /// The evidence contradicts itself or is not enough.
    #[serde(rename = "undetermined")]
    Undetermined,
}

impl Class {
    /// As in the JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Class::ASize => "A.size",
            Class::ADtype => "A.dtype",
            Class::BOrder => "B.order",
            Class::BCount => "B.count",
            Class::CUnpaired => "C.unpaired",
            Class::DCrossed => "D.crossed",
            Class::ECrash => "E.crash",
            Class::EStuck => "E.stuck",
            Class::FFabric => "F.fabric",
            Class::Init => "init",
            Class::None => "none",
            Class::Undetermined => "undetermined",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Verdict, grounds, and what to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// The verdict.
    pub verdict: Verdict,
    /// What it rests on, and what speaks against it.
    pub evidence: Vec<Evidence>,
    /// What to look at and do, in this order.
    pub next_steps: Vec<String>,
}

/// Who did what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The class.
    pub class: Class,
    /// All classes that the evidence allows, the likeliest first: `class` itself unless it is none or undetermined.
    pub candidates: Vec<Class>,
    /// Global ranks at fault, ascending; several where they are all at fault or cannot be told apart (the summary says
    /// which); empty where no rank is.
    pub culprit_ranks: Vec<u32>,
    /// The communicator of the call that hangs.
    pub communicator: Option<String>,
    /// Its sequence number there; point-to-point calls have a count of their own.
    pub sequence: Option<u64>,
    /// What it is, as `all_reduce` or `send 0->1`.
    pub operation: Option<String>,
    /// One sentence.
    pub summary: String,
}

/// One observation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Where it is from, as `calls of default_pg` or `rank 3 on host-a`.
    pub source: String,
    /// What it is.
    pub says: String,
}
