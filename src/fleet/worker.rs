//! A worker: one thread that drives one station through cases.

use super::drill;
use super::found::{self, Found};
use super::occasion::Launch;
use super::part::Inputs;
use super::pass::Pass;
use super::protocol::{Measured, Report, Request};
use super::timing::{self, Times, Trigger};
use crate::backend::{Placement, RankError, Station};

/// Where all workers of a communicator meet.
pub trait Meeting {
    /// Waits until all workers are here; true if every one of them said `well`.
    fn all_well(&self, well: bool) -> bool;
}

/// Runs one case on the station's lanes and reports for each of them.
pub fn run(station: &mut dyn Station, meeting: &dyn Meeting, request: &Request) -> Vec<Report> {
    let report = |&rank| Report { rank, placements: Vec::new(), error: None };
    let mut reports: Vec<Report> = station.ranks().iter().map(report).collect();
    for placement in [Placement::OutOfPlace, Placement::InPlace] {
        let Some(mut pass) = Pass::new(station, meeting, request, placement) else { continue };
        match place(&mut pass) {
            Ok(measured) => reports.iter_mut().zip(measured).for_each(|(report, m)| report.placements.push(m)),
            Err(error) => {
                reports.iter_mut().for_each(|report| report.error = Some(error.clone()));
                break;
            }
        }
    }
    reports
}

/// One placement: a plain launch, what the variants add to it, timing, and a last check.
fn place(pass: &mut Pass<'_>) -> Result<Vec<Measured>, RankError> {
    let drill = drill::of(pass);
    let (mut inputs, mut trigger) = (pass.inputs(0), Trigger::Calls);
    let mut found = open(pass, &inputs, drill.is_none())?;
    if let Some(drill) = drill {
        let drilled = drill(pass)?;
        (inputs, trigger) = (drilled.inputs, drilled.trigger);
        found = found::then(found, drilled.found);
    }

    let times = timing::time(pass, &inputs, trigger)?;
    // The same inputs give the same output again, unless the call has overwritten them.
    let repeatable = pass.placement == Placement::OutOfPlace || pass.request.case.op.is_none();
    if pass.request.iters > 0 && repeatable {
        let again = pass.collect(&inputs, &Launch::Timed);
        found = found::then(found, pass.agree(again)?);
    }
    Ok(found.into_iter().zip(times).map(|(found, times)| measured(pass.placement, found, times)).collect())
}

/// The first launch: always plain, on fresh inputs and a poisoned output, with all ranks waited for before and after.
///
/// What follows may be captured in a graph or queued in long chains, which is no place for a library to set up its
/// connections, nor for a refusal.
fn open(pass: &mut Pass<'_>, inputs: &Inputs, tamper: bool) -> Result<Vec<Found>, RankError> {
    let prepared = stage(pass, inputs);
    pass.agree(prepared)?;
    let launched = pass.launch(inputs);
    pass.agree(launched)?;
    let waited = pass.station.wait();
    pass.agree(waited)?;
    let damaged = if tamper { pass.tamper() } else { Ok(()) };
    let checked = damaged.and_then(|()| pass.collect(inputs, &Launch::First));
    pass.agree(checked)
}

fn stage(pass: &mut Pass<'_>, inputs: &Inputs) -> Result<(), RankError> {
    pass.prepare()?;
    pass.poison(inputs)?;
    pass.produce(inputs, false)?;
    pass.station.wait()
}

fn measured(placement: Placement, found: Found, times: Times) -> Measured {
    let Found { output, input, guard, occasion } = found;
    let Times { mean_us, iteration_us } = times;
    Measured { placement, mean_us, iteration_us, output, input, guard, occasion }
}
