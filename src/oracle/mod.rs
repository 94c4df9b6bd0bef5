//! The oracle: inputs whose collective result is known bit for bit, for any op, dtype and number of ranks.
//!
//! Each element is made alone, from (seed, primitive, op, dtype, ranks, epoch, rank, index). The expected value comes
//! first, as a masked random word; then it is split over the ranks. So checking costs one hash for each word whatever
//! the number of ranks, and every partial result on the way is exact.
//!
//! At element `i` rank `r` has position `q = (r + stride i + offset) mod n`: all roles rotate over the ranks, and the
//! stride spreads each role evenly over any run of elements. With target `T`:
//!
//! * **sum** (and **mulsum**, where an input is the contribution over the rank's scalar): positions 0 and 1 (0 alone
//!   for an odd number of active ranks) hold parts of `T`; the others come in pairs `+c, -c`. Integers wrap. Floats are
//!   small multiples of one power of two, at most `2^precision` in sum for either sign, so no partial sum rounds; where
//!   the significand is too short for all ranks, the active positions are as many as fit and the rest hold zero.
//! * **prod**: integers are odd and pairs are `c, 1/c` modulo `2^k`. Floats: as many pairs `c, 1/c` of powers of two, of
//!   either sign, as the exponent has room for (the first of them times `T`); all others are pairs `+1, -1`.
//! * **min, max**: position 0 holds `T`, all others lose against it.
//! * **avg**: integers are pairs `T + c, T - c` without wrapping, and one holds a rest that the division drops. Floats:
//!   for a power of two of ranks they are those of a sum, times `n`, and exact. Else positions 0 and `n / 2` (0 alone
//!   where the precision is too low) hold `n T`, as near as their precision can; within 2 ulp of `T` in any order.
//!
//! Two variants have other data: [`special`] values, and mulsum with odd scalars. There the inputs are those of a sum for
//! a precision two bits shorter, scalars are `3 * 2^e`, and results are three times the target; so a library that takes
//! the scalar's exponent for the whole is seen.
//!
//! Written twice: the Rust here and `kernels/oracle.cuh`; both read the same [`Params`].

pub mod average;
pub mod combine;
mod data;
pub mod fingerprint;
pub mod forensics;
mod format;
mod hash;
mod params;
pub mod score;
pub mod special;

pub use data::Data;
pub use format::show;
pub use params::{Method, Params};

#[cfg(test)]
mod tests;

use crate::case::{Case, DType, Op, Primitive};
use hash::{below, draw, element, sub};
use special::{SCENARIOS, Scenario};

/// What is asked of one placement of one case: the recipe for all its inputs and expected values.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    dtype: DType,
    params: Params,
    seed: u64,
    primitive: Primitive,
    op: Option<Op>,
    epoch: u64,
    data: Data,
}

impl Plan {
    /// The recipe of plain data. `epoch` tells placements and repetitions apart, so that stale data is wrong data.
    pub fn new(seed: u64, primitive: Primitive, op: Option<Op>, dtype: DType, ranks: u32, epoch: u64) -> Plan {
        Plan::with(Data::Plain, seed, primitive, op, dtype, ranks, epoch)
    }

    /// The recipe of a case, with the data that its variants ask for.
    pub fn of(case: &Case, seed: u64, ranks: u32, epoch: u64) -> Plan {
        Plan::with(Data::of(&case.variants), seed, case.primitive, case.op, case.dtype, ranks, epoch)
    }

    /// The recipe of data of one kind; plain where the reduction has no such data.
    pub fn with(
        data: Data,
        seed: u64,
        primitive: Primitive,
        op: Option<Op>,
        dtype: DType,
        ranks: u32,
        epoch: u64,
    ) -> Plan {
        let params = Params::new(seed, primitive, op, dtype, ranks, epoch, data);
        Plan { dtype, params, seed, primitive, op, epoch, data }
    }

    /// The recipe of so many epochs before, if there were as many.
    pub fn before(&self, epochs: u64) -> Option<Plan> {
        let epoch = self.epoch.checked_sub(epochs)?;
        Some(Plan::with(self.data, self.seed, self.primitive, self.op, self.dtype, self.params.ranks, epoch))
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The recipe as kernels take it.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Bits of element `index` of `rank`'s send buffer.
    pub fn input(&self, rank: u32, index: u64) -> u64 {
        let p = &self.params;
        let width = p.width;
        match p.method {
            Method::Copy => element(sub(p.pair_key, rank), width, index),
            Method::IntSum => self.int_sum(rank, index),
            Method::IntProd => self.int_prod(rank, index),
            Method::IntMin | Method::IntMax => self.int_extreme(rank, index),
            Method::IntAvg => self.int_avg(rank, index),
            Method::FloatSum => self.float_sum(rank, index),
            Method::FloatProd => self.float_prod(rank, index),
            Method::FloatMin | Method::FloatMax => self.float_extreme(rank, index),
            Method::FloatAvg => self.float_avg(rank, index),
            Method::Table => self.special(rank, index),
        }
    }

    /// Bits of element `index` of the reduction over all ranks.
    #[inline]
    pub fn reduced(&self, index: u64) -> u64 {
        let p = &self.params;
        let target = self.target(index);
        if p.method == Method::Table {
            self.scenario(index).expected
        } else if p.odd == 1 {
            tripled(target, p.fraction_bits)
        } else {
            target
        }
    }

    /// A masked random word: the result, or a third of it where scalars are odd.
    #[inline]
    fn target(&self, index: u64) -> u64 {
        let p = &self.params;
        let random = element(p.target_key, p.width, index);
        ((random & p.target_and).wrapping_add(p.target_add) ^ p.target_xor) & p.mask
    }

    /// Whether results have these bits and no others; else some that are near pass too.
    pub fn is_exact(&self) -> bool {
        self.params.tolerance == 0
    }

    /// Whether `actual` passes for `expected`: the same bits, for an inexact float avg at most 2 ulp away, or of special
    /// values a NaN for a NaN.
    #[inline]
    pub fn accepts(&self, actual: u64, expected: u64) -> bool {
        let p = &self.params;
        let tolerance = u64::from(p.tolerance);
        // Targets keep far from zero and from NaN, so that the distance of codes is the distance in ulp.
        let near = actual.wrapping_sub(expected).wrapping_add(tolerance) & p.mask <= 2 * tolerance;
        near || p.method == Method::Table && self.is_nan(actual) && self.is_nan(expected)
    }

    /// Whether the bits are no number.
    fn is_nan(&self, bits: u64) -> bool {
        self.dtype.float().is_some() && bits & self.params.mask & !self.params.sign > self.params.largest
    }

    /// The scalar of `rank` for mulsum, as bits of the dtype.
    pub fn scalar(&self, rank: u32) -> u64 {
        let p = &self.params;
        match self.dtype.float() {
            Some(format) => {
                let power = ((format.bias + scale_exponent(rank)) as u64) << format.fraction_bits;
                if p.odd == 1 { tripled(power, format.fraction_bits) } else { power }
            }
            None => scale_odd(rank) & p.mask,
        }
    }

    /// The role of `rank` at element `index`.
    fn position(&self, rank: u32, index: u64) -> u32 {
        let n = u64::from(self.params.ranks);
        ((u64::from(rank) + index % n * u64::from(self.params.stride) + u64::from(self.params.offset)) % n) as u32
    }

    /// The pair that position `q` belongs to, and whether it is the second of it.
    fn pair(&self, q: u32) -> (u32, bool) {
        let place = q - self.params.owners;
        (place / 2, place % 2 == 1)
    }

    fn int_sum(&self, rank: u32, i: u64) -> u64 {
        let p = &self.params;
        let target = self.target(i);
        let q = self.position(rank, i);
        let share = if p.owners == 1 && q == 0 {
            target
        } else if q < p.owners {
            // odd, and not all of the target: neither part is zero
            let mut first = (draw(p.split_key, p.width, i) | 1) & p.mask;
            if first == target {
                first ^= 2;
            }
            if q == 0 { first } else { target.wrapping_sub(first) }
        } else {
            let (pair, second) = self.pair(q);
            // odd: neither zero nor its own negative
            let c = draw(sub(p.pair_key, pair), p.width, i) | 1;
            if second { c.wrapping_neg() } else { c }
        };
        let share = if p.scaled == 1 { share.wrapping_mul(inverse(scale_odd(rank))) } else { share };
        share & p.mask
    }

    fn int_prod(&self, rank: u32, i: u64) -> u64 {
        let p = &self.params;
        let target = self.target(i);
        let q = self.position(rank, i);
        // odd, so that all have an inverse
        let share = if p.owners == 1 && q == 0 {
            target
        } else if q < p.owners {
            // neither part is 1
            let mut second = (draw(p.split_key, p.width, i) | 1) & p.mask;
            if second == 1 || second == target {
                second ^= 2;
            }
            if q == 1 { second } else { target.wrapping_mul(inverse(second)) }
        } else {
            let (pair, second) = self.pair(q);
            let mut c = draw(sub(p.pair_key, pair), p.width, i) | 1;
            // neither 1 nor its own inverse
            if c.wrapping_mul(c) & p.mask == 1 {
                c ^= 2;
            }
            if second { inverse(c) } else { c }
        };
        share & p.mask
    }

    fn int_extreme(&self, rank: u32, i: u64) -> u64 {
        let p = &self.params;
        let target = self.target(i);
        let q = self.position(rank, i);
        if q == 0 {
            return target;
        }
        // in the order of unsigned numbers
        let key = target ^ p.sign_flip;
        let random = draw(sub(p.pair_key, q), p.width, i);
        let loser = if p.method == Method::IntMin {
            key + 1 + below(random, p.width, p.mask - key)
        } else {
            key - 1 - below(random, p.width, key)
        };
        (loser ^ p.sign_flip) & p.mask
    }

    fn int_avg(&self, rank: u32, i: u64) -> u64 {
        let p = &self.params;
        let q = self.position(rank, i);
        let n = u64::from(p.ranks);
        if p.target_and == 0 {
            // The type cannot count to n: the quotient is zero, and a few ones are all that does not wrap.
            return u64::from(u64::from(q) < p.pair_range);
        }
        let target = self.target(i);
        let negative = target & p.sign_flip != 0;
        let size = if negative { target.wrapping_neg() & p.mask } else { target };
        let coin = || draw(p.split_key, p.width, i) & 1 == 1;
        if size == 0 && p.pair_range == 0 {
            // no pair of opposite signs: ones, so many that one more shows
            let share = u64::from(q != 0);
            return if p.sign_flip != 0 && coin() { share.wrapping_neg() & p.mask } else { share };
        }
        let mut share = size;
        if q >= p.owners {
            let (pair, second) = self.pair(q);
            let (least, range) = deviation(p, size);
            let c = least + below(draw(sub(p.pair_key, pair), p.width, i), p.width, range);
            // a share of zero would not be missed; next to a quotient of one there is nothing else to choose from
            let c = if c == size && size > 1 { 0 } else { c };
            share = if second { share.wrapping_sub(c) } else { share.wrapping_add(c) };
        }
        if q == 0 {
            // At either end of the range of sums with this quotient, any change one way shows.
            if size == 0 {
                share = if coin() && p.sign_flip != 0 { share.wrapping_sub(n - 1) } else { share.wrapping_add(n - 1) };
            } else if size <= p.base && coin() {
                share = share.wrapping_add(n - 1);
            }
        }
        if negative { share.wrapping_neg() & p.mask } else { share & p.mask }
    }

    fn float_sum(&self, rank: u32, i: u64) -> u64 {
        let p = &self.params;
        let q = self.position(rank, i);
        if q >= p.active {
            return 0;
        }
        let target = self.target(i);
        let fraction = 1u64 << p.fraction_bits;
        let negative = target & p.sign == p.sign;
        let units = (target & (fraction - 1) | fraction) >> (p.fraction_bits + 1 - p.target_bits);
        let field = (target & !p.sign) >> p.fraction_bits;
        let unit_field = field - u64::from(p.target_bits - 1) + u64::from(p.growth);
        let (count, flip) = if p.owners == 1 && q == 0 {
            (units, false)
        } else if q < p.owners {
            // of opposite signs, so that they differ however few units there are
            let c = 1 + below(draw(p.split_key, p.width, i), p.width, p.pair_range);
            if q == 0 { (units + c, false) } else { (c, true) }
        } else {
            let (pair, second) = self.pair(q);
            let mut c = 1 + below(draw(sub(p.pair_key, pair), p.width, i), p.width, p.pair_range);
            // the one owner's neighbour never holds the same
            if p.owners == 1 && c == units {
                c = c % p.pair_range + 1;
            }
            (c, second)
        };
        let bits = compose(count, unit_field, p.fraction_bits);
        let bits =
            if p.scaled == 1 { bits.wrapping_sub((scale_exponent(rank) as u64) << p.fraction_bits) } else { bits };
        if negative != flip { bits | p.sign } else { bits }
    }

    fn float_prod(&self, rank: u32, i: u64) -> u64 {
        let p = &self.params;
        let q = self.position(rank, i);
        let one = (p.bias as u64) << p.fraction_bits;
        let sign_pairs = (p.ranks - p.owners) / 2 - p.pairs;
        let target = || self.target(i) ^ if sign_pairs % 2 == 1 { p.sign } else { 0 };
        if p.owners == 1 && q == 0 {
            return target();
        }
        let (key, second) = if q < p.owners {
            (p.split_key, q == 0)
        } else {
            let (pair, second) = self.pair(q);
            (sub(p.pair_key, pair), second)
        };
        let random = draw(key, p.width, i);
        let minus = random & 1 == 1;
        if q >= p.owners + 2 * p.pairs {
            return if minus != second { one | p.sign } else { one };
        }
        // a power of two of either sign, up or down; below reads the high bits
        let change = (1 + below(random, p.width, p.pair_range)) << p.fraction_bits;
        let up = (random & 2 == 2) != second;
        let magnitude = if q == 0 { target() } else { one };
        let bits = if up { magnitude + change } else { magnitude - change };
        if minus { bits ^ p.sign } else { bits }
    }

    fn float_extreme(&self, rank: u32, i: u64) -> u64 {
        let p = &self.params;
        let target = self.target(i);
        let q = self.position(rank, i);
        if q == 0 {
            return target;
        }
        // normal numbers in their order, from the most negative on
        let smallest = 1u64 << p.fraction_bits;
        let codes = p.max_finite - smallest + 1;
        let magnitude = target & !p.sign;
        let place = if target & p.sign == p.sign { p.max_finite - magnitude } else { codes + magnitude - smallest };
        let random = draw(sub(p.pair_key, q), p.width, i);
        let loser = if p.method == Method::FloatMin {
            place + 1 + below(random, p.width, 2 * codes - 1 - place)
        } else {
            place - 1 - below(random, p.width, place)
        };
        if loser < codes { p.sign | (p.max_finite - loser) } else { loser - codes + smallest }
    }

    /// The scenario of an element.
    fn scenario(&self, i: u64) -> Scenario {
        let p = &self.params;
        let pick = element(p.target_key, p.width, i) as usize % SCENARIOS;
        p.table.get(pick).copied().unwrap_or_default()
    }

    fn special(&self, rank: u32, i: u64) -> u64 {
        let scenario = self.scenario(i);
        match self.position(rank, i) {
            0 => scenario.first,
            q if q == self.params.ranks / 2 => scenario.second,
            _ => scenario.others,
        }
    }

    fn float_avg(&self, rank: u32, i: u64) -> u64 {
        let p = &self.params;
        let owner = match self.position(rank, i) {
            0 => 0,
            q if p.owners == 2 && q == p.ranks / 2 => 1,
            _ => return 0,
        };
        average::part(p, self.target(i), owner)
    }
}

/// By how much the two shares of a pair of an integer average may differ from a quotient of this size: the least, and how
/// many values on.
fn deviation(p: &Params, size: u64) -> (u64, u64) {
    let n = u64::from(p.ranks);
    // A share of n or more moves the quotient when it is lost and when it is doubled, whatever the rest is.
    if p.pair_range >= n && (p.pair_range - n) / 2 >= size {
        (size + n, p.pair_range - 2 * size - n + 1) // of opposite signs
    } else if size > n {
        (1, size - n) // of the same sign
    } else if size == 1 {
        (0, 2)
    } else {
        (1, size.saturating_sub(1).max(p.pair_range.saturating_sub(size)))
    }
}

/// `count` units of the power of two with exponent field `unit_field`, as a positive float; `count` must fit the precision.
fn compose(count: u64, unit_field: u64, fraction_bits: u32) -> u64 {
    let top = 63 - count.leading_zeros();
    let field = unit_field.wrapping_add(u64::from(top));
    let significand =
        if top <= fraction_bits { count << (fraction_bits - top) } else { count >> (top - fraction_bits) };
    (field << fraction_bits) + significand - (1 << fraction_bits)
}

/// Three times a normal float whose last two fraction bits are zero, or a power of two.
fn tripled(bits: u64, fraction_bits: u32) -> u64 {
    let hidden = 1u64 << fraction_bits;
    let three = 3 * (bits & (hidden - 1) | hidden);
    // from 3 to 6 times the hidden bit
    let places = if three >= 4 * hidden { 2 } else { 1 };
    (bits & !(hidden - 1)) + (places << fraction_bits) + (three >> places) - hidden
}

/// The exponent of a rank's mulsum scalar for floats: neighbours differ, and none is zero.
fn scale_exponent(rank: u32) -> i32 {
    [1, -1, 2][rank as usize % 3]
}

/// A rank's mulsum scalar for integers: odd, never 1, different for neighbours.
fn scale_odd(rank: u32) -> u64 {
    u64::from(rank % 61) * 2 + 3
}

/// The inverse of an odd number modulo `2^64`, by Newton's iteration; any odd number is its own inverse modulo 8.
fn inverse(odd: u64) -> u64 {
    let mut x = odd;
    for _ in 0..5 {
        x = x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x)));
    }
    x
}
