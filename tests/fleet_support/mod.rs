//! Runs cases on the host backend with ranks that misbehave, and keeps what the engine says of them.
#![allow(dead_code)] // each test binary uses its part

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use collcheck::backend::host::HostBackend;
use collcheck::backend::*;
use collcheck::case::{Bytes, Case, DType};
use collcheck::reference::References;
use collcheck::run::engine::{self, Ended};
use collcheck::run::event::{Consumer, Event};
use collcheck::run::plan::{LayoutChoice, RunPlan};
use collcheck::run::result::CaseResult;
use libtest_mimic::Arguments;

/// What one rank does in place of one launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misdeed {
    /// Is busy elsewhere for so long, then makes the call.
    Sleep(Duration),
    /// Leaves the call out.
    Skip,
    /// Passes half of the elements.
    Half,
    /// Panics.
    Panic,
    /// Is turned down.
    Refuse,
    /// Leaves out or misdirects its sends or receives.
    Twist(Twist),
    /// Sleeps where the call before makes buffers, so that no call is open anywhere.
    SleepInPrepare(Duration),
}

/// Whose launch it is; launches count from 1 over the backend's life, so that it happens once.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    pub rank: u32,
    pub launch: u32,
    pub misdeed: Misdeed,
}

/// The host backend with a fault.
pub struct Faulty {
    pub inner: HostBackend,
    fault: Option<Fault>,
    launches: Arc<AtomicU32>,
}

impl Faulty {
    pub fn new(ranks: u32, fault: Option<Fault>) -> Arc<Faulty> {
        let inner = HostBackend::new(&Layout { ranks, ranks_per_thread: 1, ranks_per_gpu: 1 }).unwrap();
        Arc::new(Faulty { inner, fault, launches: Arc::default() })
    }
}

impl Backend for Faulty {
    fn environment(&self) -> Environment {
        self.inner.environment()
    }

    fn memory_per_rank(&self) -> Option<u64> {
        self.inner.memory_per_rank()
    }

    fn open(&self, cases: &[Case], making: &Making) -> Result<Vec<Box<dyn Station>>, Opening> {
        self.inner.open(cases, making)
    }

    fn disturb(&self, station: Box<dyn Station>) -> Box<dyn Station> {
        match self.fault {
            Some(fault) if station.ranks().contains(&fault.rank) => {
                Box::new(Disturbed { station, fault, launches: self.launches.clone() })
            }
            _ => station,
        }
    }
}

struct Disturbed {
    station: Box<dyn Station>,
    fault: Fault,
    launches: Arc<AtomicU32>,
}

impl Station for Disturbed {
    fn peek(&mut self, lane: usize, buffer: Buffer, at: i64, into: &mut [u8]) -> Result<(), RankError> {
        self.station.peek(lane, buffer, at, into)
    }
    fn poke(&mut self, lane: usize, buffer: Buffer, at: i64, bytes: &[u8]) -> Result<(), RankError> {
        self.station.poke(lane, buffer, at, bytes)
    }
    fn aside(&mut self, aside: bool) -> Result<(), RankError> {
        self.station.aside(aside)
    }
    fn twin(&mut self, twin: bool) -> Result<(), RankError> {
        self.station.twin(twin)
    }

    fn launch(&mut self, calls: &[Call<'_>]) -> Result<(), RankError> {
        if self.launches.fetch_add(1, Ordering::Relaxed) + 1 != self.fault.launch {
            return self.station.launch(calls);
        }
        match self.fault.misdeed {
            Misdeed::Skip => Ok(()),
            Misdeed::Panic => panic!("as told"),
            Misdeed::Refuse => {
                let text = |text: &str| text.to_owned();
                Err(RankError::Refused { call: text("launch"), code: text("no"), message: text("as told") })
            }
            Misdeed::Sleep(time) | Misdeed::SleepInPrepare(time) => {
                std::thread::sleep(time);
                self.station.launch(calls)
            }
            Misdeed::Twist(twist) => {
                let calls: Vec<Call<'_>> =
                    calls.iter().map(|call| Call { twist: Some(twist), ..call.clone() }).collect();
                self.station.launch(&calls)
            }
            Misdeed::Half => {
                let halved: Vec<Case> =
                    calls.iter().map(|call| Case { size: Bytes(call.case.size.0 / 2), ..call.case.clone() }).collect();
                let calls: Vec<Call<'_>> = calls
                    .iter()
                    .zip(&halved)
                    .map(|(call, case)| Call { case, workload: case.workload(call.workload.ranks), ..call.clone() })
                    .collect();
                self.station.launch(&calls)
            }
        }
    }

    fn prepare(&mut self, need: &Need) -> Result<(), RankError> {
        if let Misdeed::SleepInPrepare(time) = self.fault.misdeed
            && self.launches.fetch_add(1, Ordering::Relaxed) + 1 == self.fault.launch
        {
            std::thread::sleep(time);
        }
        self.station.prepare(need)
    }

    fn ranks(&self) -> &[u32] {
        self.station.ranks()
    }
    fn enter(&mut self) -> Result<(), RankError> {
        self.station.enter()
    }
    fn fill(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        self.station.fill(lane, region)
    }
    fn poison(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        self.station.poison(lane, region)
    }
    fn check(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        self.station.check(lane, region)
    }
    fn verdict(&mut self, lane: usize, dtype: DType) -> Result<Verdict, RankError> {
        self.station.verdict(lane, dtype)
    }
    fn guards(&mut self, lane: usize) -> Result<Option<GuardBreach>, RankError> {
        self.station.guards(lane)
    }
    fn fingerprint(&mut self, lane: usize, region: &Region<'_>) -> Result<u64, RankError> {
        self.station.fingerprint(lane, region)
    }

    fn tamper(&mut self, lane: usize, buffer: Buffer, dtype: DType, index: u64, xor: u64) -> Result<(), RankError> {
        self.station.tamper(lane, buffer, dtype, index, xor)
    }
    fn fill_early(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        self.station.fill_early(lane, region)
    }
    fn delay(&mut self, lane: usize, us: u32) -> Result<(), RankError> {
        self.station.delay(lane, us)
    }
    fn begin_capture(&mut self) -> Result<(), RankError> {
        self.station.begin_capture()
    }
    fn end_capture(&mut self) -> Result<(), RankError> {
        self.station.end_capture()
    }
    fn replay(&mut self) -> Result<(), RankError> {
        self.station.replay()
    }
    fn begin_batch(&mut self, calls: &[Call<'_>], replayed: bool) {
        self.station.begin_batch(calls, replayed);
    }
    fn end_batch(&mut self) {
        self.station.end_batch();
    }
    fn mark(&mut self) -> Result<(), RankError> {
        self.station.mark()
    }
    fn intervals(&mut self) -> Result<Vec<Vec<f32>>, RankError> {
        self.station.intervals()
    }
    fn wait(&mut self) -> Result<(), RankError> {
        self.station.wait()
    }
    fn synchronous(&self) -> bool {
        self.station.synchronous()
    }
    fn watcher(&self) -> Watcher {
        self.station.watcher()
    }
    fn aborter(&self) -> Aborter {
        self.station.aborter()
    }
}

/// A backend whose communicator never comes about.
pub struct Never(pub HostBackend);

impl Backend for Never {
    fn environment(&self) -> Environment {
        self.0.environment()
    }
    fn memory_per_rank(&self) -> Option<u64> {
        None
    }
    fn open(&self, _cases: &[Case], _making: &Making) -> Result<Vec<Box<dyn Station>>, Opening> {
        std::thread::sleep(Duration::from_secs(3600));
        Err(Opening::Unsupported("never".to_owned()))
    }
}

/// Keeps results, and when each case began and ended.
#[derive(Clone, Default)]
pub struct Kept(Arc<Mutex<Vec<(Instant, Event)>>>);

impl Consumer for Kept {
    fn take(&mut self, event: &Event) -> anyhow::Result<()> {
        self.0.lock().unwrap().push((Instant::now(), event.clone()));
        Ok(())
    }
}

/// A run's end.
pub struct Run {
    pub ended: Ended,
    pub results: Vec<CaseResult>,
    /// Seconds from the start of each case to that of the next, or the run's end.
    pub seconds: Vec<f64>,
}

pub fn plan(cases: &[&str], deadline: Duration) -> RunPlan {
    RunPlan {
        cases: cases.iter().map(|case| case.parse().unwrap()).collect(),
        iters: 3,
        warmup: 1,
        check: true,
        seed: 5,
        repeat: 1,
        soak: None,
        layout: LayoutChoice::Threads,
        deadline: Some(deadline),
        fail_fast: false,
        tamper: None,
        lab: false,
        blind: None,
        references: Vec::new(),
        require_reference: false,
        path: false,
        relaunch: None,
    }
}

pub fn run(backend: Arc<dyn Backend>, plan: RunPlan) -> Run {
    run_until(backend, plan, Arc::new(AtomicBool::new(false)))
}

pub fn run_until(backend: Arc<dyn Backend>, plan: RunPlan, interrupt: Arc<AtomicBool>) -> Run {
    whole(backend, plan, References::embedded().unwrap(), interrupt)
}

pub fn run_with(backend: Arc<dyn Backend>, plan: RunPlan, references: References) -> Run {
    whole(backend, plan, references, Arc::new(AtomicBool::new(false)))
}

fn whole(backend: Arc<dyn Backend>, plan: RunPlan, references: References, interrupt: Arc<AtomicBool>) -> Run {
    let kept = Kept::default();
    let quiet = Arguments { test_threads: Some(1), logfile: Some("/dev/null".to_owned()), ..Arguments::default() };
    let ended = engine::run(Vec::new(), plan, backend, references, vec![Box::new(kept.clone())], &quiet, interrupt);
    let events = kept.0.lock().unwrap();
    let mut starts: Vec<Instant> = Vec::new();
    let mut results = Vec::new();
    for (at, event) in events.iter() {
        match event {
            Event::CaseStarted { .. } | Event::Finished { .. } => starts.push(*at),
            Event::CaseFinished { result } => results.push((**result).clone()),
            _ => {}
        }
    }
    let seconds = starts.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    Run { ended, results, seconds }
}
