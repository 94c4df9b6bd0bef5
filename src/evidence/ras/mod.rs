//! What NCCL's RAS subsystem says of a job (2.24 and newer): its text report, and how it is asked for.
//!
//! A report has a table of communicators and the sections `Errors` and `Warnings`. An entry of these is a heading, as
//! `#0-0 (4199dc7fa9f4356d) MISMATCH`, with indented lines below it, and ends with an empty line. The outliers that it names are
//! the smaller party, which may be the healthy one (NVIDIA/nccl#1911): so this is told beside a verdict and makes none.

mod client;

pub use client::{AskError, ask};

/// Lines of an entry that are kept.
const LINES: usize = 6;

/// The entries of `Errors` and `Warnings`, each on one line: the heading's last word, then what stands below it.
pub fn complaints(report: &str) -> Vec<String> {
    let mut all: Vec<Vec<&str>> = Vec::new();
    let (mut inside, mut open) = (false, false);
    let lines: Vec<&str> = report.lines().map(|line| line.trim_end_matches(['\r', '\0'])).collect();
    for (at, line) in lines.iter().enumerate() {
        let underlined = lines.get(at + 1).is_some_and(|next| is_rule(next));
        if underlined {
            inside = matches!(line.trim(), "Errors" | "Warnings");
            open = false;
        } else if !inside || is_rule(line) {
        } else if line.trim().is_empty() {
            open = false;
        } else if open && line.starts_with(' ') {
            if let Some(entry) = all.last_mut() {
                entry.push(line.trim());
            }
        } else if !line.starts_with(' ') {
            open = true;
            all.push(vec![line.rsplit(' ').next().unwrap_or(line)]);
        }
    }
    all.into_iter().map(told).collect()
}

/// A line of `===` under a section's name.
fn is_rule(line: &str) -> bool {
    line.len() >= 3 && line.bytes().all(|byte| byte == b'=')
}

fn told(entry: Vec<&str>) -> String {
    let more = entry.len().saturating_sub(LINES + 1);
    let (heading, below) = entry.split_first().map_or(("", &[][..]), |(heading, below)| (*heading, below));
    let shown: Vec<&str> = below.iter().copied().take(LINES).collect();
    let more = if more > 0 { format!("; and {more} lines more") } else { String::new() };
    format!("{heading}: {}{more}", shown.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_that_lags_behind_is_told_with_its_counts() {
        let all = complaints(include_str!("../../../tests/data/ras/stuck.txt"));
        let [one] = &all[..] else { panic!("{all:?}") };
        assert!(
            one.starts_with("MISMATCH: Communicator ranks have different AllReduce operation counts; Rank 0 has"),
            "{one}"
        );
        assert!(one.contains("Rank 1 has launched up to operation 5"), "{one}");
    }

    #[test]
    fn a_report_without_complaints_says_nothing_nor_does_what_is_no_report() {
        assert_eq!(complaints(include_str!("../../../tests/data/ras/sound.txt")), Vec::<String>::new());
        for text in ["", "Errors", "===", "Errors\n======", "x\n  y\n\n", "ERROR: Unknown command\n"] {
            assert_eq!(complaints(text), Vec::<String>::new(), "{text:?}");
        }
    }

    #[test]
    fn missing_and_dead_processes_are_told_and_long_lists_are_cut() {
        let ranks: String =
            (0..20).map(|rank| format!("  Rank {rank} -- GPU 0 managed by process 7 on node b\n")).collect();
        let text = format!(
            "Errors\n======\n\nDEAD\n  1 process is considered dead\n  Process 7 on node b managing GPU 0\n\n\
             #0-0 (00aa) INCOMPLETE\n  Missing communicator data from 20 ranks\n{ranks}\nWarnings\n========\n"
        );
        let all = complaints(&text);
        assert_eq!(all[0], "DEAD: 1 process is considered dead; Process 7 on node b managing GPU 0");
        assert!(
            all[1].starts_with("INCOMPLETE: Missing communicator data") && all[1].ends_with("and 15 lines more"),
            "{}",
            all[1]
        );
    }
}
