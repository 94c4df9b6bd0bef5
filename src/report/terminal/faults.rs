//! The table of deliberate faults at the end of a run.

use crate::report::describe;
use crate::report::text::one_line;
use crate::run::result::{CaseResult, Outcome};

const HEAD: [&str; 7] = ["fault", "done", "noticed by", "verdict", "culprit", "seconds", ""];

/// Bytes of a verdict that are shown.
const VERDICT_LIMIT: usize = 60;

/// A line for each case that carried one.
#[derive(Debug, Default)]
pub struct Faults {
    lines: Vec<[String; 7]>,
}

impl Faults {
    /// Takes a case's, if there is one. A case that could not get to its fault is among the failures or skips only.
    pub fn add(&mut self, case: &CaseResult) {
        let Some(fault) = &case.fault else { return };
        let done: Vec<String> = fault.armed.iter().map(|deed| format!("rank {} x{}", deed.rank, deed.times)).collect();
        let ok = if case.outcome == Outcome::Pass { "ok" } else { "FAILED" };
        self.lines.push([
            fault.name.to_string(),
            or_dash(done.join(", ")),
            or_dash(describe::detectors(fault)),
            or_dash(one_line(&fault.class, VERDICT_LIMIT)),
            or_dash(describe::ranks(&fault.culprits)),
            format!("{:.2}", fault.seconds),
            ok.to_owned(),
        ]);
    }

    /// The table, empty without any.
    pub fn render(&self) -> String {
        if self.lines.is_empty() {
            return String::new();
        }
        let head = HEAD.map(str::to_owned);
        let all: Vec<&[String; 7]> = std::iter::once(&head).chain(&self.lines).collect();
        let width = |column: usize| all.iter().filter_map(|l| l.get(column)).map(|c| c.chars().count()).max();
        let widths: Vec<usize> = (0..HEAD.len()).map(|column| width(column).unwrap_or(0)).collect();
        let mut text = "\nfaults:\n".to_owned();
        for line in all {
            let cells: Vec<String> = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            text += &format!("    {}\n", cells.join("  ").trim_end());
        }
        text
    }
}

fn or_dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn a_fault_is_a_line_with_what_was_done_and_said() {
        let mut faults = Faults::default();
        faults.add(&sample::pass());
        assert_eq!(faults.render(), "");
        faults.add(&sample::fault());
        let mut missed = sample::fault();
        missed.outcome = Outcome::Fail;
        if let Some(fault) = &mut missed.fault {
            fault.noticed_by.clear();
            fault.armed.clear();
            fault.class.clear();
        }
        faults.add(&missed);
        let text = faults.render();
        let lines: Vec<Vec<&str>> = text.lines().skip(3).map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["size", "rank", "1", "x1", "deadline", "A.size", "1", "1.52", "ok"]);
        assert_eq!(lines[1], ["size", "-", "-", "-", "1", "1.52", "FAILED"]);
    }
}
