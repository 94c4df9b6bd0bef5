//! What is known at the moment of a hang: the input of [`super::judge::judge`].

use serde::{Deserialize, Serialize};

use super::call::Call;

/// All evidence of one hang.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Incident {
    /// One per rank of which anything is known. Ranks are global here.
    pub ranks: Vec<RankEvidence>,
    /// Communicators whose members are known. Of others, the ranks seen in it are taken as members, and ranks within it
    /// as global ranks.
    pub communicators: Vec<Communicator>,
    /// Ranks that there should be, `0..world`, where known.
    pub world: Option<u32>,
}

/// Members of a communicator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Communicator {
    /// As in [`Call::comm`].
    pub id: u64,
    /// Its name for people; may be empty.
    pub label: String,
    /// Global ranks, in the order of ranks within it.
    pub ranks: Vec<u32>,
}

/// What is known of one rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankEvidence {
    /// Global rank.
    pub rank: u32,
    /// Host name; may be empty.
    pub host: String,
    /// Whether its process lived when the evidence was taken, before anything was killed for clean-up.
    pub liveness: Liveness,
    /// Its calls in the order in which it made them, over all communicators; `None` where it left no record at all.
    pub calls: Option<Vec<Call>>,
    /// Older records that were overwritten.
    pub lost: u64,
    /// The rank holds that it has made all its calls: it waits for the others elsewhere than in a communicator.
    pub finished: bool,
    /// Communicators that it has begun to set up.
    pub setups: Vec<Setup>,
    /// Warnings, asynchronous errors and kernel log lines that belong to it.
    pub messages: Vec<String>,
}

/// Set-up of one communicator by one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// As in [`Call::comm`].
    pub comm: u64,
    /// Whether it returned.
    pub done: bool,
    /// How many ranks this rank asked for, where that is known.
    #[serde(default)]
    pub ranks: Option<u32>,
}

/// Whether a process lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Liveness {
    /// Nobody looked.
    #[default]
    Unknown,
    /// It runs.
    Alive,
    /// It exists and is stopped, by a signal or a debugger.
    Stopped,
    /// It has ended.
    Exited {
        /// Exit status, where it ended by itself.
        code: Option<i32>,
        /// The signal that ended it.
        signal: Option<i32>,
    },
    /// Neither it nor the kernel of its host has answered for so long.
    Unreachable {
        /// Whole seconds.
        seconds: u32,
    },
    /// It should have left a dump and did not; nothing else is known.
    NoDump,
}

impl Liveness {
    /// The signal that ended it; shells and launchers report it as status 128 + signal.
    pub fn signal(self) -> Option<i32> {
        match self {
            Liveness::Exited { signal: Some(signal), .. } => Some(signal),
            Liveness::Exited { code: Some(code @ 129..=192), .. } => Some(code - 128),
            _ => None,
        }
    }

    /// Whether it has ended.
    pub const fn exited(self) -> bool {
        matches!(self, Liveness::Exited { .. })
    }

    /// Whether its host does not answer.
    pub const fn unreachable(self) -> bool {
        matches!(self, Liveness::Unreachable { .. })
    }

    /// Whether it has ended with status 0.
    pub const fn left_cleanly(self) -> bool {
        matches!(self, Liveness::Exited { code: Some(0), signal: None })
    }
}

impl std::fmt::Display for Liveness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(signal) = self.signal() {
            return match signal_name(signal) {
                Some(name) => write!(f, "ended by {name}"),
                None => write!(f, "ended by signal {signal}"),
            };
        }
        match self {
            Liveness::Unknown => f.write_str("of unknown state"),
            Liveness::Alive => f.write_str("alive"),
            Liveness::Stopped => f.write_str("stopped"),
            Liveness::Unreachable { seconds } => write!(f, "unreachable: no word from its host for {seconds} s"),
            Liveness::NoDump => f.write_str("without a dump"),
            Liveness::Exited { code: Some(code), .. } => write!(f, "ended with status {code}"),
            Liveness::Exited { .. } => f.write_str("ended"),
        }
    }
}

const fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        15 => "SIGTERM",
        _ => return None,
    })
}
