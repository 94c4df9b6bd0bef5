//! What coordinator and agents say to each other once they have met.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::hall::Spot;
use super::wire::ToAll;
use crate::backend::Recipe;
use crate::trace::Liveness;

/// From the coordinator.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Errand {
    /// Start these workers; older ones are killed.
    Start(Box<Task>),
    /// Pass this on to the workers.
    Tell {
        /// Whose.
        team: u64,
        /// What.
        what: ToAll,
    },
    /// Kill the workers.
    Dismiss,
    /// Say how the workers are, and what their logs hold. The number tells questions apart.
    Testify(u64),
    /// The run has ended with this exit code.
    Over(u8),
}

/// The workers of one communicator that an agent starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Tells this communicator's workers from earlier ones.
    pub team: u64,
    /// What workers prove with that they belong to it.
    pub token: String,
    /// Ranks of the communicator.
    pub ranks: u32,
    /// The agent's own, each with the number of its GPU.
    pub own: Vec<(u32, u32)>,
    /// Ranks that share one GPU.
    pub ranks_per_gpu: u32,
    /// How stations are made.
    pub recipe: Recipe,
    /// Memory that the ranks share, if they do.
    pub channels: PathBuf,
    /// Where the first of its own meets others; those that follow it have the slots that follow.
    pub gate: Option<Spot>,
}

/// From an agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Notice {
    /// How the workers are, where that has changed.
    States {
        /// Whose.
        team: u64,
        /// In the order of the task.
        states: Vec<Liveness>,
    },
    /// Workers cannot be started.
    Failed {
        /// Which.
        team: u64,
        /// Why.
        why: String,
    },
    /// The answer to [`Errand::Testify`].
    Testimony {
        /// Whose.
        team: u64,
        /// Which question it answers.
        question: u64,
        /// In the order of the task.
        states: Vec<Liveness>,
        /// What each log holds.
        logs: Vec<Vec<u64>>,
    },
}
