//! How much of a fault can be seen at best. `docs/oracle.md` derives every formula here.
//!
//! Two figures for each mutation. `theory` holds for any choice of inputs that keeps every partial result exact.
//! `chosen` is what this oracle's inputs are built to reach; it is lower where two faults cannot both be shown at the
//! same element, and the inputs share the elements between them. `block` is `chosen` for a block of 1 KiB: it is 1
//! unless theory, or the tolerance of averages, forbids it.

mod quotient;

use super::mutation::{BLOCK_BYTES, Mutation};
use crate::oracle::params::target_bits;
use crate::oracle::{Method, Params, Plan};

/// What can be seen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// Share of elements that no inputs can exceed, as far as it is known.
    pub theory: f64,
    /// Share of elements that these inputs are built for.
    pub chosen: f64,
    /// Share of blocks.
    pub block: f64,
    /// What limits `chosen`.
    pub reason: Reason,
}

/// What keeps a fault from being seen everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Two values of a type with few of them are the same by chance.
    Coincidence,
    /// Only the winner of min or max counts.
    Winner,
    /// Min and max do not count how often a value is given.
    Idempotent,
    /// A short significand has no room for more ranks.
    Significand,
    /// A short exponent has no room for more factors than 1 and -1.
    Exponent,
    /// The quotient moves by one for each n units only.
    Quotient,
    /// The type cannot count to n: all averages are zero.
    Uncountable,
    /// What is accepted as rounding.
    Tolerance,
    /// A value that happens to fit the narrower type.
    Representable,
}

impl Reason {
    /// In a few words.
    pub const fn text(self) -> &'static str {
        match self {
            Reason::Coincidence => "few values: equal by chance",
            Reason::Winner => "only the winner counts",
            Reason::Idempotent => "a second copy changes nothing",
            Reason::Significand => "significand too short for all ranks",
            Reason::Exponent => "exponent too short for all ranks",
            Reason::Quotient => "the quotient hides less than n units",
            Reason::Uncountable => "the type cannot count the ranks",
            Reason::Tolerance => "within the accepted 2 ulp",
            Reason::Representable => "some values fit the narrower type",
        }
    }
}

/// What limits a mutation for this plan.
pub fn bound(plan: &Plan, mutation: Mutation) -> Bound {
    let p = plan.params();
    let mut bound = match mutation {
        Mutation::Missing | Mutation::Doubled => lost_or_doubled(p, mutation == Mutation::Missing),
        Mutation::OtherElement(k) => {
            replaced(p, Other::Element((k % u64::from(p.ranks) * u64::from(p.stride)) % u64::from(p.ranks)))
        }
        Mutation::OtherRank if p.method != Method::Copy => replaced(p, Other::Rank),
        Mutation::PreviousContribution => replaced(p, Other::Iteration),
        Mutation::OtherRank
        | Mutation::Shifted(_)
        | Mutation::SwappedBlocks
        | Mutation::Previous
        | Mutation::LastVector => other_result(p),
        Mutation::Unwritten | Mutation::Tail => everywhere(1.0, Reason::Coincidence),
        Mutation::BitFlip => flips(p),
        Mutation::Narrowed(to) => narrowed(p, to.float().map_or(0, |format| format.precision())),
    };
    if p.method == Method::IntAvg
        && p.target_and == 0
        && !matches!(mutation, Mutation::Unwritten | Mutation::Tail | Mutation::BitFlip)
    {
        bound = Bound { theory: 0.0, chosen: 0.0, block: 0.0, reason: Reason::Uncountable };
    }
    bound
}

fn everywhere(chosen: f64, reason: Reason) -> Bound {
    Bound { theory: 1.0, chosen, block: 1.0, reason }
}

/// Elements of a block.
fn block_elements(p: &Params) -> f64 {
    (BLOCK_BYTES / u64::from(p.width)) as f64
}

/// Different expected values.
fn targets(p: &Params) -> f64 {
    2f64.powi((p.target_and & p.mask).count_ones() as i32)
}

/// Different results that the op could have at all.
fn results(p: &Params) -> f64 {
    let all = 2f64.powi(8 * p.width as i32);
    match p.method {
        // a product shows each of its factors only if all are odd
        Method::IntProd => all / 2.0,
        Method::IntAvg => {
            let n = u64::from(p.ranks);
            let (most, least) = if p.sign_flip != 0 { (p.mask >> 1, p.sign) } else { (p.mask, 0) };
            (most / n) as f64 + (least / n) as f64 + 1.0
        }
        Method::Copy | Method::IntSum | Method::IntMin | Method::IntMax => all,
        _ => 2.0 * p.max_finite as f64 + 1.0,
    }
}

/// Codes around the expected one that pass.
fn accepted(p: &Params) -> f64 {
    f64::from(2 * p.tolerance + 1)
}

/// The result of another element, block or iteration.
fn other_result(p: &Params) -> Bound {
    let theory = 1.0 - (accepted(p) / results(p)).min(1.0);
    Bound { theory, chosen: 1.0 - accepted(p) / targets(p), block: 1.0, reason: Reason::Coincidence }
}

/// Flips of the two lowest bits stay within 2 ulp; those of the third can, if the right result is 2 ulp off already.
fn flips(p: &Params) -> Bound {
    let hidden = if p.tolerance > 0 { 2.0 } else { 0.0 };
    let width = 8.0 * f64::from(p.width);
    let chosen = if p.tolerance > 0 { 1.0 - (hidden + 1.0) / width } else { 1.0 };
    Bound { theory: 1.0 - hidden / width, chosen, block: 1.0, reason: Reason::Tolerance }
}

/// A target passes if the bits that the narrower type lacks are zero, or within the tolerance of it.
fn narrowed(p: &Params, precision: u32) -> Bound {
    let lost = (p.fraction_bits + 1).saturating_sub(precision);
    let random = (p.target_and & ((1 << lost) - 1)).count_ones() as i32;
    let hidden = |bits: i32| (accepted(p) / 2f64.powi(bits)).min(1.0);
    Bound {
        theory: 1.0 - hidden(lost as i32),
        chosen: 1.0 - hidden(random),
        block: 1.0,
        reason: if p.tolerance > 0 { Reason::Tolerance } else { Reason::Representable },
    }
}

fn lost_or_doubled(p: &Params, missing: bool) -> Bound {
    let n = f64::from(p.ranks);
    let elements = block_elements(p);
    // the owner's part may be the one value that changes nothing
    let neutral = 1.0 / targets(p);
    match p.method {
        Method::IntMin | Method::IntMax | Method::FloatMin | Method::FloatMax if missing => {
            Bound { theory: 1.0 / n, chosen: 1.0 / n, block: (elements / n).min(1.0), reason: Reason::Winner }
        }
        Method::IntMin | Method::IntMax | Method::FloatMin | Method::FloatMax => {
            Bound { theory: 0.0, chosen: 0.0, block: 0.0, reason: Reason::Idempotent }
        }
        Method::FloatSum => {
            // 2 * 2^p units hold the target, of 3/8 * 2^p units on average, and one unit for each rank
            let budget = 2f64.powi(p.fraction_bits as i32 + 1);
            let target = if target_bits(p.fraction_bits + 1, p.ranks) == p.target_bits { 0.375 } else { 0.0 };
            let active = f64::from(p.active);
            Bound {
                theory: ((2.0 - target) * budget / n).min(1.0),
                chosen: active / n,
                block: (active * elements / n).min(1.0),
                reason: Reason::Significand,
            }
        }
        Method::FloatProd => {
            let powers = f64::from(p.owners + 2 * p.pairs) - neutral;
            everywhere((powers + (n - powers) / 2.0) / n, Reason::Exponent)
        }
        Method::FloatAvg => {
            let owners = f64::from(p.owners);
            let block = (owners * elements / n).min(1.0);
            Bound { theory: 1.0, chosen: owners / n, block, reason: Reason::Tolerance }
        }
        Method::IntAvg => quotient::lost_or_doubled(p, missing),
        Method::IntSum | Method::IntProd | Method::Copy => everywhere(1.0 - neutral / n, Reason::Coincidence),
        // what special values promise is what they are, not that they tell ranks apart
        Method::Table => everywhere(0.0, Reason::Coincidence),
    }
}

/// What stands in a contribution's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Other {
    /// The rank's own of another element, where its position is so many further on.
    Element(u64),
    /// The next rank's of the same element.
    Rank,
    /// The rank's own of another iteration, of any position.
    Iteration,
}

fn replaced(p: &Params, other: Other) -> Bound {
    let n = f64::from(p.ranks);
    let elements = block_elements(p);
    let turn = match other {
        Other::Element(turn) => turn.min(u64::from(p.ranks) - turn) as f64,
        Other::Rank => 1.0,
        Other::Iteration => 0.0,
    };
    match p.method {
        Method::IntMin | Method::IntMax | Method::FloatMin | Method::FloatMax => {
            let winner = (1.0 - 1.0 / targets(p)) / n;
            if other == Other::Rank {
                // neither a loser nor a second winner in a loser's place changes anything
                return Bound {
                    theory: 1.0 / n,
                    chosen: winner,
                    block: (elements / n).min(1.0),
                    reason: Reason::Winner,
                };
            }
            // A loser of another element beats this one's winner in a quarter of the cases where all values are as
            // likely, and in more than an eighth where values crowd around a few exponents.
            everywhere(winner + (1.0 - 1.0 / n) / 8.0, Reason::Winner)
        }
        Method::IntSum => everywhere(1.0 - 2.0 / 2f64.powi(8 * p.width as i32), Reason::Coincidence),
        Method::IntProd => everywhere(1.0 - 1.0 / (results(p) - 4.0).max(1.0), Reason::Coincidence),
        Method::FloatSum => {
            let active = f64::from(p.active);
            // positions that are active at one of the two places, at least
            let touched = active + turn.min(active).min(n - active);
            let equal = match other {
                // Neighbours have opposite signs, and a lone owner differs in size; under mulsum that may fail.
                Other::Rank if p.owners == 1 && p.scaled == 1 => 1.0 / (n * p.pair_range as f64),
                Other::Rank => 0.0,
                _ => equal_shares(p),
            };
            let hidden = (touched - active) * absorbed_shares(p);
            Bound {
                theory: 1.0,
                chosen: (touched - hidden - active * equal) / n,
                block: (active * elements / n).min(1.0),
                reason: if active < n { Reason::Significand } else { Reason::Coincidence },
            }
        }
        Method::FloatProd => {
            let powers = f64::from(p.owners + 2 * p.pairs);
            let equal = 1.0 / (4.0 * p.pair_range as f64);
            everywhere((powers * (1.0 - equal) + (n - powers) / 2.0) / n, Reason::Exponent)
        }
        Method::FloatAvg => {
            let owners = f64::from(p.owners);
            // one part of two moves the result by half of what it changes by
            let equal = match other {
                // the two parts of a short type differ by less than the tolerance
                Other::Rank if p.ranks == 3 && p.owners == 2 && p.skewed == 0 => 0.5,
                Other::Rank => 0.0,
                _ => owners * accepted(p) / targets(p),
            };
            let touched = owners + turn.min(1.0).min(n - owners);
            let apart = p.fraction_bits.saturating_sub(p.owners);
            let hidden = if other == Other::Rank { 0.0 } else { smaller_by(p, apart) };
            Bound {
                theory: 1.0,
                chosen: (touched - hidden * (touched - owners) - owners * equal) / n,
                block: (owners * elements / n).min(1.0),
                reason: Reason::Tolerance,
            }
        }
        Method::IntAvg => everywhere(quotient::replaced(p, other), Reason::Quotient),
        Method::Copy => other_result(p),
        Method::Table => everywhere(0.0, Reason::Coincidence),
    }
}

/// How often two shares of float sums are equal: as many units, of the same size and sign, or fewer of larger ones.
fn equal_shares(p: &Params) -> f64 {
    let sizes = ((p.target_and & p.mask & !p.sign) >> p.fraction_bits) as f64 + 1.0;
    let range = p.pair_range as f64;
    let equal = |apart: i32| {
        let sizes = (sizes - f64::from(apart.abs())).max(0.0) / (sizes * sizes);
        sizes * (range / 2f64.powi(apart.abs())).floor() / (range * range)
    };
    (-63..=63).map(equal).sum::<f64>() / 2.0
}

/// How often a share of another element is too small to change a sum that lacked one: below a quarter of its unit.
fn absorbed_shares(p: &Params) -> f64 {
    let range = p.pair_range as f64;
    let often = |apart: u32| (2f64.powi(apart as i32 - 2)).floor().min(range) / range;
    (2..64).map(|apart| often(apart) * (smaller_by(p, apart) - smaller_by(p, apart + 1))).sum()
}

/// How often one of two random targets is at least so many powers of two below the other.
fn smaller_by(p: &Params, apart: u32) -> f64 {
    let sizes = ((p.target_and & p.mask & !p.sign) >> p.fraction_bits) as f64 + 1.0;
    let left = (sizes - f64::from(apart)).max(0.0);
    left * (left + 1.0) / 2.0 / (sizes * sizes)
}
