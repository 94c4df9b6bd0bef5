//! What deliberate faults ask of a rank of the host backend: bytes read and written anywhere, work aside, a second
//! communicator, and sends and receives that go astray.

mod host_support;

use std::fs::OpenOptions;
use std::time::{Duration, Instant};

use collcheck::backend::host::{HostBackend, HostStation};
use collcheck::backend::{
    Backend, Buffer, Content, GUARD, GUARD_BYTE, Making, Placement, RankError, Recipe, Region, Station, Twist,
};
use collcheck::case::{Case, DType, Op, Primitive};
use collcheck::oracle::Plan;
use host_support::{Findings, Trial, aborted, backend, case, need, on_all_ranks};

/// Longer than anything that a test does meanwhile.
const DELAY: u32 = 200_000;

fn one() -> HostStation {
    backend(1).stations().unwrap().remove(0)
}

fn region(plan: &Plan, len: u64) -> Region<'_> {
    Region { buffer: Buffer::Recv, start: 0, len, plan, content: Content::Input { rank: 0, element: 0 }, base: 0 }
}

fn plan() -> Plan {
    Plan::new(3, Primitive::AllGather, None, DType::Float, 1, 0)
}

fn peek(station: &mut HostStation, at: i64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    station.peek(0, Buffer::Recv, at, &mut bytes).unwrap();
    bytes
}

fn all_reduce(bytes: u64) -> Case {
    case(Primitive::AllReduce, Some(Op::Sum), DType::Float, bytes)
}

fn sendrecv(bytes: u64) -> Case {
    case(Primitive::Sendrecv, None, DType::Float, bytes)
}

#[test]
fn bytes_are_read_and_written_in_the_data_and_in_both_guard_zones() {
    let mut station = one();
    station.prepare(&need(64, 64)).unwrap();
    assert_eq!(peek(&mut station, 64, 3), [GUARD_BYTE; 3]);
    station.poke(0, Buffer::Recv, 62, &[1, 2, 3]).unwrap();
    assert_eq!(peek(&mut station, 61, 5), [0, 1, 2, 3, GUARD_BYTE]);
    assert_eq!(station.guards(0).unwrap().map(|breach| (breach.recv, breach.offset)), Some((true, 64)));
    let zone = GUARD as i64;
    station.poke(0, Buffer::Send, -zone, &[9]).unwrap();
    assert_eq!(station.guards(0).unwrap().map(|breach| (breach.recv, breach.offset)), Some((false, -zone)));
    for at in [-zone - 1, 64 + zone, i64::MIN, i64::MAX] {
        assert!(matches!(station.poke(0, Buffer::Recv, at, &[0]), Err(RankError::Refused { .. })), "byte {at}");
        assert!(matches!(station.peek(0, Buffer::Recv, at, &mut [0]), Err(RankError::Refused { .. })), "byte {at}");
    }
    assert!(matches!(station.peek(1, Buffer::Recv, 0, &mut [0]), Err(RankError::Refused { .. })));
}

#[test]
fn what_is_filled_aside_is_seen_after_a_wait_and_not_before() {
    let (mut station, plan) = (one(), plan());
    station.prepare(&need(4096, 4096)).unwrap();
    let before = peek(&mut station, 0, 64);
    station.aside(true).unwrap();
    station.delay(0, DELAY).unwrap();
    station.fill(0, &region(&plan, 1024)).unwrap();
    station.aside(false).unwrap();
    let start = Instant::now();
    assert_eq!(peek(&mut station, 0, 64), before);
    assert!(start.elapsed() < Duration::from_micros(DELAY.into()), "too slow a machine to tell");
    station.wait().unwrap();
    assert_ne!(peek(&mut station, 0, 64), before);
    station.check(0, &region(&plan, 1024)).unwrap();
    assert_eq!(station.verdict(0, DType::Float).unwrap().wrong, 0);
}

#[test]
fn a_peek_aside_waits_for_what_is_aside_and_a_verdict_counts_what_was_checked_there() {
    let (mut station, plan) = (one(), plan());
    station.prepare(&need(4096, 4096)).unwrap();
    station.fill(0, &region(&plan, 1024)).unwrap();
    station.aside(true).unwrap();
    station.delay(0, DELAY).unwrap();
    station.poke(0, Buffer::Recv, 4, &[0xff; 4]).unwrap();
    assert_eq!(peek(&mut station, 4, 4), [0xff; 4]);
    station.delay(0, DELAY / 10).unwrap();
    station.check(0, &region(&plan, 1024)).unwrap();
    station.aside(false).unwrap();
    let verdict = station.verdict(0, DType::Float).unwrap();
    assert_eq!((verdict.wrong, verdict.first.map(|wrong| wrong.index)), (1, Some(1)));
}

#[test]
fn what_is_out_of_range_is_refused_aside_as_it_is_else() {
    let (mut station, plan) = (one(), plan());
    station.prepare(&need(64, 64)).unwrap();
    station.aside(true).unwrap();
    assert!(matches!(station.fill(0, &region(&plan, 17)), Err(RankError::Refused { .. })));
    assert!(matches!(station.check(0, &region(&plan, 17)), Err(RankError::Refused { .. })));
    assert!(matches!(station.poke(0, Buffer::Recv, 64, &[0; 4097]), Err(RankError::Refused { .. })));
    let large = all_reduce(128);
    let trial = Trial::new(&large, 1, 0, Placement::OutOfPlace, 0);
    assert!(matches!(trial.launch(&mut station), Err(RankError::Refused { .. })));
    station.wait().unwrap();
}

#[test]
fn a_fill_aside_races_with_the_collective_that_reads_it() {
    let case = all_reduce(1 << 16);
    let findings = on_all_ranks(&backend(2), |rank, station| {
        let trial = Trial::new(&case, 2, rank, Placement::OutOfPlace, 0);
        trial.prepare(station).unwrap();
        station.poke(0, Buffer::Send, 0, &[0; 64]).unwrap();
        // the producer is late, and nothing makes the collective wait for it
        station.aside(true).unwrap();
        station.delay(0, DELAY).unwrap();
        trial.stage_input(station).unwrap();
        station.aside(false).unwrap();
        trial.launch(station).unwrap();
        station.wait().unwrap();
        trial.check(station).unwrap()
    });
    for found in findings {
        assert!(found.output.wrong > 0 && found.input.wrong == 0, "{found:?}");
    }
}

/// Launches two trials on their own parts of the buffers: one beside on the twin or on the same communicator, one not.
fn two(station: &mut HostStation, rank: u32, ranks: u32, twin: bool, epoch: u64) -> [Findings; 2] {
    let (reduce, gather) = (all_reduce(200_000), case(Primitive::AllGather, None, DType::Float, 300_000));
    let base = 1 << 20;
    let first = Trial::new(&reduce, ranks, rank, Placement::OutOfPlace, epoch);
    let second = Trial { base, ..Trial::new(&gather, ranks, rank, Placement::OutOfPlace, epoch + 1) };
    station.prepare(&need(2 * base, 2 * base)).unwrap();
    first.stage(station).unwrap();
    second.stage(station).unwrap();
    station.aside(true).unwrap();
    station.twin(twin).unwrap();
    // uneven, so that either comes first somewhere
    station.delay(0, 3_000 * ((rank + epoch as u32) % 3)).unwrap();
    first.launch(station).unwrap();
    station.aside(false).unwrap();
    station.twin(false).unwrap();
    second.launch(station).unwrap();
    station.wait().unwrap();
    [first.check(station).unwrap(), second.check(station).unwrap()]
}

#[test]
fn two_communicators_at_once_give_right_results() {
    for ranks in 2..=4 {
        let found = on_all_ranks(&backend(ranks), |rank, station| {
            (0..12).flat_map(|k| two(station, rank, ranks, true, 2 * k)).collect::<Vec<_>>()
        });
        assert!(found.iter().flatten().all(|found| *found == Findings::default()), "{ranks} ranks: {found:?}");
    }
}

#[test]
fn launches_of_one_communicator_keep_their_order_wherever_they_are_queued() {
    let found = on_all_ranks(&backend(3), |rank, station| {
        (0..12).flat_map(|k| two(station, rank, 3, false, 2 * k)).collect::<Vec<_>>()
    });
    assert!(found.iter().flatten().all(|found| *found == Findings::default()), "{found:?}");
}

#[test]
fn ranks_in_processes_have_room_for_both_communicators() {
    let ranks = 3;
    let Recipe::Host { bytes } = backend(ranks).recipe(&Making::default()).unwrap() else { panic!("no recipe") };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("channels");
    let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
    open().set_len(bytes).unwrap();
    std::thread::scope(|scope| {
        for rank in 0..ranks {
            scope.spawn(move || {
                // a mapping of its own, as another process has
                let mut station = HostBackend::join(&open(), ranks, rank).unwrap();
                station.enter().unwrap();
                for epoch in 0..4 {
                    let found = two(&mut station, rank, ranks, true, 2 * epoch);
                    assert!(found.iter().all(|found| *found == Findings::default()), "{found:?}");
                }
            });
        }
    });
}

#[test]
fn communicators_entered_in_crossed_order_hang_and_an_abort_frees_both() {
    let case = all_reduce(4096);
    let (results, ended) = aborted(&backend(2), |rank, station, ready| {
        let trial = Trial::new(&case, 2, rank, Placement::OutOfPlace, 0);
        trial.prepare(station).unwrap();
        ready();
        let mut launch = |twin| {
            station.twin(twin)?;
            trial.launch(station)
        };
        launch(rank == 1).and_then(|()| launch(rank == 0))
    });
    assert_eq!((results, ended), (vec![Err(RankError::Aborted); 2], 0));
}

#[test]
fn an_abort_ends_what_hangs_aside() {
    let case = all_reduce(4096);
    let (results, ended) = aborted(&backend(2), |rank, station, ready| {
        let trial = Trial::new(&case, 2, rank, Placement::OutOfPlace, 0);
        trial.prepare(station).unwrap();
        station.aside(true).unwrap();
        // rank 1 never comes
        let launched = if rank == 0 { trial.launch(station) } else { Ok(()) };
        ready();
        (launched, station.wait())
    });
    assert_eq!((results, ended), (vec![(Ok(()), Err(RankError::Aborted)), (Ok(()), Ok(()))], 1));
}

/// What becomes of ranks of which rank 1 twists a sendrecv: what each returns, and how many elements are wrong.
fn twisted(bytes: u64, twist: Twist) -> (Vec<Result<u64, RankError>>, u32) {
    let case = sendrecv(bytes);
    aborted(&backend(4), |rank, station, ready| {
        let trial = Trial::new(&case, 4, rank, Placement::OutOfPlace, 0);
        let trial = Trial { twist: (rank == 1).then_some(twist), ..trial };
        trial.prepare(station).unwrap();
        ready();
        trial.launch(station)?;
        Ok(trial.check(station)?.output.wrong)
    })
}

#[test]
fn a_receive_left_out_blocks_a_large_send_and_lets_a_small_one_pass() {
    let large = 4 * backend(4).channel_capacity();
    let (results, ended) = twisted(large, Twist::NoRecv);
    assert_eq!((results, ended), (vec![Err(RankError::Aborted), Ok(large / 4), Ok(0), Ok(0)], 3));
    let (results, ended) = twisted(64, Twist::NoRecv);
    assert_eq!((results, ended), (vec![Ok(0), Ok(16), Ok(0), Ok(0)], 4));
}

#[test]
fn a_send_left_out_is_waited_for() {
    let (results, ended) = twisted(64, Twist::NoSend);
    assert_eq!((results, ended), (vec![Ok(0), Ok(0), Err(RankError::Aborted), Ok(0)], 3));
}

#[test]
fn a_send_to_the_wrong_peer_is_missed_by_the_right_one() {
    let (results, ended) = twisted(64, Twist::SendTo(3));
    assert_eq!((results, ended), (vec![Ok(0), Ok(0), Err(RankError::Aborted), Ok(0)], 3));
    let large = 4 * backend(4).channel_capacity();
    let (results, ended) = twisted(large, Twist::SendTo(3));
    let aborted = Err(RankError::Aborted);
    assert_eq!((results, ended), (vec![Ok(0), aborted.clone(), aborted, Ok(0)], 2));
}

#[test]
fn a_receive_from_the_wrong_peer_waits_for_what_that_never_sends() {
    let (results, ended) = twisted(64, Twist::RecvFrom(3));
    assert_eq!((results, ended), (vec![Ok(0), Err(RankError::Aborted), Ok(0), Ok(0)], 3));
}

#[test]
fn a_twist_that_cannot_be_is_refused() {
    let mut station = one();
    let launch = |station: &mut HostStation, case: &Case, twist| {
        let trial = Trial { twist: Some(twist), ..Trial::new(case, 1, 0, Placement::OutOfPlace, 0) };
        trial.prepare(station).unwrap();
        trial.launch(station)
    };
    assert!(matches!(launch(&mut station, &all_reduce(64), Twist::NoSend), Err(RankError::Unsupported(_))));
    assert!(matches!(launch(&mut station, &sendrecv(64), Twist::SendTo(1)), Err(RankError::Refused { .. })));
    station.wait().unwrap();
}
