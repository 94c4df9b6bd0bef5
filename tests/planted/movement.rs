//! Faults of data movement.

use std::sync::atomic::{AtomicUsize, Ordering};

use collcheck::backend::Content;
use collcheck::case::primitive::Source;
use collcheck::case::{DType, Primitive};
use collcheck::oracle::forensics::Fault;
use rand::{RngExt, rngs::StdRng};

use crate::bench::{Bench, Block, block, on_one_rank};
use crate::host_support::case;

/// What is planted here.
pub const KINDS: [Fault; 4] = [Fault::OtherRank(0), Fault::OtherPlace(1), Fault::Stale(1), Fault::Shifted(1)];

/// Elements of the output, at least.
const COUNT: u64 = 60_000;

/// One of the segments that come from ranks, and a block in it.
fn somewhere(bench: &mut Bench<'_>, rng: &mut StdRng, margin: u64) -> (u32, u64, Block) {
    let long: Vec<_> = bench.segments.iter().filter(|s| s.len > 2 * margin + 600).copied().collect();
    let segment = long[rng.random_range(0..long.len())];
    let Source::Rank { rank, element } = segment.source else { panic!("data movement reduces nothing") };
    let block = block(rng, segment.start, segment.start + segment.len, 50, margin);
    bench.context = format!("{block:?}, of rank {rank}");
    (rank, element + block.start - segment.start, block)
}

#[test]
fn moved_data_are_named_by_where_they_come_from() {
    let gathers = [Primitive::AllGather, Primitive::Alltoall, Primitive::Broadcast, Primitive::Sendrecv];
    for (k, primitive) in (0..).zip(gathers) {
        for (j, dtype) in (0..).zip(DType::ALL) {
            let case = case(primitive, None, dtype, COUNT * dtype.size());
            on_one_rank(&case, 500 * k + j, |bench, rng| {
                bench.restore();
                let margin = 1000;
                let plan = bench.plan.clone();
                let (owner, element, block) = somewhere(bench, rng, margin);
                let other = (owner + rng.random_range(1..bench.ranks)) % bench.ranks;
                bench.fill(block, &plan, Content::Input { rank: other, element });
                bench.names(Fault::OtherRank(other));

                let (rank, element, block) = somewhere(bench, rng, margin);
                let by = rng.random_range(1..margin as i64) * if rng.random() { 1 } else { -1 };
                bench.fill(block, &plan, Content::Input { rank, element: element.saturating_add_signed(by) });
                bench.names(Fault::Shifted(by));

                let (rank, element, block) = somewhere(bench, rng, margin);
                let epochs = rng.random_range(1..=4);
                let earlier = bench.earlier(epochs);
                bench.fill(block, &earlier, Content::Input { rank, element });
                bench.names(Fault::Stale(epochs));
            });
        }
    }
}

/// Blocks of unequal length lie elsewhere in each sender's data, so that a place is not just another rank.
#[test]
fn what_belongs_into_another_segment_is_named_by_the_distance() {
    let places = AtomicUsize::new(0);
    for (j, dtype) in (0..).zip(DType::ALL) {
        let case = case(Primitive::Alltoallv, None, dtype, COUNT * dtype.size());
        on_one_rank(&case, 900 + j, |bench, rng| {
            bench.restore();
            let segments = bench.segments.clone();
            for (from, to) in segments.iter().zip(segments.iter().skip(1)) {
                let len = from.len.min(to.len).min(300);
                if len < 20 {
                    continue;
                }
                let offset = rng.random_range(0..=from.len.min(to.len) - len);
                let Source::Rank { element: own, .. } = from.source else { panic!("data movement reduces nothing") };
                let Source::Rank { rank, element } = to.source else { panic!("data movement reduces nothing") };
                let block = Block { start: from.start + offset, len };
                bench.context = format!("{block:?}, from {}", to.start);
                let plan = bench.plan.clone();
                bench.fill(block, &plan, Content::Input { rank, element: element + offset });
                // the same place in another's data is that rank's, in the first receiver's segments
                let place = Fault::OtherPlace((to.start - from.start) as i64);
                places.fetch_add(usize::from(element != own), Ordering::Relaxed);
                bench.names(if element == own { Fault::OtherRank(rank) } else { place });
            }
        });
    }
    assert!(places.into_inner() > 12);
}
