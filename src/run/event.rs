//! The one stream that reports live on. Data flows one way: reports never call back.

use chrono::{DateTime, Local};

use super::result::{CaseResult, Summary};
use crate::backend::Environment;
use crate::case::Case;

/// What happened.
#[derive(Debug, Clone)]
pub enum Event {
    /// The plan stands, nothing has run.
    Started {
        /// When.
        at: DateTime<Local>,
        /// The command line.
        command: Vec<String>,
        /// The seed of inputs.
        seed: u64,
        /// What results hold for.
        environment: Box<Environment>,
        /// Cases selected.
        cases: usize,
    },
    /// A case is about to run.
    CaseStarted {
        /// Which.
        case: Case,
    },
    /// A case has ended.
    CaseFinished {
        /// How.
        result: Box<CaseResult>,
    },
    /// The run could not start or go on; what was not run stays unrun.
    Aborted {
        /// Why.
        reason: String,
    },
    /// The end, also after [`Event::Aborted`].
    Finished {
        /// When.
        at: DateTime<Local>,
        /// Counts.
        summary: Summary,
    },
}

/// A report: something that takes events.
pub trait Consumer: Send {
    /// Takes one event. An error is said once by the engine, and the run goes on without this consumer.
    fn take(&mut self, event: &Event) -> anyhow::Result<()>;
}
