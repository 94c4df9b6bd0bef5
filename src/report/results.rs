//! Reads `collcheck.results/1`: finished files, and journals of runs that were killed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::json::journal_path;
use crate::backend::Environment;
use crate::run::result::{CaseResult, SCHEMA, Summary};

/// A run's results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of collcheck that wrote them.
    pub collcheck: String,
    /// When the run started, RFC 3339.
    pub started: String,
    /// When it ended; `None` when it was killed.
    pub finished: Option<String>,
    /// The command line.
    pub command: Vec<String>,
    /// The seed of inputs.
    pub seed: u64,
    /// What results hold for.
    pub environment: Environment,
    /// Why the run stopped early, if it did.
    #[serde(default)]
    pub aborted: Option<String>,
    /// In the order in which they ran.
    pub cases: Vec<CaseResult>,
    /// Counts. Of a run that was killed, counted from its cases.
    pub summary: Summary,
}

/// The first line of a journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Header {
    pub schema: String,
    pub collcheck: String,
    pub started: String,
    pub command: Vec<String>,
    pub seed: u64,
    pub environment: Environment,
    /// Tells a journal from a file that is one line.
    pub journal: bool,
}

/// Why results cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CannotRead {
    /// The file.
    #[error("cannot read {}: {reason}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
    /// What is in it.
    #[error("{}:{line}: expected {expected}, but {found}", .path.display())]
    Content {
        /// Which file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What should be there.
        expected: String,
        /// What is.
        found: String,
    },
}

/// Reads results from a finished file or from a journal.
///
/// Where `path` is not there but its journal is, as after a run that was killed, the journal is read. A journal's last
/// line may be cut off.
pub fn read_results(path: &Path) -> Result<Results, CannotRead> {
    match fs::read(path) {
        Ok(bytes) => parse(path, &bytes),
        Err(reason) if reason.kind() == io::ErrorKind::NotFound => {
            let journal = journal_path(path);
            match fs::read(&journal) {
                Ok(bytes) => parse(&journal, &bytes),
                Err(_) => Err(CannotRead::File { path: path.to_owned(), reason }),
            }
        }
        Err(reason) => Err(CannotRead::File { path: path.to_owned(), reason }),
    }
}

/// As [`read_results`], of bytes; `path` is for errors.
pub fn parse(path: &Path, bytes: &[u8]) -> Result<Results, CannotRead> {
    let content = |line, expected: &str, found: String| CannotRead::Content {
        path: path.to_owned(),
        line,
        expected: expected.to_owned(),
        found,
    };
    if bytes.trim_ascii().is_empty() {
        return Err(content(
            1,
            "results of collcheck",
            "the file is empty: the run ended before its first case".into(),
        ));
    }
    let first = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
    if let Ok(Marks { journal: true, .. }) = serde_json::from_slice(first) {
        return parse_journal(path, bytes);
    }
    let marks: Marks = serde_json::from_slice(bytes)
        .map_err(|e| content(e.line(), "a JSON object as `collcheck run --json` writes it", told(&e)))?;
    check_schema(path, &marks)?;
    serde_json::from_slice(bytes).map_err(|e| content(e.line(), &format!("results of {SCHEMA}"), told(&e)))
}

/// What tells what a file is.
#[derive(Deserialize)]
struct Marks {
    schema: Option<String>,
    #[serde(default)]
    journal: bool,
}

fn check_schema(path: &Path, marks: &Marks) -> Result<(), CannotRead> {
    let found = match marks.schema.as_deref() {
        Some(SCHEMA) => return Ok(()),
        Some(other) => format!("it is {other:?}"),
        None => "there is no schema".to_owned(),
    };
    Err(CannotRead::Content { path: path.to_owned(), line: 1, expected: format!("schema {SCHEMA:?}"), found })
}

fn parse_journal(path: &Path, bytes: &[u8]) -> Result<Results, CannotRead> {
    let bad = |line: usize, expected: &str, e: serde_json::Error| CannotRead::Content {
        path: path.to_owned(),
        line,
        expected: expected.to_owned(),
        found: told(&e),
    };
    let mut lines = bytes.split(|b| *b == b'\n').enumerate().filter(|(_, l)| !l.trim_ascii().is_empty()).peekable();
    let first = lines.next().map_or(&[][..], |(_, l)| l);
    check_schema(path, &serde_json::from_slice(first).map_err(|e| bad(1, "a journal's header", e))?)?;
    let header: Header = serde_json::from_slice(first).map_err(|e| bad(1, "a journal's header", e))?;
    let (mut cases, mut aborted, mut summary) = (Vec::<CaseResult>::new(), None, Summary::default());
    while let Some((index, line)) = lines.next() {
        let entry: Result<Abort, _> = serde_json::from_slice(line);
        if let Ok(Abort { aborted: Some(reason) }) = entry {
            aborted = Some(reason);
            continue;
        }
        match serde_json::from_slice::<CaseResult>(line) {
            Ok(case) => {
                summary.add(&case);
                summary.duration_s += Some(case.duration_s).filter(|s| s.is_finite()).unwrap_or(0.0);
                cases.push(case);
            }
            // The run was killed in the middle of a write.
            Err(e) if e.is_eof() && lines.peek().is_none() && !bytes.ends_with(b"\n") => {}
            Err(e) => return Err(bad(index + 1, "the result of one case", e)),
        }
    }
    let Header { schema, collcheck, started, command, seed, environment, .. } = header;
    Ok(Results { schema, collcheck, started, finished: None, command, seed, environment, aborted, cases, summary })
}

#[derive(Deserialize)]
struct Abort {
    aborted: Option<String>,
}

/// serde_json's message without its position, which in a journal would be wrong.
fn told(e: &serde_json::Error) -> String {
    let text = e.to_string();
    match text.rfind(" at line ") {
        Some(end) => format!("{} at column {}", text.get(..end).unwrap_or(&text), e.column()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::json::Json;
    use crate::report::sample;
    use crate::run::event::Consumer;

    /// A finished file and a journal of the same run.
    fn both(cases: &[CaseResult]) -> (Vec<u8>, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        let events = sample::events(cases);
        let (last, rest) = events.split_last().unwrap();
        let mut json = Json::create(&path).unwrap();
        sample::feed(&mut json, rest);
        let journal = fs::read(journal_path(&path)).unwrap();
        json.take(last).unwrap();
        (fs::read(&path).unwrap(), journal)
    }

    fn read(bytes: &[u8]) -> Result<Results, CannotRead> {
        parse(Path::new("r.json"), bytes)
    }

    #[test]
    fn what_was_written_reads_back_from_either() {
        let mut cases = sample::all();
        cases[4].message = sample::HOSTILE.into();
        let (file, journal) = both(&cases);
        let (file, journal) = (read(&file).unwrap(), read(&journal).unwrap());
        assert_eq!(file.cases, cases);
        assert_eq!(file.summary, sample::summary(&cases));
        assert_eq!(file.environment, sample::environment());
        assert_eq!(file.command, ["collcheck", "run", "--suite", "smoke"]);
        assert_eq!(journal.cases, cases);
        assert_eq!((journal.finished, journal.seed), (None, 42));
        assert_eq!(journal.summary.failed, 3);
        assert!((journal.summary.duration_s - 0.625).abs() < 1e-12);
    }

    #[test]
    fn a_journal_may_be_cut_anywhere_behind_its_header() {
        let mut cases = sample::all();
        cases.truncate(3);
        cases[2].message = "🚀".into(); // cut inside a character too
        let (_, journal) = both(&cases);
        let header = journal.iter().position(|b| *b == b'\n').unwrap();
        for end in header..journal.len() {
            let cut = &journal[..end];
            let whole = cut.iter().filter(|b| **b == b'\n').count().saturating_sub(1);
            let results = read(cut).unwrap_or_else(|e| panic!("cut at {end}: {e}"));
            // A case whose newline alone is missing is whole.
            assert!((whole..=whole + 1).contains(&results.cases.len()), "cut at {end}");
            assert_eq!(results.cases, cases[..results.cases.len()]);
        }
    }

    #[test]
    fn a_journal_without_header_is_an_error() {
        let (_, journal) = both(&sample::all());
        let error = read(&journal[..20]).unwrap_err().to_string();
        assert!(error.starts_with("r.json:1: expected a JSON object"), "{error}");
        let error = read(b"").unwrap_err().to_string();
        assert!(error.contains("r.json:1") && error.contains("empty"), "{error}");
    }

    #[test]
    fn damage_inside_a_journal_is_an_error_that_names_the_line() {
        let (_, journal) = both(&sample::all());
        let text = String::from_utf8(journal).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        let half = &lines[3][..100];
        lines[3] = half;
        let error = read(lines.join("\n").as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("r.json:4: expected the result of one case, but EOF"), "{error}");
    }

    #[test]
    fn an_error_in_a_file_names_line_and_expectation() {
        let (file, _) = both(&sample::all());
        let text = String::from_utf8(file).unwrap();
        let line = 1 + text.lines().position(|l| l.contains("bfloat16::1GiB")).unwrap();
        let broken = text.replacen("\"kind\":\"slow\"", "\"kind\":\"tired\"", 1);
        let error = read(broken.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("r.json:{line}: expected results of collcheck.results/1, but ")), "{error}");
        assert!(error.contains("tired"), "{error}");
    }

    #[test]
    fn another_schema_is_refused_by_name() {
        for (text, what) in [(r#"{"schema":"collcheck.results/2"}"#, "results/2"), (r#"{"a":1}"#, "no schema")] {
            let error = read(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("expected schema \"collcheck.results/1\"") && error.contains(what), "{error}");
        }
    }

    #[test]
    fn what_is_no_json_is_an_error() {
        for bytes in [&b"<testsuites/>"[..], b"\xff\xfe\x00", b"[1,2", b"{}{}", b"null"] {
            assert!(read(bytes).is_err());
        }
    }

    #[test]
    fn figures_that_were_no_numbers_read_back_as_nan() {
        let mut case = sample::pass();
        case.placements[0].mean_us = f64::NAN;
        case.placements[0].busbw_gbs = f64::INFINITY;
        let (file, _) = both(&[case]);
        let results = read(&file).unwrap();
        let p = &results.cases[0].placements[0];
        assert!(p.mean_us.is_nan() && p.busbw_gbs.is_nan());
        assert_eq!(p.algbw_gbs, 0.5);
    }

    #[test]
    fn an_aborted_run_keeps_its_reason_in_a_journal() {
        let (_, mut journal) = both(&[sample::pass()]);
        journal.extend(b"{\"aborted\":\"interrupted\"}\n");
        let results = read(&journal).unwrap();
        assert_eq!((results.cases.len(), results.aborted.as_deref()), (1, Some("interrupted")));
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = read_results(Path::new("/nonexistent/r.json")).unwrap_err().to_string();
        assert!(error.starts_with("cannot read /nonexistent/r.json: "), "{error}");
    }
}
