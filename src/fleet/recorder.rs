//! A station that records its calls on the way.
//!
//! Every launch of every rank is recorded, also timed ones: that costs two looks at the clock and 200 bytes written, or one
//! look where launches are queued. What a graph holds is recorded as it is replayed.
//!
//! A call of a library that queues is known to be done when the worker has waited for it. So of launches that are queued
//! in a row, the first that is not known to be done may be earlier than the one that hangs.

use super::log::{Doing, Log, now_ns};
use crate::backend::{Aborter, Buffer, Call, GuardBreach, Need, RankError, Region, Station, Twist, Verdict};
use crate::case::{DType, Op, Primitive};
use crate::trace::call::Operation;
use crate::trace::ring::{Creation, RingError, Ticket, Writer};

/// Added to a case's number, as the id of the second communicator of its ranks.
pub const TWIN: u64 = 1 << 62;

/// A station whose calls are recorded.
pub struct Recorder {
    station: Box<dyn Station>,
    lanes: Vec<Lane>,
    /// The case that calls belong to, as a communicator's id: numbers count from 1 in each.
    case: u64,
    label: String,
    /// Numbers of the last calls on the communicator and on its twin.
    sequence: [u64; 2],
    synchronous: bool,
    /// Whether calls go to the second communicator.
    twin: bool,
    /// Whether calls go beside the stream, where they are done only when they have been waited for.
    aside: bool,
    /// Such calls were made and not waited for.
    beside: bool,
    /// What is being captured.
    capturing: Option<Vec<Made>>,
    captured: Vec<Made>,
}

struct Lane {
    rank: u32,
    log: Log,
    writer: Writer<Log>,
    /// Calls not known to be done.
    open: Vec<Ticket>,
}

/// What is recorded of a call.
#[derive(Clone)]
struct Made {
    primitive: Primitive,
    op: Option<Op>,
    dtype: DType,
    count: u64,
    root: Option<u32>,
    ranks: u32,
    twist: Option<Twist>,
}

impl Made {
    fn of(call: &Call<'_>) -> Made {
        let unit = call.case.primitive.unit();
        Made {
            primitive: call.case.primitive,
            op: call.case.op,
            dtype: call.workload.dtype,
            count: unit.shape(&call.workload).count,
            root: unit.rooted().then_some(call.workload.root),
            ranks: call.workload.ranks,
            twist: call.twist,
        }
    }

    /// What a rank calls. A sendrecv is a send and a receive, of which either can be missing or go astray.
    fn operations(&self, rank: u32) -> impl Iterator<Item = Operation> {
        let n = self.ranks;
        let both = if self.primitive == Primitive::Sendrecv && n > 1 {
            let (next, previous) = ((rank + 1) % n, (rank + n - 1) % n);
            let send = match self.twist {
                Some(Twist::NoSend) => None,
                Some(Twist::SendTo(peer)) => Some(peer),
                _ => Some(next),
            };
            let recv = match self.twist {
                Some(Twist::NoRecv) => None,
                Some(Twist::RecvFrom(peer)) => Some(peer),
                _ => Some(previous),
            };
            [send.map(|peer| Operation::Send { peer }), recv.map(|peer| Operation::Recv { peer })]
        } else {
            [Some(Operation::Collective(self.primitive)), None]
        };
        both.into_iter().flatten()
    }
}

impl Recorder {
    /// Records the station's calls in a log for each of its ranks, in lane order.
    pub fn new(station: Box<dyn Station>, logs: &[Log]) -> Result<Recorder, RingError> {
        let lane = |(log, rank): (&Log, &u32)| {
            Ok(Lane { rank: *rank, log: log.clone(), writer: Writer::new(log.clone(), *rank)?, open: Vec::new() })
        };
        let lanes = logs.iter().zip(station.ranks()).map(lane).collect::<Result<_, RingError>>()?;
        let synchronous = station.synchronous();
        Ok(Recorder {
            station,
            lanes,
            case: 0,
            label: String::new(),
            sequence: [0; 2],
            synchronous,
            twin: false,
            aside: false,
            beside: false,
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
            (self.case, self.sequence, self.label) = (case, [0; 2], log.label());
            self.lanes.iter_mut().for_each(|lane| lane.open.clear());
        }
        let now = now_ns();
        for made in calls {
            let [main, twin] = &mut self.sequence;
            let (sequence, comm) = if self.twin { (twin, self.case | TWIN) } else { (main, self.case) };
            *sequence += 1;
            for lane in &mut self.lanes {
                for operation in made.operations(lane.rank) {
                    let creation = Creation {
                        comm,
                        seq: *sequence,
                        operation: &operation,
                        op: made.op,
                        dtype: Some(made.dtype),
                        count: Some(made.count),
                        root: made.root,
                        label: &self.label,
                    };
                    let ticket = lane.writer.created(&creation, now);
                    if self.synchronous {
                        lane.writer.started(ticket, now);
                    }
                    lane.open.push(ticket);
                }
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
        let queued = !self.synchronous || self.beside;
        if queued {
            self.at(Doing::Waiting);
        }
        let result = wait(self.station.as_mut());
        if result.is_ok() && queued {
            self.beside = false;
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
        self.station.aside(aside)?;
        self.aside = aside;
        Ok(())
    }

    fn twin(&mut self, twin: bool) -> Result<(), RankError> {
        self.station.twin(twin)?;
        self.twin = twin;
        Ok(())
    }

    fn launch(&mut self, calls: &[Call<'_>]) -> Result<(), RankError> {
        if let Some(capturing) = &mut self.capturing {
            capturing.extend(calls.iter().map(Made::of));
            return self.station.launch(calls);
        }
        self.make(calls.iter().map(Made::of));
        self.lanes.iter().for_each(|lane| lane.log.launching());
        let result = self.station.launch(calls);
        self.beside |= self.aside;
        if self.synchronous && !self.beside && result.is_ok() {
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

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::backend::Placement;
    use crate::backend::host::HostBackend;
    use crate::backend::{Backend, Layout, Making};
    use crate::case::Case;
    use crate::oracle::Plan;
    use crate::trace::call::State;
    use crate::trace::ring::snapshot;

    fn recorder(log: &Log) -> Recorder {
        let backend = HostBackend::new(&Layout { ranks: 1, ranks_per_thread: 1, ranks_per_gpu: 1 }).unwrap();
        let station = backend.open(&[], &Making::default()).unwrap().remove(0);
        Recorder::new(station, std::slice::from_ref(log)).unwrap()
    }

    fn case() -> Case {
        "reduce::max::half::8B".parse().unwrap()
    }

    fn launch(station: &mut dyn Station, times: u32) -> Result<(), RankError> {
        let case = case();
        let plan = Plan::new(1, case.primitive, case.op, case.dtype, 1, 0);
        let workload = case.workload(1);
        let call = Call { case: &case, workload, placement: Placement::OutOfPlace, plan: &plan, base: 0, twist: None };
        (0..times).try_for_each(|_| station.launch(std::slice::from_ref(&call)))
    }

    #[test]
    fn a_call_is_recorded_with_its_arguments_and_counted_within_its_case() {
        let log = Log::allocate();
        let mut recorder = recorder(&log);
        recorder.prepare(&Need { send_bytes: 8, recv_bytes: 8, ..Need::default() }).unwrap();
        for number in [4, 5] {
            log.begin(number, &case().name());
            launch(&mut recorder, 2).unwrap();
        }
        let calls = snapshot(&log).unwrap().calls;
        let places: Vec<(u64, u64)> = calls.iter().map(|call| (call.comm, call.seq)).collect();
        assert_eq!(places, [(4, 1), (4, 2), (5, 1), (5, 2)]);
        let last = calls.last().unwrap();
        assert_eq!(last.operation, Operation::Collective(case().primitive));
        assert_eq!((last.op, last.dtype, last.count, last.root), (Some(Op::Max), Some(DType::Half), Some(4), Some(0)));
        assert_eq!((last.state, last.label.as_str()), (State::Completed, "reduce::max::half::8B"));
    }

    #[test]
    fn a_call_that_fails_stays_open() {
        let log = Log::allocate();
        let mut recorder = recorder(&log);
        log.begin(1, "");
        // no buffers were made
        launch(&mut recorder, 1).unwrap_err();
        assert_ne!(snapshot(&log).unwrap().calls[0].state, State::Completed);
    }

    /// The bound is for a build without optimisation on a busy machine; what it really is, the test prints.
    #[test]
    fn recording_a_call_costs_little() {
        const TIMES: u32 = 100_000;
        let log = Log::allocate();
        let mut recorder = recorder(&log);
        recorder.prepare(&Need { send_bytes: 8, recv_bytes: 8, ..Need::default() }).unwrap();
        log.begin(1, &case().name());
        let time = |station: &mut dyn Station| {
            let start = Instant::now();
            launch(station, TIMES).unwrap();
            start.elapsed().as_secs_f64() * 1e6 / f64::from(TIMES)
        };
        let with = (0..3).map(|_| time(&mut recorder)).fold(f64::MAX, f64::min);
        let without = (0..3).map(|_| time(recorder.station.as_mut())).fold(f64::MAX, f64::min);
        println!("{with:.3} us a call recorded, {without:.3} us without");
        assert!(with - without < 50.0, "{with} us, {without} us without");
    }
}
