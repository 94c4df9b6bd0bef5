//! Evidence comes from broken machines: whatever it holds, there is an answer and never a panic.

mod trace_support;

use collcheck::case::{DType, Op, Primitive};
use collcheck::trace::call::{Call, Operation, State};
use collcheck::trace::ring::{Creation, Writer, allocate, snapshot};
use collcheck::trace::{Class, Communicator, Diagnosis, Incident, Liveness, RankEvidence, Setup, judge};
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use std::sync::atomic::Ordering;
use trace_support::{Machine, WORLD, lab, programs};

fn small(rng: &mut StdRng) -> u64 {
    match rng.random_range(0..20) {
        0 => u64::MAX - rng.random_range(0..3u64),
        1 => rng.next_u64(),
        _ => rng.random_range(0..6),
    }
}

fn maybe<T>(rng: &mut StdRng, value: impl FnOnce(&mut StdRng) -> T) -> Option<T> {
    rng.random_bool(0.8).then(|| value(rng))
}

fn call(rng: &mut StdRng) -> Call {
    let peer = small(rng) as u32;
    let operation = match rng.random_range(0..8) {
        0 | 1 => Operation::Send { peer },
        2 | 3 => Operation::Recv { peer },
        4 => Operation::Other("coalesced".into()),
        _ => Operation::Collective(Primitive::ALL[rng.random_range(0..11)]),
    };
    Call {
        op: maybe(rng, |r| Op::ALL[r.random_range(0..6)]),
        dtype: maybe(rng, |r| DType::ALL[r.random_range(0..12)]),
        count: maybe(rng, small),
        root: maybe(rng, |r| small(r) as u32),
        state: [State::Queued, State::Running, State::Completed][rng.random_range(0..3)],
        created_ns: small(rng),
        started_ns: maybe(rng, small),
        completed_ns: maybe(rng, small),
        label: ["", "a.py:1", "b.py:2"][rng.random_range(0..3)].into(),
        ..Call::new(rng.random_range(0..3), small(rng), operation)
    }
}

fn evidence(rng: &mut StdRng) -> RankEvidence {
    let calls = rng.random_range(0..12);
    let texts = ["Xid (PCI:0): 79", "socket closed", "got completion with error", "\u{1b}[31m\0"];
    RankEvidence {
        rank: small(rng) as u32,
        liveness: match rng.random_range(0..6) {
            0 => Liveness::Unknown,
            1 => Liveness::Stopped,
            2 => Liveness::NoDump,
            3 => Liveness::Exited {
                code: maybe(rng, |r| r.next_u32() as i32),
                signal: maybe(rng, |r| r.next_u32() as i32),
            },
            _ => Liveness::Alive,
        },
        calls: maybe(rng, |r| (0..calls).map(|_| call(r)).collect()),
        lost: small(rng),
        finished: rng.random(),
        setups: (0..rng.random_range(0..2))
            .map(|_| Setup { comm: small(rng), done: rng.random(), ranks: None })
            .collect(),
        messages: (0..rng.random_range(0..2)).map(|i| texts[i].to_owned()).collect(),
        ..RankEvidence::default()
    }
}

/// What every diagnosis promises.
fn check(diagnosis: &Diagnosis) {
    let v = &diagnosis.verdict;
    assert!(!v.summary.is_empty());
    assert!(v.culprit_ranks.is_sorted_by(|a, b| a < b));
    match v.class {
        Class::None | Class::Undetermined => {}
        class => assert_eq!(v.candidates.first(), Some(&class)),
    }
    assert_eq!(v.class == Class::None, diagnosis.next_steps.is_empty());
    let json = serde_json::to_string(diagnosis).unwrap();
    assert_eq!(&serde_json::from_str::<Diagnosis>(&json).unwrap(), diagnosis);
}

#[test]
fn any_incident_has_a_diagnosis() {
    let mut rng = StdRng::seed_from_u64(7);
    for _ in 0..2_000 {
        let communicator = |rng: &mut StdRng| Communicator {
            id: rng.random_range(0..4),
            label: String::new(),
            ranks: (0..rng.random_range(0..5)).map(|_| rng.random_range(0..7)).collect(),
        };
        let incident = Incident {
            ranks: (0..rng.random_range(0..6)).map(|_| evidence(&mut rng)).collect(),
            communicators: (0..rng.random_range(0..3)).map(|_| communicator(&mut rng)).collect(),
            world: maybe(&mut rng, |r| r.random_range(0..9)),
        };
        check(&judge(&incident));
        let json = serde_json::to_string(&incident).unwrap();
        assert_eq!(serde_json::from_str::<Incident>(&json).unwrap(), incident);
    }
}

/// A true incident of which parts are torn away keeps its verdict, or becomes less certain; it never accuses another.
#[test]
fn records_torn_away_at_random_never_accuse_an_innocent_rank() {
    let mut rng = StdRng::seed_from_u64(11);
    let incident = Machine::new(8).run(&programs(8, |rank| {
        let mut steps = lab(20);
        if rank == 5 {
            steps.remove(12);
        }
        steps
    }));
    for _ in 0..300 {
        let mut torn = incident.clone();
        for evidence in &mut torn.ranks {
            let calls = evidence.calls.as_mut().unwrap();
            let last = calls.len() - 1;
            for at in (0..last).rev() {
                if rng.random_bool(0.1) {
                    calls.remove(at);
                }
            }
        }
        let v = judge(&torn).verdict;
        assert_eq!(v.culprit_ranks, [5], "{v:#?}");
        assert!([Class::BCount, Class::ASize].contains(&v.class), "{v:#?}");
    }
}

#[test]
fn a_ring_hit_by_random_writes_still_gives_an_incident_that_is_judged() {
    let mut rng = StdRng::seed_from_u64(13);
    let operation = Operation::Collective(Primitive::AllReduce);
    for _ in 0..300 {
        let ranks = (0..4u32).map(|rank| {
            let mut writer = Writer::new(allocate(32), rank).unwrap();
            for seq in 1..50u64 {
                let creation = Creation {
                    comm: WORLD,
                    seq,
                    operation: &operation,
                    op: Some(Op::Sum),
                    dtype: Some(DType::Float),
                    count: Some(seq),
                    root: None,
                    label: "x",
                };
                let ticket = writer.created(&creation, seq);
                if seq < 49 {
                    writer.completed(ticket, seq + 1);
                }
            }
            let memory = writer.memory();
            for _ in 0..rng.random_range(0..20) {
                memory[rng.random_range(0..memory.len())].store(small(&mut rng), Ordering::Relaxed);
            }
            let read = snapshot(memory).ok();
            let lost = read.as_ref().map_or(0, |s| s.lost);
            RankEvidence { rank, calls: read.map(|s| s.calls), lost, ..RankEvidence::default() }
        });
        check(&judge(&Incident { ranks: ranks.collect(), communicators: vec![], world: Some(4) }));
    }
}
