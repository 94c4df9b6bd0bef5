//! A station that records its calls on the way.
//!
//! Every launch of every rank is recorded, also timed ones: that costs about 0.1 us a call, less than 1 % of the smallest
//! launch that either backend makes. What a graph holds is recorded as it is replayed.
//!
//! A call of a library that queues is known to be done when the worker has waited for it. So of launches that are queued
//! in a row, the first that is not known to be done may be earlier than the one that hangs.

use super::log::{Doing, Log, now_ns};
use crate::backend::{Aborter, Buffer, Call, GuardBreach, Need, RankError, Region, Station, Verdict};
use crate::case::{DType, Op};
use crate::trace::call::Operation;
use crate::trace::ring::{Creation, RingError, Ticket, Writer};

/// A station whose calls are recorded.
pub struct Recorder {
    station: Box<dyn Station>,
    lanes: Vec<Lane>,
    /// The case that calls belong to, as a communicator's id: numbers count from 1 in each.
    case: u64,
    label: String,
    sequence: u64,
    synchronous: bool,
    /// What is being captured.
    capturing: Option<Vec<Made>>,
    captured: Vec<Made>,
}

struct Lane {
    log: Log,
    writer: Writer<Log>,
    /// Calls not known to be done.
    open: Vec<Ticket>,
}

/// What is recorded of a call.
#[derive(Clone)]
struct Made {
    operation: Operation,
    op: Option<Op>,
    dtype: DType,
    count: u64,
    root: Option<u32>,
}

impl Made {
    fn of(call: &Call<'_>) -> Made {
        let unit = call.case.primitive.unit();
        Made {
            operation: Operation::Collective(call.case.primitive),
            op: call.case.op,
            dtype: call.workload.dtype,
            count: unit.shape(&call.workload).count,
            root: unit.rooted().then_some(call.workload.root),
        }
    }
}

impl Recorder {
    /// Records the station's calls in a log for each of its ranks, in lane order.
    pub fn new(station: Box<dyn Station>, logs: &[Log]) -> Result<Recorder, RingError> {
        let lane = |(log, rank): (&Log, &u32)| {
            Ok(Lane { log: log.clone(), writer: Writer::new(log.clone(), *rank)?, open: Vec::new() })
        };
        let lanes = logs.iter().zip(station.ranks()).map(lane).collect::<Result<_, RingError>>()?;
        let synchronous = station.synchronous();
        Ok(Recorder {
            station,
            lanes,
            case: 0,
            label: String::new(),
            sequence: 0,
            synchronous,
            capturing: None,
            captured: Vec::new(),
        })
    }

    fn at(&self, doing: Doing) {
        self.lanes.iter().for_each(|lane| lane.log.at(doing));
    }

    /// Records calls that are about to be made.
    fn make(&mut self, calls: impl Iterator<Item = Made>) {
        let Some(log) = self.lanes.first().map(|lane| &lane.log) else { return };
        let case = log.case();
        if case != self.case {
            (self.case, self.sequence, self.label) = (case, 0, log.label());
            self.lanes.iter_mut().for_each(|lane| lane.open.clear());
        }
        let now = now_ns();
        for made in calls {
            self.sequence += 1;
            let creation = Creation {
                comm: self.case,
                seq: self.sequence,
                operation: &made.operation,
                op: made.op,
                dtype: Some(made.dtype),
                count: Some(made.count),
                root: made.root,
                label: &self.label,
            };
            for lane in &mut self.lanes {
                let ticket = lane.writer.created(&creation, now);
                if self.synchronous {
                    lane.writer.started(ticket, now);
                }
                lane.open.push(ticket);
            }
        }
    }

    fn done(&mut self) {
        let now = now_ns();
        for Lane { writer, open, .. } in &mut self.lanes {
            open.drain(..).for_each(|ticket| writer.completed(ticket, now));
        }
    }

    /// Passes on what waits for all lanes.
    fn waited<T>(&mut self, wait: impl FnOnce(&mut dyn Station) -> Result<T, RankError>) -> Result<T, RankError> {
        if !self.synchronous {
            self.at(Doing::Waiting);
        }
        let result = wait(self.station.as_mut());
        if result.is_ok() && !self.synchronous {
            self.done();
        }
        result
    }
}

impl Station for Recorder {
    fn ranks(&self) -> &[u32] {
        self.station.ranks()
    }

    fn enter(&mut self) -> Result<(), RankError> {
        self.station.enter()
    }

    fn prepare(&mut self, need: &Need) -> Result<(), RankError> {
        self.at(Doing::Preparing);
        self.station.prepare(need)
    }

    fn fill(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        self.at(Doing::Filling);
        self.station.fill(lane, region)
    }

    fn poison(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        self.at(Doing::Filling);
        self.station.poison(lane, region)
    }

    fn check(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        self.at(Doing::Checking);
        self.station.check(lane, region)
    }

    fn verdict(&mut self, lane: usize, dtype: DType) -> Result<Verdict, RankError> {
        self.at(Doing::Checking);
        self.station.verdict(lane, dtype)
    }

    fn guards(&mut self, lane: usize) -> Result<Option<GuardBreach>, RankError> {
        self.at(Doing::Checking);
        self.station.guards(lane)
    }

    fn tamper(&mut self, lane: usize, buffer: Buffer, dtype: DType, index: u64, xor: u64) -> Result<(), RankError> {
        self.station.tamper(lane, buffer, dtype, index, xor)
    }

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
        if let Some(capturing) = &mut self.capturing {
            capturing.extend(calls.iter().map(Made::of));
            return self.station.launch(calls);
        }
        self.make(calls.iter().map(Made::of));
        self.lanes.iter().for_each(|lane| lane.log.launching());
        let result = self.station.launch(calls);
        if self.synchronous && result.is_ok() {
            self.done();
        }
        result
    }

    fn fill_early(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        self.at(Doing::Filling);
        self.station.fill_early(lane, region)
    }

    fn delay(&mut self, lane: usize, us: u32) -> Result<(), RankError> {
        self.station.delay(lane, us)
    }

    fn begin_capture(&mut self) -> Result<(), RankError> {
        self.capturing = Some(Vec::new());
        self.station.begin_capture()
    }

    fn end_capture(&mut self) -> Result<(), RankError> {
        self.captured = self.capturing.take().unwrap_or_default();
        self.station.end_capture()
    }

    fn replay(&mut self) -> Result<(), RankError> {
        let captured = std::mem::take(&mut self.captured);
        self.make(captured.iter().cloned());
        self.captured = captured;
        self.lanes.iter().for_each(|lane| lane.log.launching());
        self.station.replay()
    }

    fn mark(&mut self) -> Result<(), RankError> {
        self.station.mark()
    }

    fn intervals(&mut self) -> Result<Vec<Vec<f32>>, RankError> {
        self.waited(|station| station.intervals())
    }

    fn wait(&mut self) -> Result<(), RankError> {
        self.waited(|station| station.wait())
    }

    fn synchronous(&self) -> bool {
        self.synchronous
    }

    fn aborter(&self) -> Aborter {
        self.station.aborter()
    }
}
