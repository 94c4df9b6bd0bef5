//! What notices faults.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::case::Unknown;

/// A part of the harness that can notice that something is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Detector {
    /// The check of every element of the output.
    Value,
    /// The check of the zones around buffers.
    Guard,
    /// The check of what a call must leave alone: send buffers and untouched regions.
    Survivor,
    /// The check of the inputs before the call.
    Input,
    /// The limit to how long a case may take, and the inquest after it.
    Deadline,
    /// The watch over workers that die, and the inquest after it.
    Death,
    /// The error that a call returns, and the inquest after it.
    Error,
    /// The comparison of all ranks' calls after a case that came to its end.
    Alignment,
    /// The comparison of times.
    Performance,
}

impl Detector {
    /// All of them.
    pub const ALL: [Detector; 9] = [
        Detector::Value,
        Detector::Guard,
        Detector::Survivor,
        Detector::Input,
        Detector::Deadline,
        Detector::Death,
        Detector::Error,
        Detector::Alignment,
        Detector::Performance,
    ];

    /// As in the JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Detector::Value => "value",
            Detector::Guard => "guard",
            Detector::Survivor => "survivor",
            Detector::Input => "input",
            Detector::Deadline => "deadline",
            Detector::Death => "death",
            Detector::Error => "error",
            Detector::Alignment => "alignment",
            Detector::Performance => "performance",
        }
    }
}

impl fmt::Display for Detector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Detector {
    type Err = Unknown;

    fn from_str(name: &str) -> Result<Detector, Unknown> {
        let found = Detector::ALL.into_iter().find(|detector| detector.name() == name);
        found.ok_or_else(|| Unknown::new("detector", name, Detector::ALL.map(Detector::name)))
    }
}
