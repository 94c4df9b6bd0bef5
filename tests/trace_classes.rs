//! Every class of hang, with the culprit anywhere, on 2, 3, 8 and 64 ranks.

mod trace_support;

use collcheck::case::{DType, Op, Primitive};
use collcheck::trace::call::{Call, Operation, State};
use collcheck::trace::{Class, Communicator, Incident, Liveness, Setup, Verdict, judge};
use trace_support::{Machine, Step, WORLD, all_reduce, collective, lab, permuted, programs, recv, send, with};

const WORLDS: [u32; 4] = [2, 3, 8, 64];

/// Ranks that may be at fault: first, last, and some between.
fn suspects(ranks: u32) -> Vec<u32> {
    let mut all = vec![0, 1, ranks / 2, ranks - 1];
    all.sort_unstable();
    all.dedup();
    all
}

fn verdict(incident: &Incident) -> Verdict {
    judge(incident).verdict
}

/// Runs the lab with one rank's program changed and asserts class and culprit, in every world, for every suspect.
fn everywhere(class: Class, change: impl Fn(&mut Vec<Step>)) {
    for ranks in WORLDS {
        for culprit in suspects(ranks) {
            for starts in [true, false] {
                let machine = Machine { starts, ..Machine::new(ranks) };
                let incident = machine.run(&programs(ranks, |rank| {
                    let mut steps = lab(8);
                    if rank == culprit {
                        change(&mut steps);
                    }
                    steps
                }));
                let v = verdict(&incident);
                assert_eq!((v.class, &v.culprit_ranks[..]), (class, &[culprit][..]), "{ranks} ranks: {v:#?}");
                assert_eq!(v.candidates.first(), Some(&class));
                assert_eq!(v.sequence, Some(6), "{v:#?}");
            }
        }
    }
}

#[test]
fn a_larger_size_on_one_rank_is_a_size() {
    everywhere(Class::ASize, |steps| steps[5] = all_reduce(6 * 65_536 + 1_024));
}

#[test]
fn another_dtype_on_one_rank_is_a_dtype() {
    everywhere(Class::ADtype, |steps| steps[5] = with(all_reduce(6 << 16), |c| c.dtype = Some(DType::Half)));
}

#[test]
fn a_skipped_call_is_b_count() {
    everywhere(Class::BCount, |steps| {
        steps.remove(5);
    });
}

#[test]
fn a_repeated_call_is_b_count() {
    everywhere(Class::BCount, |steps| {
        let again = steps[4].clone();
        steps.insert(5, again);
    });
}

#[test]
fn another_collective_root_or_reduction_is_b_order() {
    everywhere(Class::BOrder, |steps| steps[5] = collective(WORLD, Primitive::AllGather, 6 << 16));
    everywhere(Class::BOrder, |steps| steps[5] = with(all_reduce(6 << 16), |c| c.op = Some(Op::Max)));
}

#[test]
fn another_root_is_b_order_and_named() {
    for ranks in [3, 8, 64] {
        let incident = Machine::new(ranks).run(&programs(ranks, |rank| {
            let root = |root| with(collective(WORLD, Primitive::Broadcast, 8), |c| c.root = Some(root));
            vec![root(0), root(0), root(u32::from(rank == 2))]
        }));
        let v = verdict(&incident);
        assert_eq!((v.class, &v.culprit_ranks[..], v.sequence), (Class::BOrder, &[2][..], Some(3)));
        assert!(v.summary.contains("root"), "{}", v.summary);
    }
}

#[test]
fn two_calls_in_the_other_order_are_b_order() {
    for ranks in [3, 8, 64] {
        for culprit in suspects(ranks) {
            let machine = Machine { depth: 2, ..Machine::new(ranks) };
            let incident = machine.run(&programs(ranks, |rank| {
                let mut steps = lab(8);
                if rank == culprit {
                    steps.swap(5, 6);
                }
                steps
            }));
            let v = verdict(&incident);
            assert_eq!((v.class, &v.culprit_ranks[..]), (Class::BOrder, &[culprit][..]), "{v:#?}");
        }
    }
}

#[test]
fn calls_queued_behind_the_hang_tell_a_skip_without_any_pattern() {
    let sizes = [7, 3, 100, 12, 55, 8, 9, 1000, 4, 77];
    for ranks in WORLDS {
        let machine = Machine { depth: 3, ..Machine::new(ranks) };
        let incident = machine.run(&programs(ranks, |rank| {
            let mut steps: Vec<Step> = sizes.map(all_reduce).to_vec();
            if rank == 1 {
                steps.remove(4);
            }
            steps
        }));
        let v = verdict(&incident);
        assert_eq!((v.class, &v.culprit_ranks[..], v.sequence), (Class::BCount, &[1][..], Some(5)), "{v:#?}");
    }
}

#[test]
fn two_ranks_that_differ_with_nothing_to_tell_are_both_named() {
    let incident = Machine::new(2).run(&programs(2, |rank| vec![all_reduce(100 + u64::from(rank))]));
    let v = verdict(&incident);
    assert_eq!((v.class, &v.culprit_ranks[..]), (Class::ASize, &[0, 1][..]));
    assert!(v.candidates.contains(&Class::BCount) && v.summary.contains("cannot be told"), "{v:#?}");
}

#[test]
fn two_halves_that_differ_with_nothing_to_tell_are_all_named() {
    let incident = Machine::new(8).run(&programs(8, |rank| vec![all_reduce(100 + u64::from(rank % 2))]));
    assert_eq!(verdict(&incident).culprit_ranks, [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn a_rank_that_does_not_come_is_e_stuck() {
    everywhere(Class::EStuck, |steps| steps[5] = Step::Sleep);
}

#[test]
fn with_equal_sizes_a_skipped_call_shows_at_the_end_and_the_step_is_not_claimed() {
    for ranks in WORLDS {
        let mut incident =
            Machine::new(ranks).run(&programs(ranks, |rank| vec![all_reduce(64); if rank == 1 { 9 } else { 10 }]));
        let diagnosis = judge(&incident);
        let v = &diagnosis.verdict;
        assert_eq!(v.candidates, [Class::EStuck, Class::BCount]);
        assert_eq!((&v.culprit_ranks[..], v.sequence), (&[1][..], Some(10)));
        assert!(
            diagnosis.evidence.iter().any(|e| e.says.contains("at which step it was cannot be told")),
            "{diagnosis:#?}"
        );
        // The rank itself says that it is through: then it made one call too few.
        incident.ranks[1].finished = true;
        assert_eq!(verdict(&incident).candidates, [Class::BCount, Class::EStuck]);
    }
}

#[test]
fn a_rank_that_ended_while_others_live_is_e_crash() {
    for ranks in WORLDS {
        for culprit in suspects(ranks) {
            for (code, signal) in [(Some(1), None), (None, Some(9)), (Some(139), None)] {
                let mut incident =
                    Machine::new(ranks).run(&programs(ranks, |rank| if rank == culprit { lab(3) } else { lab(8) }));
                incident.ranks[culprit as usize].liveness = Liveness::Exited { code, signal };
                let v = verdict(&incident);
                assert_eq!(
                    (v.class, &v.culprit_ranks[..], v.sequence),
                    (Class::ECrash, &[culprit][..], Some(4)),
                    "{v:#?}"
                );
            }
        }
    }
}

#[test]
fn a_rank_that_died_in_the_call_that_the_others_are_still_in_is_e_crash() {
    for ranks in WORLDS {
        for culprit in suspects(ranks) {
            let mut incident = Machine::new(ranks).run(&programs(ranks, |_| lab(6)));
            unfinish(&mut incident);
            incident.ranks[culprit as usize].liveness = Liveness::Exited { code: None, signal: Some(9) };
            let v = verdict(&incident);
            assert_eq!((v.class, &v.culprit_ranks[..], v.sequence), (Class::ECrash, &[culprit][..], Some(6)), "{v:#?}");
            assert!(v.summary.contains("others wait in call 6"), "{}", v.summary);
        }
    }
}

/// What was queued on a GPU may get through without the process that had queued it.
#[test]
fn others_whose_calls_are_done_are_not_said_to_wait_in_one() {
    let ends = [Liveness::Exited { code: None, signal: Some(9) }, Liveness::Stopped];
    for (liveness, class) in ends.into_iter().zip([Class::ECrash, Class::EStuck]) {
        let mut incident = Machine::new(4).run(&programs(4, |_| lab(6)));
        let done = incident.clone();
        unfinish(&mut incident);
        for rank in [0, 1, 3] {
            incident.ranks[rank] = done.ranks[rank].clone();
        }
        incident.ranks[2].liveness = liveness;
        let v = verdict(&incident);
        assert_eq!((v.class, &v.culprit_ranks[..], v.sequence), (class, &[2][..], Some(6)), "{v:#?}");
        assert!(v.summary.contains("no call of others is open"), "{}", v.summary);
    }
}

#[test]
fn a_crash_after_a_wrong_size_is_its_consequence() {
    let mut incident = Machine::new(8).run(&programs(8, |rank| {
        let mut steps = lab(8);
        if rank == 6 {
            steps[5] = all_reduce(1);
        }
        steps
    }));
    for crashed in [6, 2] {
        incident.ranks[crashed].liveness = Liveness::Exited { code: None, signal: Some(11) };
        let v = verdict(&incident);
        assert_eq!((v.class, &v.culprit_ranks[..]), (Class::ASize, &[6][..]), "{v:#?}");
        assert!(v.candidates.contains(&Class::ECrash));
        incident.ranks[crashed].liveness = Liveness::Alive;
    }
}

#[test]
fn a_rank_without_any_record_is_e_crash_whether_listed_or_not() {
    for ranks in WORLDS {
        for culprit in suspects(ranks) {
            let mut incident =
                Machine::new(ranks).run(&programs(ranks, |rank| if rank == culprit { vec![] } else { lab(8) }));
            incident.ranks[culprit as usize].calls = None;
            incident.ranks[culprit as usize].liveness = Liveness::NoDump;
            let v = verdict(&incident);
            assert_eq!((v.class, &v.culprit_ranks[..], v.sequence), (Class::ECrash, &[culprit][..], Some(1)), "{v:#?}");
            incident.ranks.remove(culprit as usize);
            assert_eq!(verdict(&incident), v);
        }
    }
}

#[test]
fn who_dies_of_another_rank_s_death_is_no_culprit() {
    let mut incident = Machine::new(8).run(&programs(8, |rank| if rank == 3 || rank == 5 { lab(3) } else { lab(8) }));
    incident.ranks[3].liveness = Liveness::Exited { code: None, signal: Some(11) };
    incident.ranks[5].liveness = Liveness::Exited { code: Some(1), signal: None };
    incident.ranks[5].messages = vec!["NCCL WARN socketProgress: Connection closed by remote peer host0".into()];
    let v = verdict(&incident);
    assert_eq!((v.class, &v.culprit_ranks[..]), (Class::ECrash, &[3][..]));
}

#[test]
fn ranks_that_a_watchdog_ended_are_no_culprits_of_the_one_that_did_not_come() {
    let mut incident = Machine::new(8).run(&programs(8, |rank| {
        let mut steps = lab(8);
        if rank == 5 {
            steps[5] = Step::Sleep;
        }
        steps
    }));
    for evidence in incident.ranks.iter_mut().filter(|e| e.rank != 5) {
        evidence.liveness = Liveness::Exited { code: None, signal: Some(6) };
        evidence.messages = vec!["Watchdog caught collective operation timeout: WorkNCCL(SeqNum=6)".into()];
    }
    let v = verdict(&incident);
    assert_eq!((v.class, &v.culprit_ranks[..]), (Class::EStuck, &[5][..]), "{v:#?}");
}

#[test]
fn a_stopped_process_is_e_stuck_even_after_its_call() {
    for lag in [false, true] {
        let mut incident = Machine::new(3).run(&programs(3, |rank| match rank {
            2 if lag => lab(4),
            _ => lab(5),
        }));
        incident.ranks[2].liveness = Liveness::Stopped;
        if !lag {
            unfinish(&mut incident);
        }
        let v = verdict(&incident);
        assert_eq!((v.class, &v.culprit_ranks[..], v.sequence), (Class::EStuck, &[2][..], Some(5)), "{v:#?}");
    }
}

/// Takes the last call of every rank back to running: the network has swallowed it.
fn unfinish(incident: &mut Incident) {
    for evidence in &mut incident.ranks {
        let call = evidence.calls.as_mut().unwrap().last_mut().unwrap();
        call.state = collcheck::trace::call::State::Running;
        call.completed_ns = None;
    }
}

#[test]
fn all_alike_and_started_is_f_fabric_without_culprit() {
    for ranks in WORLDS {
        let mut incident = Machine::new(ranks).run(&programs(ranks, |_| lab(6)));
        unfinish(&mut incident);
        let v = verdict(&incident);
        assert_eq!((v.class, &v.culprit_ranks[..], v.sequence), (Class::FFabric, &[][..], Some(6)));

        incident.ranks[1].messages = vec![
            "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.".into(),
            "NCCL WARN nothing known".into(),
        ];
        let diagnosis = judge(&incident);
        assert_eq!((diagnosis.verdict.class, &diagnosis.verdict.culprit_ranks[..]), (Class::FFabric, &[1][..]));
        assert!(diagnosis.evidence.iter().any(|e| e.source.contains("rank 1") && e.says.contains("Xid")));
    }
}

#[test]
fn a_call_that_one_rank_s_device_did_not_begin_is_that_rank_s() {
    let mut incident = Machine::new(8).run(&programs(8, |_| lab(6)));
    unfinish(&mut incident);
    let queue = |incident: &mut Incident, rank: usize| {
        let call = incident.ranks[rank].calls.as_mut().unwrap().last_mut().unwrap();
        call.state = collcheck::trace::call::State::Queued;
        call.started_ns = None;
    };
    queue(&mut incident, 4);
    let v = verdict(&incident);
    assert_eq!((v.class, &v.culprit_ranks[..]), (Class::EStuck, &[4][..]));
    // None began it: that can be work in front on each, or one cause for all.
    (0..8).for_each(|rank| queue(&mut incident, rank));
    let v = verdict(&incident);
    assert_eq!((v.class, &v.candidates[..]), (Class::Undetermined, &[Class::EStuck, Class::FFabric][..]));
    assert!(v.summary.contains("missing"), "{}", v.summary);
}

#[test]
fn done_everywhere_but_on_one_rank_is_that_rank_s_link() {
    let mut incident = Machine::new(8).run(&programs(8, |_| lab(6)));
    let call = incident.ranks[6].calls.as_mut().unwrap().last_mut().unwrap();
    call.state = collcheck::trace::call::State::Running;
    let v = verdict(&incident);
    assert_eq!((v.class, &v.culprit_ranks[..]), (Class::FFabric, &[6][..]));
}

#[test]
fn a_missing_recv_is_c_and_drags_the_others_along() {
    for ranks in WORLDS {
        for (from, to) in [(0, 1), (1, 0), (ranks - 1, 0)] {
            if from == to {
                continue;
            }
            let machine = Machine { depth: 1, ..Machine::new(ranks) };
            let incident = machine.run(&programs(ranks, |rank| {
                let step = |(k, call): (usize, Step)| match rank {
                    _ if rank == from => vec![call, send(to, 1 << 26)],
                    _ if rank == to && k != 5 => vec![call, recv(from, 1 << 26)],
                    _ => vec![call],
                };
                lab(8).into_iter().enumerate().flat_map(step).collect()
            }));
            let v = verdict(&incident);
            assert_eq!((v.class, &v.culprit_ranks[..]), (Class::CUnpaired, &[to][..]), "{ranks} {from}->{to}: {v:#?}");
            assert_eq!(v.operation, Some(format!("send {from}->{to}")));
        }
    }
}

#[test]
fn a_send_too_many_is_its_sender_s_fault() {
    let incident = Machine::new(2).run(&programs(2, |rank| {
        let step = |(k, call): (usize, Step)| match (rank, k) {
            (0, 0..=4) => vec![call, send(1, 1 << 26)],
            (1, 0..=4) => vec![call, recv(0, 1 << 26)],
            _ => vec![call],
        };
        let mut steps: Vec<Step> = lab(6).into_iter().enumerate().flat_map(step).collect();
        if rank == 0 {
            steps.insert(10, send(1, 1 << 26));
        }
        steps
    }));
    let v = verdict(&incident);
    assert_eq!((v.class, &v.culprit_ranks[..]), (Class::CUnpaired, &[0][..]), "{v:#?}");
}

#[test]
fn a_recv_from_the_wrong_peer_is_that_rank_s_fault() {
    let incident = Machine::new(3).run(&programs(3, |rank| match rank {
        0 => vec![all_reduce(8), send(1, 1 << 26), all_reduce(9)],
        1 => vec![all_reduce(8), recv(2, 1 << 26), all_reduce(9)],
        _ => vec![all_reduce(8), all_reduce(9)],
    }));
    let v = verdict(&incident);
    assert_eq!((v.class, &v.culprit_ranks[..]), (Class::CUnpaired, &[1][..]), "{v:#?}");
}

/// Rank 1 of a ring sends its message to rank 3, which has got its own and has ended; rank 0 has too.
#[test]
fn a_send_to_the_wrong_peer_is_not_that_peer_s_fault() {
    let mut incident = Machine { depth: 1, ..Machine::new(4) }.run(&[
        vec![recv(3, 1 << 26), send(1, 1 << 26)],
        vec![recv(0, 1 << 26), send(3, 1 << 26)],
        vec![send(3, 1 << 26), recv(1, 1 << 26)],
        vec![send(0, 1 << 26), recv(2, 1 << 26)],
    ]);
    for rank in [0, 3] {
        incident.ranks[rank].finished = true;
    }
    let v = verdict(&incident);
    assert_eq!((v.class, &v.culprit_ranks[..]), (Class::CUnpaired, &[1][..]), "{v:#?}");
}

/// The same where nobody gets out of its group of a send and a recv, as when connections are made with the first message.
#[test]
fn a_send_to_the_wrong_peer_is_found_where_all_ranks_are_held_in_their_groups() {
    for ranks in 3..9u32 {
        for culprit in 0..ranks {
            for wrong in (0..ranks).filter(|peer| *peer != culprit && *peer != (culprit + 1) % ranks) {
                let mut incident = Machine { depth: 8, ..Machine::new(ranks) }.run(&programs(ranks, |rank| {
                    let to = if rank == culprit { wrong } else { (rank + 1) % ranks };
                    vec![send(to, 256), recv((rank + ranks - 1) % ranks, 256)]
                }));
                for call in incident.ranks.iter_mut().flat_map(|rank| rank.calls.iter_mut().flatten()) {
                    (call.state, call.completed_ns) = (State::Running, None);
                }
                let v = verdict(&incident);
                assert_eq!(
                    (v.class, &v.culprit_ranks[..]),
                    (Class::CUnpaired, &[culprit][..]),
                    "{ranks} {wrong}: {v:#?}"
                );
            }
        }
    }
}

#[test]
fn two_ranks_that_both_send_first_are_both_at_fault() {
    let incident = Machine { depth: 0, ..Machine::new(2) }.run(&[
        vec![all_reduce(8), send(1, 1 << 26), recv(1, 1 << 26)],
        vec![all_reduce(8), send(0, 1 << 26), recv(0, 1 << 26)],
    ]);
    let v = verdict(&incident);
    assert_eq!((v.class, &v.culprit_ranks[..]), (Class::CUnpaired, &[0, 1][..]));
}

#[test]
fn a_pair_of_different_sizes_is_a_size_of_the_side_that_departs() {
    for (wrong, sizes) in [(1, [64, 65]), (0, [65, 64])] {
        let incident = Machine::new(2).run(&programs(2, |rank| {
            let each = |k| if k == 4 { sizes[rank as usize] } else { 64 };
            (0..5).map(|k| if rank == 0 { send(1, each(k)) } else { recv(0, each(k)) }).collect()
        }));
        let v = verdict(&incident);
        assert_eq!((v.class, &v.culprit_ranks[..], v.sequence), (Class::ASize, &[wrong][..], Some(5)), "{v:#?}");
        assert!(v.candidates.contains(&Class::CUnpaired));
    }
}

#[test]
fn a_send_that_ended_without_recv_is_told_although_nothing_hangs() {
    let mut incident = Machine::new(2).run(&[vec![send(1, 8)], vec![]]);
    unfinish_none(&mut incident);
    let v = verdict(&incident);
    assert_eq!((v.class, &v.culprit_ranks[..]), (Class::CUnpaired, &[1][..]));
}

/// Marks every call done: small messages are buffered.
fn unfinish_none(incident: &mut Incident) {
    for call in incident.ranks.iter_mut().flat_map(|e| e.calls.iter_mut().flatten()) {
        call.state = collcheck::trace::call::State::Completed;
    }
}

#[test]
fn communicators_entered_in_crossed_order_are_d() {
    for ranks in WORLDS {
        for culprit in suspects(ranks) {
            let all: Vec<u32> = (0..ranks).collect();
            let machine = Machine { depth: 1, ..Machine::new(ranks).and(2, "tp", &all) };
            let incident = machine.run(&programs(ranks, |rank| {
                let tp = |count| collective(2, Primitive::AllGather, count);
                let mut steps: Vec<Step> = (1..8).flat_map(|k| [all_reduce(k * 10), tp(k * 7)]).collect();
                if rank == culprit {
                    steps.swap(8, 9);
                }
                steps
            }));
            let v = verdict(&incident);
            assert_eq!((v.class, &v.culprit_ranks[..]), (Class::DCrossed, &[culprit][..]), "{ranks}: {v:#?}");
        }
    }
}

#[test]
fn crossed_order_without_a_history_names_both() {
    let incident = Machine::new(2).and(2, "tp", &[0, 1]).run(&[
        vec![all_reduce(1), collective(2, Primitive::AllReduce, 2)],
        vec![collective(2, Primitive::AllReduce, 2), all_reduce(1)],
    ]);
    let v = verdict(&incident);
    assert_eq!((v.class, &v.culprit_ranks[..]), (Class::DCrossed, &[0, 1][..]));
    assert!(v.summary.contains("default_pg") && v.summary.contains("tp"), "{}", v.summary);
}

/// Rank 5 sleeps; its tensor-parallel partner is held by it, and holds up the data-parallel groups in turn.
#[test]
fn a_chain_over_communicators_ends_at_the_rank_that_is_outside() {
    let mut machine = Machine::new(8);
    for pair in 0..4u32 {
        machine = machine.and(10 + u64::from(pair), &format!("tp{pair}"), &[2 * pair, 2 * pair + 1]);
    }
    machine = machine.and(20, "dp0", &[0, 2, 4, 6]).and(21, "dp1", &[1, 3, 5, 7]);
    let incident = machine.run(&programs(8, |rank| {
        let step = |k: u64| {
            [
                collective(10 + u64::from(rank / 2), Primitive::AllReduce, k),
                collective(20 + u64::from(rank % 2), Primitive::AllReduce, k),
            ]
        };
        let mut steps: Vec<Step> = (1..6).flat_map(step).collect();
        if rank == 5 {
            steps[4] = Step::Sleep;
        }
        steps
    }));
    let v = verdict(&incident);
    assert_eq!(
        (v.class, &v.culprit_ranks[..], v.communicator.as_deref()),
        (Class::EStuck, &[5][..], Some("tp2")),
        "{v:#?}"
    );
}

#[test]
fn a_wrapped_ring_is_aligned_by_sequence_number() {
    for ranks in [3, 8] {
        let mut incident = Machine { ring: 50, ..Machine::new(ranks) }.run(&programs(ranks, |rank| {
            let mut steps = lab(300);
            if rank == 1 {
                steps[280] = all_reduce(5);
            }
            steps
        }));
        // One rank's ring is smaller still.
        incident.ranks[0].calls.as_mut().unwrap().drain(..30);
        incident.ranks[0].lost += 30;
        let v = verdict(&incident);
        assert_eq!((v.class, &v.culprit_ranks[..], v.sequence), (Class::ASize, &[1][..], Some(281)), "{v:#?}");
    }
}

#[test]
fn a_communicator_that_one_rank_does_not_set_up_is_init() {
    for ranks in WORLDS {
        for culprit in suspects(ranks) {
            let mut incident = Machine::new(ranks).run(&programs(ranks, |_| vec![]));
            for evidence in incident.ranks.iter_mut().filter(|e| e.rank != culprit) {
                evidence.setups = vec![Setup { comm: WORLD, done: false, ranks: None }];
            }
            let v = verdict(&incident);
            assert_eq!((v.class, &v.culprit_ranks[..]), (Class::Init, &[culprit][..]), "{v:#?}");
        }
    }
}

/// With a majority, or as there are so many ranks: then even one of two can be told.
#[test]
fn a_rank_that_asks_for_another_number_of_ranks_is_init() {
    for ranks in WORLDS {
        for culprit in suspects(ranks) {
            for asked in [ranks + 1, ranks + 8] {
                let mut incident = Machine::new(ranks).run(&programs(ranks, |_| lab(3)));
                for evidence in &mut incident.ranks {
                    let asks = if evidence.rank == culprit { asked } else { ranks };
                    evidence.setups = vec![Setup { comm: 7, done: false, ranks: Some(asks) }];
                }
                incident.communicators.push(Communicator { id: 7, label: "pp".into(), ranks: (0..ranks).collect() });
                let v = verdict(&incident);
                assert_eq!((v.class, &v.culprit_ranks[..]), (Class::Init, &[culprit][..]), "{v:#?}");
                assert!(v.summary.contains(&format!("rank {culprit} asks for {asked} ranks")), "{}", v.summary);
            }
        }
    }
}

/// Of two that disagree on a communicator of which nothing else is known.
#[test]
fn of_two_numbers_of_ranks_neither_is_right_by_itself() {
    let mut incident = Machine::new(3).run(&programs(3, |_| vec![]));
    for (evidence, asked) in incident.ranks.iter_mut().zip([4, 5, 6]) {
        evidence.setups = vec![Setup { comm: 7, done: false, ranks: Some(asked) }];
    }
    let v = verdict(&incident);
    assert_eq!((v.class, &v.culprit_ranks[..]), (Class::Init, &[0, 1, 2][..]), "{v:#?}");
}

/// Rounds of a shift by one rank, in which nothing from `from` to the next arrives from round 3 on.
fn broken_way(ranks: u32, from: u32) -> Incident {
    let to = (from + 1) % ranks;
    let calls = |rank: u32| {
        // a rank is held in the round in which what it waits for was not sent: later by one for each rank behind
        let held = 3 + u64::from((rank + ranks - to) % ranks);
        (1..=held).flat_map(move |round| {
            let state = if round < held { State::Completed } else { State::Running };
            let made = move |operation| Call {
                dtype: Some(DType::Float),
                count: Some(64),
                state,
                created_ns: 10 * round,
                started_ns: Some(10 * round + 1),
                ..Call::new(WORLD, round, operation)
            };
            [Operation::Send { peer: (rank + 1) % ranks }, Operation::Recv { peer: (rank + ranks - 1) % ranks }]
                .map(made)
        })
    };
    let mut incident = Machine::new(ranks).run(&programs(ranks, |_| vec![]));
    for evidence in &mut incident.ranks {
        evidence.calls = Some(calls(evidence.rank).collect());
    }
    incident
}

#[test]
fn a_way_that_does_not_carry_a_message_is_named_by_its_ends() {
    for ranks in [2, 3, 4, 8] {
        for from in 0..ranks {
            let mut ends = [from, (from + 1) % ranks];
            ends.sort_unstable();
            let incident = broken_way(ranks, from);
            let v = verdict(&incident);
            assert_eq!((v.class, &v.culprit_ranks[..]), (Class::FFabric, &ends[..]), "{ranks}, {from}: {v:#?}");
            assert!(v.summary.contains("does not arrive"), "{}", v.summary);
        }
    }
}

/// A rank that gave up its call sends to others no more: only the way of which both ends say that it failed is it.
#[test]
fn where_ranks_say_that_a_way_failed_it_is_the_one_of_both_who_do() {
    let mut incident = broken_way(4, 0);
    // rank 1 had not sent either, and rank 2 waits for that
    for evidence in incident.ranks.iter_mut().filter(|evidence| evidence.rank == 2) {
        let calls = evidence.calls.as_mut().unwrap();
        calls.truncate(6);
        calls.iter_mut().rev().take(2).for_each(|call| call.state = State::Running);
    }
    let say = |incident: &mut Incident, rank: usize| {
        incident.ranks[rank].messages.push("receive from rank 0 failed: Connection reset by peer".to_owned());
    };
    say(&mut incident, 1);
    assert_eq!(verdict(&incident).culprit_ranks, [0; 0], "one end alone says it of either way");
    say(&mut incident, 0);
    let v = verdict(&incident);
    assert_eq!(
        (v.class, &v.candidates[..], &v.culprit_ranks[..]),
        (Class::FFabric, &[Class::FFabric][..], &[0, 1][..])
    );
}

#[test]
fn nothing_hangs_where_all_is_done() {
    for ranks in WORLDS {
        let v = verdict(&Machine::new(ranks).run(&programs(ranks, |_| lab(8))));
        assert_eq!((v.class, v.candidates.len(), v.culprit_ranks.len()), (Class::None, 0, 0));
    }
    let one = Machine::new(1).run(&[lab(3)]);
    assert_eq!(verdict(&one).class, Class::None);
}

#[test]
fn no_evidence_is_undetermined_and_says_what_is_missing() {
    for incident in [Incident::default(), Incident { world: Some(4), ..Incident::default() }] {
        let diagnosis = judge(&incident);
        assert_eq!(diagnosis.verdict.class, Class::Undetermined);
        assert!(diagnosis.verdict.summary.contains("missing") && !diagnosis.next_steps.is_empty());
    }
}

#[test]
fn a_crash_and_another_rank_s_wrong_size_are_two_causes() {
    let mut incident = Machine::new(8).run(&programs(8, |rank| match rank {
        2 => lab(5),
        6 => lab(5).into_iter().chain([all_reduce(1)]).collect(),
        _ => lab(8),
    }));
    incident.ranks[2].liveness = Liveness::Exited { code: None, signal: Some(11) };
    let v = verdict(&incident);
    assert_eq!((v.class, &v.culprit_ranks[..]), (Class::Undetermined, &[2, 6][..]), "{v:#?}");
    assert!(v.candidates.contains(&Class::ECrash) && v.candidates.contains(&Class::ASize));
}

#[test]
fn arguments_that_differed_and_passed_do_not_hide_the_hang() {
    let mut incident = Machine::new(8).run(&programs(8, |rank| {
        let mut steps = lab(8);
        if rank == 5 {
            steps[6] = Step::Sleep;
        }
        steps
    }));
    incident.ranks[1].calls.as_mut().unwrap()[2].op = Some(Op::Max);
    let diagnosis = judge(&incident);
    assert_eq!((diagnosis.verdict.class, &diagnosis.verdict.culprit_ranks[..]), (Class::EStuck, &[5][..]));
    assert!(diagnosis.evidence.iter().any(|e| e.says.contains("op of collective 3")), "{diagnosis:#?}");
}

#[test]
fn renaming_the_ranks_renames_the_culprits_and_changes_nothing_else() {
    let mut incidents = Vec::new();
    for depth in [0, 2] {
        for fault in 0..6usize {
            let machine = Machine { depth, ..Machine::new(8).and(2, "tp", &[0, 1, 2, 3, 4, 5, 6, 7]) };
            incidents.push(machine.run(&programs(8, |rank| {
                let tp = |count| collective(2, Primitive::AllGather, count);
                let mut steps: Vec<Step> = (1..9).flat_map(|k| [all_reduce(k * 10), tp(k * 7)]).collect();
                match (fault, rank) {
                    (0, 3) => steps[8] = all_reduce(77),
                    (1, 3) => drop(steps.remove(8)),
                    (2, 3) => steps.swap(8, 9),
                    (3, 3) => steps[8] = Step::Sleep,
                    (4, 3) => steps.insert(8, send(6, 1)),
                    (5, 0..=3) => steps[8] = all_reduce(78),
                    _ => {}
                }
                steps
            })));
        }
    }
    for incident in &incidents {
        let plain = verdict(incident);
        assert!(!plain.culprit_ranks.is_empty(), "{plain:#?}");
        for turn in [1, 3, 7] {
            let to: Vec<u32> = (0..8).map(|rank| (rank * 5 + turn) % 8).collect();
            let turned = verdict(&permuted(incident, &to));
            let mut expected: Vec<u32> = plain.culprit_ranks.iter().map(|rank| to[*rank as usize]).collect();
            expected.sort_unstable();
            assert_eq!(turned.culprit_ranks, expected, "{plain:#?}");
            assert_eq!(
                (turned.class, turned.candidates, turned.sequence),
                (plain.class, plain.candidates.clone(), plain.sequence)
            );
        }
    }
}

/// A root may run ahead of a broadcast that does not arrive; its ring then no longer holds the call that hangs.
#[test]
fn a_call_that_a_ring_has_overwritten_is_not_taken_for_one_never_made() {
    let mut incident = Machine::new(3).run(&programs(3, |_| lab(15)));
    for evidence in &mut incident.ranks {
        let calls = evidence.calls.as_mut().unwrap();
        if evidence.rank == 1 {
            calls.drain(..12);
            evidence.lost = 12;
        } else {
            calls.truncate(10);
            calls[9].state = collcheck::trace::call::State::Running;
        }
    }
    let v = verdict(&incident);
    assert_eq!((v.class, v.culprit_ranks.len(), v.sequence), (Class::FFabric, 0, Some(10)), "{v:#?}");
}

/// Rank 1's ring holds calls of another communicator only.
#[test]
fn a_communicator_that_a_ring_has_forgotten_is_not_taken_for_one_never_entered() {
    for (lost, class) in [(40, Class::FFabric), (0, Class::EStuck)] {
        let mut incident = Machine::new(3).and(2, "tp", &[1]).run(&programs(3, |_| lab(1)));
        unfinish(&mut incident);
        let tp = Machine::new(2).and(2, "tp", &[1]).run(&[vec![], vec![collective(2, Primitive::AllReduce, 1)]]);
        incident.ranks[1].calls = tp.ranks[1].calls.clone();
        incident.ranks[1].lost = lost;
        assert_eq!(verdict(&incident).class, class);
    }
}

#[test]
fn sends_and_recvs_pair_up_at_the_newest_where_older_ones_are_overwritten() {
    for unanswered in [false, true] {
        let mut incident = Machine::new(2).run(&programs(2, |rank| {
            let step = |_| if rank == 0 { send(1, 1 << 26) } else { recv(0, 1 << 26) };
            (0..if unanswered && rank == 0 { 31 } else { 30 }).map(step).collect()
        }));
        incident.ranks[0].calls.as_mut().unwrap().drain(..11);
        incident.ranks[0].lost = 11;
        let v = verdict(&incident);
        let expected = if unanswered { (Class::EStuck, vec![1]) } else { (Class::None, vec![]) };
        assert_eq!((v.class, v.culprit_ranks.clone()), expected, "{v:#?}");
        assert_eq!(v.candidates.contains(&Class::CUnpaired), unanswered);
    }
}

/// A watchdog notices the end of calls late and out of order.
#[test]
fn a_call_is_done_where_a_later_one_on_its_communicator_is() {
    let mut incident = Machine::new(3).run(&programs(3, |_| lab(5)));
    incident.ranks[2].calls.as_mut().unwrap()[1].state = collcheck::trace::call::State::Queued;
    assert_eq!(verdict(&incident).class, Class::None);
}
