//! Ranks as processes: a coordinator, and a worker process for each rank, started from the same program.
//!
//! ```text
//! crew ── staff ── own:  starts, tells, watches, kills ─────────────────> member (a worker process)
//!   │        └──── post: asks agents, which start, tell, watch, kill ──> member
//!   │               │      │                                                │ worker, as with threads
//!   │               door, card, errand <── TCP ── agent                     │
//!   └── rendezvous, wires <── TCP: meetings, reports ───────────────────────┘
//! ```
//!
//! With `--layout processes` the workers are children of the coordinator. Under a launcher (see [`super::launcher`]) each
//! process that it starts is an agent for one rank, or for all ranks of its node; that of rank 0 is the coordinator too. An
//! agent's workers are children of the agent: whatever they do to themselves, the agent lives, and the next case can run.
//!
//! What all workers are told alike, as a case to run, comes from whoever has started them, so that the coordinator says it once
//! to each agent. Workers that see each other's memory meet at one gate, whoever has started them, and one of them speaks for
//! all: the coordinator hears of a meeting once from each gate, not at all where there is one for all, and has the reports of all
//! who are well together. Where any worker cannot get to its gate, each speaks for itself.
//!
//! A worker's calls are recorded in memory that its parent shares, so that those of one that was killed can be read. All
//! shared memory is without a name, and a worker dies with its parent, however that ends: nothing is left behind.

pub mod agent;
pub mod card;
mod child;
mod crew;
mod door;
pub mod errand;
mod far;
mod gate;
mod gathered;
pub mod hall;
pub mod launched;
pub mod member;
pub mod post;
mod rendezvous;
mod silence;
mod slots;
mod squad;
mod staff;
pub mod wire;
pub mod wires;

pub use crew::Crew;
pub use post::Post;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::backend::Recipe;
use hall::Spot;

/// What a worker process is told first on its standard input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Orders {
    /// Where the coordinator listens.
    address: std::net::SocketAddr,
    token: String,
    rank: u32,
    ranks: u32,
    /// The number of its GPU among the visible ones, if it has one.
    gpu: u32,
    /// Ranks that share one.
    ranks_per_gpu: u32,
    /// Its log and those of its siblings.
    logs: PathBuf,
    /// Which of them is its own.
    slot: u32,
    /// Where it meets others, if anywhere.
    gate: Option<Spot>,
    /// Memory that the backend's ranks share, if they do.
    channels: PathBuf,
    /// How its station is made.
    recipe: Recipe,
}
