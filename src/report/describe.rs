//! A case's result in words, the same for terminals and JUnit. All text is clean: see [`clean_within`].

use std::fmt::Write;

use super::text::{clean_within, one_line};
use crate::run::result::{Assertion, CaseResult, FailKind, FaultRecord, Judgement, Outcome, PlacementResult};

/// What to do about wrong data. Rerunning keeps the seed, and so the inputs.
const NEXT: &str = "next: run it alone with --repeat 10; the same elements again speak for software, others for a race \
                    or a device";

/// Everything needed to act on a failure, over several lines, each fact once; the message takes at most about `limit`
/// bytes of it.
///
/// A line of the message that counts a placement's wrong elements is followed by what is known of them.
pub fn failure(case: &CaseResult, limit: usize) -> String {
    let mut text = String::new();
    let mut open: Vec<&PlacementResult> = case.placements.iter().filter(|p| p.wrong.is_some_and(|n| n > 0)).collect();
    let message = clean_within(case.message.trim_end(), limit);
    for line in message.lines() {
        let _ = writeln!(text, "{line}");
        if let Some(at) = open.iter().position(|p| counts(line, p)) {
            let placement = open.remove(at);
            details(&mut text, placement, names_rank(line, placement));
        }
    }
    for placement in open {
        let _ = writeln!(text, "{}: {}", place(placement), count(placement));
        details(&mut text, placement, false);
    }
    if case.kind == Some(FailKind::Data) {
        let _ = writeln!(text, "{NEXT}");
    }
    if judged(case) {
        for placement in &case.placements {
            let _ = writeln!(
                text,
                "{}: busbw {} GB/s, {}",
                place(placement),
                gbs(placement.busbw_gbs),
                bounds(&case.reference)
            );
        }
        if !case.reference.note.is_empty() {
            let _ = writeln!(text, "note: {}", one_line(&case.reference.note, 1000));
        }
    }
    let root = if case.root >= 0 { format!(", root {}", case.root) } else { String::new() };
    let _ = write!(text, "{} bytes, {} elements, {} ranks{root}", case.bytes, case.count, case.ranks);
    if let Some(path) = &case.path {
        let _ = write!(
            text,
            "; ran {}/{} on {} channels",
            one_line(&path.algo, 50),
            one_line(&path.proto, 50),
            path.channels
        );
    }
    text.push('\n');
    text
}

/// Whether a line of the message is the one that counts this placement's wrong elements.
fn counts(line: &str, placement: &PlacementResult) -> bool {
    let rest = line.strip_prefix(place(placement));
    rest.is_some_and(|rest| rest.starts_with([':', ',']) && rest.contains(&format!(" {}", count(placement))))
}

/// `3 wrong elements`.
fn count(placement: &PlacementResult) -> String {
    match placement.wrong.unwrap_or(0) {
        1 => "1 wrong element".to_owned(),
        n => format!("{n} wrong elements"),
    }
}

/// Whether a line says already whose output is wrong: there is one such rank.
fn names_rank(line: &str, placement: &PlacementResult) -> bool {
    placement.first_wrong.as_ref().is_some_and(|first| line.ends_with(&format!(" on rank {}", first.rank)))
}

/// Of the first rank that has wrong elements: where they are, what the first one is, and what they turn out to be.
fn details(text: &mut String, placement: &PlacementResult, rank_is_known: bool) {
    let Some(first) = &placement.first_wrong else { return };
    let rank = if rank_is_known { String::new() } else { format!("rank {}, ", first.rank) };
    let mut index = format!("{rank}index {}", first.index);
    if !first.ranges.is_empty() {
        let _ = writeln!(text, "  where     {rank}{}", one_line(&first.ranges, 500));
        index = format!("index {}", first.index);
    }
    let _ = writeln!(text, "  first     {index}");
    let _ = writeln!(text, "  expected  {}", one_line(&first.expected, 200));
    let _ = writeln!(text, "  actual    {}", one_line(&first.actual, 200));
    if !first.explanation.is_empty() {
        let _ = writeln!(text, "  likely    {}", one_line(&first.explanation, 1000));
    }
}

/// Whether bandwidth is part of the story.
fn judged(case: &CaseResult) -> bool {
    matches!(case.kind, Some(FailKind::Slow | FailKind::TooFast)) || case.reference.status == Assertion::Warned
}

/// The reference range in words.
fn bounds(reference: &Judgement) -> String {
    let range = match (reference.lower_gbs, reference.upper_gbs) {
        (Some(low), Some(high)) => format!("should be {} to {}", gbs(low), gbs(high)),
        (Some(low), None) => format!("should be at least {}", gbs(low)),
        (None, Some(high)) => format!("should be at most {}", gbs(high)),
        (None, None) => "no range is known".to_owned(),
    };
    if reference.source.is_empty() { range } else { format!("{range} ({})", one_line(&reference.source, 500)) }
}

/// Why a case failed, in one line of at most about 200 bytes.
pub fn reason(case: &CaseResult) -> String {
    let first = case.message.lines().map(str::trim).find(|l| !l.is_empty());
    if let Some(first) = first {
        return one_line(first, 200);
    }
    if let Some(p) = case.placements.iter().find(|p| p.wrong.is_some_and(|w| w > 0)) {
        let at =
            p.first_wrong.as_ref().map_or(String::new(), |f| format!(", first at rank {}, index {}", f.rank, f.index));
        return format!("{} wrong elements {}{at}", p.wrong.unwrap_or(0), place(p));
    }
    if judged(case) {
        let busbw: Vec<String> = case.placements.iter().map(|p| gbs(p.busbw_gbs)).collect();
        return format!("busbw {} GB/s, {}", busbw.join(" and "), bounds(&case.reference));
    }
    String::new()
}

/// Measured times and bandwidths, short: ` 1701.31 us 315.56 GB/s, in-place 1709.77 us 314.00 GB/s`.
///
/// Of a fault that was found, what it was called and by what.
pub fn figures(case: &CaseResult) -> String {
    if let Some(fault) = case.fault.as_ref().filter(|_| case.outcome == Outcome::Pass) {
        return format!("{} (by {})", one_line(&fault.class, 100), detectors(fault));
    }
    let parts: Vec<String> = case
        .placements
        .iter()
        .map(|p| {
            let place = if p.in_place { "in-place " } else { "" };
            format!("{place}{} us {} GB/s", gbs(p.mean_us), gbs(p.busbw_gbs))
        })
        .collect();
    parts.join(", ")
}

/// All measured values, a line for each placement.
pub fn measured(case: &CaseResult) -> String {
    let mut text = String::new();
    for p in &case.placements {
        let _ = write!(
            text,
            "{}: mean {} us, algbw {} GB/s, busbw {} GB/s",
            place(p),
            gbs(p.mean_us),
            gbs(p.algbw_gbs),
            gbs(p.busbw_gbs)
        );
        if let Some(t) = &p.time_us {
            let _ = write!(
                text,
                ", launches: n {} min {} median {} p90 {} p99 {} max {} us, cv {:.3}",
                t.n,
                gbs(t.min),
                gbs(t.median),
                gbs(t.p90),
                gbs(t.p99),
                gbs(t.max),
                t.cv
            );
        }
        match p.wrong {
            Some(n) => {
                let _ = writeln!(text, ", wrong {n}");
            }
            None => text.push_str(", not checked\n"),
        }
    }
    if let Some(record) = &case.fault {
        text.push_str(&fault(record));
    } else if case.outcome != Outcome::Skip {
        let _ = writeln!(text, "bandwidth {}", judgement(&case.reference));
    }
    text
}

/// What became of a deliberate fault, over several lines.
pub fn fault(record: &FaultRecord) -> String {
    let mut text = format!("fault {} ({})\n", record.name, record.family.name());
    for deed in &record.armed {
        let _ = writeln!(text, "done: rank {} {}, {} times", deed.rank, one_line(&deed.what, 500), deed.times);
    }
    let _ = writeln!(text, "noticed by: {}", detectors(record));
    let _ = writeln!(text, "verdict: {}, ranks {}", one_line(&record.class, 500), ranks(&record.culprits));
    if !record.explanation.is_empty() {
        let _ = writeln!(text, "grounds: {}", one_line(&record.explanation, 1000));
    }
    let _ = writeln!(text, "after {:.2} s", record.seconds);
    text
}

/// What noticed a fault: `value, survivor`.
pub fn detectors(record: &FaultRecord) -> String {
    record.noticed_by.iter().map(|by| by.name()).collect::<Vec<_>>().join(", ")
}

/// `1, 3`.
pub fn ranks(ranks: &[u32]) -> String {
    ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

fn judgement(reference: &Judgement) -> String {
    let status = match reference.status {
        Assertion::Asserted => "asserted",
        Assertion::Published => "within a published figure, which is not asserted",
        Assertion::Warned => "warned: outside of a published figure",
        Assertion::Unasserted => "unasserted",
    };
    let mut text = status.to_owned();
    if reference.lower_gbs.is_some() || reference.upper_gbs.is_some() {
        let _ = write!(text, "; {}", bounds(reference));
    }
    if !reference.note.is_empty() {
        let _ = write!(text, "; {}", one_line(&reference.note, 500));
    }
    text
}

/// The placement's name.
pub fn place(placement: &PlacementResult) -> &'static str {
    if placement.in_place { "in-place" } else { "out-of-place" }
}

/// Two decimals, or `-` for what is no number.
fn gbs(value: f64) -> String {
    if value.is_finite() { format!("{value:.2}") } else { "-".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn a_wrong_element_is_told_with_rank_index_values_and_meaning() {
        let text = failure(&sample::wrong(), 1000);
        assert_eq!(
            text,
            format!(
                "out-of-place: 3 wrong elements on rank 1\n  where     elements 4711 to 4713\n  first     index 4711\n  \
                 expected  1.5 (0x3fc00000)\n  actual    3 (0x40400000)\n  likely    rank 0's contribution counts twice \
                 (all 3)\n{NEXT}\n1048576 bytes, 262144 elements, 2 ranks; ran RING/SIMPLE on 24 channels\n"
            )
        );
        assert_eq!(reason(&sample::wrong()), "out-of-place: 3 wrong elements on rank 1");
        let mut mute = sample::wrong();
        mute.message.clear();
        let elsewhere = text.replace(" on rank 1\n", "\n").replace("where     ", "where     rank 1, ");
        assert_eq!(failure(&mute, 1000), elsewhere);
        assert_eq!(reason(&mute), "3 wrong elements out-of-place, first at rank 1, index 4711");
    }

    /// A count is said once, whatever else the message says.
    #[test]
    fn lines_of_a_message_keep_their_order_and_details_follow_their_count() {
        let mut case = sample::wrong();
        case.message =
            "out-of-place, round 3 of 8 of the pipeline: 3 wrong elements on ranks 1 (2), 2 (1)\nout-of-place: \
                        rank 1 wrote outside its receive buffer"
                .into();
        let text = failure(&case, 1000);
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} in {text}"));
        assert!(at("round 3 of 8") < at("index 4711") && at("index 4711") < at("wrote outside"), "{text}");
        assert_eq!(text.matches("wrong element").count(), 1, "{text}");
        assert_eq!(text.matches("4711").count(), 2, "{text}");
    }

    #[test]
    fn a_slow_case_is_told_with_its_bounds_and_their_source() {
        let text = failure(&sample::slow(), 1000);
        assert!(
            text.contains("out-of-place: busbw 120.00 GB/s, should be 300.00 to 350.00 (golden/h200.json)"),
            "{text}"
        );
        assert!(reason(&sample::slow()).starts_with("busbw 120.00 and 119.00 GB/s, should be"));
    }

    #[test]
    fn a_message_is_cut_and_cleaned() {
        let mut case = sample::hang();
        case.message = format!("\x1b[31mNCCL\0 {}", "x".repeat(1 << 20));
        let text = failure(&case, 100);
        assert!(text.len() < 400 && text.starts_with("\\x1b[31mNCCL\\x00 xxx"), "{text}");
        assert!(text.contains("more bytes"));
        assert!(reason(&case).len() < 300);
    }

    #[test]
    fn figures_that_were_not_measured_are_dashes() {
        let mut case = sample::pass();
        case.placements.truncate(1);
        case.placements[0].mean_us = f64::NAN;
        case.placements[0].busbw_gbs = f64::INFINITY;
        assert_eq!(figures(&case), "- us - GB/s");
    }
}
