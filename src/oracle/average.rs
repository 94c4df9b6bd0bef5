//! The average of floats: the one operation whose result is not always exact.
//!
//! For a power of two of ranks it is exact after all: 1/n only moves the exponent. Inputs are those of a sum, times n.
//!
//! Otherwise libraries multiply by 1/n rounded to the dtype before they add (NCCL), or divide after, in the dtype or in a wider
//! one. So one or two ranks hold `n T` between them, and targets `T` are such that every one of these ways ends within 2 ulp
//! of `T`, and that losing or doubling a contribution does not.

use super::Params;
use super::compose;
use super::params::{Fields, target_bits};
use crate::case::{DType, FloatFormat};

/// How targets and contributions look for one dtype and number of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Ranks that hold something.
    pub owners: u32,
    /// The two hold different parts.
    pub skewed: bool,
    /// First exponent field of targets.
    pub first_field: u64,
    /// log2 of the number of exponent fields.
    pub field_bits: u32,
    /// Fraction bits that are random.
    pub random_fraction: u64,
    /// Fraction bits that are set.
    pub fixed_fraction: u64,
}

/// Exponent fields of targets for which the average is exact in any order and by any way, if there are any.
///
/// Units are normal, and so are all n-th parts; sums reach four times the target's binade before they are divided.
pub(super) fn exact_fields(dtype: DType, format: &FloatFormat, ranks: u32) -> Option<Fields> {
    if !ranks.is_power_of_two() {
        return None;
    }
    let growth = u64::from(ranks.ilog2());
    if matches!(dtype, DType::Bfloat16 | DType::Float | DType::Double) {
        let first = if dtype == DType::Double { 992 } else { 96 };
        return Some(Fields { first, bits: 6 });
    }
    let first = u64::from(target_bits(format.precision(), ranks));
    let last = (format.max_finite >> format.fraction_bits).checked_sub(2 + growth)?;
    let room = (last + 1).checked_sub(first).filter(|room| *room > 0)?;
    Some(Fields { first, bits: room.ilog2().min(4) })
}

/// The shape for `ranks` ranks that are no power of two.
pub fn shape(dtype: DType, format: &FloatFormat, ranks: u32) -> Shape {
    // With 2 fraction bits, two equal parts of a value are too near to it for a tolerance of 2 ulp.
    let owners = if ranks == 1 || format.fraction_bits == 2 { 1 } else { 2 };
    let wide = format.fraction_bits > 3;
    let (first_field, field_bits) = fields(dtype, format, ranks);
    let all = (1u64 << format.fraction_bits) - 1;
    let mut shape = Shape {
        owners,
        skewed: wide && owners == 2,
        first_field,
        field_bits,
        // Near the low end of a binade an ulp is large beside the value, so that rounding errors stay small in ulp.
        random_fraction: if wide { all >> 3 } else { all },
        fixed_fraction: 0,
    };
    if !wide {
        (shape.random_fraction, shape.fixed_fraction) = safe_fractions(dtype, format, ranks, &shape);
    }
    shape
}

/// Exponent fields such that contributions stay finite, and their n-th parts normal.
fn fields(dtype: DType, format: &FloatFormat, ranks: u32) -> (u64, u32) {
    // Few exponents, so that what one rank holds for another element is seldom too small to matter here.
    if matches!(dtype, DType::Bfloat16 | DType::Float) {
        return (96, 4);
    }
    if dtype == DType::Double {
        return (992, 4);
    }
    let growth = u64::from(ranks.next_power_of_two().ilog2());
    let last = (format.max_finite >> format.fraction_bits).saturating_sub(1 + growth);
    let first = 3;
    let room = (last + 1).saturating_sub(first).max(1);
    let bits = room.ilog2().min(if format.fraction_bits > 3 { 3 } else { 4 });
    (first, bits)
}

/// The largest set of fractions, all of one mask, for which the promise holds under every way of averaging.
fn safe_fractions(dtype: DType, format: &FloatFormat, ranks: u32, shape: &Shape) -> (u64, u64) {
    let all = (1u64 << format.fraction_bits) - 1;
    // A library whose 1/n is a bad or no number of the dtype averages wrongly; it is left out only where it spoils all.
    for (wanted, in_dtype) in
        [(Grade::Sensitive, true), (Grade::Valid, true), (Grade::Sensitive, false), (Grade::Valid, false)]
    {
        let grades: Vec<Grade> = (0..=all).map(|f| grade(dtype, format, ranks, shape, f, in_dtype)).collect();
        let mut best: Option<(u64, u64)> = None;
        for random in 0..=all {
            for fixed in (0..=all).filter(|fixed| fixed & random == 0) {
                let members = (0..=all).filter(|f| f & !random == fixed);
                let larger = best.is_none_or(|(b, _)| random.count_ones() > b.count_ones());
                if larger && members.into_iter().all(|f| grades[f as usize] >= wanted) {
                    best = Some((random, fixed));
                }
            }
        }
        if let Some(best) = best {
            return best;
        }
    }
    (all, 0)
}

/// How well a fraction serves as target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Grade {
    /// Some way of averaging ends more than 2 ulp away.
    Invalid,
    /// All ways end within 2 ulp.
    Valid,
    /// And none does when a contribution is lost or doubled.
    Sensitive,
}

fn grade(dtype: DType, format: &FloatFormat, ranks: u32, shape: &Shape, fraction: u64, in_dtype: bool) -> Grade {
    let width = 8 * dtype.size() as u32;
    let mut worst = Grade::Sensitive;
    for field in shape.first_field..shape.first_field + (1 << shape.field_bits) {
        let target = field << format.fraction_bits | fraction;
        let parts: Vec<f64> = (0..shape.owners)
            .map(|q| {
                format.decode(contribution(target, format.fraction_bits, ranks, shape.owners, shape.skewed, q), width)
            })
            .collect();
        let near = |parts: &[f64]| {
            let results = ways(format, width, ranks, parts, in_dtype);
            let distance = |code: u64| code.abs_diff(target);
            (results.iter().all(|&code| distance(code) <= 2), results.iter().all(|&code| distance(code) > 2))
        };
        if !near(&parts).0 {
            return Grade::Invalid;
        }
        for q in 0..parts.len() {
            for factor in [0.0, 2.0] {
                let mut mutated = parts.clone();
                mutated[q] *= factor;
                if !near(&mutated).1 {
                    worst = Grade::Valid;
                }
            }
        }
    }
    worst
}

/// The result of each way of averaging that libraries are known to use. Below double, products and sums of two are exact.
pub(super) fn ways(format: &FloatFormat, width: u32, ranks: u32, parts: &[f64], in_dtype: bool) -> Vec<u64> {
    let n = f64::from(ranks);
    let round = |x: f64| format.decode(format.encode(x, width), width);
    let code = |x: f64| format.encode(x, width);
    let inverse = round(1.0 / n);
    let wide_inverse = if format.precision() > 24 { 1.0 / n } else { f64::from(1.0f32 / ranks as f32) };
    let sum = |f: &dyn Fn(f64) -> f64| parts.iter().map(|&x| f(x)).sum::<f64>();
    let mut results = vec![
        // multiply in the wide type, add, round once
        code(sum(&|x| x * wide_inverse)),
        // add, then divide or multiply
        code(round(sum(&|x| x)) / n),
        code(sum(&|x| x) / n),
    ];
    if in_dtype {
        results.push(code(sum(&|x| round(x * inverse))));
        results.push(code(round(sum(&|x| x)) * inverse));
        if let [a, b] = *parts {
            results.push(code(a * inverse + round(b * inverse)));
            results.push(code(b * inverse + round(a * inverse)));
        }
    }
    results
}

/// Whether 1/n is a number of the dtype that is as near as its precision allows, so that libraries can multiply by it.
pub(super) fn has_inverse(format: &FloatFormat, width: u32, ranks: u32) -> bool {
    let n = f64::from(ranks);
    let inverse = format.decode(format.encode(1.0 / n, width), width);
    (inverse * n - 1.0).abs() <= 2f64.powi(-(format.precision() as i32))
}

/// Bits of what owner `q` holds of `n` times the target.
pub(super) fn part(p: &Params, target: u64, q: u32) -> u64 {
    let sign = target & p.sign;
    sign | contribution(target & !p.sign, p.fraction_bits, p.ranks, p.owners, p.skewed == 1, q)
}

fn contribution(magnitude: u64, fraction_bits: u32, ranks: u32, owners: u32, skewed: bool, q: u32) -> u64 {
    let hidden = 1u64 << fraction_bits;
    let field = magnitude >> fraction_bits;
    let total = (magnitude & (hidden - 1) | hidden) * u64::from(ranks);
    // in units of the target's last place
    let unit_field = field.wrapping_sub(u64::from(fraction_bits));
    let count = if owners == 1 {
        round_to(total, fraction_bits + 1)
    } else {
        let first = round_to(total / 2 + if skewed { total / 16 } else { 0 }, fraction_bits + 1);
        if q == 0 { first } else { round_to(total - first, fraction_bits + 1) }
    };
    compose(count, unit_field, fraction_bits)
}

/// The nearest integer with at most `bits` significant bits, ties to even.
fn round_to(value: u64, bits: u32) -> u64 {
    let length = 64 - value.leading_zeros();
    if length <= bits {
        return value;
    }
    let shift = length - bits;
    let quotient = value >> shift;
    let rest = value & ((1 << shift) - 1);
    let half = 1u64 << (shift - 1);
    let up = rest > half || (rest == half && quotient & 1 == 1);
    (quotient + u64::from(up)) << shift
}
