//! The recipe of inputs as plain numbers: what Rust and the kernels both read.

use super::average;
use super::hash::{Key, key};
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
}

/// The recipe. `struct Params` of `kernels/oracle.cuh` has the same layout: change both.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct Params {
    /// Bits of one element.
    pub mask: u64,
    /// Expected value = ((random and `target_and`) + `target_add`) or `target_or`, repeated to fill 64 bits.
    pub target_and: u64,
    /// See `target_and`.
    pub target_add: u64,
    /// See `target_and`.
    pub target_or: u64,
    /// Floats: the sign bit.
    pub sign: u64,
    /// Floats: bits of the largest finite value.
    pub max_finite: u64,
    /// Integers: turns the order of values into that of unsigned numbers.
    pub sign_flip: u64,
    /// Sum: pairs hold 1 to this many units. Integer avg: likewise.
    pub pair_range: u64,
    /// Integer avg: what every rank holds at least.
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
    /// Float sum: positions below this hold something.
    pub active: u32,
    /// Positions that share the target.
    pub owners: u32,
    /// Pairs behind them.
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
    /// Integer avg: 1 if the quotient is negative.
    pub negative: u32,
    /// Integer avg: 1 if some elements have a rest.
    pub rest: u32,
    /// Float avg: the first owner takes V/2 + V/16 of V instead of V/2.
    pub skewed: u32,
    /// Keeps the size a multiple of 8.
    pub reserved: u32,
}

/// Exponent fields that targets have: `first` and a power of two of them.
struct Fields {
    first: u64,
    bits: u32,
}

impl Params {
    pub(super) fn new(seed: u64, primitive: Primitive, op: Option<Op>, dtype: DType, ranks: u32, epoch: u64) -> Params {
        let ranks = ranks.max(1);
        let op_code = op.map_or(0, |op| 1 + op as u64);
        let parts = |purpose: u64| [seed, primitive as u64, op_code, dtype as u64, u64::from(ranks), epoch, purpose];
        let mut p = Params {
            mask: dtype.mask(),
            target_and: u64::MAX,
            target_add: 0,
            target_or: 0,
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
            active: ranks,
            owners: if ranks % 2 == 1 { 1 } else { 2 },
            pairs: 0,
            target_bits: 0,
            fraction_bits: 0,
            bias: 0,
            tolerance: 0,
            scaled: u32::from(op == Some(Op::Mulsum)),
            negative: 0,
            rest: 0,
            skewed: 0,
            reserved: 0,
        };
        if let Some(op) = op {
            match dtype.kind() {
                Kind::Float(format) => {
                    p.fraction_bits = format.fraction_bits;
                    p.bias = format.bias;
                    p.max_finite = format.max_finite;
                    p.for_floats(op, dtype, &format);
                }
                kind => p.for_integers(op, kind == Kind::Signed, key(&parts(5))[0]),
            }
        }
        p
    }

    fn for_integers(&mut self, op: Op, signed: bool, coin: u32) {
        self.pairs = (self.ranks - self.owners) / 2;
        if signed {
            self.sign_flip = self.sign;
        }
        match op {
            Op::Sum | Op::Mulsum => self.method = Method::IntSum,
            Op::Prod => {
                self.method = Method::IntProd;
                self.target_or = self.repeat(1);
            }
            // an even minimum and an odd maximum always leave room for losers
            Op::Min => {
                self.method = Method::IntMin;
                self.target_and = self.repeat(self.mask & !1);
            }
            Op::Max => {
                self.method = Method::IntMax;
                self.target_or = self.repeat(1);
            }
            Op::Avg => self.for_integer_average(signed, coin),
        }
    }

    fn for_integer_average(&mut self, signed: bool, coin: u32) {
        self.method = Method::IntAvg;
        self.owners = 1;
        self.pairs = (self.ranks - 1) / 2;
        let n = u64::from(self.ranks);
        // contributions have one sign, so that no sum of some of them passes this
        let largest = if signed { self.mask >> 1 } else { self.mask };
        let quotient = largest.saturating_sub(n - 1) / n;
        if quotient == 0 {
            self.target_and = 0;
            self.pair_range = largest.min(n - 1);
            return;
        }
        // the upper half of what quotients there are
        let random_bits = quotient.div_ceil(2).ilog2();
        let random = (1u64 << random_bits) - 1;
        self.base = quotient - random;
        // A contribution of n or more moves the quotient when it is lost and when it is doubled. Where the type is too
        // short for that, a rest in every other element lets one of the two be seen in turn.
        let roomy = self.base >= 2 * n;
        self.rest = u32::from(!roomy && self.ranks > 1);
        let least = if roomy { n } else { 1 };
        self.pair_range = self.base - least;
        self.negative = u32::from(signed && roomy && coin & 1 == 1);
        self.target_and = self.repeat(random);
        let lowest = if self.negative == 1 { quotient.wrapping_neg() & self.mask } else { self.base };
        self.target_add = self.repeat(lowest);
    }

    fn for_floats(&mut self, op: Op, dtype: DType, format: &FloatFormat) {
        let fraction = (1u64 << self.fraction_bits) - 1;
        match op {
            Op::Sum | Op::Mulsum => {
                self.method = Method::FloatSum;
                let precision = self.fraction_bits + 1;
                let budget = 1u64 << precision;
                // A target below half of the budget leaves the other half to pairs of at least one unit.
                self.active = u64::from(self.ranks).min(budget + 4) as u32;
                self.owners = if self.active % 2 == 1 { 1 } else { 2 };
                self.pairs = (self.active - self.owners) / 2;
                self.target_bits = if self.pairs == 0 { precision } else { precision - 1 };
                self.pair_range = if self.pairs == 0 { 1 } else { (budget / 2 + 1) / u64::from(self.pairs) };
                let unused = precision - self.target_bits;
                self.set_float_target(sum_fields(dtype), fraction & !((1 << unused) - 1));
            }
            Op::Prod => {
                self.method = Method::FloatProd;
                self.owners = 1;
                let room = match dtype {
                    DType::F8e4m3 => 3,
                    DType::F8e5m2 | DType::Half => 7,
                    DType::Double => 256,
                    _ => 64,
                };
                self.pairs = ((self.ranks - 1) / 2).min(room);
                self.set_float_target(product_fields(dtype), fraction);
            }
            Op::Min | Op::Max => {
                self.method = if op == Op::Min { Method::FloatMin } else { Method::FloatMax };
                self.set_float_target(product_fields(dtype), fraction);
            }
            Op::Avg => {
                self.method = Method::FloatAvg;
                self.tolerance = 2;
                let shape = average::shape(dtype, format, self.ranks);
                self.owners = shape.owners;
                self.skewed = u32::from(shape.skewed);
                self.set_float_target(
                    Fields { first: shape.first_field, bits: shape.field_bits },
                    shape.random_fraction,
                );
                self.target_or = self.repeat(shape.fixed_fraction);
            }
        }
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

/// Exponent fields of sums: units stay normal and sums finite, also under the scalars of mulsum.
fn sum_fields(dtype: DType) -> Fields {
    let (first, bits) = match dtype {
        DType::F8e4m3 => (6, 3),
        DType::F8e5m2 => (8, 4),
        DType::Half => (13, 4),
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
