//! Reports of all ranks -> one result.

mod agreement;

use super::known;
use super::result::{CaseResult, FailKind, FirstWrong, Judgement, Outcome, PlacementResult};
use crate::backend::{GuardBreach, Placement, RankError};
use crate::case::Case;
use crate::fleet::inquest::{Cause, Findings};
use crate::fleet::protocol::{Measured, Report};
use crate::measure::{bandwidth, stats};
use crate::oracle::forensics::Explanation;
use crate::oracle::show;

/// A result without figures: the frame that outcomes are put into.
pub fn frame(case: &Case, ranks: u32) -> CaseResult {
    let unit = case.primitive.unit();
    let workload = case.workload(ranks);
    let shape = unit.shape(&workload);
    CaseResult {
        name: case.name(),
        primitive: case.primitive,
        op: case.op,
        dtype: case.dtype,
        bytes: shape.send.max(shape.recv) * case.dtype.size(),
        count: shape.count,
        ranks,
        root: if unit.rooted() { i64::from(case.root()) } else { -1 },
        variants: case.variants.clone(),
        outcome: Outcome::Pass,
        kind: None,
        placements: Vec::new(),
        reference: Judgement::default(),
        path: None,
        message: String::new(),
        verdict: None,
        fault: None,
        duration_s: 0.0,
    }
}

/// Puts the reports of all ranks together.
pub fn assemble(case: &Case, ranks: u32, reports: &[Report], explain: &Explain<'_>) -> CaseResult {
    let mut result = frame(case, ranks);
    let mut wrong = Vec::new();
    for placement in [Placement::OutOfPlace, Placement::InPlace] {
        let measured: Vec<(u32, &Measured)> = reports
            .iter()
            .filter_map(|r| r.placements.iter().find(|m| m.placement == placement).map(|m| (r.rank, m)))
            .collect();
        if !measured.is_empty() && measured.len() == reports.len() {
            let figures = figures(case, ranks, placement, &measured, explain);
            let agreement = agreement::judge(case, ranks, &measured);
            wrong.extend(wrong_line(&measured).or(agreement.complaint));
            let (agree, repeats) = (agreement.agree, agreement.repeats);
            result.placements.push(PlacementResult { agree, repeats, ..figures });
        }
    }
    let damage = reports.iter().flat_map(|r| r.placements.iter().flat_map(|m| damage(r.rank, m)));
    wrong.extend(damage);
    // the first cause, not the ranks that stopped because of it
    let cause = reports
        .iter()
        .filter_map(|r| r.error.as_ref().map(|e| (r.rank, e)))
        .min_by_key(|(rank, error)| (**error == RankError::Aborted, *rank));
    if let Some((rank, error)) = cause {
        failed(&mut result, case, rank, error, ranks);
        wrong.extend((!wrong.is_empty()).then(|| result.message.clone()));
    }
    if !wrong.is_empty() {
        // also where the rest of the case could not be done: wrong data are not skipped
        result.outcome = Outcome::Fail;
        result.kind.get_or_insert(FailKind::Data);
        result.message = wrong.join("\n");
    } else if result.outcome == Outcome::Skip {
        result.placements.clear(); // half a measurement is none
    }
    result
}

/// Tells what the wrong elements of one rank's output are.
pub type Explain<'a> = dyn Fn(u32, &Measured) -> Option<Explanation> + 'a;

fn figures(
    case: &Case,
    ranks: u32,
    placement: Placement,
    measured: &[(u32, &Measured)],
    explain: &Explain<'_>,
) -> PlacementResult {
    let unit = case.primitive.unit();
    // nothing, where one of them was not timed
    let timed = measured.iter().all(|(_, m)| m.mean_us > 0.0);
    let mean_us =
        if timed { measured.iter().map(|(_, m)| m.mean_us).sum::<f64>() / measured.len() as f64 } else { 0.0 };
    // a launch has ended when its last rank has
    let launches = measured.iter().map(|(_, m)| m.iteration_us.len()).min().unwrap_or(0);
    let slowest: Vec<f64> = (0..launches)
        .map(|i| measured.iter().filter_map(|(_, m)| m.iteration_us.get(i)).fold(0.0f64, |a, &b| a.max(f64::from(b))))
        .collect();
    let bytes = unit.algbw_bytes(&case.workload(ranks));
    let checked = measured.iter().any(|(_, m)| m.output.is_some());
    let wrong = measured.iter().filter_map(|(_, m)| m.output.as_ref()).map(|v| v.wrong).sum();
    let first_wrong = measured.iter().find_map(|(rank, m)| {
        let verdict = m.output.as_ref()?;
        let first = verdict.first?;
        let explanation = explain(*rank, m);
        // of one element the index says it all
        let ranges = explanation.as_ref().filter(|_| verdict.wrong > 1).map(|e| e.shape.to_string());
        Some(FirstWrong {
            rank: *rank,
            index: first.index,
            expected: show(m.occasion.dtype, first.expected),
            actual: show(m.occasion.dtype, first.actual),
            ranges: ranges.unwrap_or_default(),
            explanation: explanation.map(|e| e.to_string()).unwrap_or_default(),
        })
    });
    PlacementResult {
        in_place: placement == Placement::InPlace,
        mean_us,
        time_us: stats::time_stats(&slowest),
        algbw_gbs: bandwidth::algbw_gbs(bytes, mean_us),
        busbw_gbs: bandwidth::busbw_gbs(bytes, unit.busbw_factor(ranks), mean_us),
        wrong: checked.then_some(wrong),
        first_wrong,
        agree: None,
        repeats: None,
    }
}

/// Where and when: `out-of-place`, or `in-place, round 3 of 8 of the pipeline`.
fn place(m: &Measured) -> String {
    let place = if m.placement == Placement::InPlace { "in-place" } else { "out-of-place" };
    let occasion = m.occasion.to_string();
    if occasion.is_empty() { place.to_owned() } else { format!("{place}, {occasion}") }
}

/// Ranks with wrong elements that are named one by one.
const NAMED: usize = 8;

/// How many wrong elements one placement has on which ranks, on the occasion on which the first of these saw them.
fn wrong_line(measured: &[(u32, &Measured)]) -> Option<String> {
    let wrong = |m: &Measured| m.output.as_ref().map_or(0, |verdict| verdict.wrong);
    let hit: Vec<(u32, u64)> = measured.iter().map(|(rank, m)| (*rank, wrong(m))).filter(|(_, n)| *n > 0).collect();
    let (_, first) = measured.iter().find(|(_, m)| wrong(m) > 0)?;
    let total: u64 = hit.iter().map(|(_, n)| n).sum();
    let on = match hit[..] {
        [(rank, _)] => format!("rank {rank}"),
        _ if hit.len() == measured.len() => format!("all {} ranks", hit.len()),
        _ => {
            let named: Vec<String> = hit.iter().take(NAMED).map(|(rank, n)| format!("{rank} ({n})")).collect();
            let more = hit.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("ranks {}{more}", named.join(", "))
        }
    };
    Some(format!("{}: {total} wrong element{} on {on}", place(first), if total == 1 { "" } else { "s" }))
}

/// Damage beside the output: an input that was wrong before the call, a send buffer, an untouched region or a guard zone that
/// was written to.
fn damage(rank: u32, m: &Measured) -> Vec<String> {
    let mut lines = Vec::new();
    let place = place(m);
    lines.extend(given_line(rank, m));
    if let Some(verdict) = m.input.as_ref().filter(|v| v.wrong > 0) {
        let mut line =
            format!("{place}: {} elements that the call must leave alone changed on rank {rank}", verdict.wrong);
        if let Some(first) = verdict.first {
            let (was, is) = (show(m.occasion.dtype, first.expected), show(m.occasion.dtype, first.actual));
            line += &format!(", first at index {}: was {was}, is {is}", first.index);
        }
        lines.push(line);
    }
    if let Some(GuardBreach { recv, offset }) = m.guard {
        let buffer = if recv { "receive" } else { "send" };
        let side = if offset < 0 { "before its start" } else { "past its end" };
        lines.push(format!(
            "{place}: rank {rank} wrote outside its {buffer} buffer, {side}: byte {offset} from its base"
        ));
    }
    lines
}

/// An input that was wrong before the call: the result is not the collective's fault then.
fn given_line(rank: u32, m: &Measured) -> Option<String> {
    let verdict = m.given.as_ref().filter(|v| v.wrong > 0)?;
    let mut line = format!("{} elements of rank {rank}'s input were wrong before the call", verdict.wrong);
    if let Some(first) = verdict.first {
        let (was, is) = (show(m.occasion.dtype, first.expected), show(m.occasion.dtype, first.actual));
        line += &format!(", first at index {}: {is} in place of {was}", first.index);
    }
    Some(line)
}

/// A case that was given up: it hung, or lost a rank.
pub fn stopped(case: &Case, ranks: u32, findings: &Findings) -> CaseResult {
    let kind = match findings.cause {
        Cause::Deadline(_) | Cause::Silent(_) => FailKind::Hang,
        Cause::Died(_) => FailKind::Crash,
    };
    CaseResult {
        outcome: Outcome::Fail,
        kind: Some(kind),
        message: findings.message.clone(),
        verdict: Some(findings.diagnosis.verdict.clone()),
        ..frame(case, ranks)
    }
}

/// A case that could not be carried through.
fn failed(result: &mut CaseResult, case: &Case, rank: u32, error: &RankError, ranks: u32) {
    let (outcome, kind, message) = match error {
        RankError::Unsupported(why) => (Outcome::Skip, None, why.clone()),
        RankError::Memory { .. } => (Outcome::Skip, None, format!("does not fit in memory: {error}")),
        RankError::Refused { .. } => match known::refusal(case, ranks) {
            Some(why) => (Outcome::Skip, None, format!("refused by the library: {error}; {why}")),
            None => (Outcome::Fail, Some(FailKind::Error), format!("rank {rank}: {error}")),
        },
        RankError::Broken { .. } | RankError::Aborted => {
            (Outcome::Fail, Some(FailKind::Error), format!("rank {rank}: {error}"))
        }
    };
    result.outcome = outcome;
    result.kind = kind;
    result.message = message;
}
