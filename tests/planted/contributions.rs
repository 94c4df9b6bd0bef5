//! Faults of one rank's contribution to a reduction.

use collcheck::backend::{Buffer, Content, Placement, Region, Station};
use collcheck::case::{Case, DType, Op, Primitive};
use collcheck::oracle::Plan;
use collcheck::oracle::forensics::{Explanation, Fault};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::bench::{Bench, Block, block, fold, mostly_named, on_one_rank};
use crate::host_support::{Trial, backend, case, on_all_ranks};

/// What is planted here.
pub const KINDS: [Fault; 6] = [
    Fault::Missing(0),
    Fault::Doubled(0),
    Fault::Slot { rank: 0, read: 1 },
    Fault::StaleContribution { rank: 0, epochs: 1 },
    Fault::MovedContribution { rank: 0, by: 1 },
    Fault::Narrowed(DType::Half),
];

/// Elements of the output.
const COUNT: u64 = 20_000;

const EPOCH: u64 = 9;

fn all_reduce(op: Op, dtype: DType) -> Case {
    case(Primitive::AllReduce, Some(op), dtype, COUNT * dtype.size())
}

#[test]
fn a_rank_that_is_missing_or_counts_twice_is_named() {
    for (k, op) in (0..).zip(Op::ALL) {
        for (j, dtype) in (0..).zip(DType::ALL) {
            on_one_rank(&all_reduce(op, dtype), 7000 + 100 * k + j, |bench, rng| {
                bench.restore();
                let block = block(rng, 0, COUNT, 1000, 0);
                let plan = bench.plan.clone();
                let culprit = rng.random_range(0..bench.ranks);
                bench.context = format!("{block:?}, culprit {culprit}");
                bench.write(block.indices(), |i, _| fold(&plan, op, i, |rank| u32::from(rank != culprit)));
                bench.names(Fault::Missing(culprit));
                if !matches!(op, Op::Min | Op::Max) {
                    bench.write(block.indices(), |i, _| fold(&plan, op, i, |rank| 1 + u32::from(rank == culprit)));
                    bench.names(Fault::Doubled(culprit));
                }
            });
        }
    }
}

#[test]
fn a_narrow_accumulator_is_named() {
    let narrower = [DType::Float, DType::Half, DType::Bfloat16];
    for (k, op) in (0..).zip([Op::Sum, Op::Avg, Op::Mulsum, Op::Min, Op::Max]) {
        for dtype in [DType::Double, DType::Float] {
            on_one_rank(&all_reduce(op, dtype), 8000 + 10 * k + dtype.size(), |bench, rng| {
                bench.restore();
                let wide = dtype.float().unwrap();
                let width = 8 * dtype.size() as u32;
                for to in narrower.into_iter().filter(|to| to.size() < dtype.size()) {
                    let narrow = to.float().unwrap();
                    let bits = 8 * to.size() as u32;
                    let rounded = move |e: u64| narrow.decode(narrow.encode(wide.decode(e, width), bits), bits);
                    let start = rng.random_range(0..COUNT - 2000);
                    bench.context = format!("from {start} on, to {to}");
                    // what the narrow type can hold at all, and not exactly
                    let lossy: Vec<u64> = (start..start + 2000)
                        .filter(|&i| {
                            let (value, kept) = (wide.decode(bench.expected(i), width), rounded(bench.expected(i)));
                            let last_place = value.abs() * 2f64.powi(-(narrow.precision() as i32));
                            kept.is_finite() && kept != 0.0 && (kept - value).abs() <= last_place
                        })
                        .collect();
                    if lossy.len() < 100 {
                        continue; // its exponents are of another range
                    }
                    bench.write(lossy.into_iter(), |_, e| wide.encode(rounded(e), width));
                    bench.names(Fault::Narrowed(to));
                }
            });
        }
    }
}

/// What one rank puts in the place of its input, before the collective.
#[derive(Clone, Copy)]
struct Swap {
    block: Block,
    rank: u32,
    what: Fault,
}

impl Swap {
    /// Spoils this rank's send buffer.
    fn apply(self, station: &mut collcheck::backend::host::HostStation, case: &Case, ranks: u32, plan: &Plan) {
        let Block { start, len } = self.block;
        let (content, plan) = match self.what {
            Fault::Slot { read, .. } => (Content::Input { rank: read, element: start }, plan.clone()),
            Fault::StaleContribution { rank, epochs } => {
                (Content::Input { rank, element: start }, Plan::of(case, 11, ranks, EPOCH - epochs))
            }
            Fault::MovedContribution { rank, by } => {
                (Content::Input { rank, element: start.checked_add_signed(by).unwrap() }, plan.clone())
            }
            other => panic!("{other} is no such fault"),
        };
        let region = Region { buffer: Buffer::Send, start, len, plan: &plan, content, base: 0 };
        station.fill(0, &region).unwrap();
    }
}

/// The collective with one spoiled input, and what one rank makes of its output.
fn with_spoiled_input(case: &Case, ranks: u32, swap: Swap, observer: u32) -> Option<Explanation> {
    let told = on_all_ranks(&backend(ranks), |rank, station| {
        let trial = Trial::new(case, ranks, rank, Placement::OutOfPlace, EPOCH);
        trial.prepare(station).unwrap();
        if rank == swap.rank {
            swap.apply(station, case, ranks, &trial.plan);
        }
        trial.launch(station).unwrap();
        (rank == observer).then(|| Bench::new(station, case, rank, ranks).explain()).flatten()
    });
    told.into_iter().flatten().next()
}

/// By the collective itself, with its own order of additions.
#[test]
fn another_input_in_the_place_of_a_ranks_own_is_named_with_both() {
    let mut rng = StdRng::seed_from_u64(6);
    for op in Op::ALL {
        for dtype in DType::ALL {
            let case = all_reduce(op, dtype);
            let ranks = [3u32, 4, 5, 8][rng.random_range(0..4usize)];
            let rank = rng.random_range(0..ranks);
            let by = (1 << rng.random_range(0..12u32)) * if rng.random() { 1 } else { -1 };
            for what in [
                Fault::Slot { rank, read: (rank + 1) % ranks },
                Fault::StaleContribution { rank, epochs: rng.random_range(1..=2) },
                Fault::MovedContribution { rank, by },
            ] {
                let block = block(&mut rng, 0, COUNT, 1500, 4096);
                let observer = rng.random_range(0..ranks);
                let context = format!("{case} on rank {observer} of {ranks}, {block:?}");
                let Some(found) = with_spoiled_input(&case, ranks, Swap { block, rank, what }, observer) else {
                    panic!("{context}: {what} does not show")
                };
                // a neighbour's input loses where the rank's own would have won, or is zero where that is not: either way
                // the result is that of the rank missing
                let lost = matches!(what, Fault::Slot { .. }) && matches!(op, Op::Min | Op::Max | Op::Avg);
                let missing = found.findings.first().is_some_and(|finding| finding.fault == Fault::Missing(rank));
                mostly_named(&found, if lost && missing { Fault::Missing(rank) } else { what }, &context);
            }
        }
    }
}
