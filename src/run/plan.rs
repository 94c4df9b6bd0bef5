//! What to run, where, and where results go: plain data, made by the command line and read by the engine.

use std::path::PathBuf;
use std::time::Duration;

use super::path::Relaunch;
use crate::backend::host::Transport;
use crate::case::Case;
use crate::fault::Detector;
use crate::fleet::protocol::Tamper;
use crate::report::Format;

/// Everything about one `collcheck run`.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// The command line, for reports.
    pub command: Vec<String>,
    /// What to run.
    pub plan: RunPlan,
    /// Where to run it.
    pub target: Target,
    /// Where results go.
    pub outputs: Outputs,
}

/// The cases, and how each runs.
#[derive(Debug, Clone, PartialEq)]
pub struct RunPlan {
    /// In the order in which they run, each once; never empty.
    pub cases: Vec<Case>,
    /// Timed launches per placement, at least 1.
    pub iters: u32,
    /// Untimed launches before them.
    pub warmup: u32,
    /// Whether results are checked.
    pub check: bool,
    /// The seed of inputs.
    pub seed: u64,
    /// Fresh launches of the whole plan, at least 1.
    pub repeat: u32,
    /// For how long the whole plan is launched again and again, each time with the next seed, until something fails.
    pub soak: Option<Duration>,
    /// What ranks are.
    pub layout: LayoutChoice,
    /// What a case may take, from request to report; `None` derives it from what the case moves.
    pub deadline: Option<Duration>,
    /// Whether the first failed case ends the run.
    pub fail_fast: bool,
    /// A deliberate error in every case's output.
    pub tamper: Option<Tamper>,
    /// Deliberate faults are not looked for: their cases end as any case does, and fail with their verdicts.
    pub lab: bool,
    /// What is not listened to when deliberate faults are looked for, to prove that it is needed.
    pub blind: Option<Detector>,
    /// Files with reference ranges; later ones win.
    pub references: Vec<PathBuf>,
    /// Whether a case without a reference fails.
    pub require_reference: bool,
    /// Whether results tell which path NCCL took.
    pub path: bool,
    /// How cases run that need a process of their own; `None` where they cannot.
    pub relaunch: Option<Relaunch>,
}

/// Where ranks run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The backend asked for.
    pub backend: BackendChoice,
    /// Ranks of the communicator; `None` leaves it to the backend.
    pub ranks: Option<u32>,
    /// Ranks that share one GPU, at least 1.
    pub ranks_per_gpu: u32,
    /// Ranks that one thread drives, at least 1.
    pub ranks_per_thread: u32,
    /// What ranks of the host backend exchange bytes over, where it is said.
    pub host_transport: Option<Transport>,
    /// The libnccl to load, where one is named.
    pub nccl: Option<PathBuf>,
}

/// `--layout`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LayoutChoice {
    /// Threads of one process.
    Threads,
    /// One process per rank.
    Processes,
}

/// `--backend`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum BackendChoice {
    /// NCCL where a GPU and a libnccl are found, else the host.
    Auto,
    /// Threads of this machine, over shared memory.
    Host,
    /// NCCL on GPUs.
    Nccl,
}

/// Where results go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outputs {
    /// What the terminal shows.
    pub format: Format,
    /// JUnit XML.
    pub junit: Option<PathBuf>,
    /// `collcheck.results/1`.
    pub json: Option<PathBuf>,
    /// One line per placement.
    pub csv: Option<PathBuf>,
    /// nccl-tests' table.
    pub table: Option<Destination>,
}

/// A file or the standard output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// Written `-`.
    Stdout,
    /// A file.
    File(PathBuf),
}
