//! A station that records its calls on the way.
//!
//! Every launch of every rank is recorded, also timed ones: that costs two looks at the clock and 200 bytes written, or one
//! look where launches are queued. What a graph holds is recorded as it is replayed.
//!
//! Calls on a second communicator are recorded as of one, see [`TWIN`].
//!
//! A call of a library that queues is known to be done when the worker has waited for it. So of launches that are queued
//! in a row, the first that is not known to be done may be earlier than the one that hangs.

use std::sync::Arc;

use super::log::{Doing, Log, now_ns};
use crate::backend::{Aborter, Buffer, Call, GuardBreach, Need, RankError, Region, Station, Twist, Verdict};
use crate::case::primitive::{Direction, Transfer, transfers};
use crate::case::{DType, Op, Primitive, Workload};
use crate::trace::call::Operation;
use crate::trace::ring::{Creation, RingError, Ticket, Writer};

/// Added to a case's number, it is the id of the second communicator that the case's calls may be of.
pub const TWIN: u64 = 1 << 63;

/// A station whose calls are recorded.
pub struct Recorder {
    station: Box<dyn Station>,
    lanes: Vec<Lane>,
    /// The case that calls belong to, as a communicator's id: numbers count from 1 in each.
    case: u64,
    label: String,
    /// Numbers given on the communicator, and on its twin.
    numbers: [Numbers; 2],
    synchronous: bool,
    aside: bool,
    twin: bool,
    /// The exchange last made, as one rarely follows another.
    exchange: Option<(Exchange, Arc<Messages>)>,
    /// What is being captured.
    capturing: Option<Vec<Made>>,
    captured: Vec<Made>,
}

/// The last numbers given: whole calls and exchanges count apart.
#[derive(Clone, Copy, Default)]
struct Numbers {
    whole: u64,
    exchange: u64,
}

struct Lane {
    log: Log,
    writer: Writer<Log>,
    /// Calls not known to be done.
    open: Vec<Ticket>,
    /// Those of them that were made aside.
    beside: Vec<Ticket>,
}

/// What decides which messages an exchange consists of.
type Exchange = (Primitive, Workload, Option<Twist>);

/// By lane: sends and receives, with their elements.
type Messages = Vec<Vec<(Operation, u64)>>;

/// What is recorded of a call.
#[derive(Clone)]
struct Made {
    what: What,
    op: Option<Op>,
    dtype: DType,
    root: Option<u32>,
    twin: bool,
}

#[derive(Clone)]
enum What {
    /// One operation, the same on all lanes.
    Whole(Operation, u64),
    /// Sends and receives, of which ranks differ in theirs.
    Exchange(Arc<Messages>),
}

impl Recorder {
    /// Records the station's calls in a log for each of its ranks, in lane order.
    pub fn new(station: Box<dyn Station>, logs: &[Log]) -> Result<Recorder, RingError> {
        let lane = |(log, rank): (&Log, &u32)| {
            let writer = Writer::new(log.clone(), *rank)?;
            Ok(Lane { log: log.clone(), writer, open: Vec::new(), beside: Vec::new() })
        };
        let lanes = logs.iter().zip(station.ranks()).map(lane).collect::<Result<_, RingError>>()?;
        let synchronous = station.synchronous();
        Ok(Recorder {
            station,
            lanes,
            case: 0,
            label: String::new(),
            numbers: [Numbers::default(); 2],
            synchronous,
            aside: false,
            twin: false,
            exchange: None,
            capturing: None,
            captured: Vec::new(),
        })
    }

    fn at(&self, doing: Doing) {
        self.lanes.iter().for_each(|lane| lane.log.at(doing));
    }

    /// What to record of a call.
    ///
    /// A sendrecv is always recorded as its sends and receives, so that one without its partner is seen as that. Others are
    /// one operation, which all ranks make alike, unless they are twisted.
    fn made(&mut self, call: &Call<'_>) -> Made {
        let (primitive, unit) = (call.case.primitive, call.case.primitive.unit());
        let apart = primitive == Primitive::Sendrecv || (call.twist.is_some() && primitive.is_exchange());
        let what = if apart {
            What::Exchange(self.messages((primitive, call.workload, call.twist)))
        } else {
            What::Whole(Operation::Collective(primitive), unit.shape(&call.workload).count)
        };
        let root = (unit.rooted() && !apart).then_some(call.workload.root);
        Made { what, op: call.case.op, dtype: call.workload.dtype, root, twin: self.twin }
    }

    fn messages(&mut self, exchange: Exchange) -> Arc<Messages> {
        match &self.exchange {
            Some((last, messages)) if *last == exchange => Arc::clone(messages),
            _ => {
                let messages = self.station.ranks().iter().map(|rank| messages(exchange, *rank)).collect();
                let messages = Arc::new(messages);
                self.exchange = Some((exchange, Arc::clone(&messages)));
                messages
            }
        }
    }

    /// Makes ready for records of the case that is under way.
    fn turn(&mut self) {
        let Some(log) = self.lanes.first().map(|lane| &lane.log) else { return };
        let case = log.case();
        if case != self.case {
            (self.case, self.numbers, self.label) = (case, [Numbers::default(); 2], log.label());
            for lane in &mut self.lanes {
                lane.open.clear();
                lane.beside.clear();
            }
        }
    }

    /// Records a call that is about to be made.
    fn record(&mut self, made: &Made, now: u64) {
        let Recorder { lanes, numbers: [first, second], label, case, .. } = self;
        let (numbers, comm) = if made.twin { (second, *case | TWIN) } else { (first, *case) };
        let number = match made.what {
            What::Whole(..) => &mut numbers.whole,
            What::Exchange(_) => &mut numbers.exchange,
        };
        *number += 1;
        let creation = |operation, count| Creation {
            comm,
            seq: *number,
            operation,
            op: made.op,
            dtype: Some(made.dtype),
            count: Some(count),
            root: made.root,
            label,
        };
        // what is made aside has not begun when the call returns, and is not done either
        let begun = self.synchronous && !self.aside;
        for (index, lane) in lanes.iter_mut().enumerate() {
            let mut create = |operation, count| {
                let ticket = lane.writer.created(&creation(operation, count), now);
                if begun {
                    lane.writer.started(ticket, now);
                }
                if self.aside { lane.beside.push(ticket) } else { lane.open.push(ticket) }
            };
            match &made.what {
                What::Whole(operation, count) => create(operation, *count),
                What::Exchange(messages) => {
                    let own = messages.get(index).map_or(&[][..], Vec::as_slice);
                    own.iter().for_each(|(operation, count)| create(operation, *count));
                }
            }
        }
    }

    /// What was not made aside is done.
    fn done(&mut self) {
        let now = now_ns();
        for Lane { writer, open, .. } in &mut self.lanes {
            open.drain(..).for_each(|ticket| writer.completed(ticket, now));
        }
    }

    /// So is what was.
    fn all_done(&mut self) {
        self.done();
        if self.lanes.iter().any(|lane| !lane.beside.is_empty()) {
            let now = now_ns();
            for Lane { writer, beside, .. } in &mut self.lanes {
                beside.drain(..).for_each(|ticket| writer.completed(ticket, now));
            }
        }
    }

    /// Passes on what waits for all lanes.
    fn waited<T>(&mut self, wait: impl FnOnce(&mut dyn Station) -> Result<T, RankError>) -> Result<T, RankError> {
        let waits = !self.synchronous || self.lanes.iter().any(|lane| !lane.beside.is_empty());
        if waits {
            self.at(Doing::Waiting);
        }
        let result = wait(self.station.as_mut());
        if result.is_ok() && waits {
            self.all_done();
        }
        result
    }
}

/// A rank's sends and receives of an exchange.
fn messages((primitive, workload, twist): Exchange, rank: u32) -> Vec<(Operation, u64)> {
    let message = |transfer: Transfer| {
        let Transfer { direction, peer, len, .. } = transfer;
        let operation = match direction {
            Direction::Send => Operation::Send { peer: twist.map_or(Some(peer), |twist| twist.send(rank, peer))? },
            Direction::Recv => Operation::Recv { peer: twist.map_or(Some(peer), |twist| twist.recv(rank, peer))? },
        };
        Some((operation, len))
    };
    transfers(primitive.unit(), &workload, rank).into_iter().filter_map(message).collect()
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
        self.at(Doing::Preparing);
        self.station.twin(twin)?;
        self.twin = twin;
        Ok(())
    }

    fn launch(&mut self, calls: &[Call<'_>]) -> Result<(), RankError> {
        if self.capturing.is_some() {
            for call in calls {
                let made = self.made(call);
                self.capturing.iter_mut().for_each(|all| all.push(made.clone()));
            }
            return self.station.launch(calls);
        }
        self.turn();
        let now = now_ns();
        for call in calls {
            let made = self.made(call);
            self.record(&made, now);
        }
        self.lanes.iter().for_each(|lane| lane.log.launching());
        let result = self.station.launch(calls);
        if self.synchronous && !self.aside && result.is_ok() {
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
        self.turn();
        let captured = std::mem::take(&mut self.captured);
        let now = now_ns();
        captured.iter().for_each(|made| self.record(made, now));
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
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Instant;

    use super::*;
    use crate::backend::Placement;
    use crate::backend::host::HostBackend;
    use crate::backend::{Backend, Layout, Making};
    use crate::case::Case;
    use crate::fleet::inquest::{self, Cause, Witness};
    use crate::oracle::Plan;
    use crate::trace::call::State;
    use crate::trace::ring::{RingMemory, snapshot};
    use crate::trace::{Class, Liveness};

    fn recorder(log: &Log) -> Recorder {
        let backend = HostBackend::new(&Layout { ranks: 1, ranks_per_thread: 1, ranks_per_gpu: 1 }).unwrap();
        let station = backend.open(&[], &Making::default()).unwrap().remove(0);
        Recorder::new(station, std::slice::from_ref(log)).unwrap()
    }

    fn case() -> Case {
        "reduce::max::half::8B".parse().unwrap()
    }

    fn launch(station: &mut dyn Station, times: u32) -> Result<(), RankError> {
        launch_on(station, 1, times)
    }

    fn launch_on(station: &mut dyn Station, ranks: u32, times: u32) -> Result<(), RankError> {
        // who only sends to a root does not wait for it
        let case = if ranks == 1 { case() } else { "all_reduce::max::half::8B".parse().unwrap() };
        let plan = Plan::new(1, case.primitive, case.op, case.dtype, ranks, 0);
        let workload = case.workload(ranks);
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

    fn sendrecv(station: &mut dyn Station, twist: Option<Twist>) -> Result<(), RankError> {
        let case: Case = "sendrecv::none::int8::64B".parse().unwrap();
        let plan = Plan::new(1, case.primitive, case.op, case.dtype, 1, 0);
        let workload = case.workload(1);
        station.launch(&[Call { case: &case, workload, placement: Placement::OutOfPlace, plan: &plan, base: 0, twist }])
    }

    #[test]
    fn a_sendrecv_is_recorded_as_a_send_and_a_receive_that_share_a_number() {
        let log = Log::allocate();
        let mut recorder = recorder(&log);
        recorder.prepare(&Need { send_bytes: 64, recv_bytes: 64, ..Need::default() }).unwrap();
        log.begin(1, "");
        launch(&mut recorder, 1).unwrap();
        (0..2).for_each(|_| sendrecv(&mut recorder, None).unwrap());
        let calls = snapshot(&log).unwrap().calls;
        let (send, recv) = (Operation::Send { peer: 0 }, Operation::Recv { peer: 0 });
        let seen: Vec<_> = calls.iter().skip(1).map(|call| (call.seq, call.operation.clone(), call.count)).collect();
        let message = |seq, operation: &Operation| (seq, operation.clone(), Some(64));
        assert_eq!(seen, [message(1, &send), message(1, &recv), message(2, &send), message(2, &recv)]);
        assert!(calls.iter().all(|call| call.state == State::Completed));
    }

    #[test]
    fn a_twist_is_recorded_as_what_is_really_called() {
        let w = |ranks| "alltoall::none::int8::64B".parse::<Case>().unwrap().workload(ranks);
        let of = |twist| messages((Primitive::Alltoall, w(2), Some(twist)), 1);
        let (send, recv) = (|peer| (Operation::Send { peer }, 32), |peer| (Operation::Recv { peer }, 32));
        assert_eq!(of(Twist::NoSend), [recv(0), send(1), recv(1)]);
        assert_eq!(of(Twist::NoRecv), [send(0), send(1), recv(1)]);
        assert_eq!(messages((Primitive::Sendrecv, w(4), Some(Twist::SendTo(3))), 1)[1].0, Operation::Send { peer: 3 });
        assert_eq!(
            messages((Primitive::Sendrecv, w(4), Some(Twist::RecvFrom(3))), 1)[0].0,
            Operation::Recv { peer: 3 }
        );
    }

    #[test]
    fn calls_on_the_twin_are_of_a_communicator_of_their_own() {
        let log = Log::allocate();
        let mut recorder = recorder(&log);
        recorder.prepare(&Need { send_bytes: 8, recv_bytes: 8, ..Need::default() }).unwrap();
        log.begin(4, "");
        for twin in [false, true, true, false] {
            recorder.twin(twin).unwrap();
            launch(&mut recorder, 1).unwrap();
        }
        let calls = snapshot(&log).unwrap().calls;
        let places: Vec<(u64, u64)> = calls.iter().map(|call| (call.comm, call.seq)).collect();
        assert_eq!(places, [(4, 1), (4 | TWIN, 1), (4 | TWIN, 2), (4, 2)]);
    }

    #[test]
    fn two_ranks_that_enter_the_communicators_in_crossed_order_are_told_so() {
        let backend = HostBackend::new(&Layout { ranks: 2, ranks_per_thread: 1, ranks_per_gpu: 1 }).unwrap();
        let stations = backend.open(&[], &Making::default()).unwrap();
        let abort = stations[0].aborter();
        let logs = [Log::allocate(), Log::allocate()];
        let witnesses = std::thread::scope(|scope| {
            for ((station, log), rank) in stations.into_iter().zip(&logs).zip(0..) {
                scope.spawn(move || {
                    let mut recorder = Recorder::new(station, std::slice::from_ref(log)).unwrap();
                    recorder.prepare(&Need { send_bytes: 8, recv_bytes: 8, ..Need::default() }).unwrap();
                    log.begin(9, "");
                    for twin in [rank == 1, rank == 0] {
                        recorder.twin(twin).unwrap();
                        // a graceful end of the thread either way
                        if launch_on(&mut recorder, 2, 1).is_err() {
                            return;
                        }
                    }
                });
            }
            while logs.iter().any(|log| snapshot(log).is_ok_and(|read| read.calls.is_empty())) {
                std::thread::yield_now();
            }
            std::thread::sleep(std::time::Duration::from_millis(200));
            let witness = |(log, rank): (&Log, u32)| {
                let log = Log::new(Arc::new(copied(log)));
                Witness { rank, liveness: Liveness::Alive, log: Some(log), messages: Vec::new() }
            };
            let witnesses: Vec<Witness> = logs.iter().zip(0..).map(witness).collect();
            abort();
            witnesses
        });
        let found = inquest::hold(witnesses, 9, Cause::Deadline(0.2), 0, now_ns());
        let verdict = found.diagnosis.verdict;
        assert_eq!((verdict.class, &verdict.culprit_ranks[..]), (Class::DCrossed, &[0, 1][..]), "{}", found.message);
        assert!(found.message.contains("the second communicator"), "{}", found.message);
    }

    /// The log as it is now.
    fn copied(log: &Log) -> Arc<RingMemory> {
        log.iter().map(|word| AtomicU64::new(word.load(Ordering::Relaxed))).collect()
    }

    #[test]
    fn a_call_aside_is_open_until_it_was_waited_for() {
        let log = Log::allocate();
        let mut recorder = recorder(&log);
        recorder.prepare(&Need { send_bytes: 8, recv_bytes: 8, ..Need::default() }).unwrap();
        log.begin(1, "");
        recorder.twin(true).unwrap();
        recorder.aside(true).unwrap();
        launch(&mut recorder, 1).unwrap();
        recorder.aside(false).unwrap();
        recorder.twin(false).unwrap();
        launch(&mut recorder, 1).unwrap();
        let states = || snapshot(&log).unwrap().calls.iter().map(|call| call.state).collect::<Vec<_>>();
        assert_eq!(states(), [State::Queued, State::Completed]);
        recorder.wait().unwrap();
        assert_eq!(states(), [State::Completed, State::Completed]);
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
