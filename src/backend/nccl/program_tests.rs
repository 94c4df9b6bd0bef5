//! Programs are carried out here on plain memory, by NCCL's documented meaning of each call.

use std::collections::{HashMap, VecDeque};

use super::*;
use crate::case::DType;
use crate::case::primitive::Source;

/// Address of rank `rank`'s send buffer; its receive buffer follows 1 MiB later.
fn base(rank: u32) -> u64 {
    0x1000_0000 + u64::from(rank) * 0x100_0000
}

fn site(rank: u32) -> Site {
    Site { rank, send: base(rank), recv: base(rank) + 0x10_0000 }
}

/// Memory by address of element. An input element's value is (rank, index) of the send data.
type Memory = HashMap<u64, Element>;
type Element = (u32, u64);

/// Elements of `int8`: one address each.
fn workload(bytes: u64, ranks: u32, root: u32) -> Workload {
    Workload { bytes, dtype: DType::Int8, ranks, root, aligned: false }
}

fn block(memory: &Memory, from: u64, count: usize) -> Vec<Element> {
    (0..count as u64).map(|i| *memory.get(&(from + i)).unwrap_or(&(u32::MAX, from + i))).collect()
}

fn put(memory: &mut Memory, to: u64, values: Vec<Element>) {
    for (i, value) in values.into_iter().enumerate() {
        memory.insert(to + i as u64, value);
    }
}

/// Carries out one phase of all ranks at once: everything is read before anything is written.
fn carry_out(memory: &mut Memory, phase: &Phase, ranks: u32) {
    let mut messages: HashMap<(u32, i32), VecDeque<Vec<Element>>> = HashMap::new();
    let mut writes: Vec<(u64, Vec<Element>)> = Vec::new();
    let by_rank = |wanted: u32| {
        let mut own = phase.steps.iter().filter(move |(lane, _)| *lane as u32 == wanted);
        *own.next().map(|(_, step)| step).unwrap()
    };
    for (lane, step) in &phase.steps {
        let rank = *lane as u32;
        match *step {
            Step::Send { from, count, peer } => {
                messages.entry((rank, peer)).or_default().push_back(block(memory, from, count));
            }
            Step::Copy { from, to, bytes } => writes.push((to, block(memory, from, bytes))),
            Step::AllGather { recv, count, .. } => {
                for source in 0..ranks {
                    let Step::AllGather { send, .. } = by_rank(source) else { panic!() };
                    writes.push((recv + u64::from(source) * count as u64, block(memory, send, count)));
                }
            }
            Step::Broadcast { recv, count, root, .. } => {
                let Step::Broadcast { send, .. } = by_rank(root as u32) else { panic!() };
                writes.push((recv, block(memory, send, count)));
            }
            Step::Gather { recv, count, root, .. } if root as u32 == rank => {
                for source in 0..ranks {
                    let Step::Gather { send, .. } = by_rank(source) else { panic!() };
                    writes.push((recv + u64::from(source) * count as u64, block(memory, send, count)));
                }
            }
            Step::Scatter { recv, count, root, .. } => {
                let Step::Scatter { send, .. } = by_rank(root as u32) else { panic!() };
                writes.push((recv, block(memory, send + u64::from(rank) * count as u64, count)));
            }
            Step::Alltoall { recv, count, .. } => {
                for source in 0..ranks {
                    let Step::Alltoall { send, .. } = by_rank(source) else { panic!() };
                    let from = send + u64::from(rank) * count as u64;
                    writes.push((recv + u64::from(source) * count as u64, block(memory, from, count)));
                }
            }
            _ => {}
        }
    }
    for (lane, step) in &phase.steps {
        if let Step::Recv { to, count, peer } = *step {
            let queue = messages.get_mut(&(peer as u32, *lane as i32)).expect("a receive has a send");
            let message = queue.pop_front().expect("as many sends as receives");
            assert_eq!(message.len(), count, "send and receive agree on the count");
            writes.push((to, message));
        }
    }
    assert!(messages.values().all(VecDeque::is_empty), "every send has a receive");
    for (to, values) in writes {
        put(memory, to, values);
    }
}

fn run(primitive: Primitive, w: &Workload, placement: Placement, native: Native) -> Option<()> {
    let unit = primitive.unit();
    let sites: Vec<Site> = (0..w.ranks).map(site).collect();
    let phases = compile(primitive, w, placement, native, None, &sites)?;
    let mut memory = Memory::new();
    let mut received = Vec::new();
    for site in &sites {
        let (send, recv) = match placement {
            Placement::OutOfPlace => (site.send, site.recv),
            Placement::InPlace => {
                let place = unit.in_place(w, site.rank)?;
                (site.recv + place.send, site.recv + place.recv)
            }
        };
        received.push(recv);
        if unit.sends(w, site.rank) {
            put(&mut memory, send, (0..unit.shape(w).send).map(|i| (site.rank, i)).collect());
        }
    }
    for phase in &phases {
        carry_out(&mut memory, phase, w.ranks);
    }
    for rank in 0..w.ranks {
        for segment in unit.expected(w, rank) {
            let Source::Rank { rank: source, element } = segment.source else { continue };
            let got = block(&memory, received[rank as usize] + segment.start, segment.len as usize);
            let wanted: Vec<_> = (element..element + segment.len).map(|i| (source, i)).collect();
            assert_eq!(got, wanted, "{primitive} {placement:?} {w:?} {native:?} rank {rank}");
        }
    }
    Some(())
}

const YOUNG: Native = Native { alltoall: true, gather: true, scatter: true };
const OLD: Native = Native::NONE;

#[test]
fn programs_of_data_movement_deliver_what_the_case_expects() {
    let mut ran = 0;
    for primitive in Primitive::ALL.into_iter().filter(|p| !p.unit().reduces()) {
        for ranks in [1u32, 2, 3, 4, 5, 8] {
            if primitive.unit().refuses(ranks).is_some() {
                continue;
            }
            for (bytes, root) in [(1, 0), (64, ranks - 1), (1000, ranks / 2)] {
                for native in [YOUNG, OLD] {
                    for placement in [Placement::OutOfPlace, Placement::InPlace] {
                        let w = workload(bytes, ranks, root);
                        ran += usize::from(run(primitive, &w, placement, native).is_some());
                    }
                }
            }
        }
    }
    assert!(ran > 300, "only {ran}");
}

#[test]
fn reductions_pass_count_root_and_in_place_pointers_as_nccl_documents_them() {
    let w = workload(64, 4, 2);
    let only = |primitive, placement| {
        let phases = compile(primitive, &w, placement, YOUNG, None, &[site(3)]).unwrap();
        assert_eq!(phases.len(), 1);
        phases[0].steps[0].1
    };
    let Site { send, recv, .. } = site(3);
    assert_eq!(only(Primitive::AllReduce, Placement::OutOfPlace), Step::AllReduce { send, recv, count: 64 });
    assert_eq!(only(Primitive::AllReduce, Placement::InPlace), Step::AllReduce { send: recv, recv, count: 64 });
    assert_eq!(only(Primitive::Reduce, Placement::OutOfPlace), Step::Reduce { send, recv, count: 64, root: 2 });
    // recvbuff == sendbuff + rank * recvcount
    let in_place = Step::ReduceScatter { send: recv, recv: recv + 3 * 16, count: 16 };
    assert_eq!(only(Primitive::ReduceScatter, Placement::InPlace), in_place);
}

#[test]
fn one_call_is_not_grouped_and_several_are() {
    let w = workload(64, 2, 0);
    let grouped = |primitive, sites: &[Site]| {
        let phases = compile(primitive, &w, Placement::OutOfPlace, YOUNG, None, sites).unwrap();
        together(&[phases]).iter().map(|group| group.grouped).collect::<Vec<_>>()
    };
    assert_eq!(grouped(Primitive::AllReduce, &[site(0)]), [false]);
    assert_eq!(grouped(Primitive::AllReduce, &[site(0), site(1)]), [true]);
    assert_eq!(grouped(Primitive::Sendrecv, &[site(0)]), [true]);
    assert_eq!(grouped(Primitive::Hypercube, &[site(0)]), [false, true]);
}

#[test]
fn several_calls_are_one_group_in_their_order_on_every_lane() {
    let w = workload(64, 2, 0);
    let calls: Vec<_> = [0, 64, 128]
        .into_iter()
        .map(|base| {
            let sites = [site(0).moved(base), site(1).moved(base)];
            compile(Primitive::AllReduce, &w, Placement::OutOfPlace, YOUNG, None, &sites).unwrap()
        })
        .collect();
    let groups = together(&calls);
    assert!(groups.len() == 1 && groups[0].grouped);
    for lane in 0..2 {
        let sends: Vec<_> = groups[0]
            .steps
            .iter()
            .filter(|(_, of, _)| *of == lane)
            .map(|(call, _, step)| match step {
                Step::AllReduce { send, .. } => (*call, *send),
                other => panic!("{other:?}"),
            })
            .collect();
        let send = base(lane as u32);
        assert_eq!(sends, [(0, send), (1, send + 64), (2, send + 128)]);
    }
}

#[test]
fn what_a_call_has_received_is_sent_on_in_a_later_group() {
    let w = workload(64, 4, 0);
    let one =
        |base| compile(Primitive::Hypercube, &w, Placement::OutOfPlace, YOUNG, None, &[site(0).moved(base)]).unwrap();
    let groups = together(&[one(0), one(64)]);
    assert_eq!(
        groups.iter().map(|g| (g.steps.len(), g.grouped)).collect::<Vec<_>>(),
        [(2, false), (4, true), (4, true)]
    );
    assert!(together(&[]).is_empty());
}

#[test]
fn placements_state_the_bytes_they_need() {
    let w = Workload { dtype: DType::Float, ..workload(64, 4, 0) };
    let of = |primitive: Primitive, placement| extent(primitive.unit(), &w, placement, 3);
    assert_eq!(of(Primitive::AllGather, Placement::OutOfPlace), Some(Extent { send: 16, recv: 64 }));
    assert_eq!(of(Primitive::AllGather, Placement::InPlace), Some(Extent { send: 0, recv: 64 }));
    assert_eq!(of(Primitive::Alltoall, Placement::InPlace), None);
}

#[test]
fn a_twisted_call_is_made_of_sends_and_receives_of_which_some_are_missing_or_go_astray() {
    let w = workload(64, 4, 0);
    let of = |primitive, twist| {
        let phases = compile(primitive, &w, Placement::OutOfPlace, YOUNG, Some(twist), &[site(1)]).unwrap();
        assert_eq!(phases.len(), 1);
        let peer = |(_, step): &(usize, Step)| match *step {
            Step::Send { peer, .. } => ("send", peer),
            Step::Recv { peer, .. } => ("recv", peer),
            other => panic!("{other:?}"),
        };
        phases[0].steps.iter().map(peer).collect::<Vec<_>>()
    };
    let sendrecv = |twist| of(Primitive::Sendrecv, twist);
    assert_eq!(sendrecv(Twist::NoSend), [("recv", 0)]);
    assert_eq!(sendrecv(Twist::NoRecv), [("send", 2)]);
    assert_eq!(sendrecv(Twist::SendTo(3)), [("recv", 0), ("send", 3)]);
    assert_eq!(sendrecv(Twist::RecvFrom(3)), [("recv", 3), ("send", 2)]);
    // the native function is not called, and the own block still moves
    let alltoall = of(Primitive::Alltoall, Twist::NoSend);
    assert_eq!(alltoall, [("recv", 0), ("send", 1), ("recv", 1), ("recv", 2), ("recv", 3)]);
}
