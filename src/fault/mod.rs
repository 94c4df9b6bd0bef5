//! Deliberate faults: proof that the harness would notice.
//!
//! A fault is one file and one line in [`CATALOGUE`]. It says what goes wrong and how a rank does it ([`Fault::injector`]),
//! and by whom it must be noticed and under which name ([`Fault::expects`]). A case carries one as a variant,
//! `all_reduce::sum::float::64KiB@fault-size`; how such a case runs is told in `crate::run`.
//!
//! ```text
//! worker ── Armed ── Recorder ── Station
//!             │ injector: what this rank does instead
//!             └ Meeting::armed: counted in the rank's log, which outlives it
//! ```
//!
//! Faults are done above the recorder, so that it records what was really called, and nothing below knows of them.

mod area;
mod armed;
mod calls;
mod data;
mod detector;
mod expect;
mod fabric;
mod mismatch;
mod race;
mod rank;
mod slow;

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use armed::{Armed, Injector, Rank};
pub use detector::Detector;
pub use expect::{Called, End, Expectation, Name, Sighting, Who, judge};

use crate::backend::Environment;
use crate::case::{DType, Op, Primitive};

/// All faults, in the order of reports.
pub static CATALOGUE: &[&dyn Fault] = &[
    &mismatch::size::Size,
    &mismatch::dtype::DTypeOff,
    &mismatch::root::Root,
    &mismatch::op::OpOff,
    &mismatch::count::Count,
    &mismatch::count_even::CountEven,
    &mismatch::order::OutOfOrder,
    &mismatch::kind::Type,
    &mismatch::unpaired::Unpaired,
    &mismatch::unpaired_small::UnpairedSmall,
    &mismatch::peer::Peer,
    &mismatch::crossed::Crossed,
    &mismatch::nranks::RankCount,
    &rank::kill::Kill,
    &rank::abort::Abort,
    &rank::exit::Exit,
    &rank::panic::Panic,
    &rank::stop::Stop,
    &rank::sleep::Sleep,
    &rank::busy::Busy,
    &rank::straggler::Straggler,
    &race::late_input::LATE_INPUT,
    &race::early_read::EarlyRead,
    &race::no_dependency::NO_DEPENDENCY,
    &race::overlap::Overlap,
    &race::reuse::REUSE,
    &data::flip::Flip,
    &data::lost::Lost,
    &data::doubled::Doubled,
    &data::stale::Stale,
    &data::swapped::Swapped,
    &data::truncated::Truncated,
    &data::overrun::Overrun,
    &data::clobbered::Clobbered,
    &data::nan::NotANumber,
    &data::inf::Infinite,
    &data::rounded::Rounded,
    &fabric::cut::CUT,
    &fabric::reset::RESET,
    &fabric::delayed::DELAYED,
    &fabric::throttled::THROTTLED,
    &slow::bandwidth::Bandwidth,
    &slow::latency::Latency,
    &slow::dip::Dip,
];

/// The launch in which faults are done that need some history before them. It lies among the timed ones.
pub const STEP: u32 = 6;

/// Launches of a case with a fault, so that [`STEP`] means the same whatever options a run has.
pub const WARMUP: u32 = 1;
/// Likewise.
pub const ITERS: u32 = 5;

/// What kind of thing goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// Ranks make different calls.
    Mismatch,
    /// A rank dies, or does something else.
    Rank,
    /// Two that touch the same memory, and nothing orders them.
    Race,
    /// Wrong values.
    Data,
    /// The way between two ranks is broken or slow.
    Fabric,
    /// Slower than it should be, at some sizes.
    Slow,
}

impl Family {
    /// As in the JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Family::Mismatch => "mismatch",
            Family::Rank => "rank",
            Family::Race => "race",
            Family::Data => "data",
            Family::Fabric => "fabric",
            Family::Slow => "slow",
        }
    }
}

/// How a case with the fault is run. Before and after it, a control must pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// The case with the fault. The control is the case without.
    Once,
    /// As above, but the control does the same work in the right order.
    Ordered,
    /// The case with the fault, which passes, and then the same without on the same communicator, which shows it.
    NextUse,
    /// A small, a middle and the case's own size, each with the fault and without: times are compared.
    Curve,
}

/// What a fault needs beyond two ranks and a case that it fits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs {
    /// Ranks, if more than two.
    pub ranks: u32,
    /// Ranks are processes.
    pub processes: bool,
    /// Ranks exchange bytes over connections.
    pub connections: Option<Connections>,
}

/// Whose connections can be struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connections {
    /// Also those that another library holds in this process.
    Any,
    /// Only those that this program sends over itself.
    Own,
}

/// What keeps NCCL's ranks of one host from everything but sockets.
const OVER_SOCKETS: [(&str, &str); 3] = [("NCCL_NET", "Socket"), ("NCCL_P2P_DISABLE", "1"), ("NCCL_SHM_DISABLE", "1")];

impl Connections {
    /// Why NCCL's cannot be struck, if so.
    fn of_nccl(self, environment: &Environment, processes: bool) -> Option<String> {
        if self == Connections::Own {
            return Some(
                "holds back what is sent, which sockets of another library do not let do: use --backend host".into(),
            );
        }
        let set = |(name, value): &(&str, &str)| environment.variables.get(*name).is_some_and(|is| is == value);
        if !OVER_SOCKETS.iter().all(set) {
            let all = OVER_SOCKETS.map(|(name, value)| format!("{name}={value}"));
            return Some(format!("strikes sockets, and NCCL may use others' means: needs {}", all.join(" ")));
        }
        (!processes && environment.ranks > 2).then(|| {
            "strikes one rank's sockets, and of more than two ranks in a process nothing tells whose they are: use \
             --layout processes"
                .into()
        })
    }
}

/// One fault.
pub trait Fault: Sync {
    /// Its name, stable: `size` of `fault-size`.
    fn name(&self) -> &'static str;

    /// Its family.
    fn family(&self) -> Family;

    /// What the culprit does, as in "rank 1 ...": `passes more elements than the others in launch 6`.
    fn deed(&self) -> &'static str;

    /// Why it changes nothing about such a case, or cannot be had with it.
    fn misfit(&self, _primitive: Primitive, _op: Option<Op>, _dtype: DType) -> Option<&'static str> {
        None
    }

    /// What it needs of ranks.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// How a case with it is run.
    fn method(&self) -> Method {
        Method::Once
    }

    /// Whether launches after the first are of growing size, so that each call can be told from the others.
    fn growing(&self) -> bool {
        false
    }

    /// What each rank does in the place of what it is told to do.
    fn injector(&self) -> Box<dyn Injector>;

    /// Who must notice it, and as what.
    fn expects(&self) -> Expectation;
}

/// A fault by its name.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Kind(&'static dyn Fault);

impl Kind {
    /// All faults.
    pub fn all() -> impl Iterator<Item = Kind> {
        CATALOGUE.iter().map(|fault| Kind(*fault))
    }

    /// The fault.
    pub fn fault(self) -> &'static dyn Fault {
        self.0
    }

    /// Why it cannot be had here, if so.
    pub fn lacks(self, environment: &Environment, processes: bool) -> Option<String> {
        let needs = self.0.needs();
        let least = needs.ranks.max(2);
        if environment.ranks < least {
            return Some(format!("fault-{self} needs {least} ranks"));
        }
        if needs.processes && !processes {
            let why = "ends or stops a process: ranks must be processes, as with --layout processes";
            return Some(format!("fault-{self} {why}"));
        }
        let connections = needs.connections.filter(|_| environment.backend == "nccl");
        connections.and_then(|which| which.of_nccl(environment, processes)).map(|why| format!("fault-{self} {why}"))
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0.name())
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Kind) -> bool {
        self.0.name() == other.0.name()
    }
}

impl Eq for Kind {}

impl Hash for Kind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name().hash(state);
    }
}

impl PartialOrd for Kind {
    fn partial_cmp(&self, other: &Kind) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Kind {
    fn cmp(&self, other: &Kind) -> Ordering {
        self.0.name().cmp(other.0.name())
    }
}

/// A name that no fault has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown fault {given:?}; known are {known}")]
pub struct UnknownFault {
    given: String,
    known: String,
}

impl FromStr for Kind {
    type Err = UnknownFault;

    fn from_str(name: &str) -> Result<Kind, UnknownFault> {
        let known = || Kind::all().map(|kind| kind.to_string()).collect::<Vec<_>>().join(", ");
        let found = Kind::all().find(|kind| kind.0.name() == name);
        found.ok_or_else(|| UnknownFault { given: name.to_owned(), known: known() })
    }
}

impl From<Kind> for String {
    fn from(kind: Kind) -> String {
        kind.to_string()
    }
}

impl TryFrom<String> for Kind {
    type Error = UnknownFault;

    fn try_from(name: String) -> Result<Kind, UnknownFault> {
        name.parse()
    }
}

/// What ranks are told of a fault. All get the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Which.
    pub kind: Kind,
    /// Who does it.
    pub culprit: u32,
    /// The same work in the right order: a control.
    pub ordered: bool,
    /// How long one who is to be stuck stays so, in milliseconds: beyond the case's deadline, and no longer than needed.
    pub stuck_ms: u64,
    /// How much later launches are to begin or end, in microseconds.
    pub delay_us: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_name_of_its_own_that_reads_back() {
        let mut names: Vec<&str> = CATALOGUE.iter().map(|fault| fault.name()).collect();
        for name in &names {
            assert_eq!(name.parse::<Kind>().unwrap().fault().name(), *name);
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{name}");
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CATALOGUE.len());
        assert!("sise".parse::<Kind>().unwrap_err().to_string().contains("known are size, dtype"));
    }

    #[test]
    fn what_a_fault_lacks_is_said() {
        let kind: Kind = "kill".parse().unwrap();
        let of = |ranks| Environment { ranks, backend: "host".to_owned(), ..Environment::default() };
        assert!(kind.lacks(&of(1), true).unwrap().contains("2 ranks"));
        assert!(kind.lacks(&of(2), false).unwrap().contains("--layout processes"));
        assert_eq!(kind.lacks(&of(2), true), None);
        assert!("peer".parse::<Kind>().unwrap().lacks(&of(2), true).unwrap().contains("3 ranks"));
    }

    /// On the host backend a case has connections made for it; NCCL is asked for them by variables.
    #[test]
    fn faults_of_the_fabric_need_nccl_to_use_sockets_that_can_be_told_apart() {
        let kind = |name: &str| name.parse::<Kind>().unwrap();
        let host = Environment { ranks: 4, backend: "host".to_owned(), ..Environment::default() };
        let mut nccl = Environment { backend: "nccl".to_owned(), ..host.clone() };
        let fabric = ["cut", "reset", "throttled", "delayed"].map(kind);
        assert!(fabric.iter().all(|kind| kind.lacks(&host, false).is_none() && kind.lacks(&host, true).is_none()));
        let [cut, .., delayed] = fabric;
        let why = cut.lacks(&nccl, true).unwrap();
        assert!(why.ends_with("needs NCCL_NET=Socket NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1"), "{why}");
        nccl.variables = OVER_SOCKETS.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        assert_eq!(cut.lacks(&nccl, true), None);
        assert!(cut.lacks(&nccl, false).unwrap().contains("--layout processes"));
        assert!(delayed.lacks(&nccl, true).unwrap().contains("--backend host"));
        nccl.ranks = 2;
        assert_eq!(cut.lacks(&nccl, false), None);
    }

    /// What the documentation says of each fault is what the code does.
    #[test]
    fn the_documented_table_has_a_row_for_every_fault() {
        let text = include_str!("../../docs/faults.md");
        let row = |fault: &&dyn Fault| {
            let Expectation { by, called, who } = fault.expects();
            let by: Vec<&str> = by.iter().map(|by| by.name()).collect();
            let who = match who {
                Who::Culprit => "",
                Who::Ends => "; of the two ranks, where it can be told",
                Who::Nobody => "; of no rank",
            };
            format!("| `fault-{}` | {} | {} | {called}{who} |", fault.name(), fault.deed(), by.join(" or "))
        };
        let rows: Vec<String> = CATALOGUE.iter().map(row).collect();
        assert!(text.contains(&rows.join("\n")), "{}", rows.join("\n"));
    }

    /// Whoever looks at a list of detectors must find each of them proven by something.
    #[test]
    fn every_detector_is_the_only_one_for_some_fault() {
        for detector in Detector::ALL {
            let alone = CATALOGUE.iter().any(|fault| fault.expects().by == [detector]);
            assert!(alone, "{detector}");
        }
    }
}
