//! JUnit XML for CI.
//!
//! Readers key a test's history on classname and name, so neither holds a measured value: the classname is
//! `collcheck.PRIMITIVE.OP`, the name is the case's. Values are in the failure's text and in system-out. Whatever a
//! library printed, the file is well-formed: readers skip a malformed one in silence, and the job looks green.
//!
//! The file is there from the start and is rewritten as a whole while the run lasts. Until the run ends it holds an
//! error, so that no run that was killed, and no file of an earlier run, is taken for a pass.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use junit_report::{OffsetDateTime, Report, TestCase, TestCaseBuilder, TestSuite};

use super::describe;
use super::file::{CannotWrite, WholeFile};
use super::text::{clean_within, one_line, seconds};
use crate::backend::Environment;
use crate::case::Op;
use crate::run::event::{Consumer, Event};
use crate::run::result::{CaseResult, Outcome, Summary};

/// The suite's name.
const SUITE: &str = "collcheck";

/// Bytes of one failure's text. Jenkins shows some 50,000.
const TEXT_LIMIT: usize = 16 << 10;

/// Bytes of that for the message: wrong elements and bounds come behind it.
const MESSAGE_LIMIT: usize = 12 << 10;

/// Bytes of text in the whole file, names and markup apart. GitLab reads files of less than 30 MB.
const FILE_LIMIT: usize = 12 << 20;

/// Bytes of a failure's text when the file's are used up.
const LAST_LIMIT: usize = 256;

/// Bytes of a message attribute: readers show it as a title.
const TITLE_LIMIT: usize = 300;

/// The shortest time between two rewrites, and how much longer than the last rewrite took it must be.
const REWRITE: (Duration, u32) = (Duration::from_secs(2), 20);

/// The consumer.
pub struct Junit {
    file: WholeFile,
    suite: TestSuite,
    /// What stands in the file as long as the run has not ended.
    unended: Option<TestCase>,
    /// How often a name was there, as a repeated case must not hide behind another.
    seen: HashMap<String, u64>,
    /// Bytes of text that may still be added.
    room: usize,
    next_rewrite: Instant,
    dirty: bool,
}

impl Junit {
    /// Writes a file that says that the run has not ended, and so finds out whether `path` can be written.
    pub fn create(path: &Path) -> Result<Junit, CannotWrite> {
        let file = WholeFile::create(path)?;
        let mut suite = TestSuite::new(SUITE);
        suite.package = SUITE.to_owned();
        let mut junit = Junit {
            file,
            suite,
            unended: Some(run_error("unended", "the run did not end: it was killed, or is still running")),
            seen: HashMap::new(),
            room: FILE_LIMIT,
            next_rewrite: Instant::now(),
            dirty: false,
        };
        junit.rewrite()?;
        Ok(junit)
    }

    fn rewrite(&mut self) -> Result<(), CannotWrite> {
        // What is no regular file cannot be rewritten: it gets the end only.
        if self.unended.is_some() && !self.file.is_regular() {
            return Ok(());
        }
        let began = Instant::now();
        let mut suite = self.suite.clone();
        suite.testcases.extend(self.unended.clone());
        let mut report = Report::new();
        report.add_testsuite(suite);
        self.file.replace(|out| report.write_xml(out).map_err(|e| io::Error::other(e.to_string())))?;
        let (least, times) = REWRITE;
        self.next_rewrite = Instant::now() + least.max(began.elapsed() * times);
        self.dirty = false;
        Ok(())
    }

    fn rewrite_if_due(&mut self) -> Result<(), CannotWrite> {
        self.dirty = true;
        if Instant::now() < self.next_rewrite {
            return Ok(());
        }
        self.rewrite()
    }

    fn started(&mut self, at: i64, command: &[String], seed: u64, environment: &Environment) {
        // The crate panics on a year that RFC 3339 cannot write; the suite keeps the time of its making then.
        if let Ok(time) = OffsetDateTime::from_unix_timestamp(at)
            && (0..=9999).contains(&time.year())
        {
            self.suite.set_timestamp(time);
        }
        if !environment.host.is_empty() {
            self.suite.hostname = one_line(&environment.host, TITLE_LIMIT);
        }
        let environment = serde_json::to_string_pretty(environment).unwrap_or_default();
        let text = format!("command: {}\nseed: {seed}\nenvironment: {environment}\n", command.join(" "));
        self.suite.set_system_out(&cdata(&clean_within(&text, TEXT_LIMIT)));
    }

    fn case_finished(&mut self, case: &CaseResult) {
        let op = case.op.map_or("none", Op::name);
        let mut name = one_line(&case.name, TITLE_LIMIT);
        let seen = self.seen.entry(name.clone()).or_default();
        *seen += 1;
        if *seen > 1 {
            name = format!("{name} #{seen}");
        }
        let time = duration(case.duration_s);
        let mut test = match case.outcome {
            Outcome::Pass => TestCase::success(&name, time),
            Outcome::Skip => TestCase::skipped_with_cause(&name, "skipped", &one_line(&case.message, TITLE_LIMIT)),
            Outcome::Fail => {
                // A hang or a crash is a failure too, not JUnit's error: it is a verdict on the case.
                let kind = case.kind.map_or("failed", |k| k.name());
                let title = format!("{kind}: {}", describe::reason(case));
                let text = self.text(&describe::failure(case, MESSAGE_LIMIT), LAST_LIMIT);
                TestCaseBuilder::failure(&name, time, kind, &one_line(&title, TITLE_LIMIT)).set_trace(&text).build()
            }
        };
        test.time = time;
        test.set_classname(&format!("{SUITE}.{}.{op}", case.primitive));
        let measured = self.text(&describe::measured(case), 0);
        if !measured.is_empty() {
            test.set_system_out(&measured);
        }
        self.suite.add_testcase(test);
    }

    /// As much of clean text as there is room for, at least about `least` bytes.
    fn text(&mut self, text: &str, least: usize) -> String {
        let limit = TEXT_LIMIT.min(self.room).max(least);
        if limit == 0 {
            return String::new();
        }
        let text = cdata(&clean_within(text, limit));
        self.room = self.room.saturating_sub(text.len());
        text
    }

    fn finished(&mut self, summary: &Summary) {
        self.unended = None;
        let Summary { cases, passed, failed, skipped, asserted, published, warned, unasserted, .. } = summary;
        let text = format!(
            "{cases} cases: {passed} passed, {failed} failed, {skipped} skipped in {}\nbandwidth: {asserted} asserted, \
             {published} within a published figure only, {warned} warned, {unasserted} unasserted\nwrong elements: {}\n",
            seconds(summary.duration_s),
            summary.wrong_elements
        );
        let before = self.suite.system_out.take().unwrap_or_default();
        self.suite.set_system_out(&(before + &text));
    }
}

/// A test that stands for the run itself and did not work out.
fn run_error(kind: &str, reason: &str) -> TestCase {
    let title = one_line(reason, TITLE_LIMIT);
    let text = cdata(&clean_within(reason, TEXT_LIMIT));
    let mut test = TestCaseBuilder::error("run", junit_report::Duration::ZERO, kind, &title);
    test.set_classname(SUITE).set_trace(&text).build()
}

/// Text inside a CDATA section: its end mark is split over two sections, as XML has no escape for it.
fn cdata(text: &str) -> String {
    text.replace("]]>", "]]]]><![CDATA[>")
}

/// Whole microseconds. What is no time is none; the crate panics on NaN.
fn duration(seconds: f64) -> junit_report::Duration {
    let micros = seconds * 1e6;
    if micros.is_finite() && micros > 0.0 {
        junit_report::Duration::microseconds(micros.min(1e15) as i64)
    } else {
        junit_report::Duration::ZERO
    }
}

impl Consumer for Junit {
    fn take(&mut self, event: &Event) -> anyhow::Result<()> {
        match event {
            Event::Started { at, command, seed, environment, .. } => {
                self.started(at.timestamp(), command, *seed, environment);
                self.rewrite()?;
            }
            Event::CaseStarted { .. } => {}
            Event::CaseFinished { result } => {
                self.case_finished(result);
                self.rewrite_if_due()?;
            }
            Event::Aborted { reason } => {
                self.suite.add_testcase(run_error("aborted", reason));
                self.rewrite()?;
            }
            Event::Finished { summary, .. } => {
                self.finished(summary);
                self.rewrite()?;
            }
        }
        Ok(())
    }
}

impl Drop for Junit {
    /// A run that unwinds keeps its last cases.
    fn drop(&mut self) {
        if self.dirty {
            // Nobody is left to tell an error to.
            let _ = self.rewrite();
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod xml;
