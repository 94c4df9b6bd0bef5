//! What detectors say of a request, whether it carries a fault or not.

use crate::fault::{Detector, Name, Sighting};
use crate::fleet::inquest::Cause;
use crate::fleet::protocol::{Measured, Report, Request};
use crate::fleet::team::Ended;
use crate::oracle::forensics::Fault;
use crate::run::explain::explain;
use crate::run::result::CaseResult;
use crate::trace::{Class, Verdict};

/// Everything that was noticed, detector by detector. `result` is what the engine made of the same answer.
pub fn sightings(request: &Request, ended: &Ended, result: &CaseResult) -> Vec<Sighting> {
    match ended {
        Ended::Reported(reports) => {
            let mut all = values(request, reports);
            all.extend(places(reports));
            all.extend(result.verdict.as_ref().map(|verdict| of(whose(verdict, reports), verdict)));
            all
        }
        Ended::Stopped(findings) => {
            let by = match findings.cause {
                Cause::Deadline(_) => Detector::Deadline,
                Cause::Died(_) | Cause::Silent(_) => Detector::Death,
            };
            vec![of(by, &findings.diagnosis.verdict)]
        }
        Ended::Interrupted => Vec::new(),
    }
}

/// Who has found it: a verdict on the surroundings comes of the errors that calls have returned, and one on the calls of their
/// comparison.
fn whose(verdict: &Verdict, reports: &[Report]) -> Detector {
    let failed = reports.iter().any(|report| report.error.is_some());
    match verdict.class {
        Class::FFabric | Class::Init if failed => Detector::Error,
        _ => Detector::Alignment,
    }
}

fn of(by: Detector, verdict: &Verdict) -> Sighting {
    Sighting {
        by,
        name: Name::Class(verdict.class, verdict.candidates.clone()),
        culprits: verdict.culprit_ranks.clone(),
        says: verdict.summary.clone(),
    }
}

fn wrong(m: &Measured) -> bool {
    m.output.as_ref().is_some_and(|verdict| verdict.wrong > 0)
}

/// Wrong outputs: explained by the first of them, and laid to whom that names, else to the ranks that have them. One sighting
/// for each explanation that is as good as the first, as of two ranks one's input is the other's missing.
fn values(request: &Request, reports: &[Report]) -> Vec<Sighting> {
    let measured = || reports.iter().flat_map(|report| report.placements.iter().map(|m| (report.rank, m)));
    let Some((rank, first)) = measured().find(|(_, m)| wrong(m)) else { return Vec::new() };
    let explained = explain(request, rank, first);
    let findings = explained.as_ref().map_or(&[][..], |explanation| &explanation.findings);
    let best = findings.first().map_or(&[][..], |finding| &finding.alternatives);
    let faults: Vec<Fault> = findings.first().map(|f| f.fault).into_iter().chain(best.iter().copied()).collect();
    let here = || measured().filter(|(_, m)| m.placement == first.placement && m.output.is_some());
    let bad: Vec<u32> = here().filter(|(_, m)| wrong(m)).map(|(rank, _)| rank).collect();
    // what all have may be anybody's
    let everywhere = bad.len() == here().count();
    let says = explained.as_ref().map(|explanation| format!("rank {rank}: {explanation}")).unwrap_or_default();
    let sighting = |fault: Option<Fault>| {
        let culprits = match fault.as_ref().and_then(contributor) {
            Some(rank) => vec![rank],
            None if everywhere => Vec::new(),
            None => bad.clone(),
        };
        Sighting { by: Detector::Value, name: Name::Values(fault), culprits, says: says.clone() }
    };
    if faults.is_empty() { vec![sighting(None)] } else { faults.into_iter().map(Some).map(sighting).collect() }
}

/// Whose contribution a fault is about.
fn contributor(fault: &Fault) -> Option<u32> {
    match fault {
        Fault::Missing(rank)
        | Fault::Doubled(rank)
        | Fault::Slot { rank, .. }
        | Fault::StaleContribution { rank, .. }
        | Fault::MovedContribution { rank, .. } => Some(*rank),
        _ => None,
    }
}

/// Damage that is told by where it is.
fn places(reports: &[Report]) -> Vec<Sighting> {
    let has = |what: fn(&Measured) -> bool| -> Vec<u32> {
        reports.iter().filter(|report| report.placements.iter().any(what)).map(|report| report.rank).collect()
    };
    let damaged = |verdict: &Option<crate::backend::Verdict>| verdict.as_ref().is_some_and(|v| v.wrong > 0);
    let all = [
        (
            Detector::Input,
            has(|m| m.given.as_ref().is_some_and(|v| v.wrong > 0)),
            "its input was wrong before the call",
        ),
        (Detector::Guard, has(|m| m.guard.is_some()), "the zone around its buffers was written to"),
    ];
    // a wrong input stays wrong: that the call has changed it is known only where it was right before
    let survivor = |report: &&Report| report.placements.iter().any(|m| damaged(&m.input) && !damaged(&m.given));
    let changed: Vec<u32> = reports.iter().filter(survivor).map(|report| report.rank).collect();
    let all = all.into_iter().chain([(Detector::Survivor, changed, "what the call must leave alone has changed")]);
    all.filter(|(_, ranks, _)| !ranks.is_empty())
        .map(|(by, culprits, says)| Sighting { by, name: Name::Place, culprits, says: says.to_owned() })
        .collect()
}
