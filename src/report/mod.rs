//! Consumers of events: terminal, JUnit, JSON, CSV, table. And the reader of what JSON wrote.

pub mod csv;
mod describe;
mod file;
pub mod json;
pub mod junit;
pub mod ndjson;
mod pipe;
pub mod results;
pub mod table;
pub mod terminal;
mod text;

#[cfg(test)]
mod sample;

pub use file::{CannotWrite, WholeFile};
pub use pipe::Pipe;

use crate::run::event::Consumer;

/// How results are shown on standard output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A progress bar and failures on a terminal, a line for each case elsewhere.
    #[default]
    Pretty,
    /// A letter for each case: `.` passed, `w` passed with a warning, `F` failed, `s` skipped.
    Terse,
    /// A JSON object for each event, one a line.
    Json,
}

/// The consumer that shows a run on standard output.
///
/// `rerun` is what to type in front of `--exact NAME...` to run some of the same cases in the same way: program,
/// subcommand and options, without filters and report files.
pub fn stdout(format: Format, rerun: Vec<String>) -> Box<dyn Consumer> {
    match format {
        Format::Json => Box::new(ndjson::NdJson::new(Box::new(std::io::stdout()))),
        Format::Pretty => Box::new(terminal::Terminal::stdout(terminal::Style::Lines, rerun)),
        Format::Terse => Box::new(terminal::Terminal::stdout(terminal::Style::Letters, rerun)),
    }
}
