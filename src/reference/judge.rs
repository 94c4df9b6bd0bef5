//! The verdict on a case's figures.

use super::facts::{Facts, Observed};
use super::fit::Candidate;
use super::golden::Metric;
use super::key::shares_gpu;
use super::{Provenance, Range, References};
use crate::backend::Environment;
use crate::case::{Bytes, Case, Variant};
use crate::run::result::{Assertion, FailKind, Judgement, Path, PlacementResult};

/// From so many bytes on, the wires decide how fast a launch can be. Below, it depends on who drives the ranks, too: side by side
/// on 2 x H200, up to 4 KiB, a thread for each was up to 1.9 times as fast as one thread for both, and launches of one program
/// differ by a third (docs/measurements.md).
const WIRES: u64 = 64 << 20;

/// So much better than a published figure may be below that.
const DRIVEN: f64 = 2.5;

/// What is to be judged.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Where it ran.
    pub environment: &'a Environment,
    /// What else is known of the place.
    pub observed: Observed,
    /// What ran.
    pub case: &'a Case,
    /// Ranks of the communicator.
    pub ranks: u32,
    /// Bytes really moved: nccl-tests' size column.
    pub bytes: u64,
    /// The figures. Each placement must be inside the range.
    pub placements: &'a [PlacementResult],
    /// What the library chose, where it is known.
    pub path: Option<&'a Path>,
}

/// A verdict, and the failure that follows from it.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// For the result.
    pub judgement: Judgement,
    /// [`FailKind::Slow`] or [`FailKind::TooFast`] with its message, where a measured range does not hold.
    pub failure: Option<(FailKind, String)>,
}

impl Judged {
    /// Without an assertion: why.
    pub fn not(why: &str) -> Judged {
        Judged { judgement: Judgement { note: why.to_owned(), ..Judgement::default() }, failure: None }
    }
}

/// What to say of a case under `--require-reference`: `None` where a measured range was asserted.
pub fn missing_reference(judgement: &Judgement) -> Option<String> {
    let why = match judgement.status {
        Assertion::Asserted => return None,
        Assertion::Warned | Assertion::Published => format!("only this one: {}", judgement.source),
        Assertion::Unasserted => judgement.note.clone(),
    };
    Some(format!("a measured reference is required, but there is none: {why}"))
}

impl References {
    /// Judges a case by the entry that fits best and says something of its size.
    ///
    /// Time is judged where that entry bounds the time at this size, else busbw. Bounds themselves are inside.
    pub fn judge(&self, subject: &Subject<'_>) -> Judged {
        if let Some(reason) = not_judged(subject) {
            return unasserted(reason);
        }
        let facts =
            Facts::of(subject.environment, subject.observed, subject.case.primitive, subject.ranks, subject.path);
        let candidates = self.candidates(&facts, subject.case);
        for candidate in candidates.iter().filter(|c| c.unknown.is_empty() && c.entry.disputed.is_none()) {
            for metric in [Metric::TimeUs, Metric::BusbwGbs] {
                if let Some(range) = candidate.entry.range(metric, subject.bytes) {
                    return verdict(subject, candidate, &range);
                }
            }
        }
        unasserted(why_none(subject, &candidates))
    }
}

/// Why bandwidth of this case says nothing, whatever the references.
fn not_judged(subject: &Subject<'_>) -> Option<String> {
    if shares_gpu(subject.environment) {
        return Some("bandwidth is never asserted when ranks share a GPU".to_owned());
    }
    if subject.ranks == 0 || subject.case.primitive.unit().busbw_factor(subject.ranks) == 0.0 {
        return Some("with one rank nothing crosses a link: busbw is 0".to_owned());
    }
    // A root other than 0 moves the same bytes; any other departure may be slower by right.
    let other = subject.case.variants.iter().find(|v| !matches!(v, Variant::Root(_)));
    if let Some(variant) = other {
        return Some(format!("references hold for plain cases, not for {variant}"));
    }
    if subject.placements.is_empty() {
        return Some("nothing was measured".to_owned());
    }
    let bad = subject.placements.iter().any(|p| !(positive(p.mean_us) && positive(p.busbw_gbs)));
    bad.then(|| "no time was measured".to_owned())
}

fn positive(figure: f64) -> bool {
    figure.is_finite() && figure > 0.0
}

fn unasserted(note: String) -> Judged {
    Judged { judgement: Judgement { note, ..Judgement::default() }, failure: None }
}

/// The nearest thing to a reference, for people who wonder why there is none.
fn why_none(subject: &Subject<'_>, candidates: &[Candidate<'_>]) -> String {
    let size = Bytes(subject.bytes);
    let speaks = |c: &&Candidate<'_>| {
        [Metric::TimeUs, Metric::BusbwGbs].iter().any(|m| c.entry.range(*m, subject.bytes).is_some())
    };
    if let Some(c) = candidates.iter().filter(speaks).find(|c| !c.unknown.is_empty()) {
        return format!("{} would apply if it were known: {}", quoted(c), c.unknown.join(", "));
    }
    if let Some(c) = candidates.iter().find(speaks) {
        let why = c.entry.disputed.as_deref().unwrap_or_default();
        return format!("{} is disputed: {why}", quoted(c));
    }
    let covered = |c: &Candidate<'_>| {
        let busbw = c.entry.covers(Metric::BusbwGbs).map(|sizes| format!("busbw at {sizes}"));
        let time = c.entry.covers(Metric::TimeUs).map(|sizes| format!("time at {sizes}"));
        [time, busbw].into_iter().flatten().collect::<Vec<_>>().join(", ")
    };
    match candidates.first() {
        Some(c) => format!("no reference at {size}: {} states {}", quoted(c), covered(c)),
        None if subject.environment.backend == "host" => {
            "no reference: bandwidth of the host backend is judged by files made for it only".to_owned()
        }
        None => format!(
            "no reference for {} on {} ranks of {:?}",
            subject.case.primitive, subject.ranks, subject.environment.device
        ),
    }
}

fn quoted(candidate: &Candidate<'_>) -> String {
    format!("{} [{}]", candidate.entry.source, candidate.file)
}

/// A figure on the wrong side of a bound.
struct Outside {
    kind: FailKind,
    text: String,
}

/// What is accepted: the range, with room on its fast side where a published figure cannot know who drives the ranks.
fn driven(range: &Range, provenance: Provenance, bytes: u64) -> Range {
    if provenance == Provenance::Measured || bytes >= WIRES {
        return *range;
    }
    match range.metric {
        Metric::BusbwGbs => Range { upper: range.upper.map(|bound| bound * DRIVEN), ..*range },
        Metric::TimeUs => Range { lower: range.lower.map(|bound| bound / DRIVEN), ..*range },
    }
}

fn verdict(subject: &Subject<'_>, candidate: &Candidate<'_>, range: &Range) -> Judged {
    let accepted = driven(range, candidate.entry.provenance, subject.bytes);
    let source = match range.metric {
        Metric::BusbwGbs => quoted(candidate),
        // The judgement's bounds are of busbw, so those of a time are told here.
        Metric::TimeUs => format!("{}: time {}", quoted(candidate), interval(range)),
    };
    let (lower_gbs, upper_gbs) = match range.metric {
        Metric::BusbwGbs => (range.lower, range.upper),
        Metric::TimeUs => (None, None),
    };
    let outside = subject.placements.iter().find_map(|p| outside(p, range, &accepted));
    let message = outside.as_ref().map(|o| {
        format!(
            "{} at {}, {} reference: {}",
            o.text,
            Bytes(subject.bytes),
            candidate.entry.provenance,
            quoted(candidate)
        )
    });
    let measured = candidate.entry.provenance == Provenance::Measured;
    let status = match (measured, &outside) {
        (true, _) => Assertion::Asserted,
        (false, Some(_)) => Assertion::Warned,
        (false, None) => Assertion::Published,
    };
    let note = if measured { String::new() } else { message.clone().unwrap_or_default() };
    let failure = if measured { outside.map(|o| o.kind).zip(message) } else { None };
    Judged { judgement: Judgement { status, lower_gbs, upper_gbs, source, note }, failure }
}

/// A figure that is not accepted; it is told beside the range.
fn outside(placement: &PlacementResult, range: &Range, accepted: &Range) -> Option<Outside> {
    let (figure, what) = match range.metric {
        Metric::BusbwGbs => (placement.busbw_gbs, "busbw"),
        Metric::TimeUs => (placement.mean_us, "time"),
    };
    let below = accepted.lower.is_some_and(|bound| figure < bound);
    let above = accepted.upper.is_some_and(|bound| figure > bound);
    let kind = match (range.metric, below, above) {
        (_, false, false) => return None,
        (Metric::BusbwGbs, true, _) | (Metric::TimeUs, false, true) => FailKind::Slow,
        (Metric::BusbwGbs, false, true) | (Metric::TimeUs, true, _) => FailKind::TooFast,
    };
    let place = if placement.in_place { "in place" } else { "out of place" };
    let side = if below { "below" } else { "above" };
    let judged = if kind == FailKind::TooFast { ", too fast to be true" } else { "" };
    let text = format!("{what} {} ({place}) is {side} {}{judged}", with_unit(figure, range.metric), interval(range));
    Some(Outside { kind, text })
}

/// `350 to 480 GB/s`, `at least 460 GB/s` or `at most 20 us`.
fn interval(range: &Range) -> String {
    match (range.lower, range.upper) {
        (Some(lower), Some(upper)) => format!("{} to {}", digits(lower), with_unit(upper, range.metric)),
        (Some(lower), None) => format!("the least of {}", with_unit(lower, range.metric)),
        (None, Some(upper)) => format!("the most of {}", with_unit(upper, range.metric)),
        (None, None) => "no bound".to_owned(),
    }
}

fn with_unit(figure: f64, metric: Metric) -> String {
    let unit = match metric {
        Metric::BusbwGbs => "GB/s",
        Metric::TimeUs => "us",
    };
    format!("{} {unit}", digits(figure))
}

/// Four significant digits, without trailing zeros.
fn digits(figure: f64) -> String {
    let magnitude = if figure > 0.0 { figure.log10().floor() as i32 } else { 0 };
    let decimals = usize::try_from(3 - magnitude).unwrap_or(0).min(9);
    let text = format!("{figure:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::digits;

    #[test]
    fn figures_are_told_with_four_digits() {
        for (figure, text) in [
            (480.0, "480"),
            (326.504, "326.5"),
            (1717.29, "1717"),
            (15.35, "15.35"),
            (0.000_123_46, "0.0001235"),
            (123_456.0, "123456"),
        ] {
            assert_eq!(digits(figure), text);
        }
    }
}
