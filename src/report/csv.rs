//! CSV: a row for each placement of each case, written as cases end.
//!
//! Fields are quoted as in RFC 4180; lines end in a newline alone, which spreadsheets take and awk prefers. A case that
//! measured nothing (skipped, hung) has one row with empty figures. What is no finite number is empty.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::describe;
use super::file::CannotWrite;
use crate::case::Op;
use crate::run::event::{Consumer, Event};
use crate::run::result::{Assertion, CaseResult, Outcome, PlacementResult};

/// The header's fields. Times are in microseconds, bandwidths in GB/s (1e9), `duration_s` in seconds.
const COLUMNS: [&str; 38] = [
    "name",
    "primitive",
    "op",
    "dtype",
    "bytes",
    "count",
    "ranks",
    "root",
    "variants",
    "outcome",
    "kind",
    "placement",
    "mean_us",
    "median_us",
    "p90_us",
    "p99_us",
    "min_us",
    "max_us",
    "cv",
    "n",
    "algbw_gbs",
    "busbw_gbs",
    "wrong",
    "first_wrong_rank",
    "first_wrong_index",
    "expected",
    "actual",
    "ranges",
    "explanation",
    "assertion",
    "lower_gbs",
    "upper_gbs",
    "source",
    "algo",
    "proto",
    "channels",
    "message",
    "duration_s",
];

/// The consumer.
pub struct Csv {
    path: PathBuf,
    file: File,
}

impl Csv {
    /// Empties the file and writes the header, and so finds out whether `path` can be written.
    pub fn create(path: &Path) -> Result<Csv, CannotWrite> {
        let file = File::create(path).map_err(|reason| CannotWrite { path: path.to_owned(), reason })?;
        let mut csv = Csv { path: path.to_owned(), file };
        csv.write(&row(&COLUMNS.map(str::to_owned)))?;
        Ok(csv)
    }

    /// In one write, so that a run that is killed ends with a whole row.
    fn write(&mut self, text: &str) -> Result<(), CannotWrite> {
        self.file
            .write_all(text.as_bytes())
            .and_then(|()| self.file.flush())
            .map_err(|reason| CannotWrite { path: self.path.clone(), reason })
    }
}

impl Consumer for Csv {
    fn take(&mut self, event: &Event) -> anyhow::Result<()> {
        if let Event::CaseFinished { result } = event {
            self.write(&rows(result))?;
        }
        Ok(())
    }
}

fn rows(case: &CaseResult) -> String {
    if case.placements.is_empty() {
        return row(&fields(case, None));
    }
    case.placements.iter().map(|p| row(&fields(case, Some(p)))).collect()
}

fn fields(case: &CaseResult, placement: Option<&PlacementResult>) -> [String; COLUMNS.len()] {
    let outcome = match case.outcome {
        Outcome::Pass => "pass",
        Outcome::Fail => "fail",
        Outcome::Skip => "skip",
    };
    let assertion = match case.reference.status {
        Assertion::Asserted => "asserted",
        Assertion::Warned => "warned",
        Assertion::Published => "published",
        Assertion::Unasserted => "unasserted",
    };
    let variants: Vec<String> = case.variants.iter().map(ToString::to_string).collect();
    let time = placement.and_then(|p| p.time_us.as_ref());
    let first = placement.and_then(|p| p.first_wrong.as_ref());
    let path = case.path.as_ref();
    [
        case.name.clone(),
        case.primitive.to_string(),
        case.op.map_or("none", Op::name).to_owned(),
        case.dtype.to_string(),
        case.bytes.to_string(),
        case.count.to_string(),
        case.ranks.to_string(),
        case.root.to_string(),
        variants.join("+"),
        outcome.to_owned(),
        case.kind.map_or("", |k| k.name()).to_owned(),
        placement.map_or("", describe::place).to_owned(),
        number(placement.map(|p| p.mean_us)),
        number(time.map(|t| t.median)),
        number(time.map(|t| t.p90)),
        number(time.map(|t| t.p99)),
        number(time.map(|t| t.min)),
        number(time.map(|t| t.max)),
        number(time.map(|t| t.cv)),
        text(time.map(|t| t.n)),
        number(placement.map(|p| p.algbw_gbs)),
        number(placement.map(|p| p.busbw_gbs)),
        text(placement.and_then(|p| p.wrong)),
        text(first.map(|f| f.rank)),
        text(first.map(|f| f.index)),
        text(first.map(|f| &f.expected)),
        text(first.map(|f| &f.actual)),
        text(first.map(|f| &f.ranges)),
        text(first.map(|f| &f.explanation)),
        assertion.to_owned(),
        number(case.reference.lower_gbs),
        number(case.reference.upper_gbs),
        case.reference.source.clone(),
        text(path.map(|p| &p.algo)),
        text(path.map(|p| &p.proto)),
        text(path.map(|p| p.channels)),
        case.message.clone(),
        number(Some(case.duration_s)),
    ]
}

fn text(value: Option<impl ToString>) -> String {
    value.map_or(String::new(), |v| v.to_string())
}

fn number(value: Option<f64>) -> String {
    text(value.filter(|v| v.is_finite()))
}

fn row(fields: &[String]) -> String {
    let quoted: Vec<String> = fields.iter().map(|f| quote(f)).collect();
    quoted.join(",") + "\n"
}

/// Quotes a field that holds a comma, a quote or a line break; NUL, which readers stop at, becomes U+FFFD.
fn quote(field: &str) -> String {
    let field = field.replace('\0', "\u{fffd}");
    if field.contains([',', '"', '\n', '\r']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn written(cases: &[CaseResult]) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.csv");
        sample::feed(&mut Csv::create(&path).unwrap(), &sample::events(cases));
        std::fs::read_to_string(&path).unwrap()
    }

    /// Splits by RFC 4180, written apart from the writer.
    fn read(text: &str) -> Vec<Vec<String>> {
        let (mut rows, mut row, mut field) = (Vec::new(), Vec::new(), String::new());
        let mut characters = text.chars().peekable();
        let mut quoted = false;
        while let Some(c) = characters.next() {
            match c {
                '"' if quoted && characters.next_if_eq(&'"').is_some() => field.push('"'),
                '"' => quoted = !quoted,
                ',' if !quoted => row.push(std::mem::take(&mut field)),
                '\n' if !quoted => {
                    row.push(std::mem::take(&mut field));
                    rows.push(std::mem::take(&mut row));
                }
                c => field.push(c),
            }
        }
        assert!(!quoted && field.is_empty() && row.is_empty(), "cut off");
        rows
    }

    #[test]
    fn there_is_a_row_for_each_case_and_placement() {
        let text = written(&sample::all());
        let rows = read(&text);
        assert_eq!(rows.len(), 1 + 4 * 2 + 2);
        assert!(rows.iter().all(|r| r.len() == COLUMNS.len()));
        let get = |row: usize, column: &str| rows[row][rows[0].iter().position(|c| c == column).unwrap()].clone();
        assert_eq!((get(1, "placement"), get(2, "placement")), ("out-of-place".into(), "in-place".into()));
        assert_eq!((get(1, "mean_us"), get(2, "busbw_gbs"), get(1, "n")), ("27.29".into(), "0.25".into(), "20".into()));
        assert_eq!((get(3, "wrong"), get(3, "first_wrong_index")), ("3".into(), "4711".into()));
        assert_eq!((get(4, "wrong"), get(4, "first_wrong_index")), ("0".into(), String::new()));
        assert_eq!((get(5, "kind"), get(5, "variants"), get(5, "root")), ("slow".into(), "root1".into(), "1".into()));
        assert_eq!(
            (get(9, "kind"), get(9, "placement"), get(9, "mean_us")),
            ("hang".into(), String::new(), String::new())
        );
        assert_eq!(get(9, "message"), "no end after 30 s; rank 1 never called\nncclAlltoAll");
    }

    #[test]
    fn a_row_is_as_it_is() {
        let text = written(&[sample::pass()]);
        assert_eq!(
            text.lines().nth(1).unwrap(),
            "all_reduce::sum::float::8B,all_reduce,sum,float,8,2,2,-1,,pass,,out-of-place,27.29,27,29,30.5,25,31,0.04,\
             20,0.5,0.5,0,,,,,,,unasserted,,,,,,,,0.125"
        );
    }

    #[test]
    fn hostile_strings_read_back() {
        let mut case = sample::hang();
        case.message = sample::HOSTILE.into();
        let rows = read(&written(&[case]));
        assert_eq!(rows[1][36], sample::HOSTILE.replace('\0', "\u{fffd}"));
    }

    #[test]
    fn every_case_is_in_the_file_before_the_next_begins() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.csv");
        let mut csv = Csv::create(&path).unwrap();
        for n in 1..4 {
            csv.take(&Event::CaseFinished { result: Box::new(sample::hang()) }).unwrap();
            assert_eq!(read(&std::fs::read_to_string(&path).unwrap()).len(), 1 + n);
        }
    }

    #[test]
    fn an_unwritable_path_is_an_error_before_the_run() {
        let error = Csv::create(Path::new("/nonexistent/r.csv")).err().unwrap().to_string();
        assert!(error.starts_with("cannot write /nonexistent/r.csv: "), "{error}");
    }
}
