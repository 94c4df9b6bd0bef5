//! `collcheck bless`: from result files of several launches to a golden file.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};

use super::exit::Exit;
use super::values;
use crate::case::Bytes;
use crate::reference::bless::{Blessed, Launch, Rule, bless};
use crate::reference::{Choice, Entry, GoldenFile, Metric};
use crate::report::WholeFile;
use crate::report::results::read_results;

/// Upper bound of `--min-launches`.
const MOST_LAUNCHES: u32 = 1000;

/// `collcheck bless`.
#[derive(Debug, Args)]
pub struct BlessArgs {
    /// Result files of `collcheck run --json`, one a launch
    #[arg(value_name = "RESULTS", required = true)]
    pub results: Vec<PathBuf>,

    /// The golden file to write [default: standard output]
    #[arg(short = 'o', long, value_name = "FILE", value_parser = OsStringValueParser::new().try_map(values::file),
          env = "COLLCHECK_OUTPUT")]
    pub output: Option<PathBuf>,

    /// What the file says of itself [default: launches, ranks, device and versions]
    #[arg(long, value_name = "TEXT", env = "COLLCHECK_DESCRIPTION")]
    pub description: Option<String>,

    /// Refuse fewer launches than this, and leave out cases that fewer of them timed
    #[arg(long, value_name = "N", value_parser = values::number::<2, MOST_LAUNCHES>, default_value = "3",
          env = "COLLCHECK_MIN_LAUNCHES", allow_negative_numbers = true)]
    pub min_launches: u32,

    /// The least margin beyond the fastest and the slowest launch, as a share
    #[arg(long, value_name = "SHARE", value_parser = values::share, default_value = "0.05", env = "COLLCHECK_TOLERANCE",
          allow_negative_numbers = true)]
    pub tolerance: f64,

    /// Replace the file if there is one
    #[arg(long, env = "COLLCHECK_FORCE")]
    pub force: bool,
}

/// Reads, blesses and writes. What was blessed is told on standard error, as the file may go to standard output.
pub fn command(args: BlessArgs) -> anyhow::Result<Exit> {
    let output = args.output.as_deref().map(|path| writable(path, args.force)).transpose()?;
    let rule = Rule { min_launches: args.min_launches as usize, tolerance: args.tolerance };
    let launches = args.results.iter().map(|path| launch(path)).collect::<anyhow::Result<Vec<_>>>()?;
    let blessed = bless(&launches, rule, args.description)?;
    let text = blessed.file.to_json().context("cannot write the golden file")?;
    // a file that `--reference` would refuse must not come to be
    GoldenFile::parse("the golden file", &text)?;
    match output {
        Some(file) => file.replace(|out| out.write_all(text.as_bytes()))?,
        None => match io::stdout().lock().write_all(text.as_bytes()) {
            // a reader that has seen enough is no error
            Err(e) if e.kind() != ErrorKind::BrokenPipe => return Err(e).context("cannot write the golden file"),
            _ => {}
        },
    }
    super::say(told(&blessed).trim_end());
    Ok(Exit::Passed)
}

/// Before anything is read: what would be lost, and what cannot be written.
fn writable(path: &Path, force: bool) -> anyhow::Result<WholeFile> {
    ensure!(force || !path.is_file(), "{} is there already; --force replaces it", path.display());
    Ok(WholeFile::create(path)?)
}

fn launch(path: &Path) -> anyhow::Result<Launch> {
    Ok(Launch { name: path.display().to_string(), results: read_results(path)? })
}

/// One line a curve: what it covers, and how narrow it is at the largest size.
fn told(blessed: &Blessed) -> String {
    let mut text = String::new();
    for entry in &blessed.file.entries {
        let _ = writeln!(text, "{}", curve(entry));
    }
    if !blessed.left_out.is_empty() {
        let names: Vec<&str> = blessed.left_out.iter().take(3).map(String::as_str).collect();
        let more = blessed.left_out.len() - names.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let _ = writeln!(text, "left out, as too few launches timed them: {}{more}", names.join(", "));
    }
    text
}

fn curve(entry: &Entry) -> String {
    let of = |any: bool, what: String| if any { String::new() } else { format!(" {what}") };
    let mut text = format!(
        "{}{}{}:",
        entry.primitive,
        of(entry.op == Choice::Any, entry.op.to_string()),
        of(entry.dtype == Choice::Any, entry.dtype.to_string())
    );
    let mut separator = "";
    for (metric, name) in [(Metric::TimeUs, "time"), (Metric::BusbwGbs, "busbw")] {
        let points: Vec<_> = entry.curve(metric).filter(|p| p.value.is_some()).collect();
        if let (Some(first), Some(last)) = (points.first(), points.last())
            && let (Some(value), Some(lower), Some(upper)) = (last.value, last.lower, last.upper)
        {
            let percent = |bound: f64| 100.0 * (bound / value - 1.0);
            let _ = write!(
                text,
                "{separator} {name} at {} to {}, at last {:+.0} to {:+.0} %",
                Bytes(first.bytes),
                Bytes(last.bytes),
                percent(lower),
                percent(upper)
            );
            separator = ";";
        }
    }
    text
}
