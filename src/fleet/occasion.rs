//! Which of a placement's many launches something is about.

use serde::{Deserialize, Serialize};
use std::fmt;

use crate::case::DType;

/// One launch, one call in it, and how its values read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Occasion {
    /// The launch.
    pub launch: Launch,
    /// Which call of a group, counted from 1, and of how many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<(u32, u32)>,
    /// The element type: that of the call, in a group of several.
    pub dtype: DType,
    /// The epoch of the oracle's plan; `None` where the expected values are not those of the case's data.
    pub epoch: Option<u64>,
}

/// Of nothing.
impl Default for Occasion {
    fn default() -> Occasion {
        Occasion { launch: Launch::First, call: None, dtype: DType::Float, epoch: None }
    }
}

impl Occasion {
    /// Whether it is of nothing.
    pub fn is_default(&self) -> bool {
        *self == Occasion::default()
    }
}

/// A launch of a placement. Numbers count from 1.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Launch {
    /// The first one.
    #[default]
    First,
    /// The last of the timed ones.
    Timed,
    /// A replay of a graph that holds one launch.
    Replay {
        /// Which.
        number: u32,
        /// Of how many.
        of: u32,
    },
    /// Rounds of a pipeline.
    Rounds {
        /// Those that the expected values of wrong elements belong to; empty for what was seen at the end.
        numbers: Vec<u32>,
        /// Of how many.
        of: u32,
        /// How often the graph that holds them was replayed; 0 without a graph.
        replays: u32,
    },
    /// An output that was overwritten after a round of a pipeline and its check, and was then written to again.
    Overwritten {
        /// After which round.
        round: u32,
        /// Of how many.
        of: u32,
    },
}

impl fmt::Display for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Launch::First => Ok(()),
            Launch::Timed => f.write_str("after the timed launches"),
            Launch::Replay { number, of } => write!(f, "replay {number} of {of} of the graph"),
            Launch::Rounds { numbers, of, replays } => {
                match numbers[..] {
                    [] => write!(f, "within {of} rounds of the pipeline")?,
                    [one] => write!(f, "round {one} of {of} of the pipeline")?,
                    _ => {
                        let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
                        write!(f, "rounds {} of {of} of the pipeline", numbers.join(", "))?;
                    }
                }
                if *replays > 0 { write!(f, ", replayed {replays} times as a graph") } else { Ok(()) }
            }
            Launch::Overwritten { round, of } => {
                write!(f, "written to again after round {round} of {of} of the pipeline was checked")
            }
        }
    }
}

/// Empty for the only call of the first launch.
impl fmt::Display for Occasion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.launch.fmt(f)?;
        if let Some((number, of)) = self.call {
            let comma = if self.launch == Launch::First { "" } else { ", " };
            write!(f, "{comma}call {number} of {of} of the group ({})", self.dtype)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_occasion_reads_as_a_place_in_the_run() {
        let say = |launch, call| Occasion { launch, call, dtype: DType::Float, epoch: None }.to_string();
        assert_eq!(say(Launch::First, None), "");
        assert_eq!(say(Launch::First, Some((2, 4))), "call 2 of 4 of the group (float)");
        assert_eq!(
            say(Launch::Replay { number: 2, of: 4 }, Some((1, 3))),
            "replay 2 of 4 of the graph, call 1 of 3 of the group (float)"
        );
        let rounds = |numbers: &[u32], replays| say(Launch::Rounds { numbers: numbers.to_vec(), of: 8, replays }, None);
        assert_eq!(rounds(&[3], 0), "round 3 of 8 of the pipeline");
        assert_eq!(rounds(&[3, 5], 3), "rounds 3, 5 of 8 of the pipeline, replayed 3 times as a graph");
        assert_eq!(rounds(&[], 0), "within 8 rounds of the pipeline");
    }
}
