//! A host backend that does one thing wrong, once, and that has graphs.

use std::collections::VecDeque;

use collcheck::backend::host::HostBackend;
use collcheck::backend::{
    Backend, Buffer, Call, Content, Environment, GuardBreach, Making, Need, Opening, Placement, RankError, Region,
    Station, Verdict,
};
use collcheck::case::{Case, DType, Workload};
use collcheck::oracle::Plan;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// The call of this number in the group does nothing, on any rank.
    Lost(usize),
    /// The launch is carried out twice.
    Twice,
    /// A bit of rank 0's first received element is wrong.
    Corrupt,
    /// A bit of rank 0's send buffer changes.
    Scribble,
    /// Rank 0 writes behind the end of its receive buffer, which is this many bytes long.
    Beyond(u64),
    /// The collective starts before the producer that was queued right in front of it, unless the host has waited.
    Race,
    /// The collective has ended, and writes its output again a little later.
    Late,
}

/// When it does: the launch of a placement, counted from 0; replays of a graph count as what they launch.
#[derive(Debug, Clone, Copy)]
pub struct Plant {
    pub fault: Fault,
    pub launch: usize,
    pub placement: Placement,
}

/// Ranks on the host with graphs, one of whose launches goes wrong.
pub struct FaultyBackend {
    pub inner: HostBackend,
    pub plant: Option<Plant>,
    pub graphs: bool,
}

impl Backend for FaultyBackend {
    fn environment(&self) -> Environment {
        self.inner.environment()
    }

    fn memory_per_rank(&self) -> Option<u64> {
        self.inner.memory_per_rank()
    }

    fn open(&self, cases: &[Case], making: &Making) -> Result<Vec<Box<dyn Station>>, Opening> {
        let stations = self.inner.open(cases, making)?.into_iter();
        Ok(stations
            .map(|inner| Box::new(FaultyStation::new(inner, self.plant, self.graphs)) as Box<dyn Station>)
            .collect())
    }
}

/// A region that owns its plan.
#[derive(Clone)]
struct Place {
    buffer: Buffer,
    start: u64,
    len: u64,
    plan: Plan,
    content: Content,
    base: u64,
}

impl Place {
    fn of(region: &Region<'_>) -> Place {
        let Region { buffer, start, len, plan, content, base } = *region;
        Place { buffer, start, len, plan: plan.clone(), content, base }
    }

    fn region(&self) -> Region<'_> {
        let Place { buffer, start, len, ref plan, content, base } = *self;
        Region { buffer, start, len, plan, content, base }
    }
}

/// A call that owns its case and plan.
#[derive(Clone)]
struct OwnedCall {
    case: Case,
    workload: Workload,
    placement: Placement,
    plan: Plan,
    base: u64,
}

impl OwnedCall {
    fn of(call: &Call<'_>) -> OwnedCall {
        let Call { case, workload, placement, plan, base, .. } = call.clone();
        OwnedCall { case: case.clone(), workload, placement, plan: plan.clone(), base }
    }

    fn call(&self) -> Call<'_> {
        let OwnedCall { case, workload, placement, plan, base } = self;
        Call { case, workload: *workload, placement: *placement, plan, base: *base, twist: None }
    }
}

/// What a stream holds.
#[derive(Clone)]
enum Job {
    Fill(usize, Place),
    Poison(usize, Place),
    Check(usize, Place),
    Launch(Vec<OwnedCall>),
    Delay(usize, u32),
}

struct FaultyStation {
    inner: Box<dyn Station>,
    plant: Option<Plant>,
    graphs: bool,
    /// Launches of the planted placement so far.
    launches: usize,
    recording: bool,
    graph: Vec<Job>,
    /// Producers that the next collective overtakes.
    held: VecDeque<(usize, Place)>,
    /// A launch that writes once more.
    late: Option<Vec<OwnedCall>>,
}

impl FaultyStation {
    fn new(inner: Box<dyn Station>, plant: Option<Plant>, graphs: bool) -> FaultyStation {
        let (held, late) = (VecDeque::new(), None);
        FaultyStation { inner, plant, graphs, launches: 0, recording: false, graph: Vec::new(), held, late }
    }

    fn queue(&mut self, job: Job) -> Result<(), RankError> {
        if self.recording {
            self.graph.push(job);
            return Ok(());
        }
        self.run(job)
    }

    fn run(&mut self, job: Job) -> Result<(), RankError> {
        if matches!(job, Job::Poison(..) | Job::Check(..) | Job::Delay(..)) {
            self.flush()?;
        }
        match job {
            Job::Fill(lane, place) => {
                let next = self.plant.is_some_and(|p| p.fault == Fault::Race && p.launch == self.launches);
                if next {
                    self.held.push_back((lane, place));
                    return Ok(());
                }
                self.inner.fill(lane, &place.region())
            }
            Job::Poison(lane, place) => self.inner.poison(lane, &place.region()),
            Job::Check(lane, place) => self.inner.check(lane, &place.region()),
            Job::Delay(lane, us) => {
                if let Some(calls) = self.late.take() {
                    self.inner.launch(&calls.iter().map(OwnedCall::call).collect::<Vec<_>>())?;
                }
                self.inner.delay(lane, us)
            }
            Job::Launch(calls) => self.collective(&calls),
        }
    }

    fn collective(&mut self, owned: &[OwnedCall]) -> Result<(), RankError> {
        let mut calls: Vec<Call<'_>> = owned.iter().map(OwnedCall::call).collect();
        let planted = self.plant.filter(|p| calls.iter().all(|call| call.placement == p.placement));
        let Some(Plant { fault, launch, .. }) = planted else { return self.inner.launch(&calls) };
        self.launches += 1;
        if self.launches != launch + 1 {
            return self.inner.launch(&calls);
        }
        let first = self.inner.ranks()[0] == 0;
        match fault {
            Fault::Lost(number) => {
                calls.remove(number);
                self.inner.launch(&calls)
            }
            Fault::Twice => self.inner.launch(&calls).and_then(|()| self.inner.launch(&calls)),
            Fault::Race => self.inner.launch(&calls).and_then(|()| self.flush()),
            Fault::Late => {
                self.late = Some(owned.to_vec());
                self.inner.launch(&calls)
            }
            Fault::Corrupt | Fault::Scribble | Fault::Beyond(_) => {
                let dtype = calls[0].workload.dtype;
                self.inner.launch(&calls)?;
                match fault {
                    _ if !first => Ok(()),
                    Fault::Corrupt => self.inner.tamper(0, Buffer::Recv, dtype, 0, 2),
                    Fault::Scribble => self.inner.tamper(0, Buffer::Send, dtype, 0, 2),
                    Fault::Beyond(bytes) => self.inner.tamper(0, Buffer::Recv, DType::Uint8, bytes, 2),
                    _ => Ok(()),
                }
            }
        }
    }

    fn flush(&mut self) -> Result<(), RankError> {
        while let Some((lane, place)) = self.held.pop_front() {
            self.inner.fill(lane, &place.region())?;
        }
        Ok(())
    }
}

impl Station for FaultyStation {
    fn ranks(&self) -> &[u32] {
        self.inner.ranks()
    }

    fn enter(&mut self) -> Result<(), RankError> {
        self.inner.enter()
    }

    fn prepare(&mut self, need: &Need) -> Result<(), RankError> {
        self.inner.prepare(need)
    }

    fn fill(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        self.queue(Job::Fill(lane, Place::of(region)))
    }

    fn poison(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        self.queue(Job::Poison(lane, Place::of(region)))
    }

    fn check(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        self.queue(Job::Check(lane, Place::of(region)))
    }

    fn verdict(&mut self, lane: usize, dtype: DType) -> Result<Verdict, RankError> {
        self.inner.verdict(lane, dtype)
    }

    fn guards(&mut self, lane: usize) -> Result<Option<GuardBreach>, RankError> {
        self.inner.guards(lane)
    }

    fn fingerprint(&mut self, lane: usize, region: &Region<'_>) -> Result<u64, RankError> {
        self.inner.fingerprint(lane, region)
    }

    fn tamper(&mut self, lane: usize, buffer: Buffer, dtype: DType, index: u64, xor: u64) -> Result<(), RankError> {
        assert!(!self.recording, "damage cannot be captured");
        self.inner.tamper(lane, buffer, dtype, index, xor)
    }

    fn peek(&mut self, lane: usize, buffer: Buffer, at: i64, into: &mut [u8]) -> Result<(), RankError> {
        self.inner.peek(lane, buffer, at, into)
    }

    fn poke(&mut self, lane: usize, buffer: Buffer, at: i64, bytes: &[u8]) -> Result<(), RankError> {
        self.inner.poke(lane, buffer, at, bytes)
    }

    fn aside(&mut self, aside: bool) -> Result<(), RankError> {
        self.inner.aside(aside)
    }

    fn twin(&mut self, twin: bool) -> Result<(), RankError> {
        self.inner.twin(twin)
    }

    fn launch(&mut self, calls: &[Call<'_>]) -> Result<(), RankError> {
        self.queue(Job::Launch(calls.iter().map(OwnedCall::of).collect()))
    }

    fn fill_early(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        self.fill(lane, region)
    }

    fn delay(&mut self, lane: usize, us: u32) -> Result<(), RankError> {
        self.queue(Job::Delay(lane, us))
    }

    fn begin_capture(&mut self) -> Result<(), RankError> {
        if !self.graphs {
            return self.inner.begin_capture();
        }
        self.recording = true;
        self.graph.clear();
        Ok(())
    }

    fn end_capture(&mut self) -> Result<(), RankError> {
        self.recording = false;
        Ok(())
    }

    fn replay(&mut self) -> Result<(), RankError> {
        self.graph.clone().into_iter().try_for_each(|job| self.run(job))
    }

    fn mark(&mut self) -> Result<(), RankError> {
        self.inner.mark()
    }

    fn intervals(&mut self) -> Result<Vec<Vec<f32>>, RankError> {
        self.inner.intervals()
    }

    fn wait(&mut self) -> Result<(), RankError> {
        assert!(!self.recording, "a wait cannot be captured");
        self.flush()?;
        self.inner.wait()
    }
}
