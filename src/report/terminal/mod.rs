//! What people see of a run: progress, failures as they come, and a verdict that hides nothing.

mod bar;
mod ending;
mod faults;
mod paint;
mod paths;

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget};

use super::text::one_line;
use super::{Pipe, describe};
use crate::run::event::{Consumer, Event};
use crate::run::result::{Assertion, CaseResult, Outcome};
use ending::Ending;
use paint::Paint;

/// Bytes of a failure's message that are shown.
const MESSAGE_LIMIT: usize = 4096;

/// Letters in a line of [`Style::Letters`], as in `cargo test -- --format terse`.
const LETTERS: u64 = 88;

/// How cases are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// A line for each case; on a terminal a progress bar, and lines only for what needs attention.
    Lines,
    /// A letter for each case.
    Letters,
}

/// The consumer.
pub struct Terminal {
    out: Pipe,
    style: Style,
    paint: Paint,
    /// Where the bar goes; taken when the run starts and its length is known.
    target: Option<ProgressDrawTarget>,
    bar: Option<ProgressBar>,
    /// The case whose line is begun and not ended.
    open: Option<String>,
    shown: u64,
    /// The run was refused before it had a backend.
    refused: bool,
    ending: Ending,
}

impl Terminal {
    /// Standard output, with a bar and colours where it is a terminal. `NO_COLOR` and `TERM=dumb` are honoured.
    ///
    /// For `rerun` see [`super::stdout`].
    pub fn stdout(style: Style, rerun: Vec<String>) -> Terminal {
        let set = |name: &str| std::env::var_os(name).is_some_and(|v| !v.is_empty());
        let able = io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|t| t != "dumb");
        let terminal = Terminal::new(Box::new(io::stdout()), style, rerun).with_color(able && !set("NO_COLOR"));
        if able && style == Style::Lines { terminal.with_bar(ProgressDrawTarget::stdout()) } else { terminal }
    }

    /// Plain text to `out`; its being closed is no error.
    pub fn new(out: Box<dyn Write + Send>, style: Style, rerun: Vec<String>) -> Terminal {
        Terminal {
            out: Pipe::new(out),
            style,
            paint: Paint(false),
            target: None,
            bar: None,
            open: None,
            shown: 0,
            refused: false,
            ending: Ending::new(rerun),
        }
    }

    /// With ANSI colours or without.
    pub fn with_color(mut self, color: bool) -> Terminal {
        self.paint = Paint(color);
        self
    }

    /// With a progress bar, which must be drawn on the same terminal that `out` is.
    pub fn with_bar(mut self, target: ProgressDrawTarget) -> Terminal {
        self.target = Some(target);
        self
    }

    /// Writes above the bar. indicatif's own println writes nothing when the bar is hidden, so the text goes to `out`.
    fn say(&mut self, text: &str) -> io::Result<()> {
        let out = &mut self.out;
        let mut write = || out.write_all(text.as_bytes()).and_then(|()| out.flush());
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Ends a line that [`Event::CaseStarted`] or letters left open.
    fn end_line(&mut self) -> io::Result<()> {
        let letters = self.style == Style::Letters && !self.shown.is_multiple_of(LETTERS);
        if self.open.take().is_some() || letters {
            self.shown = 0;
            return self.say("\n");
        }
        Ok(())
    }

    fn case_started(&mut self, name: String) -> io::Result<()> {
        if let Some(bar) = &self.bar {
            bar.set_message(name);
        } else if self.style == Style::Lines {
            self.end_line()?;
            // Before it runs, so that the log of a run that was killed ends with the case that hung.
            self.say(&format!("test {name} ... "))?;
            self.open = Some(name);
        }
        Ok(())
    }

    fn case_finished(&mut self, case: &CaseResult) -> io::Result<()> {
        self.ending.count(case);
        match (self.style, self.bar.is_some()) {
            (Style::Letters, _) => self.letter(case),
            (Style::Lines, false) => {
                let text = self.line(case) + &self.details(case);
                if self.open.as_deref() == Some(case.name.as_str()) {
                    self.open = None;
                    self.say(&text)
                } else {
                    self.end_line()?;
                    self.say(&format!("test {} ... {text}", one_line(&case.name, 500)))
                }
            }
            (Style::Lines, true) => {
                if needs_attention(case) {
                    let text = self.line(case) + &self.details(case);
                    self.say(&format!("test {} ... {text}", one_line(&case.name, 500)))?;
                }
                if let Some(bar) = &self.bar {
                    bar.set_prefix(self.ending.so_far());
                    bar.inc(1);
                }
                Ok(())
            }
        }
    }

    fn letter(&mut self, case: &CaseResult) -> io::Result<()> {
        let letter = match case.outcome {
            Outcome::Pass if case.reference.status == Assertion::Warned => self.paint.yellow("w"),
            Outcome::Pass => self.paint.green("."),
            Outcome::Fail => self.paint.red("F"),
            Outcome::Skip => self.paint.yellow("s"),
        };
        self.shown += 1;
        let end = if self.shown.is_multiple_of(LETTERS) { self.ending.position() + "\n" } else { String::new() };
        self.say(&format!("{letter}{end}"))
    }

    /// What follows `test NAME ... `.
    fn line(&self, case: &CaseResult) -> String {
        let figures = describe::figures(case);
        let gap = if figures.is_empty() { "" } else { "  " };
        match case.outcome {
            Outcome::Pass if case.reference.status == Assertion::Warned => {
                format!("{}{gap}{figures}\n", self.paint.yellow("ok, warned"))
            }
            Outcome::Pass => format!("{}{gap}{figures}\n", self.paint.green("ok")),
            Outcome::Fail => {
                let kind = case.kind.map_or(String::new(), |k| format!(" ({})", k.name()));
                format!("{}{kind}{gap}{figures}\n", self.paint.red("FAILED"))
            }
            Outcome::Skip => format!("{}, {}\n", self.paint.yellow("skipped"), one_line(&case.message, 500)),
        }
    }

    /// The indented block below a line that needs attention.
    fn details(&self, case: &CaseResult) -> String {
        if !needs_attention(case) {
            return String::new();
        }
        describe::failure(case, MESSAGE_LIMIT).lines().map(|l| format!("    {l}\n")).collect()
    }

    fn finish_bar(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn needs_attention(case: &CaseResult) -> bool {
    case.outcome == Outcome::Fail || (case.outcome == Outcome::Pass && case.reference.status == Assertion::Warned)
}

impl Consumer for Terminal {
    fn take(&mut self, event: &Event) -> anyhow::Result<()> {
        match event {
            // A run that was refused: its reason is said on standard error, and there is nothing to show.
            Event::Started { environment, .. } if environment.backend.is_empty() => self.refused = true,
            _ if self.refused => {}
            Event::Started { seed, environment, cases, .. } => {
                self.ending.started(*seed, environment, *cases);
                let plural = if *cases == 1 { "" } else { "s" };
                let machine = ending::machine(environment);
                self.say(&format!("\nrunning {cases} case{plural} on {machine}, seed {seed}\n"))?;
                self.bar = self.target.take().map(|target| bar::new(*cases as u64, target));
            }
            Event::CaseStarted { case } => self.case_started(case.name())?,
            Event::CaseFinished { result } => self.case_finished(result)?,
            Event::Aborted { reason } => {
                self.end_line()?;
                let reason = super::text::clean(reason.trim_end()).into_owned();
                self.say(&format!("{}: {reason}\n", self.paint.red("error")))?;
                self.ending.aborted(&reason);
            }
            Event::Finished { summary, .. } => {
                self.end_line()?;
                self.finish_bar();
                let text = self.ending.render(summary, self.style, self.paint);
                self.say(&text)?;
            }
        }
        Ok(())
    }
}

impl Drop for Terminal {
    /// A bar that is left alone would leave the cursor in it.
    fn drop(&mut self) {
        self.finish_bar();
    }
}

#[cfg(test)]
mod tests;
