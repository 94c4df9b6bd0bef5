//! Special values: NaN, infinities, zeros of either sign, subnormals, sums and products that leave the range.
//!
//! Inputs come from a table of scenarios. Each says what the rank at position 0 holds, what the one at position `n / 2`
//! holds, what all others hold, and the result. The hash picks a scenario for each element, and positions rotate as for
//! all other inputs, so that every rank holds every role.
//!
//! A scenario is one only if its result is the same in any order and grouping, in the dtype or in a wider accumulator,
//! for any number of ranks; so no two large values meet but where the result overflows whatever is added, no zeros of
//! different sign meet in a min or max, and an average or mulsum, whose inputs are scaled first, has no subnormals. Where
//! a NaN is expected any NaN passes, as no standard fixes its payload; everything else is exact.
//!
//! What IEEE 754 leaves open, or an 8-bit format has no rule for, is as NCCL has it. Of a number and a NaN, min and max
//! take the number (`fmin` and `fmax`). 8-bit floats are combined as halves and converted back with saturation, so that
//! an infinity becomes the largest finite value at each step: they have no scenarios with infinities or overflow.

use crate::case::{DType, FloatFormat, Op};

/// Scenarios in a table; a power of two, so that some bits of the hash are one of them.
pub const SCENARIOS: usize = 16;

/// One scenario, as bits of the dtype. `struct Scenario` of `kernels/oracle.cuh` has the same layout: change both.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Scenario {
    /// The input at position 0.
    pub first: u64,
    /// The input at position `n / 2`, unless that is 0.
    pub second: u64,
    /// The input at all other positions.
    pub others: u64,
    /// The result.
    pub expected: u64,
}

/// The table for a reduction of floats: all its scenarios, from the start again until it is full.
pub(super) fn table(op: Op, dtype: DType, format: &FloatFormat, ranks: u32) -> [Scenario; SCENARIOS] {
    let codes = Codes::new(dtype, format);
    let mut list = match op {
        Op::Sum => codes.sums(),
        Op::Avg | Op::Mulsum => codes.scaled_sums(),
        Op::Prod => codes.products(),
        Op::Max => codes.maxima(ranks),
        Op::Min => codes.maxima(ranks).into_iter().map(|scenario| codes.mirrored(scenario)).collect(),
    };
    if ranks == 1 {
        list.iter_mut().for_each(|scenario| scenario.expected = scenario.first);
    }
    let mut rows = list.into_iter().cycle();
    std::array::from_fn(|_| rows.next().unwrap_or_default())
}

/// The bits of some values of one dtype.
struct Codes {
    sign: u64,
    /// The least subnormal is 1, so that this is the least normal one.
    normal: u64,
    one: u64,
    two: u64,
    /// `2^-fraction_bits`: what turns the least normal number into the least subnormal one.
    ulp: u64,
    /// The largest power of two.
    top: u64,
    max: u64,
    nan: u64,
    /// Where the library keeps it.
    infinity: Option<u64>,
}

impl Codes {
    fn new(dtype: DType, format: &FloatFormat) -> Codes {
        let f = format.fraction_bits;
        let sign = 1 << (8 * dtype.size() - 1);
        Codes {
            sign,
            normal: 1 << f,
            one: (format.bias as u64) << f,
            two: (format.bias as u64 + 1) << f,
            ulp: (format.bias as u64 - u64::from(f)) << f,
            top: format.max_finite >> f << f,
            max: format.max_finite,
            // all bits set is a NaN in every format
            nan: sign - 1,
            infinity: format.infinity.filter(|_| dtype.size() > 1),
        }
    }

    fn minus(&self, code: u64) -> u64 {
        code ^ self.sign
    }

    /// All values with the other sign: turns a max into a min.
    fn mirrored(&self, scenario: Scenario) -> Scenario {
        Scenario {
            first: self.minus(scenario.first),
            second: self.minus(scenario.second),
            others: self.minus(scenario.others),
            expected: self.minus(scenario.expected),
        }
    }

    /// Sums. Negative zero is what changes no sum, not even that of negative zeros.
    fn sums(&self) -> Vec<Scenario> {
        let (zero, nothing) = (0, self.minus(0));
        let mut list = self.scaled_sums();
        list.extend([
            // subnormals: their sum, one borrowed from a normal number, one that carries into it, one that cancels
            scenario(1, 2, nothing, 3),
            scenario(self.normal, self.minus(1), zero, self.normal - 1),
            scenario(self.normal - 1, 1, nothing, self.normal),
            scenario(3, self.minus(3), zero, zero),
            scenario(self.max, self.minus(self.max), zero, zero),
        ]);
        if let Some(infinity) = self.infinity {
            list.extend([
                scenario(self.max, self.max, nothing, infinity),
                scenario(self.minus(self.max), self.minus(self.max), zero, self.minus(infinity)),
                scenario(infinity, self.minus(self.max), nothing, infinity),
            ]);
        }
        list
    }

    /// Sums whose terms may be multiplied by any positive number before.
    fn scaled_sums(&self) -> Vec<Scenario> {
        let (zero, nothing) = (0, self.minus(0));
        let mut list = vec![
            scenario(self.nan, self.one, self.one, self.nan),
            scenario(self.minus(self.nan), self.nan, self.one, self.nan),
            scenario(nothing, nothing, nothing, nothing),
            scenario(zero, nothing, nothing, zero),
        ];
        if let Some(infinity) = self.infinity {
            list.extend([
                scenario(infinity, self.one, self.one, infinity),
                scenario(self.minus(infinity), self.one, self.one, self.minus(infinity)),
                scenario(infinity, self.minus(infinity), self.one, self.nan),
            ]);
        }
        list
    }

    fn products(&self) -> Vec<Scenario> {
        let (one, two) = (self.one, self.two);
        let mut list = vec![
            scenario(self.nan, two, one, self.nan),
            scenario(self.nan, 0, one, self.nan),
            scenario(self.minus(0), one, one, self.minus(0)),
            scenario(self.minus(0), self.minus(two), one, 0),
            // into the subnormals, to their least, and among them
            scenario(self.normal, self.ulp, one, 1),
            scenario(self.minus(self.normal), self.ulp + self.normal, one, self.minus(2)),
            scenario(3, one, one, 3),
            scenario(1, two, one, 2),
        ];
        if let Some(infinity) = self.infinity {
            list.extend([
                scenario(infinity, 0, one, self.nan),
                scenario(infinity, self.minus(two), one, self.minus(infinity)),
                scenario(self.minus(infinity), self.minus(two), one, infinity),
                scenario(self.top, two, one, infinity),
                scenario(self.minus(self.top), self.top, one, self.minus(infinity)),
                // far below the least subnormal
                scenario(self.minus(self.normal), self.normal, one, self.minus(0)),
            ]);
        }
        list
    }

    fn maxima(&self, ranks: u32) -> Vec<Scenario> {
        let (one, two, nan) = (self.one, self.two, self.nan);
        let mut list = vec![
            scenario(nan, two, one, two),
            scenario(one, nan, self.minus(nan), one),
            scenario(nan, self.minus(nan), nan, nan),
            // zeros of one sign; of the second the mirror image is the one that matters
            scenario(self.minus(0), self.minus(0), self.minus(0), self.minus(0)),
            scenario(0, 0, 0, 0),
            // subnormals of either sign
            scenario(3, 1, 0, 3),
            scenario(self.minus(1), self.minus(3), self.minus(self.normal), self.minus(1)),
            scenario(self.max, one, self.minus(self.max), self.max),
        ];
        if ranks > 2 {
            list.push(scenario(nan, nan, self.minus(one), self.minus(one)));
        }
        if let Some(infinity) = self.infinity {
            let minus = self.minus(infinity);
            list.extend([
                scenario(infinity, minus, self.max, infinity),
                scenario(self.minus(self.max), minus, minus, self.minus(self.max)),
                scenario(minus, minus, minus, minus),
                scenario(minus, nan, nan, minus),
            ]);
        }
        list
    }
}

fn scenario(first: u64, second: u64, others: u64, expected: u64) -> Scenario {
    Scenario { first, second, others, expected }
}

#[cfg(test)]
mod tests {
    use rand::seq::SliceRandom;
    use rand::{RngExt, SeedableRng, rngs::StdRng};

    use super::*;
    use crate::case::Primitive;
    use crate::oracle::{Data, Plan};

    fn plans(ranks: &[u32]) -> impl Iterator<Item = (Op, DType, Plan)> {
        Op::ALL.into_iter().flat_map(move |op| {
            DType::ALL.into_iter().filter(|dtype| dtype.float().is_some()).flat_map(move |dtype| {
                ranks.iter().map(move |&n| {
                    (op, dtype, Plan::with(Data::Special, 5, Primitive::AllReduce, Some(op), dtype, n, n.into()))
                })
            })
        })
    }

    /// How a library computes.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Way {
        /// Each result is rounded to the dtype.
        Rounded,
        /// Only the last is.
        Wide,
        /// Each result is rounded, and what is too large becomes the largest finite value: 8-bit floats in NCCL.
        Saturated,
        /// Subnormals become zeros of their sign.
        Flushed,
        /// Zeros lose their sign.
        Unsigned,
        /// Only numbers take part in min and max, and in anything else a NaN is a zero.
        NoNan,
    }

    struct Library {
        op: Op,
        format: FloatFormat,
        width: u32,
        way: Way,
    }

    impl Library {
        fn new(op: Op, dtype: DType, way: Way) -> Library {
            Library { op, format: dtype.float().unwrap(), width: 8 * dtype.size() as u32, way }
        }

        fn code(&self, value: f64) -> u64 {
            self.format.encode(value, self.width)
        }

        fn value(&self, code: u64) -> f64 {
            self.format.decode(code, self.width)
        }

        fn round(&self, value: f64) -> f64 {
            let rounded = self.value(self.code(value));
            let largest = self.value(self.format.max_finite);
            let normal = self.value(1 << self.format.fraction_bits);
            match self.way {
                Way::Wide => value,
                Way::Rounded => rounded,
                Way::Saturated => self.value(self.code(value.clamp(-largest, largest))),
                Way::Flushed if rounded.abs() < normal => 0f64.copysign(rounded),
                Way::Unsigned if rounded == 0.0 => 0.0,
                Way::NoNan if rounded.is_nan() => 0.0,
                _ => rounded,
            }
        }

        /// What each rank brings in.
        fn parts(&self, plan: &Plan, i: u64) -> Vec<f64> {
            let ranks = plan.params().ranks;
            let input = |rank| {
                let value = self.value(plan.input(rank, i));
                self.round(match self.op {
                    Op::Mulsum => value * self.value(plan.scalar(rank)),
                    Op::Avg => value * self.value(self.code(1.0 / f64::from(ranks))),
                    _ => value,
                })
            };
            (0..ranks).map(input).collect()
        }

        fn combine(&self, a: f64, b: f64) -> f64 {
            self.round(match self.op {
                Op::Prod => a * b,
                Op::Min => a.min(b),
                Op::Max => a.max(b),
                Op::Sum | Op::Avg | Op::Mulsum => a + b,
            })
        }

        /// Merges neighbours at random until one is left: any order, any grouping.
        fn reduce(&self, rng: &mut StdRng, plan: &Plan, i: u64) -> u64 {
            let mut parts = self.parts(plan, i);
            parts.shuffle(rng);
            while parts.len() > 1 {
                let at = rng.random_range(0..parts.len() - 1);
                let right = parts.remove(at + 1);
                parts[at] = self.combine(parts[at], right);
            }
            self.code(parts[0])
        }
    }

    #[test]
    fn any_order_grouping_and_accumulator_gives_the_expected_bits() {
        let mut rng = StdRng::seed_from_u64(1);
        for (op, dtype, plan) in plans(&[1, 2, 3, 4, 5, 8, 17, 64, 1000]) {
            for way in [Way::Rounded, Way::Wide, Way::Saturated] {
                if way == Way::Saturated && dtype.size() > 1 {
                    continue;
                }
                let library = Library::new(op, dtype, way);
                let ranks = plan.params().ranks;
                for i in 0..if ranks > 100 { 40 } else { 200 } {
                    let (result, expected) = (library.reduce(&mut rng, &plan, i), plan.reduced(i));
                    assert!(
                        plan.accepts(result, expected),
                        "{op} {dtype} {ranks} ranks, {way:?}: {result:#x}, not {expected:#x}, of {:?}",
                        plan.scenario(i)
                    );
                }
            }
        }
    }

    /// Whether some element of a library that computes this way is wrong.
    fn seen(op: Op, dtype: DType, plan: &Plan, way: Way) -> bool {
        let mut rng = StdRng::seed_from_u64(2);
        let library = Library::new(op, dtype, way);
        (0..200).any(|i| !plan.accepts(library.reduce(&mut rng, plan, i), plan.reduced(i)))
    }

    #[test]
    fn a_library_that_flushes_or_loses_signs_or_nans_is_seen() {
        for (op, dtype, plan) in plans(&[1, 2, 3, 8]) {
            let ranks = plan.params().ranks;
            assert!(seen(op, dtype, &plan, Way::NoNan), "{op} {dtype} {ranks} ranks: NaN");
            assert!(seen(op, dtype, &plan, Way::Unsigned), "{op} {dtype} {ranks} ranks: signs of zeros");
            let scaled = matches!(op, Op::Avg | Op::Mulsum);
            assert_eq!(seen(op, dtype, &plan, Way::Flushed), !scaled, "{op} {dtype} {ranks} ranks: subnormals");
        }
    }

    #[test]
    fn every_scenario_has_its_place_in_the_table_and_every_rank_every_role() {
        for (op, dtype, plan) in plans(&[4]) {
            let format = dtype.float().unwrap();
            let codes = Codes::new(dtype, &format);
            let list = if op == Op::Sum { codes.sums() } else { codes.products() };
            assert!(list.len() <= SCENARIOS && codes.maxima(4).len() <= SCENARIOS);
            let table = plan.params().table;
            for wanted in table {
                assert!((0..1000).any(|i| plan.scenario(i) == wanted), "{op} {dtype}: {wanted:?} is never used");
                for rank in 0..4 {
                    assert!(
                        (0..2000).any(|i| plan.scenario(i) == wanted && plan.input(rank, i) == wanted.first),
                        "{op} {dtype}: rank {rank} never begins {wanted:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn infinities_are_left_to_formats_that_keep_them() {
        for (op, dtype, plan) in plans(&[2, 4]) {
            let infinity = dtype.float().unwrap().infinity;
            let expected =
                |code: u64| plan.params().table.iter().any(|s| Some(s.expected & !plan.params().sign) == Some(code));
            assert_eq!(infinity.is_some_and(expected), dtype.size() > 1, "{op} {dtype}");
        }
    }
}
