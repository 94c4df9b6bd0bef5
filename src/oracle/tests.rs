//! The oracle's promises, as properties over every op, dtype and many numbers of ranks.

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::*;
use crate::case::Kind;

const RANKS: [u32; 14] = [1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 64, 255, 256, 1024];

fn plans() -> impl Iterator<Item = (Op, DType, u32, Plan)> {
    Op::ALL.into_iter().flat_map(|op| {
        DType::ALL.into_iter().flat_map(move |dtype| {
            RANKS.into_iter().map(move |ranks| {
                (op, dtype, ranks, Plan::new(42, Primitive::AllReduce, Some(op), dtype, ranks, u64::from(ranks)))
            })
        })
    })
}

/// Mulsum with odd scalars.
fn odd_plans() -> impl Iterator<Item = (Op, DType, u32, Plan)> {
    let dtypes = [DType::Half, DType::Bfloat16, DType::Float, DType::Double];
    dtypes.into_iter().flat_map(|dtype| {
        RANKS.into_iter().map(move |ranks| {
            let (op, epoch) = (Op::Mulsum, u64::from(ranks));
            let plan = Plan::with(Data::OddScalars, 42, Primitive::AllReduce, Some(op), dtype, ranks, epoch);
            (op, dtype, ranks, plan)
        })
    })
}

/// A number exact enough for any partial result of one dtype: a multiple of `2^exponent`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Exact {
    significand: i128,
    exponent: i32,
}

fn exact(dtype: DType, bits: u64) -> Exact {
    let width = 8 * dtype.size() as u32;
    match dtype.kind() {
        Kind::Unsigned => Exact { significand: i128::from(bits), exponent: 0 },
        Kind::Signed => Exact { significand: i128::from((bits << (64 - width)) as i64 >> (64 - width)), exponent: 0 },
        Kind::Float(format) => {
            let magnitude = bits & !(1 << (width - 1));
            assert!(magnitude <= format.max_finite, "{dtype} {bits:#x} is not finite");
            let field = (magnitude >> format.fraction_bits) as i32;
            let fraction = magnitude & ((1 << format.fraction_bits) - 1);
            let (significand, field) =
                if field == 0 { (fraction, 1) } else { (fraction | 1 << format.fraction_bits, field) };
            assert!(
                field > 0 && (field > 1 || magnitude == 0 || magnitude >> format.fraction_bits > 0),
                "subnormal input"
            );
            let significand = i128::from(significand) * if bits == magnitude { 1 } else { -1 };
            Exact { significand, exponent: field - format.bias - format.fraction_bits as i32 }
        }
    }
}

impl Exact {
    fn plus(self, other: Exact) -> Exact {
        if self.significand == 0 {
            return other;
        }
        if other.significand == 0 {
            return self;
        }
        let exponent = self.exponent.min(other.exponent);
        let lift = |x: Exact| {
            let shift = (x.exponent - exponent) as u32;
            assert!(shift < 64, "contributions of one element lie too far apart");
            x.significand << shift
        };
        Exact { significand: lift(self) + lift(other), exponent }
    }

    fn times(self, other: Exact) -> Exact {
        Exact { significand: self.significand * other.significand, exponent: self.exponent + other.exponent }.reduced()
    }

    fn reduced(self) -> Exact {
        if self.significand == 0 {
            return self;
        }
        let shift = self.significand.trailing_zeros();
        Exact { significand: self.significand >> shift, exponent: self.exponent + shift as i32 }
    }

    /// Bits of the dtype that are exactly this; normal numbers and zero only.
    fn bits(self, dtype: DType) -> Option<u64> {
        let Kind::Float(format) = dtype.kind() else { unreachable!() };
        if self.significand == 0 {
            return Some(0);
        }
        let x = self.reduced();
        let size = x.significand.unsigned_abs();
        let top = 127 - size.leading_zeros();
        if top > format.fraction_bits {
            return None;
        }
        let field = x.exponent + top as i32 + format.bias;
        if field < 1 {
            return None;
        }
        let magnitude = compose(size as u64, (x.exponent + format.bias) as u64, format.fraction_bits);
        let sign = if x.significand < 0 { 1 << (8 * dtype.size() - 1) } else { 0 };
        (magnitude <= format.max_finite).then_some(magnitude | sign)
    }
}

/// Combines two partial results of floats, and insists that nothing is rounded away.
fn combine_floats(op: Op, dtype: DType, a: u64, b: u64) -> u64 {
    let (x, y) = (exact(dtype, a), exact(dtype, b));
    let value = |x: Exact| x.significand as f64 * 2f64.powi(x.exponent);
    match op {
        Op::Min => {
            if value(x) <= value(y) {
                a
            } else {
                b
            }
        }
        Op::Max => {
            if value(x) >= value(y) {
                a
            } else {
                b
            }
        }
        Op::Prod => x.times(y).bits(dtype).unwrap_or_else(|| panic!("{dtype} prod of {a:#x} and {b:#x} rounds")),
        _ => x.plus(y).bits(dtype).unwrap_or_else(|| panic!("{dtype} sum of {a:#x} and {b:#x} rounds")),
    }
}

fn combine_integers(op: Op, dtype: DType, a: u64, b: u64) -> u64 {
    let (x, y) = (exact(dtype, a).significand, exact(dtype, b).significand);
    let result = match op {
        Op::Min => x.min(y),
        Op::Max => x.max(y),
        Op::Prod => x.wrapping_mul(y),
        _ => x + y,
    };
    result as u64 & dtype.mask()
}

/// Averages over a power of two of ranks are sums of exact n-th parts.
fn exact_average(plan: &Plan, op: Op) -> bool {
    op == Op::Avg && plan.params().method == Method::FloatSum
}

/// What a rank's input counts for: mulsum multiplies it by the rank's scalar first, an exact average by 1/n.
fn contribution(plan: &Plan, op: Op, dtype: DType, rank: u32, i: u64) -> u64 {
    let input = plan.input(rank, i);
    if exact_average(plan, op) {
        let nth = Exact { significand: 1, exponent: -(plan.params().ranks.ilog2() as i32) };
        return exact(dtype, input).times(nth).bits(dtype).expect("a power of two divides exactly");
    }
    if op != Op::Mulsum {
        return input;
    }
    match dtype.kind() {
        Kind::Float(_) => {
            exact(dtype, input).times(exact(dtype, plan.scalar(rank))).bits(dtype).expect("scaling is exact")
        }
        _ => input.wrapping_mul(plan.scalar(rank)) & dtype.mask(),
    }
}

fn combine(op: Op, dtype: DType, a: u64, b: u64) -> u64 {
    match dtype.kind() {
        Kind::Float(_) => combine_floats(op, dtype, a, b),
        _ => combine_integers(op, dtype, a, b),
    }
}

/// Merges neighbours at random until one is left: any order, any grouping, every subset on the way.
fn reduce_at_random(rng: &mut StdRng, op: Op, dtype: DType, mut parts: Vec<u64>) -> u64 {
    parts.shuffle(rng);
    while parts.len() > 1 {
        let at = rng.random_range(0..parts.len() - 1);
        let right = parts.remove(at + 1);
        parts[at] = combine(op, dtype, parts[at], right);
    }
    parts[0]
}

#[test]
fn any_order_and_grouping_gives_the_expected_bits_and_rounds_nothing() {
    let mut rng = StdRng::seed_from_u64(1);
    let exact_ones = plans().filter(|(op, _, _, plan)| *op != Op::Avg || exact_average(plan, *op));
    for (op, dtype, ranks, plan) in exact_ones.chain(odd_plans()) {
        for _ in 0..if ranks > 64 { 6 } else { 40 } {
            let i = rng.random_range(0..1u64 << 34);
            let parts = (0..ranks).map(|r| contribution(&plan, op, dtype, r, i)).collect();
            let result = reduce_at_random(&mut rng, op, dtype, parts);
            assert_eq!(result, plan.reduced(i), "{op} {dtype} {ranks} ranks, element {i}");
        }
    }
}

/// Sums of either sign separately are the largest partial sums there are: if they are exact, every subset is.
#[test]
fn the_largest_partial_sums_fit_the_significand() {
    let sums = plans().filter(|(op, _, _, plan)| matches!(op, Op::Sum | Op::Mulsum) || exact_average(plan, *op));
    for (op, dtype, ranks, plan) in sums.chain(odd_plans()) {
        let Some(format) = dtype.float() else { continue };
        for i in 0..200 {
            let parts: Vec<Exact> =
                (0..ranks).map(|r| exact(dtype, contribution(&plan, op, dtype, r, i)).reduced()).collect();
            let unit = parts.iter().filter(|p| p.significand != 0).map(|p| p.exponent).min().unwrap();
            for sign in [1, -1] {
                let total: i128 = parts
                    .iter()
                    .filter(|p| p.significand.signum() == sign)
                    .map(|p| p.significand.abs() << (p.exponent - unit))
                    .sum();
                assert!(total <= 1 << format.precision(), "{op} {dtype} {ranks} ranks, element {i}: {total} units");
            }
        }
    }
}

#[test]
fn integer_averages_do_not_wrap_and_divide_to_the_expected_quotient() {
    for (_, dtype, ranks, plan) in plans().filter(|(op, dtype, ..)| *op == Op::Avg && dtype.float().is_none()) {
        let signed = dtype.kind() == Kind::Signed;
        let (most, least) = if signed {
            (i128::from(dtype.mask() >> 1), -1 - i128::from(dtype.mask() >> 1))
        } else {
            (i128::from(dtype.mask()), 0)
        };
        for i in 0..500 {
            let parts: Vec<i128> = (0..ranks).map(|r| exact(dtype, plan.input(r, i)).significand).collect();
            let (up, down): (i128, i128) =
                (parts.iter().filter(|x| **x > 0).sum(), parts.iter().filter(|x| **x < 0).sum());
            assert!(up <= most && down >= least, "{dtype} {ranks} ranks wraps at {i}: {up} {down}");
            let quotient = (up + down) / i128::from(ranks);
            assert_eq!(quotient as u64 & dtype.mask(), plan.reduced(i), "{dtype} {ranks} ranks, element {i}");
        }
    }
}

/// The ways in which libraries average, on the types that f64 can imitate exactly.
#[test]
fn float_averages_end_within_two_ulp_and_losing_or_doubling_one_does_not() {
    for (op, dtype, ranks, plan) in plans().filter(|(op, dtype, ..)| *op == Op::Avg && dtype.float().is_some()) {
        if exact_average(&plan, op) {
            assert!(ranks.is_power_of_two() && plan.params().tolerance == 0);
            continue;
        }
        let format = dtype.float().unwrap();
        let width = 8 * dtype.size() as u32;
        let round = |x: f64| format.decode(format.encode(x, width), width);
        let n = f64::from(ranks);
        let inverse = round(1.0 / n);
        let good_inverse = (inverse * n - 1.0).abs() <= 2f64.powi(-(format.precision() as i32));
        for i in 0..3000u64 {
            let parts: Vec<f64> =
                (0..ranks).map(|r| format.decode(plan.input(r, i), width)).filter(|x| *x != 0.0).collect();
            assert!(!parts.is_empty() && parts.len() <= 2);
            let expected = plan.reduced(i);
            let ways = |parts: &[f64]| {
                let mut ways = vec![round(parts.iter().sum::<f64>()) / n];
                if good_inverse {
                    ways.push(parts.iter().map(|x| round(x * inverse)).sum());
                }
                ways
            };
            for result in ways(&parts) {
                assert!(
                    plan.accepts(format.encode(result, width), expected),
                    "{dtype} {ranks} ranks, element {i}: {parts:?} gives {result}, expected {}",
                    show(dtype, expected)
                );
            }
            for lost in 0..parts.len() {
                for factor in [0.0, 2.0] {
                    let mut mutated = parts.clone();
                    mutated[lost] *= factor;
                    for result in ways(&mutated) {
                        assert!(
                            !plan.accepts(format.encode(result, width), expected),
                            "{dtype} {ranks} ranks, element {i}: {parts:?} with a contribution times {factor} passes"
                        );
                    }
                }
            }
        }
    }
}

/// Every rank counts: over `ranks` neighbouring elements each rank's loss is seen wherever theory lets it be seen.
#[test]
fn every_rank_is_missed_somewhere_in_a_block() {
    for (op, dtype, ranks, plan) in plans().chain(odd_plans()) {
        if ranks == 1 || (op == Op::Avg && !exact_average(&plan, op)) || ranks > 64 {
            continue;
        }
        for rank in 0..ranks {
            let seen = (0..u64::from(ranks)).filter(|&i| {
                let parts: Vec<u64> =
                    (0..ranks).filter(|r| *r != rank).map(|r| contribution(&plan, op, dtype, r, i)).collect();
                parts.into_iter().reduce(|a, b| combine(op, dtype, a, b)) != Some(plan.reduced(i))
            });
            let always = match dtype.float() {
                None => matches!(op, Op::Sum | Op::Mulsum | Op::Prod),
                Some(_) if op == Op::Prod => ranks <= 2 * plan.params().pairs,
                Some(f) => !matches!(op, Op::Min | Op::Max) && u64::from(ranks) < 1 << f.precision(),
            };
            let seen = seen.count();
            assert!(
                seen >= if always && ranks > 2 { ranks as usize - 1 } else { 1 },
                "{op} {dtype}: rank {rank} of {ranks}, {seen}"
            );
        }
    }
}

#[test]
fn other_elements_epochs_and_ranks_have_other_values() {
    for (op, dtype, ranks, plan) in plans() {
        let later = Plan::new(42, Primitive::AllReduce, Some(op), dtype, ranks, u64::from(ranks) + 1);
        let same = |f: &dyn Fn(u64) -> (u64, u64)| {
            (0..4096)
                .filter(|&i| {
                    let (a, b) = f(i);
                    plan.accepts(a, b)
                })
                .count()
        };
        let degenerate = op == Op::Avg && dtype.float().is_none() && dtype.size() == 1 && ranks > 4;
        if degenerate || (op == Op::Avg && dtype.size() == 1 && ranks > 64) {
            continue; // the type holds only a handful of averages
        }
        for shift in [1, 8, 256] {
            let equal = same(&|i| (plan.reduced(i + shift), plan.reduced(i)));
            assert!(equal < 400, "{op} {dtype} {ranks} ranks: {equal} of 4096 equal their neighbour {shift} on");
        }
        let equal = same(&|i| (later.reduced(i), plan.reduced(i)));
        assert!(equal < 400, "{op} {dtype} {ranks} ranks: {equal} of 4096 equal the next epoch's");
    }
    let plan = Plan::new(42, Primitive::AllGather, None, DType::Int8, 4, 0);
    let equal = (0..4096).filter(|&i| plan.input(0, i) == plan.input(1, i)).count();
    assert!(equal < 40, "{equal}");
}

/// Checkers make a whole word of expected elements at once.
#[test]
fn no_expected_element_carries_into_the_next() {
    for (op, dtype, ranks, plan) in plans().filter(|(_, dtype, ..)| dtype.size() < 8) {
        let p = plan.params();
        for word in 0..64u64 {
            let random = u64::from(hash::word(p.target_key, word));
            let packed = ((random & p.target_and & 0xffff_ffff).wrapping_add(p.target_add & 0xffff_ffff)
                ^ p.target_xor)
                & 0xffff_ffff;
            let lanes = 4 / dtype.size();
            let elements =
                (0..lanes).map(|lane| plan.reduced(lanes * word + lane) << (8 * dtype.size() * lane)).sum::<u64>();
            assert_eq!(packed, elements, "{op} {dtype} {ranks} ranks, word {word}");
        }
    }
}

#[test]
fn odd_scalars_are_no_powers_of_two_and_taking_them_for_one_is_seen() {
    for (op, dtype, ranks, plan) in odd_plans() {
        let fraction = (1u64 << plan.params().fraction_bits) - 1;
        let plain = Plan::new(42, Primitive::AllReduce, Some(op), dtype, ranks, u64::from(ranks));
        for rank in 0..ranks {
            assert_ne!(plan.scalar(rank) & fraction, 0, "{dtype} rank {rank}");
            assert_ne!(plan.scalar(rank), plan.scalar(rank + 1));
        }
        for i in 0..100 {
            let powers = (0..ranks).map(|r| {
                exact(dtype, plan.input(r, i)).times(exact(dtype, plain.scalar(r))).bits(dtype).expect("exact")
            });
            let result = powers.reduce(|a, b| combine(op, dtype, a, b));
            assert_ne!(result, Some(plan.reduced(i)), "{dtype} {ranks} ranks, element {i}");
        }
    }
}

#[test]
fn the_recipe_of_a_case_is_that_of_its_variants() {
    let of = |name: &str| Plan::of(&name.parse().expect("a case"), 1, 4, 3);
    let plain = of("all_reduce::mulsum::float::1KiB");
    assert_eq!(plain, Plan::new(1, Primitive::AllReduce, Some(Op::Mulsum), DType::Float, 4, 3));
    let (special, odd) =
        (of("all_reduce::mulsum::float::1KiB@special"), of("all_reduce::mulsum::float::1KiB@oddscalars"));
    assert_eq!((special.params().method, odd.params().odd), (Method::Table, 1));
    for plan in [special, odd] {
        let before = plan.before(2).expect("three epochs");
        assert_eq!((before.data, before.epoch), (plan.data, 1));
    }
}

/// Indices are 64 bits wide everywhere: elements that agree in their lower 31, 32, 33 or 34 bits are independent.
#[test]
fn elements_far_apart_are_not_the_same() {
    for (op, dtype, ranks, plan) in plans().filter(|(_, _, ranks, _)| [1, 3, 8].contains(ranks)) {
        let copy = Plan::new(42, Primitive::AllGather, None, dtype, ranks, 0);
        // a multiple of the ranks, so that roles are the same
        let roles = |distance: u64| distance * u64::from(ranks);
        for distance in [31, 32, 33, 34, 35].map(|power| roles(1u64 << power)) {
            let differ = |value: &dyn Fn(u64) -> u64| (0..64).filter(|&i| value(i) != value(i + distance)).count();
            let context = format!("{op} {dtype} {ranks} ranks, {distance} apart");
            assert!(differ(&|i| copy.input(ranks - 1, i)) > 48, "{context}: copied");
            // averages of bytes over many ranks have few values
            if plan.params().target_and != 0 {
                assert!(differ(&|i| plan.reduced(i)) > 24, "{context}: reduced");
            }
            let inputs = differ(&|i| (0..ranks).fold(0, |all, rank| all ^ plan.input(rank, i).rotate_left(rank)));
            assert!(inputs > 24, "{context}: inputs");
        }
    }
}
