//! What the figures of a case are worth: asserted where there is a reference, and measured again where they do not hold.
//!
//! One stall of the host within a few launches makes a case look several times as slow as it is: on two GPUs it happened to one of
//! 707 asserted cases of five launches each (docs/measurements.md). What is wrong with a machine is still wrong a moment later. So
//! of three measurements the median counts, and what all of them were is told.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::Session;
use crate::case::Case;
use crate::reference::{Judged, Observed, Subject, missing_reference};
use crate::run::launches::combine;
use crate::run::result::{CaseResult, FailKind, Outcome};

/// Why the bandwidth of cases behind it is not asserted.
const BESIDE: &str = "its ranks were processes beside threads that are stuck in the library: run it again alone";

/// Measurements of a case that was outside of its range the first time.
const MEASUREMENTS: usize = 3;

/// Cases that may turn out to be as they seemed until none is measured again: then it is the machine.
const CONFIRMED: u32 = 8;

impl Session {
    /// Runs a case, again where its figures fail it. What to say of that, if it was.
    pub(super) fn measured(&mut self, case: &Case) -> (CaseResult, Option<String>) {
        let (result, note) = self.settled(case);
        self.learn(case, &result);
        (result, note)
    }

    /// Takes in how fast a case was, for the deadlines of those that follow.
    pub(super) fn learn(&mut self, case: &Case, result: &CaseResult) {
        if result.outcome == Outcome::Pass {
            self.seen.add(case, result.ranks, result.placements.iter().map(|placement| placement.mean_us));
        }
    }

    fn settled(&mut self, case: &Case) -> (CaseResult, Option<String>) {
        let first = self.timed(case);
        if self.confirmed >= CONFIRMED || !self.outside(case, &first) {
            return (first, None);
        }
        let mut measured = vec![first];
        while measured.len() < MEASUREMENTS && self.stop.is_none() && !self.interrupt.load(Ordering::Relaxed) {
            let start = Instant::now();
            let mut result = self.run(case);
            result.duration_s = start.elapsed().as_secs_f64();
            match result.outcome {
                Outcome::Pass => measured.push(result),
                Outcome::Skip => break, // interrupted
                Outcome::Fail => {
                    result.duration_s += measured.iter().map(|m| m.duration_s).sum::<f64>();
                    return (result, Some(told(&measured)));
                }
            }
        }
        let mut note = told(&measured);
        let result = match measured.iter().position(|result| !self.outside(case, result)) {
            _ if measured.len() == MEASUREMENTS => {
                note += "; the median counts";
                combine(measured)
            }
            // interrupted: one that holds is enough
            Some(inside) => measured.swap_remove(inside),
            None => measured.swap_remove(0),
        };
        self.confirmed += u32::from(self.outside(case, &result));
        (result, Some(note))
    }

    /// How the figures of a case stand to what is known.
    fn assess(&self, case: &Case, result: &CaseResult) -> Judged {
        if self.stuck {
            return Judged::not(BESIDE);
        }
        self.references.judge(&Subject {
            environment: &self.environment,
            observed: Observed::default(),
            case,
            ranks: self.environment.ranks,
            bytes: result.bytes,
            placements: &result.placements,
            path: result.path.as_ref(),
        })
    }

    /// Asserts bandwidth, where the case passed so far and there is something to assert.
    pub(super) fn judge(&self, case: &Case, result: &mut CaseResult) {
        if !measures(case, result) {
            return;
        }
        let judged = self.assess(case, result);
        result.reference = judged.judgement;
        let missing = || {
            let required = self.plan.require_reference;
            required.then(|| missing_reference(&result.reference)).flatten().map(|why| (FailKind::Error, why))
        };
        if let Some((kind, message)) = judged.failure.or_else(missing) {
            result.outcome = Outcome::Fail;
            result.kind = Some(kind);
            result.message = message;
        }
    }

    fn outside(&self, case: &Case, result: &CaseResult) -> bool {
        measures(case, result) && self.assess(case, result).failure.is_some()
    }
}

/// Whether there are figures that could be judged: a case with a fault has none, and one that failed has other worries.
fn measures(case: &Case, result: &CaseResult) -> bool {
    result.outcome == Outcome::Pass && case.fault().is_none()
}

/// `measured 3 times: 40.35, 199.02, 198.71 GB/s out of place`.
fn told(measured: &[CaseResult]) -> String {
    let of = |in_place: bool| {
        let figures = measured.iter().flat_map(|result| &result.placements).filter(|p| p.in_place == in_place);
        let figures: Vec<String> = figures.map(|p| format!("{:.2}", p.busbw_gbs)).collect();
        let place = if in_place { "in place" } else { "out of place" };
        (!figures.is_empty()).then(|| format!("{} GB/s {place}", figures.join(", ")))
    };
    let figures: Vec<String> = [false, true].into_iter().filter_map(of).collect();
    let times = if measured.len() == 1 { "once".to_owned() } else { format!("{} times", measured.len()) };
    format!("measured {times}: {}", figures.join("; "))
}
