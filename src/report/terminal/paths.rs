//! The paths that were seen, and whether their results are the same bits from run to run.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::report::text::one_line;
use crate::run::result::{CaseResult, Outcome};

/// Paths that are listed.
const LIMIT: usize = 40;

/// Counts of one path.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    cases: u64,
    /// Of which it is known whether bits repeat.
    known: u64,
    same: u64,
}

/// A line for each path that cases took, where paths are looked for.
#[derive(Debug, Default)]
pub struct Paths {
    seen: BTreeMap<String, Seen>,
}

impl Paths {
    /// Takes a case's, if it has one.
    pub fn add(&mut self, case: &CaseResult) {
        let Some(path) = case.path.as_ref().filter(|_| case.outcome == Outcome::Pass) else { return };
        let seen = self.seen.entry(one_line(&format!("{}/{}", path.algo, path.proto), 60)).or_default();
        let repeats: Vec<bool> = case.placements.iter().filter_map(|p| p.repeats).collect();
        seen.cases += 1;
        seen.known += u64::from(!repeats.is_empty());
        seen.same += u64::from(!repeats.is_empty() && repeats.iter().all(|same| *same));
    }

    /// The lines, empty without any.
    pub fn render(&self) -> String {
        if self.seen.is_empty() {
            return String::new();
        }
        let mut text = "\npaths, and whether the same inputs gave the same bits again:\n".to_owned();
        let width = self.seen.keys().map(|name| name.chars().count()).max().unwrap_or(0);
        for (name, Seen { cases, known, same }) in self.seen.iter().take(LIMIT) {
            let said = match known {
                0 => "not known".to_owned(),
                _ if same == known => format!("the same in {same}"),
                _ => format!("the same in {same}, not in {}", known - same),
            };
            let _ = writeln!(text, "    {name:<width$}  {cases:>5} passed  {said}");
        }
        if let Some(more) = self.seen.len().checked_sub(LIMIT).filter(|more| *more > 0) {
            let _ = writeln!(text, "    and {more} more");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use crate::run::result::Path;

    #[test]
    fn each_path_tells_how_many_of_its_cases_repeat_their_bits() {
        let mut paths = Paths::default();
        paths.add(&sample::pass());
        assert_eq!(paths.render(), "", "no path, no line");
        let mut add = |algo: &str, repeats: &[Option<bool>]| {
            let mut case = sample::pass();
            case.path = Some(Path { algo: algo.to_owned(), proto: "LL".to_owned(), channels: 2 });
            case.placements = repeats
                .iter()
                .map(|r| crate::run::result::PlacementResult { repeats: *r, ..sample::placement(false, 1.0, 1.0) })
                .collect();
            paths.add(&case);
        };
        add("RING", &[Some(true), None]);
        add("RING", &[Some(true), Some(false)]);
        add("TREE", &[None]);
        add("NVLS", &[Some(true)]);
        let text = paths.render();
        let lines: Vec<&str> = text.lines().skip(2).map(str::trim).collect();
        assert_eq!(lines[0], "NVLS/LL      1 passed  the same in 1");
        assert_eq!(lines[1], "RING/LL      2 passed  the same in 1, not in 1");
        assert_eq!(lines[2], "TREE/LL      1 passed  not known");
    }
}
