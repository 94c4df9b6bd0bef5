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

/// Times launches twice: by the host's clock over all of them, as nccl-tests does, and singly by device marks. Apart,
/// since a mark costs about as much as a small launch.
///
/// A group counts as many times as it has calls, as under nccl-tests' `-m`.
pub fn time(pass: &mut Pass<'_>, inputs: &Inputs, trigger: Trigger) -> Result<Vec<Times>, RankError> {
    let Request { warmup, iters, .. } = *pass.request;
    if iters == 0 {
        return Ok(vec![Times::default(); pass.lanes()]);
    }
    let warm = Shots::of(pass, inputs, trigger).warm_up(warmup);
    pass.agree(warm)?;
    let mean_us = Shots::of(pass, inputs, trigger).by_clock(iters);
    let mean_us = pass.agree(mean_us)?;
    let intervals = Shots::of(pass, inputs, trigger).by_marks(iters);
    let intervals = pass.agree(intervals)?;
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

    fn warm_up(mut self, launches: u32) -> Result<(), RankError> {
        for _ in 0..launches {
            self.fire()?;
        }
        self.station.wait()
    }

    /// The clock starts behind one launch more, which ends on all ranks at about the same time: threads that have just met
    /// do not leave their meeting so evenly, and find their caches cold.
    fn by_clock(mut self, launches: u32) -> Result<f64, RankError> {
        self.fire()?;
        self.station.wait()?;
        self.announce();
        let start = Instant::now();
        for _ in 0..launches {
            self.fire()?;
        }
        self.station.wait()?;
        let elapsed = start.elapsed();
        self.station.end_batch();
        Ok(elapsed.as_secs_f64() * 1e6 / f64::from(launches))
    }

    fn by_marks(mut self, launches: u32) -> Result<Vec<Vec<f32>>, RankError> {
        self.announce();
        self.station.mark()?;
        for _ in 0..launches {
            self.fire()?;
            self.station.mark()?;
        }
        let intervals = self.station.intervals()?;
        self.station.end_batch();
        Ok(intervals)
    }

    fn announce(&mut self) {
        self.station.begin_batch(&self.calls, self.trigger == Trigger::Replay);
    }
}
