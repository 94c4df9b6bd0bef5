//! What one launcher says of this process.

use std::fmt;

use super::error::Confusion;
use super::{Options, Variables};

/// One launcher: which variables are its own, and what they mean.
pub trait Launcher: Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What it says of this process; `None` where it has not started it. Half of its variables is an error.
    fn read(&self, variables: &Variables, options: &Options) -> Result<Option<Claim>, Confusion>;
}

/// A number, and the variable or option that it is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Said {
    /// The variable.
    pub name: &'static str,
    /// The number.
    pub value: u32,
}

/// What a process stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Unit {
    /// One rank.
    Rank,
    /// All ranks of its node.
    Node,
}

/// Two numbers that a launcher sets together: both, or none. `names` are those of a missing one.
pub fn together(
    launcher: &'static str,
    [first, second]: [Option<Said>; 2],
    names: [&'static str; 2],
) -> Result<Option<(Said, Said)>, Confusion> {
    match (first, second) {
        (None, None) => Ok(None),
        (Some(first), Some(second)) => Ok(Some((first, second))),
        (Some(there), None) => Err(Confusion::Incomplete { launcher, there, lacks: names[1] }),
        (None, Some(there)) => Err(Confusion::Incomplete { launcher, there, lacks: names[0] }),
    }
}

/// What one launcher says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Who.
    pub launcher: &'static str,
    /// What the numbers count.
    pub unit: Unit,
    /// The rank or the node.
    pub index: Said,
    /// How many there are.
    pub of: Said,
    /// The rank among those of this host.
    pub local_rank: Option<Said>,
    /// Ranks of this host.
    pub local_world: Option<Said>,
    /// What tells this job from others, the same for all its processes; may be empty.
    pub job: String,
    /// The host of each, where it says so; else empty.
    pub hosts: Vec<String>,
}

impl Claim {
    /// One that counts ranks and says nothing else yet.
    pub fn ranks(launcher: &'static str, index: Said, of: Said) -> Claim {
        Claim {
            launcher,
            unit: Unit::Rank,
            index,
            of,
            local_rank: None,
            local_world: None,
            job: String::new(),
            hosts: Vec::new(),
        }
    }

    /// That its numbers can be true.
    pub fn check(&self) -> Result<(), Confusion> {
        let below = |index: Said, of: Said| {
            if index.value < of.value { Ok(()) } else { Err(Confusion::OutOfRange { index, of }) }
        };
        below(self.index, self.of)?;
        if self.unit == Unit::Node {
            return match self.local_world {
                Some(none) if none.value == 0 => Err(Confusion::NoWorkers(none)),
                _ => Ok(()),
            };
        }
        let Some(local) = self.local_rank else { return Ok(()) };
        below(local, self.local_world.unwrap_or(self.of))?;
        match self.local_world {
            Some(local_world) if local_world.value > self.of.value => {
                Err(Confusion::MoreHereThanThere { local_world, of: self.of })
            }
            _ => Ok(()),
        }
    }

    /// Whether it starts one process a node, so that another launcher in there may start ranks.
    pub fn per_node(&self) -> bool {
        let alone = self.local_rank.is_none_or(|local| local.value == 0);
        self.unit == Unit::Node || (alone && self.local_world.is_some_and(|world| world.value == 1))
    }

    /// Whether all ranks are on this host, as far as it says.
    pub fn one_host(&self) -> Option<bool> {
        match self.unit {
            Unit::Rank => self.local_world.map(|local| local.value == self.of.value),
            Unit::Node => Some(self.of.value == 1),
        }
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

/// As in an error: who, and by which variables.
impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {})", self.launcher, self.index, self.of)
    }
}
