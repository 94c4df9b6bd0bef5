//! The end of a run: what it ran on, what failed, and what was really asserted.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::faults::Faults;
use super::paths::Paths;
use super::{MESSAGE_LIMIT, Paint, Style};
use crate::backend::Environment;
use crate::report::describe;
use crate::report::text::{one_line, seconds, shell_word};
use crate::run::result::{CaseResult, Outcome, Summary};

/// Failures whose names go into the command that runs them again.
const RERUN_LIMIT: usize = 50;

/// Reasons of skips that are listed.
const REASONS_LIMIT: usize = 20;

/// Gathers what the end needs.
#[derive(Debug, Default)]
pub struct Ending {
    rerun: Vec<String>,
    seed: Option<u64>,
    environment: Option<Environment>,
    selected: u64,
    done: u64,
    failures: Vec<Failed>,
    skips: BTreeMap<String, u64>,
    faults: Faults,
    paths: Paths,
    aborted: Option<String>,
}

#[derive(Debug)]
struct Failed {
    name: String,
    kind: &'static str,
    reason: String,
    details: String,
}

impl Ending {
    /// `rerun`: see [`crate::report::stdout`].
    pub fn new(rerun: Vec<String>) -> Ending {
        Ending { rerun, ..Ending::default() }
    }

    /// The plan stands.
    pub fn started(&mut self, seed: u64, environment: &Environment, selected: usize) {
        self.seed = Some(seed);
        self.environment = Some(environment.clone());
        self.selected = selected as u64;
    }

    /// The run stopped early.
    pub fn aborted(&mut self, reason: &str) {
        self.aborted = Some(one_line(reason, 500));
    }

    /// One case more.
    pub fn count(&mut self, case: &CaseResult) {
        self.done += 1;
        self.faults.add(case);
        self.paths.add(case);
        match case.outcome {
            Outcome::Pass => {}
            Outcome::Fail => self.failures.push(Failed {
                name: one_line(&case.name, 500),
                kind: case.kind.map_or("failed", |k| k.name()),
                reason: describe::reason(case),
                details: describe::failure(case, MESSAGE_LIMIT),
            }),
            Outcome::Skip => *self.skips.entry(one_line(&case.message, 500)).or_default() += 1,
        }
    }

    /// ` 88/2016`.
    pub fn position(&self) -> String {
        format!(" {}/{}", self.done, self.selected)
    }

    /// `, 2 failed` once there is a failure.
    pub fn so_far(&self) -> String {
        if self.failures.is_empty() { String::new() } else { format!(", {} failed", self.failures.len()) }
    }

    /// All that is said at the end.
    pub fn render(&self, summary: &Summary, style: Style, paint: Paint) -> String {
        let mut text = String::new();
        if let Some(environment) = &self.environment {
            text.push_str("\nenvironment:\n");
            text.push_str(&block(environment));
        }
        self.list_failures(&mut text, style);
        self.list_skips(&mut text);
        text.push_str(&self.paths.render());
        text.push_str(&self.faults.render());
        self.verdict(&mut text, summary, paint);
        self.list_rerun(&mut text);
        text
    }

    /// With details where they were not shown before.
    fn list_failures(&self, text: &mut String, style: Style) {
        if self.failures.is_empty() {
            return;
        }
        text.push_str("\nfailures:\n");
        for failed in &self.failures {
            let Failed { name, kind, reason, details } = failed;
            let _ = match style {
                Style::Letters => {
                    let indented: String = details.lines().map(|l| format!("        {l}\n")).collect();
                    write!(text, "    {name} ({kind})\n{indented}")
                }
                Style::Lines if reason.is_empty() => writeln!(text, "    {name} ({kind})"),
                Style::Lines => writeln!(text, "    {name} ({kind}): {reason}"),
            };
        }
    }

    fn list_skips(&self, text: &mut String) {
        if self.skips.is_empty() {
            return;
        }
        let mut reasons: Vec<(&String, &u64)> = self.skips.iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        text.push_str("\nskipped:\n");
        for (reason, count) in reasons.iter().take(REASONS_LIMIT) {
            let reason = if reason.is_empty() { "no reason given" } else { reason };
            let _ = writeln!(text, "    {count:>6}  {reason}");
        }
        if let Some(rest) = reasons.get(REASONS_LIMIT..).filter(|r| !r.is_empty()) {
            let cases: u64 = rest.iter().map(|(_, count)| **count).sum();
            let _ = writeln!(text, "    {cases:>6}  for {} more reasons", rest.len());
        }
    }

    fn verdict(&self, text: &mut String, s: &Summary, paint: Paint) {
        let verdict = match (&self.aborted, s.failed, s.passed) {
            (Some(_), ..) => paint.red("ABORTED"),
            (None, 1.., _) => paint.red("FAILED"),
            (None, 0, 0) => paint.yellow("NOTHING WAS TESTED"),
            (None, 0, _) => paint.green("ok"),
        };
        let Summary { passed, failed, skipped, .. } = s;
        let _ = write!(text, "\ntest result: {verdict}. {passed} passed; {failed} failed; {skipped} skipped");
        match self.selected.saturating_sub(s.cases) {
            0 => {}
            unrun => {
                let _ = write!(text, "; {unrun} not run");
            }
        }
        let _ = writeln!(text, "; finished in {}", seconds(s.duration_s));
        let Summary { asserted, published, warned, unasserted, wrong_elements, .. } = s;
        let _ = writeln!(
            text,
            "bandwidth: {asserted} asserted; {published} within a published figure only; {warned} warned; \
             {unasserted} unasserted"
        );
        let _ = write!(text, "wrong elements: {wrong_elements}");
        if let Some(seed) = self.seed {
            let _ = write!(text, "; seed {seed}");
        }
        text.push('\n');
        if let Some(reason) = &self.aborted {
            let _ = writeln!(text, "aborted: {reason}");
        }
    }

    fn list_rerun(&self, text: &mut String) {
        if self.failures.is_empty() || self.rerun.is_empty() {
            return;
        }
        let mut words: Vec<String> = self.rerun.iter().map(|w| shell_word(w)).collect();
        if let Some(seed) = self.seed
            && !self.rerun.iter().any(|w| w == "--seed" || w.starts_with("--seed="))
        {
            words.push(format!("--seed {seed}"));
        }
        words.push("--exact".to_owned());
        // A case that was repeated may have failed more than once.
        let mut names: Vec<&str> = Vec::new();
        for failed in &self.failures {
            if names.last() != Some(&failed.name.as_str()) {
                names.push(&failed.name);
            }
        }
        words.extend(names.iter().take(RERUN_LIMIT).map(|name| shell_word(name)));
        let which = match names.len() {
            0..=RERUN_LIMIT => "the failures".to_owned(),
            n => format!("the first {RERUN_LIMIT} of {n} failures"),
        };
        let _ = writeln!(text, "\nto run {which} again:\n    {}", words.join(" "));
    }
}

/// Backend, device and ranks in a few words.
pub fn machine(e: &Environment) -> String {
    let library = if e.nccl_version.is_empty() { String::new() } else { format!(" {}", e.nccl_version) };
    let device = if e.device.is_empty() { "unknown device" } else { &e.device };
    one_line(&format!("{}{library}: {} ranks, {device}", e.backend, e.ranks), 300)
}

fn block(e: &Environment) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        if !value.trim().is_empty() {
            let _ = writeln!(text, "    {name:<9} {}", one_line(&value, 1000));
        }
    };
    let nodes = if e.nodes > 1 { format!(" on {} hosts", e.nodes) } else { String::new() };
    let shared = if e.ranks_per_gpu > 1 { format!(", {} ranks share a GPU", e.ranks_per_gpu) } else { String::new() };
    let link = if e.link.is_empty() { String::new() } else { format!(", linked by {}", e.link) };
    line("backend", e.backend.clone());
    line("ranks", format!("{}{nodes}{shared}", e.ranks));
    line("device", format!("{}{link}", e.device));
    line("NCCL", join(" from ", &[&e.nccl_version, &e.nccl_path]));
    line("CUDA", e.cuda_driver.clone());
    line("driver", e.driver.clone());
    line("host", join(", ", &[&e.host, &e.os]));
    for (name, value) in &e.variables {
        line("variable", format!("{name}={value}"));
    }
    text
}

fn join(between: &str, parts: &[&str]) -> String {
    let parts: Vec<&str> = parts.iter().copied().filter(|p| !p.is_empty()).collect();
    parts.join(between)
}
