//! The host backend goes wrong as real transports do: it hangs, mixes up data and loses ranks, and never more than that.

mod host_support;

use std::time::Duration;

use collcheck::backend::host::{Direction, HostStation, Transfer};
use collcheck::backend::{Backend, Buffer, Making, Placement, RankError, Station};
use collcheck::case::{Case, DType, Op, Primitive, Variant};
use host_support::{Findings, Trial, aborted, backend, case, need, on_all_ranks, with};

/// Prepares for a case, then launches another, and says how that ended and what became of guard zones.
fn launch_instead(
    station: &mut HostStation,
    rank: u32,
    ranks: u32,
    prepared: &Case,
    launched: &Case,
    ready: &dyn Fn(),
) -> (Result<(), RankError>, Findings) {
    let trial = Trial::new(prepared, ranks, rank, Placement::OutOfPlace, 0);
    trial.prepare(station).unwrap();
    ready();
    let result = Trial::new(launched, ranks, rank, Placement::OutOfPlace, 0).launch(station);
    (result, trial.check(station).unwrap())
}

#[test]
fn an_abort_frees_every_rank_that_waits_for_an_absent_one() {
    for primitive in Primitive::ALL {
        let case = case(primitive, primitive.unit().reduces().then_some(Op::Sum), DType::Float, 2 << 20);
        let (results, _) = aborted(&backend(4), |rank, station, ready| {
            let trial = Trial::new(&case, 4, rank, Placement::OutOfPlace, 0);
            trial.prepare(station).unwrap();
            ready();
            if rank == 1 { None } else { Some(trial.launch(station)) }
        });
        let stuck = results.iter().flatten().filter(|result| **result == Err(RankError::Aborted)).count();
        assert!(stuck > 0, "{primitive}: {results:?}");
        if primitive == Primitive::AllReduce {
            assert_eq!(stuck, 3);
        }
    }
}

#[test]
fn an_aborted_communicator_stays_aborted_and_a_new_one_works() {
    let backend = backend(2);
    let case = case(Primitive::AllReduce, Some(Op::Sum), DType::Float, 64);
    let (results, _) = aborted(&backend, |rank, station, ready| {
        let trial = Trial::new(&case, 2, rank, Placement::OutOfPlace, 0);
        ready();
        let first = if rank == 0 { trial.run(station) } else { Err(RankError::Aborted) };
        while !station.abort().raised() {
            std::thread::yield_now();
        }
        (first, station.wait(), trial.launch(station))
    });
    for (first, wait, launch) in results {
        assert_eq!((first, wait, launch), (Err(RankError::Aborted), Err(RankError::Aborted), Err(RankError::Aborted)));
    }
    let results =
        on_all_ranks(&backend, |rank, station| Trial::new(&case, 2, rank, Placement::OutOfPlace, 0).run(station));
    assert!(results.into_iter().all(|result| result == Ok(Findings::default())));
}

fn send(peer: u32, bytes: u64) -> Transfer {
    Transfer { direction: Direction::Send, peer, buffer: Buffer::Send, offset: 0, bytes }
}

fn recv(peer: u32, bytes: u64) -> Transfer {
    Transfer { direction: Direction::Recv, peer, buffer: Buffer::Recv, offset: 0, bytes }
}

#[test]
fn a_small_send_that_nobody_receives_passes_silently_and_a_large_one_blocks() {
    let backend = backend(2);
    let capacity = backend.channel_capacity();
    for (bytes, blocks) in [(1, false), (capacity, false), (capacity + 1, true)] {
        let (results, ended) = aborted(&backend, |rank, station, ready| {
            station.prepare(&need(capacity + 1, capacity + 1)).unwrap();
            ready();
            if rank == 0 { station.exchange(&[send(1, bytes)]) } else { Ok(()) }
        });
        let expected = if blocks { (Err(RankError::Aborted), 1) } else { (Ok(()), 2) };
        assert_eq!((results[0].clone(), ended), expected, "{bytes} bytes");
    }
}

#[test]
fn a_receive_that_nobody_serves_blocks() {
    let (results, ended) = aborted(&backend(2), |rank, station, ready| {
        station.prepare(&need(16, 16)).unwrap();
        ready();
        if rank == 0 { station.exchange(&[recv(1, 1)]) } else { Ok(()) }
    });
    assert_eq!((results, ended), (vec![Err(RankError::Aborted), Ok(())], 1));
}

/// The next collective over other channels is right; the next one between the same two ranks is not.
#[test]
fn an_unpaired_send_spoils_later_traffic_between_the_pair_and_nothing_else() {
    let all_reduce = case(Primitive::AllReduce, Some(Op::Sum), DType::Float, 4096);
    let sendrecv = case(Primitive::Sendrecv, None, DType::Float, 4096);
    let results = on_all_ranks(&backend(3), |rank, station| {
        station.prepare(&need(64, 64)).unwrap();
        if rank == 0 {
            station.exchange(&[send(1, 64)]).unwrap();
        }
        let mut check =
            |case: &Case, epoch| Trial::new(case, 3, rank, Placement::OutOfPlace, epoch).run(station).unwrap();
        (check(&all_reduce, 1), check(&sendrecv, 2))
    });
    for (rank, (reduced, received)) in results.iter().enumerate() {
        assert_eq!(*reduced, Findings::default());
        assert_eq!(received.output.wrong > 0, rank == 1, "rank {rank}: {received:?}");
    }
}

/// Whatever one rank does otherwise than the others: no rank notices, and the outcome is a hang or wrong data. Every
/// rank keeps to its own buffers.
#[test]
fn a_rank_that_disagrees_makes_it_hang_or_wrong_and_breaks_no_memory() {
    let whole = |primitive: Primitive, op| case(primitive, op, DType::Float, 1 << 20);
    let sum = Some(Op::Sum);
    let all_reduce = whole(Primitive::AllReduce, sum);
    let broadcast = whole(Primitive::Broadcast, None);
    let disagreements = [
        ("half the count", all_reduce.clone(), case(Primitive::AllReduce, sum, DType::Float, 1 << 19)),
        ("one element less", all_reduce.clone(), case(Primitive::AllReduce, sum, DType::Float, (1 << 20) - 4)),
        ("so few that it takes the tree", all_reduce.clone(), case(Primitive::AllReduce, sum, DType::Float, 1024)),
        ("another op", all_reduce.clone(), whole(Primitive::AllReduce, Some(Op::Max))),
        ("another type of the same bytes", all_reduce.clone(), case(Primitive::AllReduce, sum, DType::Int8, 1 << 20)),
        ("another collective", all_reduce.clone(), whole(Primitive::AllGather, None)),
        ("another root", broadcast.clone(), with(broadcast.clone(), Variant::Root(2))),
        ("half of a block", whole(Primitive::AllGather, None), case(Primitive::AllGather, None, DType::Float, 1 << 19)),
        ("half of a pair", whole(Primitive::Alltoall, None), case(Primitive::Alltoall, None, DType::Float, 1 << 19)),
    ];
    for (what, agreed, other) in disagreements {
        let (results, ended) = aborted(&backend(3), |rank, station, ready| {
            launch_instead(station, rank, 3, &agreed, if rank == 1 { &other } else { &agreed }, ready)
        });
        let hung = ended < 3;
        let wrong = results.iter().any(|(_, findings)| findings.output.wrong > 0);
        assert!(hung || wrong, "{what}: nothing happened");
        for (result, findings) in &results {
            assert!(matches!(result, Ok(()) | Err(RankError::Aborted)), "{what}: {result:?}");
            assert_eq!((findings.guard, findings.input.wrong), (None, 0), "{what}");
        }
    }
}

/// Types of different size: a rank waits for bytes that never come, or reads others' bytes as its own.
#[test]
fn ranks_in_different_order_hang_or_compute_nonsense() {
    let first = case(Primitive::Reduce, Some(Op::Sum), DType::Float, 1 << 20);
    let second = case(Primitive::Broadcast, None, DType::Float, 1 << 20);
    let (results, ended) = aborted(&backend(4), |rank, station, ready| {
        let order = if rank == 2 { [&second, &first] } else { [&first, &second] };
        let mut wrong = 0;
        ready();
        for case in order {
            match Trial::new(case, 4, rank, Placement::OutOfPlace, 0).run(station) {
                Ok(findings) => wrong += findings.output.wrong,
                Err(error) => return Err(error),
            }
        }
        Ok(wrong)
    });
    assert!(ended < 4 || results.iter().any(|result| matches!(result, Ok(wrong) if *wrong > 0)), "{results:?}");
}

#[test]
fn a_rank_whose_thread_has_ended_is_missed_by_the_others() {
    let case = case(Primitive::AllGather, None, DType::Int32, 4096);
    let (results, ended) = aborted(&backend(4), |rank, station, ready| {
        let run =
            |station: &mut HostStation, epoch| Trial::new(&case, 4, rank, Placement::OutOfPlace, epoch).run(station);
        assert_eq!(run(station, 0), Ok(Findings::default()));
        ready();
        if rank == 3 { Err(RankError::Unsupported("left".into())) } else { run(station, 1) }
    });
    assert_eq!(ended, 1, "{results:?}");
    assert!(results[..3].iter().all(|result| *result == Err(RankError::Aborted)));
}

#[test]
fn ranks_that_come_late_change_nothing() {
    let case = case(Primitive::AllReduce, Some(Op::Sum), DType::Float, 300_000);
    on_all_ranks(&backend(4), |rank, station| {
        for epoch in 0..8u64 {
            if epoch % 4 == u64::from(rank) {
                std::thread::sleep(Duration::from_millis(15));
            }
            let findings = Trial::new(&case, 4, rank, Placement::OutOfPlace, epoch).run(station);
            assert_eq!(findings, Ok(Findings::default()));
        }
    });
}

#[test]
fn own_arguments_are_checked_and_a_refusal_leaves_the_rank_sound() {
    let backend = backend(1);
    let mut station = backend.stations().unwrap().remove(0);
    let small = case(Primitive::AllReduce, Some(Op::Sum), DType::Float, 64);
    let large = case(Primitive::AllReduce, Some(Op::Sum), DType::Float, 128);
    let trial = Trial::new(&small, 1, 0, Placement::OutOfPlace, 0);
    trial.prepare(&mut station).unwrap();
    let refused =
        |result: Result<(), RankError>| assert!(matches!(result, Err(RankError::Refused { .. })), "{result:?}");
    refused(Trial::new(&large, 1, 0, Placement::OutOfPlace, 0).launch(&mut station));
    refused(
        Trial::new(&case(Primitive::Reduce, None, DType::Int8, 8), 1, 0, Placement::OutOfPlace, 0).launch(&mut station),
    );
    refused(Trial::new(&small, 2, 0, Placement::OutOfPlace, 0).launch(&mut station));
    let rooted = with(case(Primitive::Broadcast, None, DType::Float, 64), Variant::Root(1));
    refused(Trial::new(&rooted, 1, 0, Placement::OutOfPlace, 0).launch(&mut station));
    refused(station.exchange(&[send(7, 1)]));
    refused(station.exchange(&[send(0, 65)]));
    refused(station.tamper(0, Buffer::Recv, DType::Float, 16, 1));
    refused(station.tamper(1, Buffer::Recv, DType::Float, 0, 1));
    trial.launch(&mut station).unwrap();
    assert_eq!(trial.check(&mut station), Ok(Findings::default()));
}

#[test]
fn a_flipped_bit_and_a_breached_guard_are_found() {
    let case = case(Primitive::AllReduce, Some(Op::Sum), DType::Float, 64);
    let mut station = backend(1).open(&[], &Making::default()).unwrap().remove(0);
    let mut host = backend(1).stations().unwrap().remove(0);
    let trial = Trial::new(&case, 1, 0, Placement::OutOfPlace, 0);
    trial.prepare(&mut host).unwrap();
    trial.launch(&mut host).unwrap();
    host.tamper(0, Buffer::Recv, DType::Float, 5, 1 << 31).unwrap();
    host.tamper(0, Buffer::Send, DType::Float, 3, 1).unwrap();
    let findings = trial.check(&mut host).unwrap();
    let first = findings.output.first.unwrap();
    assert_eq!((findings.output.wrong, first.index, first.actual ^ first.expected), (1, 5, 1 << 31));
    assert_eq!((findings.input.wrong, findings.input.first.unwrap().index), (1, 3));

    // The buffers are larger than what the second call claims, so that its guard zone can be written to.
    station.prepare(&need(64, 64)).unwrap();
    station.prepare(&need(64, 32)).unwrap();
    station.tamper(0, Buffer::Recv, DType::Uint8, 40, 0xff).unwrap();
    let breach = station.guards(0).unwrap().unwrap();
    assert_eq!((breach.recv, breach.offset), (true, 40));
}

#[test]
fn marks_measure_the_time_between_them() {
    let mut station = backend(1).stations().unwrap().remove(0);
    for pause in [0, 20, 2] {
        std::thread::sleep(Duration::from_millis(pause));
        station.mark().unwrap();
    }
    let intervals = station.intervals().unwrap();
    assert_eq!(intervals.len(), 1);
    assert!(intervals[0].len() == 2 && intervals[0][0] >= 20_000.0 && intervals[0][1] >= 2_000.0, "{intervals:?}");
    assert_eq!(station.intervals().unwrap(), [Vec::<f32>::new()]);
}
