//! The recipe of inputs as plain numbers: what Rust and the kernels both read.

use super::average;
use super::data::Data;
use super::hash::{Key, key};
use super::special::{self, SCENARIOS, Scenario};
use crate::case::{DType, FloatFormat, Kind, Op, Primitive};

/// How inputs are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)]
pub enum Method {
    Copy = 0,
    IntSum = 1,
    IntProd = 2,
    IntMin = 3,
    IntMax = 4,
    IntAvg = 5,
    FloatSum = 6,
    FloatProd = 7,
    FloatMin = 8,
    FloatMax = 9,
    FloatAvg = 10,
    Table = 11,
}

/// The recipe. `struct Params` of `kernels/oracle.cuh` has the same layout: change both.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct Params {
    /// Bits of one element.
    pub mask: u64,
    /// Expected value = ((random and `target_and`) + `target_add`) xor `target_xor`, repeated to fill 64 bits.
    ///
    /// No element carries into the next, so that a whole word of elements is made at once.
    pub target_and: u64,
    /// See `target_and`.
    pub target_add: u64,
    /// See `target_and`.
    pub target_xor: u64,
    /// Floats: the sign bit.
    pub sign: u64,
    /// Floats: bits of the largest finite value.
    pub max_finite: u64,
    /// Integers: turns the order of values into that of unsigned numbers.
    pub sign_flip: u64,
    /// Float sum: pairs hold 1 to this many units. Float prod: pairs are powers of two, of exponents 1 to this.
    /// Integer avg: the largest share in a pair of opposite signs; where nothing is random, the number of ones.
    pub pair_range: u64,
    /// Integer avg: the largest quotient, without sign, that leaves room for a rest.
    pub base: u64,
    /// Stream of expected values.
    pub target_key: Key,
    /// Stream that splits them.
    pub split_key: Key,
    /// Streams of pairs and losers; for data movement, of ranks.
    pub pair_key: Key,
    /// Bytes of one element.
    pub width: u32,
    /// How inputs are made.
    pub method: Method,
    /// Ranks.
    pub ranks: u32,
    /// Turns the positions, below `ranks`.
    pub offset: u32,
    /// Turns the positions from one element to the next; has no divisor in common with `ranks`.
    pub stride: u32,
    /// Float sum: positions below this hold something.
    pub active: u32,
    /// Positions that share the target. Integer avg: positions before the first pair.
    pub owners: u32,
    /// Pairs behind them. Float prod: those that are powers of two; what follows are pairs of 1 and -1.
    pub pairs: u32,
    /// Float sum: significant bits of the target, in units.
    pub target_bits: u32,
    /// Floats: fraction bits.
    pub fraction_bits: u32,
    /// Floats: exponent bias.
    pub bias: i32,
    /// Accepted distance in ulp.
    pub tolerance: u32,
    /// 1 for mulsum.
    pub scaled: u32,
    /// Float sum: log2 of the factor between inputs and their contributions to the target: exact avg.
    pub growth: u32,
    /// Float avg: the first owner takes V/2 + V/16 of V instead of V/2.
    pub skewed: u32,
    /// 1 where the scalars of mulsum are three times a power of two: results are three times what the target says.
    pub odd: u32,
    /// Floats: the largest magnitude that is a number, as bits: infinity, where there is one.
    pub largest: u64,
    /// Special values: what inputs and results are.
    pub table: [Scenario; SCENARIOS],
}

/// Exponent fields that targets have: `first` and a power of two of them.
pub(super) struct Fields {
    pub(super) first: u64,
    pub(super) bits: u32,
}

impl Params {
    pub(super) fn new(
        seed: u64,
        primitive: Primitive,
        op: Option<Op>,
        dtype: DType,
        ranks: u32,
        epoch: u64,
        data: Data,
    ) -> Params {
        let ranks = ranks.max(1);
        let op_code = op.map_or(0, |op| 1 + op as u64);
        let parts = |purpose: u64| [seed, primitive as u64, op_code, dtype as u64, u64::from(ranks), epoch, purpose];
        let mut p = Params {
            mask: dtype.mask(),
            target_and: u64::MAX,
            target_add: 0,
            target_xor: 0,
            sign: 1 << (8 * dtype.size() - 1),
            max_finite: 0,
            sign_flip: 0,
            pair_range: 0,
            base: 0,
            target_key: key(&parts(1)),
            split_key: key(&parts(2)),
            pair_key: key(&parts(3)),
            width: dtype.size() as u32,
            method: Method::Copy,
            ranks,
            offset: key(&parts(4))[0] % ranks,
            stride: stride(ranks),
            active: ranks,
            owners: if ranks % 2 == 1 { 1 } else { 2 },
            pairs: 0,
            target_bits: 0,
            fraction_bits: 0,
            bias: 0,
            tolerance: 0,
            scaled: u32::from(op == Some(Op::Mulsum)),
            growth: 0,
            skewed: 0,
            odd: 0,
            largest: dtype.float().map_or(0, |format| format.infinity.unwrap_or(format.max_finite)),
            table: [Scenario::default(); SCENARIOS],
        };
        if let Some(op) = op {
            match dtype.kind() {
                Kind::Float(format) => {
                    p.fraction_bits = format.fraction_bits;
                    p.bias = format.bias;
                    p.max_finite = format.max_finite;
                    match data.fitting(Some(op), dtype) {
                        Data::Special => {
                            p.method = Method::Table;
                            p.table = special::table(op, dtype, &format, ranks);
                        }
                        fitting => {
                            p.odd = u32::from(fitting == Data::OddScalars);
                            p.for_floats(op, dtype, &format);
                        }
                    }
                }
                kind => p.for_integers(op, kind == Kind::Signed),
            }
        }
        p
    }

    fn for_integers(&mut self, op: Op, signed: bool) {
        self.pairs = (self.ranks - self.owners) / 2;
        if signed {
            self.sign_flip = self.sign;
        }
        match op {
            Op::Sum | Op::Mulsum => self.method = Method::IntSum,
            Op::Prod => {
                self.method = Method::IntProd;
                self.target_and = self.repeat(self.mask & !1);
                self.target_xor = self.repeat(1);
            }
            // an even minimum and an odd maximum always leave room for losers
            Op::Min => {
                self.method = Method::IntMin;
                self.target_and = self.repeat(self.mask & !1);
            }
            Op::Max => {
                self.method = Method::IntMax;
                self.target_and = self.repeat(self.mask & !1);
                self.target_xor = self.repeat(1);
            }
            Op::Avg => self.for_integer_average(signed),
        }
    }

    fn for_integer_average(&mut self, signed: bool) {
        self.method = Method::IntAvg;
        self.owners = self.ranks % 2;
        self.pairs = self.ranks / 2;
        let n = u64::from(self.ranks);
        // No sum of some contributions passes this.
        let largest = if signed { self.mask >> 1 } else { self.mask };
        self.base = largest.saturating_sub(n - 1) / n;
        if n > if signed { self.sign } else { largest } {
            self.target_and = 0;
            self.pair_range = largest.min(n - 1);
        } else if signed {
            // as many negative quotients as others: the top bit is added, then flipped
            let half = 1 << (self.sign / n).ilog2();
            self.pair_range = 2 * (largest - (n - 1)) / n;
            self.target_and = self.repeat(half | (half - 1));
            self.target_add = self.repeat(self.sign - half);
            self.target_xor = self.repeat(self.sign);
        } else {
            // Quotients of n or more let every contribution be n or more. Where they are few, all quotients serve.
            let quotient = largest / n;
            let values = if quotient >= 2 * n { quotient - n + 1 } else { quotient + 1 };
            let random = (1u64 << values.ilog2()) - 1;
            self.target_and = self.repeat(random);
            self.target_add = self.repeat(quotient - random);
        }
    }

    fn for_floats(&mut self, op: Op, dtype: DType, format: &FloatFormat) {
        let fraction = (1u64 << self.fraction_bits) - 1;
        match op {
            Op::Sum | Op::Mulsum => self.for_float_sum(sum_fields(dtype)),
            Op::Prod => {
                self.method = Method::FloatProd;
                let room = match dtype {
                    DType::F8e4m3 => 3,
                    DType::F8e5m2 | DType::Half => 7,
                    DType::Double => 256,
                    _ => 64,
                };
                // two owners are a pair too
                let split = self.owners - 1;
                self.pairs = ((self.ranks - self.owners) / 2).min(room - split);
                self.pair_range = u64::from(room / (self.pairs + split).max(1));
                self.set_float_target(product_fields(dtype), fraction);
            }
            Op::Min | Op::Max => {
                self.method = if op == Op::Min { Method::FloatMin } else { Method::FloatMax };
                self.set_float_target(product_fields(dtype), fraction);
            }
            Op::Avg => {
                if let Some(fields) = average::exact_fields(dtype, format, self.ranks) {
                    self.growth = self.ranks.ilog2();
                    self.for_float_sum(fields);
                    return;
                }
                self.method = Method::FloatAvg;
                self.tolerance = 2;
                let shape = average::shape(dtype, format, self.ranks);
                self.owners = shape.owners;
                self.skewed = u32::from(shape.skewed);
                self.set_float_target(
                    Fields { first: shape.first_field, bits: shape.field_bits },
                    shape.random_fraction,
                );
                self.target_xor = self.repeat(shape.fixed_fraction);
            }
        }
    }

    fn for_float_sum(&mut self, fields: Fields) {
        self.method = Method::FloatSum;
        // three times what fits so many bits fits two more
        let precision = self.fraction_bits + 1 - 2 * self.odd;
        let budget = 1u64 << precision;
        // A target below half of the budget leaves the other half to pairs of at least one unit; two owners are a pair too.
        self.active = u64::from(self.ranks).min(budget + 3) as u32;
        self.owners = if self.active % 2 == 1 { 1 } else { 2 };
        self.pairs = (self.active - self.owners) / 2;
        let pairs = u64::from(self.active / 2);
        self.target_bits = target_bits(precision, self.ranks);
        self.pair_range = (budget / 2 + 1) / pairs.max(1);
        let unused = self.fraction_bits + 1 - self.target_bits;
        self.set_float_target(fields, ((1 << self.fraction_bits) - 1) & !((1 << unused) - 1));
    }

    /// Targets of either sign, with the exponent fields and the random fraction bits given.
    fn set_float_target(&mut self, fields: Fields, random_fraction: u64) {
        let exponents = ((1u64 << fields.bits) - 1) << self.fraction_bits;
        self.target_and = self.repeat(self.sign | exponents | random_fraction);
        self.target_add = self.repeat(fields.first << self.fraction_bits);
    }

    /// The element repeated to fill 64 bits.
    fn repeat(&self, element: u64) -> u64 {
        match self.width {
            1 => element * 0x0101_0101_0101_0101,
            2 => element * 0x0001_0001_0001_0001,
            4 => element * 0x0000_0001_0000_0001,
            _ => element,
        }
    }
}

/// Random significand bits of a float sum: one less than there are, where others must cancel beside it.
pub(super) fn target_bits(precision: u32, ranks: u32) -> u32 {
    if ranks == 1 { precision } else { precision - 1 }
}

/// A step over positions that spreads any run of them evenly over all: the golden section, made coprime.
fn stride(ranks: u32) -> u32 {
    let n = u64::from(ranks);
    let mut step = (n * 618 / 1000).max(1);
    while gcd(step, n) != 1 {
        step += 1;
    }
    step as u32
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Exponent fields of sums: units stay normal and sums finite, also under the scalars of mulsum.
fn sum_fields(dtype: DType) -> Fields {
    let (first, bits) = match dtype {
        DType::F8e4m3 => (5, 3),
        DType::F8e5m2 => (8, 4),
        DType::Half => (12, 4),
        DType::Double => (992, 6),
        _ => (96, 6),
    };
    Fields { first, bits }
}

/// Exponent fields of products and extremes: `room` doublings or halvings more stay normal.
fn product_fields(dtype: DType) -> Fields {
    let (first, bits) = match dtype {
        DType::F8e4m3 => (4, 3),
        DType::F8e5m2 | DType::Half => (8, 4),
        DType::Double => (992, 6),
        _ => (96, 6),
    };
    Fields { first, bits }
}
