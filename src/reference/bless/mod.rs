//! From the results of several launches to a golden file.
//!
//! A launch is a process of its own: within one, NCCL's choices, its buffers and the host's state stay what they are, and
//! so say nothing of how far the next launch will be. What makes a range of figures is in `range`, what a curve may say
//! between sizes in `points`. In full, with the reasons: `docs/references.md`.

mod admit;
mod collect;
mod points;
mod range;

use std::collections::BTreeSet;

use super::facts::Facts;
use super::golden::SCHEMA;
use super::{Choice, Entry, EnvironmentKey, GoldenFile, Observed, Provenance};
use crate::backend::Environment;
use crate::case::Primitive;
use crate::report::results::Results;

pub use admit::Refusal;
use collect::Curve;

/// Results of one launch.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Stands for it in messages, as its file's name.
    pub name: String,
    /// What `collcheck run --json` wrote.
    pub results: Results,
}

/// How ranges are made.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Fewer launches are refused, and a case that fewer of them timed is left out.
    pub min_launches: usize,
    /// The least margin beyond the fastest and the slowest launch, as a share.
    pub tolerance: f64,
}

impl Default for Rule {
    fn default() -> Self {
        Rule { min_launches: 3, tolerance: 0.05 }
    }
}

/// A golden file, and what did not get into it.
#[derive(Debug, Clone)]
pub struct Blessed {
    /// The file.
    pub file: GoldenFile,
    /// Cases that too few launches timed.
    pub left_out: BTreeSet<String>,
}

/// Makes ranges of what was measured. `description` is the file's; where there is none, it says what was measured.
pub fn bless(launches: &[Launch], rule: Rule, description: Option<String>) -> Result<Blessed, Refusal> {
    let key = admit::admit(launches, rule)?;
    let (curves, left_out) = collect::curves(launches, rule);
    let Some(environment) = launches.first().map(|l| &l.results.environment).filter(|_| !curves.is_empty()) else {
        return Err(Refusal::Nothing { needed: rule.min_launches });
    };
    let source = source(launches);
    let entries = curves.iter().map(|curve| entry(curve, rule, environment, &source)).collect();
    let file = GoldenFile {
        schema: SCHEMA.to_owned(),
        description: description.unwrap_or_else(|| describe(launches.len(), environment)),
        environment: keyed(key, environment, &curves),
        entries,
    };
    Ok(Blessed { file, left_out })
}

fn facts(environment: &Environment, primitive: Primitive) -> Facts<'_> {
    Facts::of(environment, Observed::default(), primitive, environment.ranks, None)
}

/// `NCCL_ALGO` can forbid NVLS, to some primitives only. The key is for all, so it then asks for what all have in common.
fn keyed(key: EnvironmentKey, environment: &Environment, curves: &[Curve]) -> EnvironmentKey {
    if key.nvls.is_any() {
        return key;
    }
    let mut nvls: Vec<bool> = curves.iter().map(|c| facts(environment, c.primitive).nvls).collect();
    nvls.dedup();
    let nvls = if let [all] = nvls[..] { Choice::only(all) } else { Choice::Any };
    EnvironmentKey { nvls, ..key }
}

fn entry(curve: &Curve, rule: Rule, environment: &Environment, source: &str) -> Entry {
    Entry {
        primitive: curve.primitive,
        op: curve.op.map_or(Choice::Any, Choice::only),
        dtype: curve.dtype.map_or(Choice::Any, Choice::only),
        // What a run is not asked to take is not known in a run without a log, and would leave it unasserted.
        algorithm: facts(environment, curve.primitive).algorithm.map_or(Choice::Any, Choice::only),
        provenance: Provenance::Measured,
        source: source.to_owned(),
        tolerance: None,
        disputed: None,
        points: points::points(&range::ranges(&curve.sizes, rule.tolerance)),
    }
}

/// Tool, dates, launches and command. It is quoted in results, so it is one line, and short.
fn source(launches: &[Launch]) -> String {
    let all = |pick: fn(&Results) -> String| {
        let values: BTreeSet<String> = launches.iter().map(|l| pick(&l.results)).collect();
        values.into_iter().collect::<Vec<_>>()
    };
    let dates = all(|r| r.started.chars().take_while(|c| *c != 'T').collect());
    let dates = match (dates.first(), dates.last()) {
        (Some(first), Some(last)) if first != last => format!("{first} to {last}"),
        _ => dates.concat(),
    };
    format!(
        "collcheck {}, {dates}, {} launches of {}, on {}",
        all(|r| r.collcheck.clone()).join(" and "),
        launches.len(),
        all(|r| format!("`{}`", command(&r.command))).join(" and "),
        all(|r| r.environment.host.clone()).join(", ")
    )
}

/// What tells what was run, without where it lay and where its reports went.
fn command(words: &[String]) -> String {
    const LEFT_OUT: [&str; 7] = ["--json", "--junit", "--csv", "--table", "--html", "--format", "--nccl"];
    let mut kept = vec!["collcheck"];
    let mut words = words.iter().skip(1).map(String::as_str);
    while let Some(word) = words.next() {
        if LEFT_OUT.contains(&word) {
            words.next();
        } else if !word.split_once('=').is_some_and(|(option, _)| LEFT_OUT.contains(&option)) {
            kept.push(word);
        }
    }
    kept.join(" ")
}

fn describe(launches: usize, environment: &Environment) -> String {
    let mut text = format!("{launches} launches: {} ranks on {}", environment.ranks, environment.device);
    if !environment.nccl_version.is_empty() {
        text += &format!(", NCCL {}", environment.nccl_version);
    }
    if !environment.driver.is_empty() {
        text += &format!(", driver {}", environment.driver);
    }
    for (name, value) in admit::steering(environment) {
        text += &format!(", {name}={value}");
    }
    text
}
