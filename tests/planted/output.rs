//! Faults of the output of a reduction: what the values are by themselves, other results, plain inputs.

use collcheck::backend::{Buffer, Content, GUARD_BYTE, Region, Station};
use collcheck::case::{Case, DType, FloatFormat, Op, Primitive};
use collcheck::oracle::forensics::Fault;
use rand::{RngExt, rngs::StdRng};

use crate::bench::{Bench, Block, block, on_one_rank};
use crate::host_support::case;

/// What is planted here.
pub const KINDS: [Fault; 11] = [
    Fault::Unwritten,
    Fault::Zero,
    Fault::NotANumber,
    Fault::Guard,
    Fault::BitFlipped(Some(0)),
    Fault::BitFlipped(None),
    Fault::OwnInput,
    Fault::InputOf(0),
    Fault::Stale(1),
    Fault::Shifted(1),
    Fault::Swapped(1),
];

/// Elements of the output.
const COUNT: u64 = 12_000;

/// Distances of shifts and swaps stay below this.
const MARGIN: u64 = 4096;

fn each_op_and_dtype(plant: impl Fn(&mut Bench<'_>, &mut StdRng) + Sync) {
    for (k, op) in (0..).zip(Op::ALL) {
        for (j, dtype) in (0..).zip(DType::ALL) {
            let case: Case = case(Primitive::AllReduce, Some(op), dtype, COUNT * dtype.size());
            on_one_rank(&case, 1000 * k + 10 * j, |bench, rng| {
                bench.restore();
                plant(bench, rng);
            });
        }
    }
}

/// Somewhere in the output, of some hundred elements.
fn somewhere(bench: &mut Bench<'_>, rng: &mut StdRng) -> Block {
    let block = block(rng, 0, COUNT, 200, MARGIN);
    bench.context = format!("{block:?}");
    block
}

#[test]
fn what_was_never_written_is_named() {
    each_op_and_dtype(|bench, rng| {
        let Block { start, len } = somewhere(bench, rng);
        let content = Content::Reduced { element: start };
        let region = Region { buffer: Buffer::Recv, start, len, plan: &bench.plan.clone(), content, base: 0 };
        bench.station.poison(0, &region).unwrap();
        bench.names(Fault::Unwritten);
    });
}

#[test]
fn zeros_guard_zones_and_what_is_no_number_are_named() {
    each_op_and_dtype(|bench, rng| {
        let block = somewhere(bench, rng);
        bench.write(block.indices(), |_, _| 0);
        bench.names(Fault::Zero);
        bench.write(block.indices(), |_, _| u64::from(GUARD_BYTE) * 0x0101_0101_0101_0101);
        bench.names(Fault::Guard);
        if let Some(FloatFormat { max_finite, .. }) = bench.case.dtype.float() {
            // all ones but the sign, and quiet NaNs of other payloads where there are any
            let most = bench.case.dtype.mask() >> 1;
            let payloads = (most - max_finite).min(4);
            bench.write(block.indices(), |i, _| most - if payloads > 1 { i % (payloads - 1) } else { 0 });
            bench.names(Fault::NotANumber);
        }
    });
}

#[test]
fn one_flipped_bit_is_named_by_its_number_and_several_as_such() {
    each_op_and_dtype(|bench, rng| {
        let bits = 8 * bench.case.dtype.size() as u32;
        // a flip of the lowest two passes where two last places do
        let least = if bench.plan.params().tolerance > 0 { 3 } else { 0 };
        let block = somewhere(bench, rng);
        let bit = rng.random_range(least..bits);
        if bits > 8 || least == 0 {
            // one byte of a tolerance proves nothing
            bench.write(block.start..block.start + 1, |_, expected| expected ^ 1 << bit);
            bench.names(Fault::BitFlipped(Some(bit)));
        }
        bench.write(block.indices(), |_, expected| expected ^ 1 << bit);
        bench.names(Fault::BitFlipped(Some(bit)));
        let stray = move |i: u64| least + (i * 7 % u64::from(bits - least)) as u32;
        bench.write(block.indices(), |i, expected| expected ^ 1 << stray(i));
        bench.names(Fault::BitFlipped(None));
    });
}

#[test]
fn inputs_that_were_not_reduced_are_named_by_their_rank() {
    each_op_and_dtype(|bench, rng| {
        let block = somewhere(bench, rng);
        let plan = bench.plan.clone();
        for rank in [bench.rank, (bench.rank + rng.random_range(1..bench.ranks)) % bench.ranks] {
            bench.fill(block, &plan, Content::Input { rank, element: block.start });
            bench.names(if rank == bench.rank { Fault::OwnInput } else { Fault::InputOf(rank) });
        }
    });
}

#[test]
fn results_of_earlier_runs_are_named_by_their_age() {
    each_op_and_dtype(|bench, rng| {
        let block = somewhere(bench, rng);
        let epochs = rng.random_range(1..=4);
        let earlier = bench.earlier(epochs);
        bench.fill(block, &earlier, Content::Reduced { element: block.start });
        bench.names(Fault::Stale(epochs));
    });
}

#[test]
fn shifted_and_swapped_blocks_are_named_by_their_distance() {
    each_op_and_dtype(|bench, rng| {
        let block = somewhere(bench, rng);
        let plan = bench.plan.clone();
        let by = rng.random_range(1..MARGIN as i64) * if rng.random() { 1 } else { -1 };
        bench.fill(block, &plan, Content::Reduced { element: block.start.checked_add_signed(by).unwrap() });
        bench.names(Fault::Shifted(by));

        // a check keeps 256 samples, here the first: both blocks must be among them
        let (start, apart) = (block.start, rng.random_range(20..120));
        bench.fill(Block { start, len: apart }, &plan, Content::Reduced { element: start + apart });
        bench.fill(Block { start: start + apart, len: apart }, &plan, Content::Reduced { element: start });
        bench.names(Fault::Swapped(apart));
    });
}
