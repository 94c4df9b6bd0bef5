//! The faults that the score plants, each in every rank's contribution or in the output.

use std::fmt;

use crate::case::DType;
use crate::oracle::combine::{Change, Element, Results, contribution};
use crate::oracle::{Method, Plan};

/// Bytes of a block: what the score calls a block, and what two swapped blocks measure.
pub const BLOCK_BYTES: u64 = 1024;

/// Distances at which data are taken from another element.
pub const SHIFTS: [u64; 4] = [1, 8, 256, 1024];

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mutation {
    /// One rank's contribution left out.
    Missing,
    /// Taken twice.
    Doubled,
    /// That of the element so many further on in its place.
    OtherElement(u64),
    /// The next rank's input in its place.
    OtherRank,
    /// That of the previous iteration in its place.
    PreviousContribution,
    /// The result of the element so many further on.
    Shifted(u64),
    /// The result of the same element of the neighbouring block.
    SwappedBlocks,
    /// The result of the previous iteration.
    Previous,
    /// What was there before: the poison.
    Unwritten,
    /// One bit flipped, each in turn.
    BitFlip,
    /// Unwritten from somewhere in the block on.
    Tail,
    /// The elements behind the last whole 16 bytes are those of the 16 bytes before.
    LastVector,
    /// Accumulated in a narrower type.
    Narrowed(DType),
}

impl Mutation {
    /// Those that exist for a dtype; `reduces` is false for primitives that only move data.
    pub fn all(reduces: bool, dtype: DType) -> Vec<Mutation> {
        let mut all = Vec::new();
        if reduces {
            all.extend([Mutation::Missing, Mutation::Doubled]);
        }
        all.extend(SHIFTS.map(Mutation::OtherElement).into_iter().filter(|_| reduces));
        all.push(Mutation::OtherRank);
        all.extend([Mutation::PreviousContribution].into_iter().filter(|_| reduces));
        all.extend(SHIFTS.map(Mutation::Shifted));
        all.extend([
            Mutation::SwappedBlocks,
            Mutation::Previous,
            Mutation::Unwritten,
            Mutation::BitFlip,
            Mutation::Tail,
            Mutation::LastVector,
        ]);
        if let (true, Some(format)) = (reduces, dtype.float()) {
            let narrower = [DType::Float, DType::Half, DType::Bfloat16].into_iter();
            all.extend(
                narrower
                    .filter(|narrow| narrow.float().is_some_and(|n| n.precision() < format.precision()))
                    .map(Mutation::Narrowed),
            );
        }
        all
    }

    /// Whether it is one rank's contribution that is wrong, so that each rank is scored.
    pub fn hits_a_rank(self, reduces: bool) -> bool {
        match self {
            Mutation::Missing
            | Mutation::Doubled
            | Mutation::OtherElement(_)
            | Mutation::OtherRank
            | Mutation::PreviousContribution => reduces,
            _ => false,
        }
    }

    /// Elements of a block at which it is present.
    pub fn range(self, dtype: DType, block: u64) -> std::ops::Range<u64> {
        let elements = BLOCK_BYTES / dtype.size();
        match self {
            // an odd place that is another one in each block
            Mutation::Tail => (block.wrapping_mul(0x9e37_79b9) >> 3) % elements..elements,
            // one element short of a whole vector
            Mutation::LastVector => 0..(16 / dtype.size()).saturating_sub(1),
            _ => 0..elements,
        }
    }
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Mutation::Missing => "contribution missing".to_owned(),
            Mutation::Doubled => "contribution twice".to_owned(),
            Mutation::OtherElement(k) => format!("contribution of i+{k}"),
            Mutation::OtherRank => "next rank's slot".to_owned(),
            Mutation::PreviousContribution => "stale contribution".to_owned(),
            Mutation::Shifted(k) => format!("result of i+{k}"),
            Mutation::SwappedBlocks => "blocks swapped".to_owned(),
            Mutation::Previous => "stale result".to_owned(),
            Mutation::Unwritten => "not written".to_owned(),
            Mutation::BitFlip => "one bit flipped".to_owned(),
            Mutation::Tail => "tail not written".to_owned(),
            Mutation::LastVector => "last vector wrong".to_owned(),
            Mutation::Narrowed(to) => format!("summed in {to}"),
        };
        f.pad(&text)
    }
}

/// A plan with the one before it: what mutations draw on.
#[derive(Debug)]
pub struct Subject {
    /// The inputs and expected values under test.
    pub plan: Plan,
    /// Those of the previous iteration.
    pub earlier: Plan,
}

impl Subject {
    /// Whether the op combines ranks.
    pub fn reduces(&self) -> bool {
        self.plan.params().method != Method::Copy
    }

    /// What is expected; for data movement, of `rank`'s data.
    pub fn expected(&self, rank: u32, index: u64) -> u64 {
        value(&self.plan, rank, index)
    }

    /// Whether a checker would see the mutation of one rank's contribution at this element.
    pub fn contribution_seen(&self, mutation: Mutation, element: &Element<'_>, rank: u32, index: u64) -> bool {
        let ranks = self.plan.params().ranks;
        let change = match mutation {
            Mutation::Missing => Change::Missing,
            Mutation::Doubled => Change::Doubled,
            Mutation::OtherElement(k) => Change::Replaced(contribution(&self.plan, rank, rank, index + k)),
            Mutation::OtherRank => Change::Replaced(contribution(&self.plan, rank, (rank + 1) % ranks, index)),
            _ => Change::Replaced(contribution(&self.earlier, rank, rank, index)),
        };
        let expected = self.plan.reduced(index);
        element.changed(rank, change).is_none_or(|results| !results.passes(&self.plan, expected))
    }

    /// Which share of a mutation of the output a checker would see at this element: 0 or 1, or a share of all bits.
    pub fn output_seen(&self, mutation: Mutation, element: Option<&Element<'_>>, rank: u32, index: u64) -> f64 {
        let (plan, ranks) = (&self.plan, self.plan.params().ranks);
        let expected = self.expected(rank, index);
        let block = BLOCK_BYTES / plan.dtype().size();
        let wrong = match mutation {
            Mutation::OtherRank => value(plan, (rank + 1) % ranks, index),
            Mutation::Shifted(k) => value(plan, rank, index + k),
            Mutation::SwappedBlocks => value(plan, rank, index ^ block),
            Mutation::Previous => value(&self.earlier, rank, index),
            Mutation::LastVector => value(plan, rank, index.wrapping_sub(16 / plan.dtype().size())),
            Mutation::BitFlip => return self.flips_seen(element, expected),
            Mutation::Narrowed(to) => {
                let results = to.float().and_then(|format| element?.narrowed(format, 8 * to.size() as u32));
                return seen(results.is_none_or(|results| !results.passes(plan, expected)));
            }
            _ => !expected & plan.params().mask,
        };
        seen(!plan.accepts(wrong, expected))
    }

    /// The share of bits whose flip shows, whatever of its possible bits the right result has.
    fn flips_seen(&self, element: Option<&Element<'_>>, expected: u64) -> f64 {
        let bits = 8 * self.plan.params().width;
        let hidden =
            |results: &Results, bit: u32| results.codes().any(|code| self.plan.accepts(code ^ 1 << bit, expected));
        let shown = match element {
            Some(element) if self.plan.params().tolerance > 0 => {
                let results = element.whole();
                (0..bits).filter(|bit| !hidden(&results, *bit)).count()
            }
            _ => (0..bits).filter(|bit| !self.plan.accepts(expected ^ 1 << bit, expected)).count(),
        };
        shown as f64 / f64::from(bits)
    }
}

fn seen(yes: bool) -> f64 {
    if yes { 1.0 } else { 0.0 }
}

fn value(plan: &Plan, rank: u32, index: u64) -> u64 {
    if plan.params().method == Method::Copy { plan.input(rank, index) } else { plan.reduced(index) }
}
