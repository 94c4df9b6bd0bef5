//! Every collective of the host backend ends with what the oracle expects, on ranks that really run at once.

mod host_support;

use collcheck::backend::Placement::OutOfPlace;
use collcheck::backend::host::{Algorithm, HostBackend, Transport};
use collcheck::backend::{Buffer, Call, Content, Region, Station};
use collcheck::case::{Case, DType, Op, Primitive, Variant};
use host_support::{TRANSPORTS, Trial, case, expect_right, need, on_all_ranks, over, with};

const RANKS: [(Transport, u32); 11] = [
    (Transport::Shm, 1),
    (Transport::Shm, 2),
    (Transport::Shm, 3),
    (Transport::Shm, 4),
    (Transport::Shm, 5),
    (Transport::Shm, 8),
    (Transport::Tcp, 1),
    (Transport::Tcp, 2),
    (Transport::Tcp, 3),
    (Transport::Tcp, 4),
    (Transport::Tcp, 7),
];

fn reducing() -> impl Iterator<Item = Primitive> {
    Primitive::ALL.into_iter().filter(|primitive| primitive.unit().reduces())
}

fn moving() -> impl Iterator<Item = Primitive> {
    Primitive::ALL.into_iter().filter(|primitive| !primitive.unit().reduces())
}

/// The cases that `ranks` ranks can run, with every root of rooted primitives.
fn with_roots(ranks: u32, cases: impl Iterator<Item = Case>) -> Vec<Case> {
    let mut all = Vec::new();
    for case in cases.filter(|case| case.primitive.unit().refuses(ranks).is_none()) {
        if case.primitive.unit().rooted() {
            all.extend((1..ranks).map(|root| with(case.clone(), Variant::Root(root))));
        }
        all.push(case);
    }
    all
}

#[test]
fn every_op_dtype_and_count_reduces_over_rings_and_chains() {
    for (transport, ranks) in RANKS {
        let cases = reducing().flat_map(|primitive| {
            Op::ALL.into_iter().flat_map(move |op| {
                DType::ALL.into_iter().flat_map(move |dtype| {
                    [dtype.size(), 1000 + 3 * dtype.size()].map(|bytes| case(primitive, Some(op), dtype, bytes))
                })
            })
        });
        expect_right(transport, ranks, Some(Algorithm::Ring), &cases.collect::<Vec<_>>());
    }
}

#[test]
fn every_op_dtype_and_count_reduces_over_the_tree() {
    for (transport, ranks) in RANKS {
        let cases = Op::ALL.into_iter().flat_map(|op| {
            DType::ALL.into_iter().flat_map(move |dtype| {
                [dtype.size(), 1000 + 3 * dtype.size()].map(|bytes| case(Primitive::AllReduce, Some(op), dtype, bytes))
            })
        });
        expect_right(transport, ranks, Some(Algorithm::Tree), &cases.collect::<Vec<_>>());
    }
}

#[test]
fn every_root_and_placement_of_every_collective_is_right_at_odd_and_round_sizes() {
    for (transport, ranks) in RANKS {
        let cases = reducing().map(|primitive| (primitive, Some(Op::Sum))).chain(moving().map(|p| (p, None)));
        let cases = cases.flat_map(|(primitive, op)| {
            [DType::Int8, DType::Bfloat16, DType::Float, DType::Double].into_iter().flat_map(move |dtype| {
                let plain = [1, 4096].map(|bytes| case(primitive, op, dtype, bytes));
                let odd = [37, 5003].map(|bytes| with(case(primitive, op, dtype, bytes), Variant::Odd));
                plain.into_iter().chain(odd)
            })
        });
        expect_right(transport, ranks, None, &with_roots(ranks, cases));
    }
}

/// Longer than a channel, and than a chunk for each rank, with remainders.
#[test]
fn messages_longer_than_the_channels_arrive_whole() {
    for (transport, ranks) in TRANSPORTS.into_iter().flat_map(|transport| [2, 3, 8].map(|ranks| (transport, ranks))) {
        let mut cases = Vec::new();
        for primitive in Primitive::ALL {
            let op = primitive.unit().reduces().then_some(Op::Sum);
            cases.push(with(case(primitive, op, DType::Uint8, 100_003), Variant::Odd));
            if ranks < 8 {
                cases.push(with(case(primitive, op, DType::Float, (1 << 20) + 12), Variant::Odd));
            }
        }
        cases.push(case(Primitive::AllReduce, Some(Op::Avg), DType::Bfloat16, 1 << 20));
        cases.push(case(Primitive::ReduceScatter, Some(Op::Mulsum), DType::Double, 2 << 20));
        cases.push(case(Primitive::AllGather, None, DType::Uint64, 2 << 20));
        cases.retain(|case| case.primitive.unit().refuses(ranks).is_none());
        expect_right(transport, ranks, None, &cases);
        expect_right(
            transport,
            ranks,
            Some(Algorithm::Tree),
            &[case(Primitive::AllReduce, Some(Op::Prod), DType::Int32, 1 << 20)],
        );
    }
}

#[test]
fn sixty_four_ranks_on_few_cores_get_there() {
    let cases: Vec<Case> = Primitive::ALL
        .into_iter()
        .map(|primitive| case(primitive, primitive.unit().reduces().then_some(Op::Avg), DType::Float, 100_000))
        .collect();
    for transport in TRANSPORTS {
        expect_right(transport, 64, None, &cases);
    }
}

#[test]
fn buffers_may_start_at_any_element() {
    for (transport, ranks) in [(Transport::Shm, 1), (Transport::Shm, 3), (Transport::Shm, 4), (Transport::Tcp, 3)] {
        let all = Primitive::ALL.into_iter().flat_map(|primitive| {
            let op = primitive.unit().reduces().then_some(Op::Sum);
            [DType::Int8, DType::Half, DType::Double]
                .into_iter()
                .flat_map(move |dtype| [1, 3].map(|by| with(case(primitive, op, dtype, 256), Variant::Unaligned(by))))
        });
        expect_right(transport, ranks, None, &with_roots(ranks, all));
    }
}

#[test]
fn calls_of_one_launch_each_have_their_own_part_of_the_buffers() {
    let of = |dtype| case(Primitive::AllReduce, Some(Op::Sum), dtype, 64);
    let cases = [of(DType::Float), of(DType::Int8), of(DType::Double)];
    for transport in TRANSPORTS {
        calls_of_one_launch(&over(transport, 3), &cases);
    }
}

fn calls_of_one_launch(backend: &HostBackend, cases: &[Case]) {
    on_all_ranks(backend, |rank, station| {
        let trials: Vec<_> = (0..).zip(cases).map(|(i, case)| Trial::new(case, 3, rank, OutOfPlace, i)).collect();
        let regions: Vec<_> = (0..)
            .zip(&trials)
            .map(|(i, trial)| {
                let len = 64 / trial.case.dtype.size();
                let content = Content::Input { rank, element: 0 };
                Region { buffer: Buffer::Send, start: 0, len, plan: &trial.plan, content, base: 64 * i }
            })
            .collect();
        station.prepare(&need(192, 192)).unwrap();
        regions.iter().for_each(|region| station.fill(0, region).unwrap());
        let calls: Vec<_> = (0..)
            .zip(&trials)
            .map(|(i, Trial { case, plan, .. })| {
                let workload = case.workload(3);
                Call { case, workload, placement: OutOfPlace, plan, base: 64 * i, twist: None }
            })
            .collect();
        station.launch(&calls).unwrap();
        for region in regions {
            let sum = Region { buffer: Buffer::Recv, content: Content::Reduced { element: 0 }, ..region };
            station.check(0, &sum).unwrap();
            assert_eq!(station.verdict(0, sum.plan.dtype()).unwrap().wrong, 0, "byte {}", sum.base);
        }
        assert_eq!(station.guards(0).unwrap(), None);
    });
}
