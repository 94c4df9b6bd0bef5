//! Path proof and forced paths: which algorithm, protocol or kernel NCCL took for a case.
//!
//! ```text
//! setting   what a case's path asks of the environment, and how cases are grouped by it
//! logging   whether NCCL's log can be read, and the variables that make it so
//! tail      the log as it grows
//! proof     log lines -> path; is it the one that was asked for?
//! child     cases in a process of their own
//! ```
//!
//! NCCL says what it took in its log, and reads the variables that force a path once in a process. So
//!
//! - the log is a file that `NCCL_DEBUG_FILE` names before NCCL is loaded, read after each case. Where the variables are
//!   not set, `collcheck` starts itself again with them in its place ([`restart_with_log`]), which needs no change to the
//!   environment of a running process. A user's own `NCCL_DEBUG` stands, and is used if it says enough;
//! - a case with a forced path runs in this process if its variables are set here, else in a child process that has them,
//!   one child for all cases that ask for the same. Such a case may be run alone by its name, like any other.
//!
//! Rank 0 writes a line for each launch, which takes it about a microsecond or two: so the log is read only where `--path`,
//! the suite or a forced path asks for it, and bandwidth of forced paths is not asserted.

mod child;
mod logging;
mod proof;
mod setting;
mod tail;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use self::child::{Child, Gone};
use self::logging::Logging;
use self::setting::of_process;
use self::tail::Tail;
use super::assemble::frame;
use super::plan::{BackendChoice, Run, RunPlan};
use super::result::{CaseResult, Outcome};
use crate::backend::Environment;
use crate::case::Case;
use crate::evidence::nccl_log::Level;
use crate::fleet::inquest::Said;

pub use self::logging::restart_with_log;
pub use self::setting::Settings;

/// How to start this program again for some cases; their names follow the arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relaunch {
    /// The program.
    pub program: PathBuf,
    /// All that makes cases run there as here. It must write events to standard output.
    pub arguments: Vec<String>,
}

/// Whether the process must be started again with a log before it loads NCCL; else a warning, if paths stay unknown.
pub fn needs_log(run: &Run) -> Result<bool, String> {
    let here = |case: &Case| !case.forced().is_empty() && Settings::of(case).hold(&of_process);
    if run.target.backend == BackendChoice::Host || !(run.plan.path || run.plan.cases.iter().any(here)) {
        return Ok(false);
    }
    match Logging::of_process() {
        Logging::Unset => Ok(true),
        Logging::On { .. } => Ok(false),
        Logging::Off(why) => Err(format!("paths stay unknown: {why}")),
    }
}

/// Where a case runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In this process.
    Here,
    /// In a child with these variables.
    Child(Settings),
    /// Nowhere: why.
    Nowhere(String),
}

/// What the engine keeps of paths.
pub struct Paths {
    /// The logs of the processes that ranks live in, that of rank 0 first.
    logs: Vec<Tail>,
    processes: Vec<u32>,
    logging: Logging,
    relaunch: Option<Relaunch>,
    patience: Duration,
    child: Option<(Settings, Child)>,
}

impl Paths {
    /// The state at the beginning of a run.
    pub fn new(plan: &RunPlan) -> Paths {
        let logging = Logging::of_process();
        let mut paths = Paths {
            logs: Vec::new(),
            processes: Vec::new(),
            logging,
            relaunch: plan.relaunch.clone(),
            patience: patience(plan),
            child: None,
        };
        paths.follow(&[std::process::id()]);
        paths
    }

    /// From here on ranks live in these processes: one for each in rank order, or one for all.
    pub fn follow(&mut self, processes: &[u32]) {
        if self.processes == processes {
            return;
        }
        self.logs.clear();
        let mut files = Vec::new();
        for process in processes {
            // where the name does not tell processes apart, all write to one file
            if let Logging::On { file, ours } = Logging::of_child(*process)
                && !files.contains(&file)
            {
                files.push(file.clone());
                self.logs.push(Tail::new(file, ours));
            }
        }
        self.processes = processes.to_vec();
        self.forget();
    }

    /// What NCCL has warned of since the case began.
    pub fn warnings(&mut self) -> Vec<Said> {
        let apart = self.processes.len() > 1 && self.logs.len() == self.processes.len();
        let mut all = Vec::new();
        for (rank, log) in (0..).zip(&mut self.logs) {
            let lines = log.take().into_iter().filter(|line| line.level == Level::Warn);
            all.extend(
                lines.map(|line| Said { rank: apart.then_some(rank), text: format!("NCCL WARN {}", line.text) }),
            );
        }
        all
    }

    fn forget(&mut self) {
        self.logs.iter_mut().for_each(|log| drop(log.take()));
    }

    /// Ends the child, if there is one: a new launch begins, or the run is over.
    pub fn end_child(&mut self) {
        self.child = None;
    }

    /// Where a case runs. What the log says from here on is about it.
    pub fn place(&mut self, case: &Case, environment: &Environment) -> Place {
        self.forget();
        if case.forced().is_empty() {
            return Place::Here;
        }
        if environment.backend != "nccl" {
            return Place::Nowhere(format!("paths can be forced on NCCL, not on the {} backend", environment.backend));
        }
        if environment.ranks < 2 {
            return Place::Nowhere("one rank alone takes no path".to_owned());
        }
        if let Logging::Off(why) = &self.logging {
            return Place::Nowhere(format!("the path could not be proven: {why}"));
        }
        let settings = Settings::of(case);
        if settings.hold(&of_process) {
            Place::Here
        } else if self.relaunch.is_some() {
            Place::Child(settings)
        } else {
            Place::Nowhere(format!("its path needs a process of its own: collcheck run --exact {case}"))
        }
    }

    /// The result of a case from the child that has these variables, started for all of `cases` that ask for them.
    /// It is given up once `interrupt` is set.
    pub fn ask(
        &mut self,
        settings: &Settings,
        case: &Case,
        cases: &[Case],
        ranks: u32,
        interrupt: &AtomicBool,
    ) -> CaseResult {
        let failed = |gone: Gone| CaseResult {
            outcome: Outcome::Fail,
            kind: Some(gone.kind),
            message: gone.message,
            ..frame(case, ranks)
        };
        if self.child.as_ref().is_none_or(|(had, _)| had != settings) {
            self.child = None; // its memory is needed
            let Some(relaunch) = &self.relaunch else { return failed(Gone::before_start("no program is known")) };
            let names: Vec<String> = cases.iter().filter(|c| Settings::of(c) == *settings).map(Case::name).collect();
            match Child::start(relaunch, settings, &self.logging, &names, self.patience) {
                Ok(child) => self.child = Some((settings.clone(), child)),
                Err(error) => return failed(Gone::before_start(&error.to_string())),
            }
        }
        match self.child.as_mut().map(|(_, child)| child.result(&case.name(), interrupt)) {
            Some(Ok(result)) => result,
            Some(Err(gone)) => failed(gone),
            None => failed(Gone::before_start("it is not there")),
        }
    }

    /// Puts the path that a case of this process took into its result, and judges it where one was asked for.
    pub fn prove(&mut self, case: &Case, result: &mut CaseResult) {
        let lines = self.logs.first_mut().map(Tail::take).unwrap_or_default();
        proof::prove(case, &lines, result);
    }
}

/// How long a child may be silent: it tells when a case begins and when it ends. Starting NCCL takes seconds, a launch at
/// worst a fraction of one.
fn patience(plan: &RunPlan) -> Duration {
    let launches = 2 * (1 + u64::from(plan.warmup) + 2 * u64::from(plan.iters));
    let silence = Duration::from_secs(90) + Duration::from_millis(100) * u32::try_from(launches).unwrap_or(u32::MAX);
    // it has the same deadline, and more to tell than that it was silent
    plan.deadline.map_or(silence, |deadline| silence.max(deadline.saturating_add(Duration::from_secs(60))))
}

/// The cases in an order in which those that ask for the same variables follow each other, and among them those that share a
/// communicator; else as they were. Cases that run in this process come first.
pub fn grouped(cases: Vec<Case>) -> Vec<Case> {
    setting::grouped(cases, &of_process)
}
