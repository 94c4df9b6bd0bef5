//! A station that records its calls on the way.
//!
//! Every launch of every rank is recorded, which costs a look at the clock or two and 200 bytes written. Timed launches are
//! counted instead, at two or three words written for each: they are alike, and were recorded once when they were announced.
//! What a graph holds is recorded as it is replayed.
//!
//! A call of a library that queues is known to be done when the worker has waited for it. So of launches that are queued
//! in a row, the first that is not known to be done may be earlier than the one that hangs.

use super::log::{Doing, Log, now_ns};
use crate::backend::{Aborter, Buffer, Call, GuardBreach, Need, RankError, Region, Station, Verdict, Watcher};
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
    batch: Option<Batch>,
}

/// Launches that are counted.
struct Batch {
    /// Where the announced calls lie, and how many they are; other calls are not those.
    calls: (usize, usize),
    replayed: bool,
    /// The number of the first call.
    first: u64,
    /// Calls recorded for a launch.
    each: u64,
    made: u64,
    done: u64,
}

impl Batch {
    fn is_of(&self, calls: &[Call<'_>]) -> bool {
        !self.replayed && self.calls == place(calls)
    }
}

fn place(calls: &[Call<'_>]) -> (usize, usize) {
    (calls.as_ptr().addr(), calls.len())
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
            batch: None,
        })
    }

    fn at(&self, doing: Doing) {
        self.lanes.iter().for_each(|lane| lane.log.at(doing));
    }

    /// The number of the last call of the case.
    fn numbered(&mut self) -> u64 {
        let Some(log) = self.lanes.first().map(|lane| &lane.log) else { return 0 };
        let case = log.case();
        if case != self.case {
            (self.case, self.sequence, self.label) = (case, 0, log.label());
            self.batch = None;
            self.lanes.iter_mut().for_each(|lane| lane.open.clear());
        }
        self.sequence
    }

    /// Records calls of a graph that is about to be replayed.
    fn make_captured(&mut self) {
        let captured = std::mem::take(&mut self.captured);
        self.make(captured.iter().cloned());
        self.captured = captured;
    }

    /// Records calls that are about to be made.
    fn make(&mut self, calls: impl Iterator<Item = Made>) {
        self.numbered();
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

    /// One launch of the batch.
    fn count(&mut self, launch: impl FnOnce(&mut dyn Station) -> Result<(), RankError>) -> Result<(), RankError> {
        let Some(batch) = &mut self.batch else { return launch(self.station.as_mut()) };
        batch.made += 1;
        self.lanes.iter().for_each(|lane| lane.log.made(batch.made));
        let result = launch(self.station.as_mut());
        if self.synchronous && result.is_ok() {
            batch.done = batch.made;
            self.lanes.iter().for_each(|lane| lane.log.done(batch.done));
        }
        result
    }

    /// Ends the batch, after as many launches as there were: all that follow count on from there.
    fn close(&mut self) {
        self.numbered();
        let Some(batch) = self.batch.take() else { return };
        self.sequence = batch.first - 1 + batch.each * batch.made;
        if batch.done == batch.made {
            self.done();
        }
    }

    /// Passes on what waits for all lanes.
    fn waited<T>(&mut self, wait: impl FnOnce(&mut dyn Station) -> Result<T, RankError>) -> Result<T, RankError> {
        if let Some(batch) = &mut self.batch {
            if !self.synchronous {
                self.lanes.iter().for_each(|lane| lane.log.still(Doing::Waiting));
            }
            let result = wait(self.station.as_mut());
            if result.is_ok() {
                batch.done = batch.made;
                self.lanes.iter().for_each(|lane| lane.log.done(batch.done));
            }
            return result;
        }
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
        self.batch = None; // left of a case that failed
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

    fn launch(&mut self, calls: &[Call<'_>]) -> Result<(), RankError> {
        if let Some(capturing) = &mut self.capturing {
            capturing.extend(calls.iter().map(Made::of));
            return self.station.launch(calls);
        }
        if self.batch.as_ref().is_some_and(|batch| batch.is_of(calls)) {
            return self.count(|station| station.launch(calls));
        }
        self.close();
        self.make(calls.iter().map(Made::of));
        self.lanes.iter().for_each(|lane| lane.log.still(Doing::Launching));
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
        if self.batch.as_ref().is_some_and(|batch| batch.replayed) {
            return self.count(|station| station.replay());
        }
        self.close();
        self.make_captured();
        self.lanes.iter().for_each(|lane| lane.log.still(Doing::Launching));
        self.station.replay()
    }

    fn begin_batch(&mut self, calls: &[Call<'_>], replayed: bool) {
        self.close();
        let before = self.numbered();
        if replayed {
            self.make_captured();
        } else {
            self.make(calls.iter().map(Made::of));
        }
        let (first, each) = (before + 1, self.sequence - before);
        self.lanes.iter().for_each(|lane| lane.log.begin_batch(first, each));
        self.batch = Some(Batch { calls: place(calls), replayed, first, each, made: 0, done: 0 });
        self.station.begin_batch(calls, replayed);
    }

    fn end_batch(&mut self) {
        self.close();
        self.station.end_batch();
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

    fn watcher(&self) -> Watcher {
        self.station.watcher()
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
    use crate::fleet::log;
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
        let call = Call { case: &case, workload, placement: Placement::OutOfPlace, plan: &plan, base: 0 };
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

    /// Launches in a batch, and then one more outside of it.
    fn batch(recorder: &mut Recorder, times: u32, ended: bool) {
        let case = case();
        let plan = Plan::new(1, case.primitive, case.op, case.dtype, 1, 0);
        let workload = case.workload(1);
        let call = Call { case: &case, workload, placement: Placement::OutOfPlace, plan: &plan, base: 0 };
        let calls = [call];
        recorder.begin_batch(&calls, false);
        (0..times).for_each(|_| recorder.launch(&calls).unwrap());
        if ended {
            recorder.end_batch();
        }
    }

    #[test]
    fn launches_of_a_batch_are_counted_and_numbers_go_on_behind_them() {
        let log = Log::allocate();
        let mut recorder = recorder(&log);
        recorder.prepare(&Need { send_bytes: 8, recv_bytes: 8, ..Need::default() }).unwrap();
        log.begin(1, "");
        launch(&mut recorder, 1).unwrap();
        batch(&mut recorder, 1000, true);
        assert_eq!(log.batch(), Some(log::Batch { first: 2, calls: 1, made: 1000, done: 1000 }));
        launch(&mut recorder, 1).unwrap();
        let calls = snapshot(&log).unwrap().calls;
        assert_eq!(calls.iter().map(|call| call.seq).collect::<Vec<_>>(), [1, 2, 1002]);
        assert!(calls.iter().all(|call| call.state == State::Completed));
    }

    #[test]
    fn another_call_ends_a_batch_and_a_new_case_forgets_it() {
        let log = Log::allocate();
        let mut recorder = recorder(&log);
        recorder.prepare(&Need { send_bytes: 8, recv_bytes: 8, ..Need::default() }).unwrap();
        log.begin(1, "");
        batch(&mut recorder, 3, false);
        launch(&mut recorder, 1).unwrap();
        assert_eq!(snapshot(&log).unwrap().calls.iter().map(|call| call.seq).collect::<Vec<_>>(), [1, 4]);
        batch(&mut recorder, 2, false);
        log.begin(2, "");
        assert_eq!(log.batch(), None);
        launch(&mut recorder, 1).unwrap();
        let last = snapshot(&log).unwrap().calls.pop().unwrap();
        assert_eq!((last.comm, last.seq, last.state), (2, 1, State::Completed));
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
    fn counting_a_launch_costs_next_to_nothing() {
        const TIMES: u32 = 1_000;
        let log = Log::allocate();
        let mut recorder = recorder(&log);
        recorder.synchronous = true;
        log.begin(1, "");
        recorder.begin_batch(&[], false);
        let mut time = || {
            let start = Instant::now();
            (0..TIMES).for_each(|_| recorder.count(|_| Ok(())).unwrap());
            start.elapsed().as_secs_f64() * 1e9 / f64::from(TIMES)
        };
        // the best, so that it does not matter what else runs
        let each = (0..100).map(|_| time()).fold(f64::MAX, f64::min);
        println!("{each:.1} ns a launch counted");
        assert!(each < 500.0, "{each} ns");
    }

    /// The same.
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
