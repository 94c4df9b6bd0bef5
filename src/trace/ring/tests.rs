use super::*;
use crate::case::Primitive;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const ALL_REDUCE: Operation = Operation::Collective(Primitive::AllReduce);

fn creation(seq: u64) -> Creation<'static> {
    Creation {
        comm: 7,
        seq,
        operation: &ALL_REDUCE,
        op: Some(Op::Sum),
        dtype: Some(DType::Bfloat16),
        count: Some(seq * 10),
        root: None,
        label: "all_reduce::sum::bfloat16::1MiB",
    }
}

#[test]
fn every_argument_and_state_reads_back() {
    let mut writer = Writer::new(allocate(8), 3).unwrap();
    let queued = creation(1);
    let send = Creation { operation: &Operation::Send { peer: u32::MAX }, op: None, dtype: None, ..creation(2) };
    let bcast = Operation::Collective(Primitive::Hypercube);
    let root = Creation { operation: &bcast, root: Some(5), count: None, label: "", ..creation(3) };
    writer.created(&queued, 100);
    let running = writer.created(&send, 200);
    let done = writer.created(&root, 300);
    writer.started(running, 210);
    writer.started(done, 310);
    writer.completed(done, 320);

    let read = snapshot(writer.memory()).unwrap();
    assert_eq!((read.rank, read.lost, read.dropped), (3, 0, 0));
    let [a, b, c] = &read.calls[..] else { panic!("{read:?}") };
    assert_eq!((a.state, a.created_ns, a.started_ns, a.completed_ns), (State::Queued, 100, None, None));
    assert_eq!((a.comm, a.seq, a.count, &a.label[..]), (7, 1, Some(10), queued.label));
    assert_eq!((a.op, a.dtype, a.root), (Some(Op::Sum), Some(DType::Bfloat16), None));
    assert_eq!((b.state, &b.operation, b.op), (State::Running, &Operation::Send { peer: u32::MAX }, None));
    assert_eq!((c.state, c.completed_ns, c.root, c.count), (State::Completed, Some(320), Some(5), None));
    assert_eq!(c.operation, bcast);
}

#[test]
fn a_full_ring_keeps_the_newest_and_says_how_many_are_gone() {
    let mut writer = Writer::new(allocate(4), 0).unwrap();
    let first = writer.created(&creation(1), 1);
    for seq in 2..=11 {
        writer.created(&creation(seq), seq);
    }
    writer.completed(first, 99);
    let read = snapshot(writer.memory()).unwrap();
    assert_eq!(read.calls.iter().map(|c| c.seq).collect::<Vec<_>>(), [8, 9, 10, 11]);
    assert_eq!(read.lost, 7);
    assert!(read.calls.iter().all(|c| c.state == State::Queued), "a late stamp must not reach the slot's next record");
}

#[test]
fn a_slot_left_half_written_is_dropped_and_the_others_stay() {
    let mut writer = Writer::new(allocate(4), 0).unwrap();
    for seq in 1..=3 {
        writer.created(&creation(seq), seq);
    }
    writer.memory()[HEADER + SLOT].fetch_add(1, Ordering::Relaxed);
    let read = snapshot(writer.memory()).unwrap();
    assert_eq!(read.calls.iter().map(|c| c.seq).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(read.dropped, 1);
}

#[test]
fn one_damaged_ordinal_costs_one_record() {
    let mut writer = Writer::new(allocate(4), 0).unwrap();
    for seq in 1..=3 {
        writer.created(&creation(seq), seq);
    }
    writer.memory()[HEADER + SLOT + 1].store(1 + 1 + 4_000_000, Ordering::Relaxed);
    let read = snapshot(writer.memory()).unwrap();
    assert_eq!(read.calls.iter().map(|c| c.seq).collect::<Vec<_>>(), [1, 3]);
    assert_eq!((read.dropped, read.lost), (1, 0));
}

#[test]
fn garbage_never_panics_and_never_reads_outside() {
    let mut rng = StdRng::seed_from_u64(1);
    for round in 0..2000 {
        let words = rng.random_range(0..200usize);
        let mut memory: Vec<AtomicU64> = (0..words).map(|_| AtomicU64::new(rng.random())).collect();
        if round % 2 == 0 {
            // Plausible enough to get past the header and the locks.
            for (i, word) in memory.iter_mut().enumerate() {
                match i {
                    0 => *word.get_mut() = MAGIC,
                    1 => *word.get_mut() = rng.random_range(0..9),
                    _ if i >= HEADER => *word.get_mut() &= rng.random::<u64>() >> rng.random_range(0..64) << 1,
                    _ => {}
                }
            }
        }
        if let Ok(read) = snapshot(&memory) {
            assert!(read.calls.len() * SLOT <= words);
        }
    }
}

#[test]
fn damage_in_the_header_is_told() {
    let memory = allocate(2);
    assert!(matches!(snapshot(&memory), Err(RingError::NotARing)));
    let _ = Writer::new(memory.clone(), 0).unwrap();
    memory[1].store(3, Ordering::Relaxed);
    assert!(matches!(snapshot(&memory), Err(RingError::Damaged { claimed: 3, held: 2 })));
    assert!(matches!(snapshot(&memory[..10]), Err(RingError::TooSmall { words: 10 })));
}

/// All arguments of a record are functions of its sequence number, so that a mixture of two records shows.
#[test]
fn a_reader_beside_a_busy_writer_never_sees_a_mixture() {
    let memory = allocate(8);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = Writer::new(memory.clone(), 0).unwrap();
            let mut seq = 0;
            while !stop.load(Ordering::Relaxed) {
                seq += 1;
                let label = format!("{seq}");
                let ticket = writer.created(&Creation { comm: !seq, label: &label, ..creation(seq) }, seq);
                writer.started(ticket, seq);
                writer.completed(ticket, seq);
            }
        });
        let mut seen = 0;
        while seen < 20_000 {
            let Ok(read) = snapshot(&memory) else { continue };
            for call in &read.calls {
                assert_eq!((call.comm, call.count, call.created_ns), (!call.seq, Some(call.seq * 10), call.seq));
                assert_eq!(call.label, call.seq.to_string());
            }
            assert!(read.calls.is_sorted_by(|a, b| a.seq < b.seq));
            seen += read.calls.len();
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_file_outlives_its_writer_and_may_be_cut_short() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rank0.ring");
    let mut writer = Writer::new(MappedRing::create(&path, 16).unwrap(), 5).unwrap();
    let ticket = writer.created(&creation(1), 1);
    writer.started(ticket, 2);
    assert_eq!(read_file(&path).unwrap().calls[0].state, State::Running);
    drop(writer);
    let read = read_file(&path).unwrap();
    assert_eq!((read.rank, read.calls.len()), (5, 1));

    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(200).unwrap();
    assert!(matches!(read_file(&path), Err(RingError::TooSmall { .. })));
    file.set_len(300).unwrap();
    assert!(matches!(read_file(&path), Err(RingError::Damaged { .. })));
    assert!(matches!(read_file(&dir.path().join("none")), Err(RingError::File { .. })));
}
