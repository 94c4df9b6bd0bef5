//! Bounds on time, so that a verdict at a deadline never becomes a wait of its own. Debug builds, which are
//! some thirty to a hundred times slower, get that much longer.

mod trace_support;

use collcheck::case::{DType, Op, Primitive};
use collcheck::trace::call::{Call, Operation, State};
use collcheck::trace::ring::{Creation, Writer, allocate};
use collcheck::trace::{Class, Communicator, Incident, Liveness, RankEvidence, judge};
use std::time::{Duration, Instant};
use trace_support::WORLD;

const SLACK: u32 = if cfg!(debug_assertions) { 100 } else { 1 };

/// The shortest of some tries: what the machine does besides only adds.
fn shortest(tries: usize, mut work: impl FnMut()) -> Duration {
    let time = |()| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    (0..tries).map(|_| ()).map(time).min().unwrap_or_default()
}

/// `calls` calls on each rank; the culprit passes another size in the last, behind which all hang.
fn incident(ranks: u32, calls: u64, culprit: u32) -> Incident {
    let call = |rank: u32, seq: u64| Call {
        op: Some(Op::Sum),
        dtype: Some(DType::Bfloat16),
        count: Some(if seq == calls && rank == culprit { 5 } else { 1000 + seq % 37 }),
        state: if seq == calls { State::Running } else { State::Completed },
        started_ns: Some(seq * 100 + 1),
        created_ns: seq * 100,
        ..Call::new(WORLD, seq, Operation::Collective(Primitive::AllReduce))
    };
    let evidence = |rank| RankEvidence {
        rank,
        liveness: Liveness::Alive,
        calls: Some((1..=calls).map(|seq| call(rank, seq)).collect()),
        ..RankEvidence::default()
    };
    let world = Communicator { id: WORLD, label: "world".into(), ranks: (0..ranks).collect() };
    Incident { ranks: (0..ranks).map(evidence).collect(), communicators: vec![world], world: None }
}

fn judged_within(ranks: u32, calls: u64, limit: Duration) {
    let incident = incident(ranks, calls, ranks / 3);
    let mut found = None;
    let time = shortest(5, || found = Some(judge(&incident).verdict));
    let v = found.unwrap();
    assert_eq!((v.class, &v.culprit_ranks[..], v.sequence), (Class::ASize, &[ranks / 3][..], Some(calls)));
    println!("{ranks} ranks x {calls} records: {time:?}");
    assert!(time < limit * SLACK, "{ranks} x {calls}: {time:?}");
}

#[test]
fn sixty_four_ranks_with_full_rings_take_less_than_50_ms() {
    judged_within(64, 2000, Duration::from_millis(50));
}

#[test]
fn four_thousand_ranks_take_less_than_2_s() {
    judged_within(4096, 200, Duration::from_secs(2));
}

#[test]
fn four_thousand_ranks_that_each_wait_elsewhere_take_less_than_2_s() {
    let mut incident = incident(4096, 200, 0);
    for evidence in &mut incident.ranks {
        let calls = evidence.calls.as_mut().unwrap();
        calls.truncate(100 + evidence.rank as usize % 100);
        calls.last_mut().unwrap().state = State::Running;
    }
    let time = shortest(3, || drop(judge(&incident)));
    println!("{time:?}");
    assert!(time < Duration::from_secs(2) * SLACK, "{time:?}");
}

#[test]
fn recording_a_call_takes_less_than_100_ns() {
    const CALLS: u64 = 10_000;
    let mut writer = Writer::new(allocate(2000), 0).unwrap();
    let operation = Operation::Collective(Primitive::AllReduce);
    let time = shortest(50, || {
        for seq in 0..CALLS {
            let ticket = writer.created(
                &Creation {
                    comm: WORLD,
                    seq,
                    operation: &operation,
                    op: Some(Op::Sum),
                    dtype: Some(DType::Float),
                    count: Some(seq),
                    root: None,
                    label: "all_reduce::sum::bfloat16::1MiB@graph",
                },
                seq,
            );
            writer.started(ticket, seq);
            writer.completed(ticket, seq);
        }
    });
    let each = time.as_nanos() as f64 / CALLS as f64;
    println!("{each:.1} ns a call");
    assert!(each < f64::from(100 * SLACK), "{each:.1} ns");
}
