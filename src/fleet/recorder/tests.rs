//! Calls go in, and what is read back of them from the log is compared.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::*;
use crate::backend::Placement;
use crate::backend::host::HostBackend;
use crate::backend::{Backend, Layout, Making, Twist};
use crate::case::Case;
use crate::fleet::inquest::{self, Cause, Witness};
use crate::fleet::log;
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
    assert_eq!(messages((Primitive::Sendrecv, w(4), Some(Twist::RecvFrom(3))), 1)[0].0, Operation::Recv { peer: 3 });
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
        while !logs.iter().all(|log| snapshot(log).is_ok_and(|read| !read.calls.is_empty())) {
            std::thread::yield_now();
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
        let witness = |(log, rank): (&Log, u32)| {
            let log = Log::new(Arc::new(copied(log)));
            Witness { rank, host: String::new(), liveness: Liveness::Alive, log: Some(log), messages: Vec::new() }
        };
        let witnesses: Vec<Witness> = logs.iter().zip(0..).map(witness).collect();
        abort();
        witnesses
    });
    let found = inquest::hold(witnesses, Vec::new(), 9, Cause::Deadline(0.2), 0, now_ns());
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

/// Launches in a batch, and then one more outside of it.
fn batch(recorder: &mut Recorder, times: u32, ended: bool) {
    let case = case();
    let plan = Plan::new(1, case.primitive, case.op, case.dtype, 1, 0);
    let workload = case.workload(1);
    let call = Call { case: &case, workload, placement: Placement::OutOfPlace, plan: &plan, base: 0, twist: None };
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
    assert_eq!(log.batches(), [log::Batch { first: 2, calls: 1, records: 1, made: 1000, done: 1000 }]);
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
    assert_eq!(log.batches(), []);
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
