//! Ranks as processes of this host: a coordinator, and a worker process for each rank, started from the same program.
//!
//! ```text
//! crew ── starts, watches, kills ──> member (a worker process)
//!   │                                   │ worker, as with threads
//!   rendezvous, wire  <── loopback TCP ─┘
//! ```
//!
//! A worker's calls are recorded in memory that the coordinator shares, so that those of one that was killed can be read.
//! All shared memory is without a name, and a worker dies with its coordinator, however that ends: nothing is left behind.

mod child;
mod crew;
pub mod member;
mod rendezvous;
mod wire;

pub use crew::Crew;

use serde::{Deserialize, Serialize};

use crate::backend::Recipe;

/// What a worker process is told on its standard input, in one line. Descriptors are inherited ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Orders {
    /// Where the coordinator listens.
    address: std::net::SocketAddr,
    token: String,
    rank: u32,
    ranks: u32,
    /// Its log and those of the others.
    logs: i32,
    /// Memory that the backend's ranks share, if they do.
    channels: i32,
    /// How its station is made.
    recipe: Recipe,
}
