//! What can be wrong about a launcher's variables: each on one line, with what to do.

use super::claim::{Claim, Said};

/// Why this process does not know its place. Exit code 2.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Confusion {
    /// A variable that must be a number.
    #[error("{name}={value} is not a whole number from 0 on: unset it, or give --launcher none")]
    NotANumber {
        /// The variable.
        name: &'static str,
        /// What it is.
        value: String,
    },
    /// Some of a launcher's variables.
    #[error("{there}, but {lacks} is not set: start collcheck by {launcher}, set it, or give --launcher none")]
    Incomplete {
        /// Whose.
        launcher: &'static str,
        /// What is there.
        there: Said,
        /// What is not.
        lacks: &'static str,
    },
    /// A rank that does not exist.
    #[error("{index} is not below {of}: ranks count from 0")]
    OutOfRange {
        /// The rank.
        index: Said,
        /// Of how many.
        of: Said,
    },
    /// More ranks on this host than in the world.
    #[error("{local_world} is more than {of}: the ranks of a host are part of all")]
    MoreHereThanThere {
        /// Ranks of this host.
        local_world: Said,
        /// Of all.
        of: Said,
    },
    /// A node without ranks.
    #[error("{0}: a node has at least one rank")]
    NoWorkers(Said),
    /// Two launchers.
    #[error("{0} and {1} disagree: unset the variables of one, or name the other with --launcher")]
    Disagree(Box<Claim>, Box<Claim>),
    /// Started by a launcher that is not heard.
    #[error(
        "{launcher} has started this process, but its variables did not arrive: N processes would be N runs of one rank; \
         pass them on, or give --launcher none"
    )]
    Unheard {
        /// Which program or variable tells.
        launcher: String,
    },
    /// A launcher that is asked for by name.
    #[error("--launcher {0}: this process was not started by it, or its variables did not arrive")]
    NotStartedBy(&'static str),
    /// The command line and the launcher count differently.
    #[error("--ranks {asked}, but {launcher} has started {there}: start as many, or leave --ranks out")]
    OtherRanks {
        /// By the command line.
        asked: u32,
        /// Who.
        launcher: &'static str,
        /// How many.
        there: Said,
    },
    /// Fewer ranks than nodes.
    #[error("--ranks {asked} are fewer than the nodes, {nodes}: each runs at least one")]
    FewerRanksThanNodes {
        /// By the command line.
        asked: u32,
        /// How many nodes.
        nodes: Said,
    },
    /// Nobody says where rank 0 is.
    #[error(
        "{launcher} does not say where rank 0 is{}: set MASTER_ADDR to its host for all ranks, or give --rendezvous HOST:PORT",
        if *hosts { ", and there are several hosts" } else { "" }
    )]
    NoAddress {
        /// Who.
        launcher: &'static str,
        /// There are several hosts.
        hosts: bool,
    },
    /// An address that is none.
    #[error("{name}={value} is not an address: {expected}")]
    NoEndpoint {
        /// The variable.
        name: &'static str,
        /// What it is.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
}

impl Confusion {
    /// Whether another launcher that is complete makes up for it.
    pub fn incomplete(&self) -> bool {
        matches!(self, Confusion::Incomplete { .. })
    }
}
