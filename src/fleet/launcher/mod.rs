//! What a launcher has told this process: which rank it is, of how many, and where the others are to be met.
//!
//! ```text
//! environment ── launchers, one file each ──> claims ── precedence, contradictions ──> Placement
//!                                                        rendezvous: where rank 0 listens
//! ```
//!
//! All of it is pure: [`Surroundings`] go in, a [`Placement`] or one line about what is wrong with them comes out. A launcher
//! whose variables are not understood must never end in N runs of one rank each that all pass.

mod claim;
mod error;
mod indexed_job;
mod mvapich;
mod nodelist;
mod open_mpi;
mod pmi;
mod pmix;
mod precedence;
mod pytorch_job;
pub mod rendezvous;
mod slurm;
#[cfg(test)]
mod tests;
mod torchrun;
mod variables;

use std::fmt;
use std::str::FromStr;

pub use claim::{Claim, Said, Unit};
pub use error::Confusion;
pub use precedence::place;
pub use rendezvous::{Address, Endpoint};
pub use variables::Variables;

/// Everything that a placement is derived from.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// The environment.
    pub variables: Variables,
    /// This host's full name, as `collcheck-1.collcheck.default.svc.cluster.local`.
    pub host: String,
    /// Names of the programs that have started this one, the nearest first.
    pub ancestors: Vec<String>,
    /// What the command line says.
    pub options: Options,
}

/// What the command line may say of the launcher. It wins over the environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Which launcher's variables count.
    pub launcher: Choice,
    /// Where rank 0 listens.
    pub rendezvous: Option<Endpoint>,
    /// Nodes, where the launcher does not say how many there are.
    pub nodes: Option<u32>,
    /// Ranks of the communicator.
    pub ranks: Option<u32>,
}

/// `--launcher`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Choice {
    /// The first in the order of precedence that has started this process.
    #[default]
    Auto,
    /// None: this process runs alone.
    Alone,
    /// This one.
    Named(&'static str),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Choice, String> {
        let known = || precedence::names().find(|name| *name == text).map(Choice::Named);
        match text {
            "auto" => Ok(Choice::Auto),
            "none" => Ok(Choice::Alone),
            _ => known().ok_or_else(|| {
                let names: Vec<&str> = precedence::names().collect();
                format!("expected auto, none, {}", names.join(", "))
            }),
        }
    }
}

/// This process's place in a run of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Who has started it.
    pub launcher: &'static str,
    /// Whether it stands for one rank, or for all ranks of a node.
    pub unit: Unit,
    /// Its rank, or the number of its node.
    pub index: u32,
    /// Ranks of the communicator, or nodes.
    pub of: u32,
    /// Its number among the ranks of this host, where the launcher says so.
    pub local_rank: Option<u32>,
    /// Ranks of this host, where the launcher says so.
    pub local_world: Option<u32>,
    /// The host of each rank or node, as far as the launcher says so; else empty.
    pub hosts: Vec<String>,
    /// Where rank 0 listens.
    pub rendezvous: Address,
    /// Proof that a process belongs to this run.
    pub token: String,
}

impl Placement {
    /// `rank 3 of 8` or `node 1 of 2`.
    pub fn name(&self) -> String {
        format!("{} {} of {}", self.unit, self.index, self.of)
    }
}

/// Where this process runs, if a launcher has started it as one of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// It is one of several.
    Member(Box<Placement>),
    /// It runs alone. The text, if any, is what should be said of that.
    Alone(Option<String>),
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unit::Rank => "rank",
            Unit::Node => "node",
        })
    }
}
