//! A worker: one thread that drives one station through cases.

use super::drill::{self, Drill};
use super::found::{self, Found};
use super::occasion::Launch;
use super::part::Inputs;
use super::pass::Pass;
use super::protocol::{Bits, Measured, Report, Request};
use super::timing::{self, Times, Trigger};
use crate::backend::{Placement, RankError, Station, Verdict};
use crate::fault::Armed;

/// Where all workers of a communicator meet.
pub trait Meeting: Sync {
    /// Waits until all workers are here; true if every one of them said `well`.
    fn all_well(&self, well: bool) -> bool;

    /// Notes that this worker is about to do a deliberate fault, where it is seen whatever becomes of the worker.
    fn armed(&self) {}
}

/// Runs one case on the station's lanes and reports for each of them.
pub fn run(station: &mut dyn Station, meeting: &dyn Meeting, request: &Request) -> Vec<Report> {
    let Some(order) = &request.fault else { return carry_out(station, meeting, request) };
    match Armed::new(station, meeting, request, order) {
        Ok(mut armed) => {
            let reports = carry_out(&mut armed, meeting, request);
            armed.end();
            reports
        }
        Err((ranks, error)) => {
            ranks.into_iter().map(|rank| Report { rank, placements: Vec::new(), error: Some(error.clone()) }).collect()
        }
    }
}

fn carry_out(station: &mut dyn Station, meeting: &dyn Meeting, request: &Request) -> Vec<Report> {
    let report = |&rank| Report { rank, placements: Vec::new(), error: None };
    let mut reports: Vec<Report> = station.ranks().iter().map(report).collect();
    let mut so_far = Ok(());
    for placement in [Placement::OutOfPlace, Placement::InPlace] {
        let Some(mut pass) = Pass::new(station, meeting, request, placement) else { continue };
        match place(&mut pass, so_far) {
            Ok((measured, end)) => {
                reports.iter_mut().zip(measured).for_each(|(report, m)| report.placements.push(m));
                so_far = end;
            }
            // so have all others
            Err(error) => {
                so_far = Err(error);
                break;
            }
        }
    }
    if let Err(error) = so_far {
        reports.iter_mut().for_each(|report| report.error = Some(error.clone()));
    }
    reports
}

/// One placement: a plain launch, what the variants add to it, timing, and a last check. `so_far` is what came of the placement
/// before, which other ranks do not know yet: ranks meet where a placement begins, not where it ends.
///
/// An error is one on all ranks. What was found before another one is returned with it: wrong data must not pass for something
/// that cannot be done here.
fn place(
    pass: &mut Pass<'_>,
    so_far: Result<(), RankError>,
) -> Result<(Vec<Measured>, Result<(), RankError>), RankError> {
    let drill = drill::of(pass);
    let inputs = pass.inputs(0);
    let (given, mut lanes) = open(pass, so_far, &inputs, drill.is_none())?;
    let (times, end) = match carry_on(pass, inputs, drill, &mut lanes) {
        Ok(times) => (times, Ok(())),
        Err(error) => (vec![Times::default(); lanes.found.len()], Err(error)),
    };
    let placement = pass.placement;
    let Results { found, bits } = lanes;
    let lanes = found.into_iter().zip(bits).zip(times).zip(given);
    let measured = lanes.map(|(((found, bits), times), given)| {
        let Found { output, input, guard, occasion } = found;
        let Times { mean_us, iteration_us } = times;
        Measured { placement, mean_us, iteration_us, given, output, input, guard, bits, occasion }
    });
    Ok((measured.collect(), end))
}

/// What is known of results, lane by lane.
struct Results {
    found: Vec<Found>,
    bits: Vec<Option<Bits>>,
}

/// All that comes after the first launch; what is found is added to `results`.
fn carry_on(
    pass: &mut Pass<'_>,
    mut inputs: Inputs,
    drill: Option<Drill>,
    results: &mut Results,
) -> Result<Vec<Times>, RankError> {
    let mut trigger = Trigger::Calls;
    let drilled = drill.is_some();
    if let Some(drill) = drill {
        let drilled = drill(pass)?;
        (inputs, trigger) = (drilled.inputs, drilled.trigger);
        found::add(&mut results.found, drilled.found);
    }
    let Request { iters, .. } = *pass.request;
    if iters == 0 {
        return Ok(vec![Times::default(); pass.lanes()]);
    }
    // The same inputs give the same output again, unless the call has overwritten them.
    let repeatable = pass.placement == Placement::OutOfPlace || pass.request.case.op.is_none();
    let times = timing::time(pass, &inputs, trigger)?;
    if repeatable {
        found::add(&mut results.found, pass.collect(&inputs, &Launch::Timed)?);
        let bits = pass.fingerprints(&inputs)?;
        if !drilled {
            let both = results.bits.iter_mut().zip(bits);
            both.for_each(|(known, again)| known.iter_mut().for_each(|known| known.again = again));
        }
    }
    Ok(times)
}

/// The first launch: always plain, on fresh inputs and a poisoned output. All ranks have made their inputs before it; each
/// looks at its result as soon as the library says that it is there.
///
/// What follows may be captured in a graph or queued in long chains, which is no place for a library to set up its
/// connections, nor for a refusal.
///
/// Inputs are checked before it, so that a wrong one is not taken for a wrong result. Behind it ranks meet once more: no rank goes
/// on before the result is there on all, so that a call which is missing or wrong is not mixed up with those that follow.
fn open(
    pass: &mut Pass<'_>,
    so_far: Result<(), RankError>,
    inputs: &Inputs,
    tamper: bool,
) -> Result<(Vec<Option<Verdict>>, Results), RankError> {
    let so_far = if pass.is_entered_together() { Ok(pass.agree(so_far)?) } else { so_far };
    let prepared = so_far.and_then(|()| stage(pass, inputs)).and_then(|()| pass.inspect(inputs));
    let given = pass.agree(prepared)?;
    let checked = pass.launch(inputs).and_then(|()| check(pass, inputs, tamper));
    let (found, bits) = pass.agree(checked)?;
    let bits = bits.into_iter().map(|bits| bits.map(|first| Bits { first, again: None })).collect();
    Ok((given, Results { found, bits }))
}

/// Waits for the first launch, and looks at what it leaves behind.
fn check(pass: &mut Pass<'_>, inputs: &Inputs, tamper: bool) -> Result<(Vec<Found>, Vec<Option<u64>>), RankError> {
    pass.station.wait()?;
    if tamper {
        pass.tamper()?;
    }
    Ok((pass.collect(inputs, &Launch::First)?, pass.fingerprints(inputs)?))
}

fn stage(pass: &mut Pass<'_>, inputs: &Inputs) -> Result<(), RankError> {
    pass.prepare()?;
    pass.poison(inputs)?;
    pass.produce(inputs, false)?;
    pass.station.wait()
}
