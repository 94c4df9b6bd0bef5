//! What a collective would return for one element if one contribution were lost, doubled or replaced.
//!
//! The score plants such faults, forensics looks for them. Sums and products of floats are taken in double, where the
//! recipe keeps them exact, and rounded once; averages come in all the ways in which libraries form them.

use super::{Method, Plan, average};
use crate::case::{FloatFormat, Kind};

/// What one rank adds to the result of one element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// Bits of the dtype: integers, and the candidates of min and max.
    Bits(u64),
    /// The number, for sums, products and averages of floats.
    Real(f64),
}

/// A fault in one rank's contribution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    /// Left out.
    Missing,
    /// Taken twice.
    Doubled,
    /// Another one in its place.
    Replaced(Value),
}

/// The bits that a result may have, one for each way in which libraries form it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Results {
    codes: [u64; 8],
    len: usize,
}

impl Results {
    fn one(code: u64) -> Results {
        Results { codes: [code; 8], len: 1 }
    }

    fn of(codes: &[u64]) -> Results {
        let mut results = Results { codes: [0; 8], len: 0 };
        for (slot, code) in results.codes.iter_mut().zip(codes) {
            *slot = *code;
            results.len += 1;
        }
        results
    }

    /// The bits, at least one.
    pub fn codes(&self) -> impl Iterator<Item = u64> {
        self.codes.into_iter().take(self.len)
    }

    /// Whether some way of forming the result hides the fault.
    pub fn passes(&self, plan: &Plan, expected: u64) -> bool {
        self.codes().any(|code| plan.accepts(code, expected))
    }
}

/// All contributions to one element.
#[derive(Debug, Clone)]
pub struct Element<'a> {
    plan: &'a Plan,
    parts: Vec<Value>,
    total: Total,
}

/// The combination of all, in a form that one of them can be taken from.
#[derive(Debug, Clone)]
enum Total {
    /// Modulo 2^64.
    Sum(u64),
    /// Modulo 2^64, of odd numbers.
    Product(u64),
    /// The winner's rank and the next best, as keys.
    Extreme {
        winner: u32,
        best: u64,
        next: Option<u64>,
    },
    /// Of integers, without wrapping.
    Integers(i128),
    RealSum(f64),
    RealProduct(f64),
    /// Of the few that are not zero, with their ranks.
    Reals(Vec<(u32, f64)>),
}

/// What `rank` contributes if it reads the input of `slot`: mulsum's scalar is the reader's, the data are the slot's.
pub fn contribution(plan: &Plan, rank: u32, slot: u32, index: u64) -> Value {
    let p = plan.params();
    let bits = plan.input(slot, index);
    match (p.method, plan.dtype().float()) {
        (Method::FloatSum | Method::FloatProd | Method::FloatAvg, Some(format)) => {
            let width = 8 * p.width;
            let factor =
                if p.scaled == 1 { format.decode(plan.scalar(rank), width) } else { 2f64.powi(-(p.growth as i32)) };
            Value::Real(format.decode(bits, width) * factor)
        }
        (Method::IntSum, _) if p.scaled == 1 => Value::Bits(bits.wrapping_mul(plan.scalar(rank)) & p.mask),
        _ => Value::Bits(bits),
    }
}

impl<'a> Element<'a> {
    /// Element `index` of a reduction; it makes every rank's input.
    pub fn new(plan: &'a Plan, index: u64) -> Element<'a> {
        let parts: Vec<Value> = (0..plan.params().ranks).map(|rank| contribution(plan, rank, rank, index)).collect();
        let total = total(plan, &parts);
        Element { plan, parts, total }
    }

    /// What each rank contributes.
    pub fn parts(&self) -> &[Value] {
        &self.parts
    }

    /// The result without any fault.
    pub fn whole(&self) -> Results {
        match &self.total {
            Total::Sum(total) | Total::Product(total) => Results::one(total & self.plan.params().mask),
            Total::Extreme { best, .. } => Results::one(self.plan.bits_in_order(*best)),
            Total::Integers(total) => self.integer_averages(*total),
            Total::RealSum(total) | Total::RealProduct(total) => self.encode(*total),
            Total::Reals(parts) => self.real_averages(parts.iter().map(|(_, x)| *x).collect()),
        }
    }

    /// The result with a fault in `rank`'s contribution; `None` if nothing would be left to combine.
    pub fn changed(&self, rank: u32, change: Change) -> Option<Results> {
        let part = *self.parts.get(rank as usize)?;
        if self.parts.len() == 1 && change == Change::Missing {
            return None;
        }
        let mask = self.plan.params().mask;
        let bits = |value: Value| if let Value::Bits(bits) = value { bits } else { 0 };
        let real = |value: Value| if let Value::Real(real) = value { real } else { 0.0 };
        Some(match &self.total {
            Total::Sum(total) => {
                let changed = match change {
                    Change::Missing => total.wrapping_sub(bits(part)),
                    Change::Doubled => total.wrapping_add(bits(part)),
                    Change::Replaced(other) => total.wrapping_sub(bits(part)).wrapping_add(bits(other)),
                };
                Results::one(changed & mask)
            }
            Total::Product(total) => {
                let without = || total.wrapping_mul(super::inverse(bits(part)));
                let changed = match change {
                    Change::Missing => without(),
                    Change::Doubled => total.wrapping_mul(bits(part)),
                    Change::Replaced(other) => without().wrapping_mul(bits(other)),
                };
                Results::one(changed & mask)
            }
            Total::Extreme { winner, best, next } => {
                let others = if *winner == rank { *next } else { Some(*best) };
                let key = match change {
                    Change::Missing => others?,
                    Change::Doubled => *best,
                    Change::Replaced(other) => {
                        let other = self.plan.order(bits(other));
                        others.map_or(other, |others| self.plan.better(others, other))
                    }
                };
                Results::one(self.plan.bits_in_order(key))
            }
            Total::Integers(total) => {
                let value = |value: Value| self.plan.integer(bits(value));
                self.integer_averages(match change {
                    Change::Missing => total - value(part),
                    Change::Doubled => total + value(part),
                    Change::Replaced(other) => total - value(part) + value(other),
                })
            }
            Total::RealSum(total) => self.encode(match change {
                Change::Missing => total - real(part),
                Change::Doubled => total + real(part),
                Change::Replaced(other) => total - real(part) + real(other),
            }),
            Total::RealProduct(total) => self.encode(match change {
                Change::Missing => total / real(part),
                Change::Doubled => total * real(part),
                Change::Replaced(other) => total / real(part) * real(other),
            }),
            Total::Reals(parts) => {
                let mut changed: Vec<f64> = parts.iter().filter(|(r, _)| *r != rank).map(|(_, x)| *x).collect();
                match change {
                    Change::Missing => {}
                    Change::Doubled => changed.extend([real(part); 2]),
                    Change::Replaced(other) => changed.push(real(other)),
                }
                changed.retain(|x| *x != 0.0);
                self.real_averages(changed)
            }
        })
    }

    /// The result if all contributions, and each sum on the way, were rounded to a narrower format, in rank order.
    pub fn narrowed(&self, narrow: FloatFormat, narrow_bits: u32) -> Option<Results> {
        let format = self.plan.dtype().float()?;
        let round = |x: f64| narrow.decode(narrow.encode(x, narrow_bits), narrow_bits);
        let reals = self.parts.iter().map(|value| match value {
            Value::Real(real) => *real,
            Value::Bits(bits) => format.decode(*bits, 8 * self.plan.params().width),
        });
        let sum = |parts: &mut dyn Iterator<Item = f64>| parts.fold(0.0, |sum, x| round(sum + round(x)));
        let n = f64::from(self.plan.params().ranks);
        let reals = reals.collect::<Vec<f64>>();
        let result = match &self.total {
            Total::RealSum(_) => sum(&mut reals.into_iter()),
            Total::RealProduct(_) => reals.into_iter().fold(1.0, |product, x| round(product * round(x))),
            Total::Reals(_) => round(sum(&mut reals.into_iter()) / n),
            Total::Extreme { best, .. } => {
                round(format.decode(self.plan.bits_in_order(*best), 8 * self.plan.params().width))
            }
            Total::Sum(_) | Total::Product(_) | Total::Integers(_) => return None,
        };
        Some(self.encode(result))
    }

    fn encode(&self, value: f64) -> Results {
        let code = self.plan.dtype().float().map_or(0, |format| format.encode(value, 8 * self.plan.params().width));
        Results::one(code)
    }

    /// Divided as it is, and after wrapping in the dtype.
    fn integer_averages(&self, sum: i128) -> Results {
        let n = i128::from(self.plan.params().ranks);
        let mask = self.plan.params().mask;
        let wrapped = self.plan.integer(sum as u64 & mask);
        Results::of(&[(sum / n) as u64 & mask, (wrapped / n) as u64 & mask])
    }

    fn real_averages(&self, parts: Vec<f64>) -> Results {
        let p = self.plan.params();
        let Some(format) = self.plan.dtype().float() else { return Results::one(0) };
        let in_dtype = average::has_inverse(&format, 8 * p.width, p.ranks);
        Results::of(&average::ways(&format, 8 * p.width, p.ranks, &parts, in_dtype))
    }
}

fn total(plan: &Plan, parts: &[Value]) -> Total {
    let p = plan.params();
    let bits = || parts.iter().map(|part| if let Value::Bits(bits) = part { *bits } else { 0 });
    let reals = || parts.iter().map(|part| if let Value::Real(real) = part { *real } else { 0.0 });
    match p.method {
        // special values have no parts that could be told apart again: nobody asks for them here
        Method::Copy | Method::IntSum | Method::Table => Total::Sum(bits().fold(0, u64::wrapping_add)),
        Method::IntProd => Total::Product(bits().fold(1, u64::wrapping_mul)),
        Method::IntMin | Method::IntMax | Method::FloatMin | Method::FloatMax => {
            let mut keys = (0u32..).zip(bits().map(|bits| plan.order(bits)));
            let (mut winner, mut best) = keys.next().unwrap_or((0, 0));
            let mut next: Option<u64> = None;
            for (rank, key) in keys {
                if plan.better(key, best) == key && key != best {
                    next = Some(best);
                    (winner, best) = (rank, key);
                } else {
                    next = Some(next.map_or(key, |next| plan.better(next, key)));
                }
            }
            Total::Extreme { winner, best, next }
        }
        Method::IntAvg => Total::Integers(bits().map(|bits| plan.integer(bits)).sum()),
        Method::FloatSum => Total::RealSum(reals().sum()),
        Method::FloatProd => Total::RealProduct(reals().product()),
        Method::FloatAvg => Total::Reals((0..).zip(reals()).filter(|(_, x)| *x != 0.0).collect()),
    }
}

impl Plan {
    /// Bits of the dtype as a number that orders as the values do.
    fn order(&self, bits: u64) -> u64 {
        let p = self.params();
        match self.dtype().float() {
            None => bits ^ p.sign_flip,
            Some(_) if bits & p.sign != 0 => !bits & p.mask,
            Some(_) => bits | p.sign,
        }
    }

    fn bits_in_order(&self, key: u64) -> u64 {
        let p = self.params();
        match self.dtype().float() {
            None => key ^ p.sign_flip,
            Some(_) if key & p.sign == 0 => !key & p.mask,
            Some(_) => key & !p.sign,
        }
    }

    /// The better of two keys for this min or max.
    fn better(&self, a: u64, b: u64) -> u64 {
        if matches!(self.params().method, Method::IntMin | Method::FloatMin) { a.min(b) } else { a.max(b) }
    }

    /// The value of an integer type's bits.
    fn integer(&self, bits: u64) -> i128 {
        let width = 8 * self.params().width;
        match self.dtype().kind() {
            Kind::Signed => i128::from((bits << (64 - width)) as i64 >> (64 - width)),
            _ => i128::from(bits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{DType, Op, Primitive};
    use crate::oracle::Data;

    /// Without a fault the combination is the expected value; a part replaced by itself changes nothing, and one that
    /// is taken out and put back neither.
    #[test]
    fn no_fault_means_no_change() {
        for op in Op::ALL {
            for dtype in DType::ALL {
                for (ranks, data) in [2, 3, 8, 64].into_iter().flat_map(|n| [(n, Data::Plain), (n, Data::OddScalars)]) {
                    let plan = Plan::with(data, 3, Primitive::AllReduce, Some(op), dtype, ranks, 1);
                    for i in 0..50 {
                        let element = Element::new(&plan, i * 7919);
                        let expected = plan.reduced(i * 7919);
                        assert!(
                            element.whole().codes().all(|code| plan.accepts(code, expected)),
                            "{op} {dtype} {ranks}"
                        );
                        for rank in 0..ranks {
                            let own = element.parts()[rank as usize];
                            let same = element.changed(rank, Change::Replaced(own)).unwrap();
                            assert!(same.codes().all(|code| plan.accepts(code, expected)), "{op} {dtype} {ranks}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_second_best_wins_when_the_winner_is_missing() {
        let plan = Plan::new(3, Primitive::AllReduce, Some(Op::Max), DType::Float, 4, 1);
        for i in 0..100 {
            let value = |rank| f32::from_bits(plan.input(rank, i) as u32);
            let element = Element::new(&plan, i);
            for missing in 0..4 {
                let best = (0..4).filter(|r| *r != missing).map(value).fold(f32::MIN, f32::max);
                let found = element.changed(missing, Change::Missing).unwrap();
                assert_eq!(found.codes().collect::<Vec<_>>(), [u64::from(best.to_bits())]);
            }
        }
    }
}
