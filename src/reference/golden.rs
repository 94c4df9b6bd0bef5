//! Golden files: `collcheck.golden/1`. One environment a file, one curve an entry.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::checked::{self, Check, Checked};
use super::{Algorithm, Choice, EnvironmentKey, LoadError};
use crate::case::{Bytes, DType, Op, Primitive};

/// The schema's name.
pub const SCHEMA: &str = "collcheck.golden/1";

/// A golden file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GoldenFile {
    /// Always [`SCHEMA`].
    #[serde(deserialize_with = "schema")]
    pub schema: String,
    /// For people: what this is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Where it holds.
    #[serde(deserialize_with = "checked::one")]
    pub environment: EnvironmentKey,
    /// The curves.
    #[serde(deserialize_with = "checked::list")]
    pub entries: Vec<Entry>,
}

fn schema<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let schema = String::deserialize(deserializer)?;
    if schema == SCHEMA {
        Ok(schema)
    } else {
        Err(D::Error::custom(format!("unknown schema {schema:?}; expected {SCHEMA:?}")))
    }
}

/// How far a figure can be relied on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provenance {
    /// Somebody's acceptance limit. Warns.
    Gate,
    /// Published, or measured by another tool or on another machine. Warns.
    Published,
    /// Measured by collcheck in this environment. A case outside of it fails.
    Measured,
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Provenance::Gate => "gate",
            Provenance::Published => "published",
            Provenance::Measured => "measured",
        })
    }
}

/// What a point bounds. The name carries the unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Bus bandwidth in GB/s (1e9 bytes). More is faster.
    BusbwGbs,
    /// Mean time of one launch in microseconds. Less is faster.
    TimeUs,
}

/// Ranges of one primitive over sizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The collective.
    pub primitive: Primitive,
    /// Reductions it holds for; `any` for a primitive without one.
    #[serde(default)]
    pub op: Choice<Op>,
    /// Element types it holds for.
    #[serde(default)]
    pub dtype: Choice<DType>,
    /// Algorithms it holds for.
    #[serde(default)]
    pub algorithm: Choice<Algorithm>,
    /// How far it can be relied on.
    pub provenance: Provenance,
    /// Where the figures are from.
    pub source: String,
    /// Bounds of points that state a value only: `value * (1 - tolerance)` to `value * (1 + tolerance)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<f64>,
    /// Why the figures are doubted. Such an entry is quoted, but nothing is judged by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disputed: Option<String>,
    /// In order of size; one metric's points form one curve.
    #[serde(deserialize_with = "checked::list")]
    pub points: Vec<Point>,
}

/// A range at one size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// The size: nccl-tests' size column.
    pub bytes: u64,
    /// What is bounded.
    pub metric: Metric,
    /// The figure itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// The least that is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower: Option<f64>,
    /// The most that is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper: Option<f64>,
    /// Instead of the entry's tolerance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<f64>,
    /// The last point of its metric only: it holds for all larger sizes too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plateau: bool,
}

impl Point {
    /// Lower and upper bound, given the entry's tolerance.
    pub fn bounds(&self, tolerance: Option<f64>) -> (Option<f64>, Option<f64>) {
        if self.lower.is_some() || self.upper.is_some() {
            return (self.lower, self.upper);
        }
        match (self.value, self.tolerance.or(tolerance)) {
            (Some(value), Some(t)) => (Some(value * (1.0 - t)), Some(value * (1.0 + t))),
            _ => (None, None),
        }
    }
}

fn check_tolerance(tolerance: Option<f64>) -> Result<(), String> {
    match tolerance {
        Some(t) if !(t > 0.0 && t < 1.0) => Err(format!("tolerance {t} is no share; expected between 0 and 1")),
        _ => Ok(()),
    }
}

impl Check for Point {
    const WHAT: &'static str = "a point with bytes, metric, and value, lower or upper";

    fn check(&self) -> Result<(), String> {
        let size = Bytes(self.bytes);
        if self.bytes == 0 {
            return Err("bytes is 0; expected a size of at least 1".into());
        }
        for (name, figure) in [("value", self.value), ("lower", self.lower), ("upper", self.upper)] {
            if let Some(f) = figure
                && !(f.is_finite() && f > 0.0)
            {
                return Err(format!("{name} {f} at {size}; expected a positive number"));
            }
        }
        for (low_name, low, high_name, high) in [
            ("lower", self.lower, "upper", self.upper),
            ("lower", self.lower, "value", self.value),
            ("value", self.value, "upper", self.upper),
        ] {
            if let (Some(low), Some(high)) = (low, high)
                && low > high
            {
                return Err(format!(
                    "{low_name} {low} is above {high_name} {high} at {size}; expected {low_name} <= {high_name}"
                ));
            }
        }
        if self.value.is_none() && self.lower.is_none() && self.upper.is_none() {
            return Err(format!("nothing is said at {size}; expected value, lower or upper"));
        }
        check_tolerance(self.tolerance)
    }
}

impl Check for Entry {
    const WHAT: &'static str = "an entry with primitive, provenance, source and points";

    fn check(&self) -> Result<(), String> {
        if self.source.trim().is_empty() {
            return Err("source is empty; expected where the figures are from".into());
        }
        if self.disputed.as_ref().is_some_and(|d| d.trim().is_empty()) {
            return Err("disputed is empty; expected why the figures are doubted".into());
        }
        if !self.primitive.unit().reduces() && !self.op.is_any() {
            return Err(format!("{} does not reduce; expected op \"any\"", self.primitive));
        }
        check_tolerance(self.tolerance)?;
        if self.points.is_empty() {
            return Err("points is empty; expected at least one".into());
        }
        for metric in [Metric::BusbwGbs, Metric::TimeUs] {
            self.check_curve(metric)?;
        }
        Ok(())
    }
}

#[cfg(test)]
impl Entry {
    /// Of points that hold for anything.
    pub(super) fn of_points(points: Vec<Point>) -> Entry {
        Entry {
            primitive: Primitive::AllReduce,
            op: Choice::Any,
            dtype: Choice::Any,
            algorithm: Choice::Any,
            provenance: Provenance::Measured,
            source: "test".to_owned(),
            tolerance: None,
            disputed: None,
            points,
        }
    }
}

impl Entry {
    /// The points of one metric, in order of size.
    pub fn curve(&self, metric: Metric) -> impl Iterator<Item = &Point> {
        self.points.iter().filter(move |p| p.metric == metric)
    }

    fn check_curve(&self, metric: Metric) -> Result<(), String> {
        let mut last: Option<&Point> = None;
        for point in self.curve(metric) {
            let size = Bytes(point.bytes);
            if let Some(last) = last {
                let before = Bytes(last.bytes);
                if last.bytes >= point.bytes {
                    return Err(format!("{size} comes after {before}; expected sizes in rising order, each once"));
                }
                if last.plateau {
                    return Err(format!("{before} is a plateau, but {size} follows; expected it on the last point"));
                }
            }
            let (lower, upper) = point.bounds(self.tolerance);
            if lower.is_none() && upper.is_none() {
                return Err(format!("no bounds at {size}; expected lower, upper or a tolerance"));
            }
            self.check_gate(metric, lower, upper, size)?;
            last = Some(point);
        }
        Ok(())
    }

    /// A gate says what is too slow, never what is too fast.
    fn check_gate(&self, metric: Metric, lower: Option<f64>, upper: Option<f64>, size: Bytes) -> Result<(), String> {
        let (needed, slow, fast) = match metric {
            Metric::BusbwGbs => ("lower", lower, upper),
            Metric::TimeUs => ("upper", upper, lower),
        };
        if self.provenance == Provenance::Gate && (slow.is_none() || fast.is_some()) {
            return Err(format!("a gate at {size} with other bounds than one; expected {needed} only"));
        }
        Ok(())
    }
}

impl GoldenFile {
    /// Reads a golden file; `name` stands for it in the error.
    pub fn parse(name: &str, text: &str) -> Result<Self, LoadError> {
        match serde_json::from_str::<Checked<GoldenFile>>(text) {
            Ok(Checked(file)) => Ok(file),
            Err(error) => Err(LoadError::broken(name, &error)),
        }
    }

    /// The file's text, which [`GoldenFile::parse`] reads back. Numbers that are not finite make it unreadable.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| a_line_a_point(&text))
    }
}

/// Puts each point on one line, as files written by hand have it. Strings hold no line breaks in JSON, so lines will do.
fn a_line_a_point(pretty: &str) -> String {
    let mut text = String::new();
    let mut in_points = false;
    for line in pretty.lines() {
        let part = line.trim_start();
        match part {
            "{" if in_points => text += line,
            "}" | "}," if in_points => text = text + part + "\n",
            "]" | "]," => {
                in_points = false;
                text = text + line + "\n";
            }
            field if in_points => text = text + field + if field.ends_with(',') { " " } else { "" },
            other => {
                in_points = other == "\"points\": [";
                text = text + line + "\n";
            }
        }
    }
    text
}

impl Check for GoldenFile {
    const WHAT: &'static str = "an object with schema, environment and entries";

    fn check(&self) -> Result<(), String> {
        if self.entries.is_empty() {
            return Err("entries is empty; expected at least one".into());
        }
        Ok(())
    }
}
