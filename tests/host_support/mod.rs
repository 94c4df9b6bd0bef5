//! A small worker, as the tests of the host backend need it.
#![allow(dead_code)] // each test binary uses its part

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use collcheck::backend::host::{Algorithm, HostBackend, HostStation};
use collcheck::backend::{
    Backend, Buffer, Call, Content, Layout, Need, Placement, RankError, Region, Station, Twist, Verdict,
};
use collcheck::case::primitive::Source;
use collcheck::case::{Bytes, Case, DType, Op, Primitive, Variant};
use collcheck::oracle::Plan;

pub fn backend(ranks: u32) -> HostBackend {
    HostBackend::new(&Layout { ranks, ranks_per_thread: 1, ranks_per_gpu: 1 }).unwrap()
}

pub fn case(primitive: Primitive, op: Option<Op>, dtype: DType, bytes: u64) -> Case {
    Case { primitive, op, dtype, size: Bytes(bytes), variants: Vec::new() }
}

pub fn need(send_bytes: u64, recv_bytes: u64) -> Need {
    Need { send_bytes, recv_bytes, ..Need::default() }
}

pub fn with(mut case: Case, variant: Variant) -> Case {
    case.variants.push(variant);
    case.variants.sort();
    case
}

/// Runs every rank on a thread of its own, and returns what they return, by rank.
pub fn on_all_ranks<T: Send>(backend: &HostBackend, work: impl Fn(u32, &mut HostStation) -> T + Sync) -> Vec<T> {
    let stations = backend.stations().unwrap();
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = stations
            .into_iter()
            .map(|mut station| {
                scope.spawn(move || {
                    station.enter().unwrap();
                    work(station.ranks()[0], &mut station)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Long enough for anything that ends to have ended on a busy machine, once all ranks are about to launch.
const PATIENCE: Duration = Duration::from_millis(400);

/// What ranks return if the communicator is aborted after some patience, and how many had ended before.
///
/// Patience starts when every rank has called the function that it is given, which it does right before it launches.
pub fn aborted<T: Send>(
    backend: &HostBackend,
    work: impl Fn(u32, &mut HostStation, &dyn Fn()) -> T + Sync,
) -> (Vec<T>, u32) {
    let (ready, done) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let ranks = scope.spawn(|| {
            on_all_ranks(backend, |rank, station| {
                let result = work(rank, station, &|| {
                    ready.fetch_add(1, Ordering::Relaxed);
                });
                done.fetch_add(1, Ordering::Relaxed);
                result
            })
        });
        let deadline = Instant::now() + Duration::from_secs(60);
        while ready.load(Ordering::Relaxed) < backend.environment().ranks && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(PATIENCE);
        let before = done.load(Ordering::Relaxed);
        let start = Instant::now();
        backend.abort();
        let results = ranks.join().unwrap();
        assert!(start.elapsed() < Duration::from_secs(5), "abort took {:?}", start.elapsed());
        (results, before)
    })
}

/// One placement of one case on one rank.
pub struct Trial<'a> {
    pub case: &'a Case,
    pub ranks: u32,
    pub rank: u32,
    pub placement: Placement,
    pub plan: Plan,
    /// Where its data begin in both buffers.
    pub base: u64,
    pub twist: Option<Twist>,
}

/// What went wrong, empty if nothing did.
#[derive(Debug, Default, PartialEq)]
pub struct Findings {
    pub output: Verdict,
    pub input: Verdict,
    pub guard: Option<collcheck::backend::GuardBreach>,
}

impl<'a> Trial<'a> {
    pub fn new(case: &'a Case, ranks: u32, rank: u32, placement: Placement, epoch: u64) -> Trial<'a> {
        let plan = Plan::of(case, 11, ranks, epoch);
        Trial { case, ranks, rank, placement, plan, base: 0, twist: None }
    }

    /// Elements at which what is received, and what is sent, start in their buffers; nothing where there is no such form.
    fn starts(&self) -> Option<(u64, u64)> {
        match self.placement {
            Placement::OutOfPlace => Some((0, 0)),
            Placement::InPlace => {
                let place = self.case.primitive.unit().in_place(&self.case.workload(self.ranks), self.rank)?;
                Some((place.recv, place.send))
            }
        }
    }

    pub fn exists(&self) -> bool {
        self.starts().is_some()
    }

    /// Bytes of the send and the receive buffer.
    pub fn sizes(&self) -> (u64, u64) {
        let shape = self.case.primitive.unit().shape(&self.case.workload(self.ranks));
        let size = self.case.dtype.size();
        match self.placement {
            Placement::OutOfPlace => (shape.send * size, shape.recv * size),
            Placement::InPlace => (0, shape.send.max(shape.recv) * size),
        }
    }

    fn outputs(&self) -> Vec<Region<'_>> {
        let (start, _) = self.starts().unwrap();
        let unit = self.case.primitive.unit();
        let w = self.case.workload(self.ranks);
        let region = |start, len, content| Region {
            buffer: Buffer::Recv,
            start,
            len,
            plan: &self.plan,
            content,
            base: self.base,
        };
        let mut regions: Vec<_> = unit
            .expected(&w, self.rank)
            .into_iter()
            .map(|segment| {
                let content = match segment.source {
                    Source::Reduced { element } => Content::Reduced { element },
                    Source::Rank { rank, element } => Content::Input { rank, element },
                };
                region(start + segment.start, segment.len, content)
            })
            .collect();
        if regions.is_empty() && self.placement == Placement::OutOfPlace {
            // who receives nothing must find its buffer as it was
            regions.push(region(0, unit.shape(&w).recv, Content::Input { rank: self.rank, element: 1 }));
        }
        regions
    }

    fn input(&self) -> Option<Region<'_>> {
        let (_, start) = self.starts().unwrap();
        let unit = self.case.primitive.unit();
        let w = self.case.workload(self.ranks);
        let buffer = if self.placement == Placement::InPlace { Buffer::Recv } else { Buffer::Send };
        let content = Content::Input { rank: self.rank, element: 0 };
        let len = unit.shape(&w).send;
        unit.sends(&w, self.rank).then_some(Region { buffer, start, len, plan: &self.plan, content, base: self.base })
    }

    pub fn prepare(&self, station: &mut HostStation) -> Result<(), RankError> {
        let (send, recv) = self.sizes();
        station.prepare(&Need::of(self.case, send, recv))?;
        self.stage(station)
    }

    /// Poisons the output and writes the input.
    pub fn stage(&self, station: &mut HostStation) -> Result<(), RankError> {
        let receives = !self.case.primitive.unit().expected(&self.case.workload(self.ranks), self.rank).is_empty();
        for region in self.outputs() {
            if receives { station.poison(0, &region)? } else { station.fill(0, &region)? }
        }
        self.stage_input(station)
    }

    pub fn stage_input(&self, station: &mut HostStation) -> Result<(), RankError> {
        self.input().map_or(Ok(()), |region| station.fill(0, &region))
    }

    pub fn launch(&self, station: &mut HostStation) -> Result<(), RankError> {
        let workload = self.case.workload(self.ranks);
        station.launch(&[Call {
            case: self.case,
            workload,
            placement: self.placement,
            plan: &self.plan,
            base: self.base,
            twist: self.twist,
        }])
    }

    pub fn check(&self, station: &mut HostStation) -> Result<Findings, RankError> {
        for region in self.outputs() {
            station.check(0, &region)?;
        }
        let output = station.verdict(0, self.case.dtype)?;
        if self.placement == Placement::OutOfPlace
            && let Some(region) = self.input()
        {
            station.check(0, &region)?;
        }
        let input = station.verdict(0, self.case.dtype)?;
        Ok(Findings { output, input, guard: station.guards(0)? })
    }

    pub fn run(&self, station: &mut HostStation) -> Result<Findings, RankError> {
        self.prepare(station)?;
        self.launch(station)?;
        self.check(station)
    }
}

/// Runs all cases one after the other on ranks that never wait for each other outside of the collectives.
pub fn expect_right(ranks: u32, algorithm: Option<Algorithm>, cases: &[Case]) {
    let backend = match algorithm {
        Some(algorithm) => backend(ranks).force(algorithm),
        None => backend(ranks),
    };
    on_all_ranks(&backend, |rank, station| {
        for (epoch, case) in cases.iter().enumerate() {
            for placement in [Placement::OutOfPlace, Placement::InPlace] {
                let epoch = 2 * epoch as u64 + u64::from(placement == Placement::InPlace);
                let trial = Trial::new(case, ranks, rank, placement, epoch);
                if !trial.exists() {
                    continue;
                }
                let findings = trial.run(station).unwrap();
                if findings != Findings::default() {
                    // the others would wait for this rank
                    station.abort().raise();
                    panic!("{case} on rank {rank} of {ranks}, {placement:?}: {findings:?}");
                }
                if let Some(algorithm) = algorithm {
                    assert_eq!(station.ran(), Some(algorithm));
                }
            }
        }
    });
}
