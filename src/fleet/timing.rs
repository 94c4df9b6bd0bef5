//! How long launches take.

use std::time::Instant;

use super::part::{self, Inputs};
use super::pass::Pass;
use super::protocol::Request;
use crate::backend::{Call, RankError, Station};
use crate::case::Variant;

/// How a launch is triggered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// By the library's calls.
    Calls,
    /// By a replay of a graph that holds them.
    Replay,
}

/// Times of one lane.
#[derive(Debug, Clone, Default)]
pub struct Times {
    /// Mean time of a call by the host's clock.
    pub mean_us: f64,
    /// Device time of each launch, divided by its calls.
    pub iteration_us: Vec<f32>,
}

/// Bytes from which the same launches are timed both ways. Two H200 with NVLink take 140 us for that many: a mark, of
/// about one, is within a per cent.
const LONG: u64 = 32 << 20;

/// Times launches twice: by the host's clock over all of them, as nccl-tests does, and singly by device marks. Apart where
/// launches are short, since a mark costs about as much as a small one; together where they are long, since they are most
/// of what a run takes.
///
/// A group counts as many times as it has calls, as under nccl-tests' `-m`.
///
/// Ranks do not meet in between: one that cannot launch leaves the others waiting anyway, until it says so.
pub fn time(pass: &mut Pass<'_>, inputs: &Inputs, trigger: Trigger) -> Result<Vec<Times>, RankError> {
    let Request { warmup, iters, .. } = *pass.request;
    // alone, a rank may have nothing to do, however much that is
    let long = pass.request.case.size.0 >= LONG && pass.request.ranks > 1;
    // Of long launches, the first of the placement and the one that the clock starts behind are among the warm-ups.
    let warmup = if long { warmup.saturating_sub(2) } else { warmup };
    let mut shots = Shots::of(pass, inputs, trigger);
    shots.warm_up(warmup)?;
    let (mean_us, intervals) =
        if long { shots.by_both(iters)? } else { (shots.by_clock(iters)?, shots.by_marks(iters)?) };
    let calls = pass.parts.len().max(1) as f32;
    let times = |single: Vec<f32>| Times {
        mean_us: mean_us / f64::from(calls),
        iteration_us: single.into_iter().map(|us| us / calls).collect(),
    };
    Ok(intervals.into_iter().map(times).collect())
}

/// Launches that cost nothing on the host but themselves: what they need is made once.
struct Shots<'a> {
    station: &'a mut dyn Station,
    calls: Vec<Call<'a>>,
    trigger: Trigger,
    sync: bool,
}

impl<'a> Shots<'a> {
    fn of(pass: &'a mut Pass<'_>, inputs: &'a Inputs, trigger: Trigger) -> Shots<'a> {
        let sync = pass.has(Variant::Sync);
        let calls = part::launch(&pass.parts, inputs, pass.placement);
        Shots { station: &mut *pass.station, calls, trigger, sync }
    }

    fn fire(&mut self) -> Result<(), RankError> {
        match self.trigger {
            Trigger::Calls => self.station.launch(&self.calls)?,
            Trigger::Replay => self.station.replay()?,
        }
        if self.sync { self.station.wait() } else { Ok(()) }
    }

    fn warm_up(&mut self, launches: u32) -> Result<(), RankError> {
        for _ in 0..launches {
            self.fire()?;
        }
        self.station.wait()
    }

    fn by_clock(&mut self, launches: u32) -> Result<f64, RankError> {
        self.clocked(launches, Self::plain)
    }

    fn by_marks(&mut self, launches: u32) -> Result<Vec<Vec<f32>>, RankError> {
        self.announce();
        self.marked(launches)?;
        let intervals = self.station.intervals()?;
        self.station.end_batch();
        Ok(intervals)
    }

    fn by_both(&mut self, launches: u32) -> Result<(f64, Vec<Vec<f32>>), RankError> {
        let mean_us = self.clocked(launches, Self::marked)?;
        Ok((mean_us, self.station.intervals()?))
    }

    /// Mean microseconds of a launch.
    ///
    /// The clock starts behind one launch more, which ends on all ranks at about the same time.
    fn clocked(
        &mut self,
        launches: u32,
        queue: impl FnOnce(&mut Self, u32) -> Result<(), RankError>,
    ) -> Result<f64, RankError> {
        self.fire()?;
        self.station.wait()?;
        self.announce();
        let start = Instant::now();
        queue(self, launches)?;
        self.station.wait()?;
        let elapsed = start.elapsed();
        self.station.end_batch();
        Ok(elapsed.as_secs_f64() * 1e6 / f64::from(launches))
    }

    fn plain(&mut self, launches: u32) -> Result<(), RankError> {
        (0..launches).try_for_each(|_| self.fire())
    }

    fn marked(&mut self, launches: u32) -> Result<(), RankError> {
        self.station.mark()?;
        for _ in 0..launches {
            self.fire()?;
            self.station.mark()?;
        }
        Ok(())
    }

    fn announce(&mut self) {
        self.station.begin_batch(&self.calls, self.trigger == Trigger::Replay);
    }
}
