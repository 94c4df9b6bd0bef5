//! A worker: one thread that drives one station through cases.

use std::time::Instant;

use super::protocol::{Measured, Report, Request, Tamper};
use super::staging::{Piece, Staging, What};
use crate::backend::{Call, Content, Need, Placement, RankError, Region, Station, Verdict};
use crate::case::DType;
use crate::oracle::Plan;

/// Where all workers of a communicator meet.
pub trait Meeting {
    /// Waits until all workers are here; true if every one of them said `well`.
    fn all_well(&self, well: bool) -> bool;
}

/// Runs one case on the station's lanes and reports for each of them.
pub fn run(station: &mut dyn Station, meeting: &dyn Meeting, request: &Request) -> Vec<Report> {
    let ranks = station.ranks().to_vec();
    let mut reports: Vec<Report> =
        ranks.iter().map(|&rank| Report { rank, placements: Vec::new(), error: None }).collect();
    for placement in [Placement::OutOfPlace, Placement::InPlace] {
        let stagings: Option<Vec<Staging>> =
            ranks.iter().map(|&rank| Staging::new(&request.case, request.ranks, rank, placement)).collect();
        let Some(stagings) = stagings else { continue };
        match Pass::new(station, meeting, request, placement, &stagings).run() {
            Ok(measured) => reports.iter_mut().zip(measured).for_each(|(report, m)| report.placements.push(m)),
            Err(error) => {
                reports.iter_mut().for_each(|report| report.error = Some(error.clone()));
                break;
            }
        }
    }
    reports
}

/// One placement of one case.
struct Pass<'a> {
    station: &'a mut dyn Station,
    meeting: &'a dyn Meeting,
    request: &'a Request,
    placement: Placement,
    stagings: &'a [Staging],
    plan: Plan,
    filler: Plan,
}

impl<'a> Pass<'a> {
    fn new(
        station: &'a mut dyn Station,
        meeting: &'a dyn Meeting,
        request: &'a Request,
        placement: Placement,
        stagings: &'a [Staging],
    ) -> Self {
        let case = &request.case;
        let epoch = 2 * request.epoch + u64::from(placement == Placement::InPlace);
        let plan = |op| Plan::new(request.seed, case.primitive, op, case.dtype, request.ranks, epoch);
        // data movement of the next seed: noise that no other plan of this case makes
        let filler = Plan::new(!request.seed, case.primitive, None, case.dtype, request.ranks, epoch);
        Pass { station, meeting, request, placement, stagings, plan: plan(case.op), filler }
    }

    fn run(mut self) -> Result<Vec<Measured>, RankError> {
        let prepared = self.prepare();
        self.agree(prepared)?;

        // The first launch is always checked, on fresh inputs and a poisoned output. All meet before anyone waits: a rank
        // whose launch was refused would be waited for in vain.
        let launched = self.launch();
        self.agree(launched)?;
        let waited = self.station.wait();
        self.agree(waited)?;
        let checked = self.tamper().and_then(|()| self.collect());
        let mut found = self.agree(checked)?;

        let times = self.time()?;
        // The same inputs give the same output again, unless the call has overwritten them.
        let repeatable = self.placement == Placement::OutOfPlace || self.request.case.op.is_none();
        if self.request.iters > 0 && repeatable {
            let again = self.collect();
            let again = self.agree(again)?;
            found.iter_mut().zip(again).for_each(|(first, second)| first.take_worse(second));
        }
        Ok(found
            .into_iter()
            .zip(times)
            .map(|(f, (mean_us, iteration_us))| self.measured(f, mean_us, iteration_us))
            .collect())
    }

    fn prepare(&mut self) -> Result<(), RankError> {
        let send = self.stagings.iter().map(|s| s.send_bytes).max().unwrap_or(0);
        let recv = self.stagings.iter().map(|s| s.recv_bytes).max().unwrap_or(0);
        self.station.prepare(&Need::of(&self.request.case, send, recv))?;
        if !self.request.check {
            return Ok(());
        }
        for (lane, staging) in self.stagings.iter().enumerate() {
            for piece in &staging.before {
                let region = region(&self.plan, &self.filler, piece);
                self.station.fill(lane, &region)?;
            }
            for piece in &staging.poison {
                let region = region(&self.plan, &self.filler, piece);
                self.station.poison(lane, &region)?;
            }
        }
        self.station.wait()
    }

    fn launch(&mut self) -> Result<(), RankError> {
        self.station.launch(&[call(self.request, self.placement, &self.plan)])
    }

    fn tamper(&mut self) -> Result<(), RankError> {
        let Some(Tamper { rank, index, bit }) = self.request.tamper else { return Ok(()) };
        let dtype = self.request.case.dtype;
        let Some(lane) = self.station.ranks().iter().position(|&r| r == rank) else { return Ok(()) };
        let Some(staging) = self.stagings.get(lane).filter(|s| s.outputs() > 0) else { return Ok(()) };
        let mut left = index % staging.outputs();
        for piece in &staging.output {
            if left < piece.len {
                let xor = 1u64 << (u64::from(bit) % (8 * dtype.size()));
                return self.station.tamper(lane, piece.buffer, dtype, piece.start + left, xor);
            }
            left -= piece.len;
        }
        Ok(())
    }

    /// Checks outputs, survivors and guard zones of all lanes.
    fn collect(&mut self) -> Result<Vec<Found>, RankError> {
        let dtype = self.request.case.dtype;
        let mut all = Vec::with_capacity(self.stagings.len());
        for (lane, staging) in self.stagings.iter().enumerate() {
            if !self.request.check {
                all.push(Found::default());
                continue;
            }
            let output = self.check(lane, &staging.output, dtype)?;
            let input = self.check(lane, &staging.survives, dtype)?;
            let guard = self.station.guards(lane)?;
            all.push(Found { output, input, guard });
        }
        Ok(all)
    }

    fn check(&mut self, lane: usize, pieces: &[Piece], dtype: DType) -> Result<Option<Verdict>, RankError> {
        if pieces.is_empty() {
            return Ok(None);
        }
        for piece in pieces {
            let region = region(&self.plan, &self.filler, piece);
            self.station.check(lane, &region)?;
        }
        self.station.verdict(lane, dtype).map(Some)
    }

    /// Times launches twice: by the host's clock over all of them, as nccl-tests does, and singly by device marks. Apart,
    /// since a mark costs about as much as a small launch.
    fn time(&mut self) -> Result<Vec<(f64, Vec<f32>)>, RankError> {
        if self.request.iters == 0 {
            return Ok(vec![(0.0, Vec::new()); self.stagings.len()]);
        }
        let warm = self.warm_up();
        self.agree(warm)?;
        let mean_us = self.time_by_clock();
        let mean_us = self.agree(mean_us)?;
        let intervals = self.time_by_marks();
        let intervals = self.agree(intervals)?;
        Ok(intervals.into_iter().map(|single| (mean_us, single)).collect())
    }

    fn warm_up(&mut self) -> Result<(), RankError> {
        for _ in 0..self.request.warmup {
            self.launch()?;
        }
        self.station.wait()
    }

    fn time_by_clock(&mut self) -> Result<f64, RankError> {
        let call = [call(self.request, self.placement, &self.plan)];
        let start = Instant::now();
        for _ in 0..self.request.iters {
            self.station.launch(&call)?;
        }
        self.station.wait()?;
        Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(self.request.iters))
    }

    fn time_by_marks(&mut self) -> Result<Vec<Vec<f32>>, RankError> {
        let call = [call(self.request, self.placement, &self.plan)];
        self.station.mark()?;
        for _ in 0..self.request.iters {
            self.station.launch(&call)?;
            self.station.mark()?;
        }
        self.station.intervals()
    }

    fn measured(&self, found: Found, mean_us: f64, iteration_us: Vec<f32>) -> Measured {
        Measured {
            placement: self.placement,
            mean_us,
            iteration_us,
            output: found.output,
            input: found.input,
            guard: found.guard,
        }
    }

    /// Goes on only if all workers do, so that none waits for one that has given up.
    fn agree<T>(&self, mine: Result<T, RankError>) -> Result<T, RankError> {
        let all = self.meeting.all_well(mine.is_ok());
        let mine = mine?;
        if all { Ok(mine) } else { Err(RankError::Aborted) }
    }
}

/// What checks found on one lane.
#[derive(Default)]
struct Found {
    output: Option<Verdict>,
    input: Option<Verdict>,
    guard: Option<crate::backend::GuardBreach>,
}

impl Found {
    fn take_worse(&mut self, other: Found) {
        let worse = |mine: &mut Option<Verdict>, theirs: Option<Verdict>| {
            let wrong = |v: &Option<Verdict>| v.as_ref().map_or(0, |v| v.wrong);
            if wrong(&theirs) > wrong(mine) {
                *mine = theirs;
            }
        };
        worse(&mut self.output, other.output);
        worse(&mut self.input, other.input);
        self.guard = self.guard.or(other.guard);
    }
}

fn call<'a>(request: &'a Request, placement: Placement, plan: &'a Plan) -> Call<'a> {
    Call { case: &request.case, workload: request.case.workload(request.ranks), placement, plan, base: 0 }
}

fn region<'a>(plan: &'a Plan, filler: &'a Plan, piece: &Piece) -> Region<'a> {
    let (plan, content) = match piece.what {
        What::Data(content) => (plan, content),
        What::Filler => (filler, Content::Input { rank: 0, element: piece.start }),
    };
    Region { buffer: piece.buffer, start: piece.start, len: piece.len, plan, content, base: 0 }
}
