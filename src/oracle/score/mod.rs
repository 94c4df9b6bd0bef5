//! The oracle's detection score: how much of each kind of fault a check would see, measured by planting it.
//!
//! For one op, dtype and number of ranks, every [`Mutation`] is applied to real results, and the share that the
//! comparison rejects is counted: per element, and per block of 1 KiB in which the fault covers every element. Faults
//! in one rank's contribution are counted for each rank, so that the worst one shows. Where an average may be formed in
//! several ways, a fault counts as seen only if all of them show it. [`bound`] says what could be seen at best.

pub mod bound;
pub mod mutation;
pub mod published;

pub use bound::{Bound, Reason};
pub use mutation::{BLOCK_BYTES, Mutation, SHIFTS};
pub use published::{Gap, Published};

use super::Plan;
use super::combine::Element;
use super::hash::mix64;
use crate::case::{DType, Op, Primitive};
use mutation::Subject;

/// The numbers of ranks that the score is taken at.
pub const RANKS: [u32; 8] = [2, 3, 4, 8, 16, 32, 64, 1024];

/// How much is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// Blocks of 1 KiB.
    pub blocks: u64,
    /// Elements of each block that count for the share per element.
    pub elements: u64,
    /// Ranks whose contributions are mutated, evenly spread over all.
    pub ranks: u32,
}

impl Effort {
    /// For the command: every rank.
    pub const FULL: Effort = Effort { blocks: 16, elements: 64, ranks: u32::MAX };
    /// For tests on every change.
    pub const QUICK: Effort = Effort { blocks: 4, elements: 32, ranks: 8 };
}

/// The score of one mutation.
#[derive(Debug, Clone, PartialEq)]
pub struct Score {
    /// `None` for data movement.
    pub op: Option<Op>,
    /// The element type.
    pub dtype: DType,
    /// Ranks.
    pub ranks: u32,
    /// The fault.
    pub mutation: Mutation,
    /// Share of elements at which it shows, averaged over ranks.
    pub element: f64,
    /// The same for the worst rank.
    pub element_worst: f64,
    /// Elements behind it, for each rank; the ranks of one element go together.
    pub samples: u64,
    /// Share of blocks in which it shows, averaged over ranks.
    pub block: f64,
    /// The same for the worst rank.
    pub block_worst: f64,
    /// Blocks behind it, for each rank.
    pub block_samples: u64,
    /// What can be had.
    pub bound: Bound,
}

impl Score {
    /// Whether fewer blocks show the fault than theory allows.
    ///
    /// Where every block can show it, every one must. Where only some can, chance may take four standard deviations.
    pub fn misses_blocks(&self) -> bool {
        self.block < self.bound.block - self.slack(self.bound.block, self.block_samples) - 1e-9
    }

    /// Whether fewer elements show the fault than the inputs are built for: by more than one in a hundred, and more than
    /// four standard deviations of chance.
    pub fn misses_elements(&self) -> bool {
        self.element < self.bound.chosen - 0.01 - self.slack(self.bound.chosen, self.samples)
    }

    fn slack(&self, share: f64, samples: u64) -> f64 {
        let samples = samples.max(1) as f64;
        // where a miss is rare, one or two of them are no pattern
        let rare = if share < 1.0 { 2.0 / samples } else { 0.0 };
        4.0 * (share * (1.0 - share) / samples).sqrt() + rare
    }
}

/// Counts of one mutation in one rank's contribution, or in the output.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    elements: u64,
    seen: f64,
    blocks: u64,
    blocks_seen: u64,
    /// The block at hand has shown it.
    shown: bool,
}

/// What can be seen of every mutation, without measuring it.
pub fn bounds(op: Option<Op>, dtype: DType, ranks: u32) -> Vec<(Mutation, Bound)> {
    let plan = Plan::new(0, Primitive::AllReduce, op, dtype, ranks, 0);
    Mutation::all(op.is_some(), dtype).into_iter().map(|m| (m, bound::bound(&plan, m))).collect()
}

/// Scores every mutation. The seed picks the inputs; the score hardly depends on it.
pub fn score(seed: u64, op: Option<Op>, dtype: DType, ranks: u32, effort: &Effort) -> Vec<Score> {
    let primitive = if op.is_some() { Primitive::AllReduce } else { Primitive::AllGather };
    let plan = |epoch| Plan::new(seed, primitive, op, dtype, ranks, epoch);
    let subject = Subject { plan: plan(1), earlier: plan(0) };
    let reduces = subject.reduces();
    let mutated: Vec<u32> = spread(ranks, effort.ranks);
    let mut tallies: Vec<(Mutation, Vec<Tally>)> = Mutation::all(reduces, dtype)
        .into_iter()
        .map(|m| (m, vec![Tally::default(); if m.hits_a_rank(reduces) { mutated.len() } else { 1 }]))
        .collect();
    for block in 0..effort.blocks {
        one_block(&subject, seed, block, &mutated, effort, &mut tallies);
    }
    tallies
        .into_iter()
        .map(|(mutation, tallies)| summary(op, dtype, ranks, mutation, &tallies, &subject.plan))
        .collect()
}

/// Plants all mutations in one block.
fn one_block(
    subject: &Subject,
    seed: u64,
    block: u64,
    mutated: &[u32],
    effort: &Effort,
    tallies: &mut [(Mutation, Vec<Tally>)],
) {
    let dtype = subject.plan.dtype();
    let elements = BLOCK_BYTES / dtype.size();
    let step = (elements / effort.elements).max(1);
    // blocks all over what a large buffer holds, but not the very first, which has none before it
    let start = (1 + mix64(seed ^ block) % (1 << 24)) * elements;
    // data movement has no result of all ranks: a block belongs to one of them
    let owner = (block % u64::from(subject.plan.params().ranks)) as u32;
    let ranges: Vec<_> = tallies.iter().map(|(mutation, _)| mutation.range(dtype, block)).collect();
    for (_, tallies) in tallies.iter_mut() {
        tallies.iter_mut().for_each(|tally| tally.shown = false);
    }
    for offset in 0..elements {
        let index = start + offset;
        // at random, so that no period of the positions hides any
        let counted = mix64(seed ^ index).is_multiple_of(step);
        let mut element: Option<Element<'_>> = None;
        for ((mutation, tallies), range) in tallies.iter_mut().zip(&ranges) {
            if !range.contains(&offset) {
                continue;
            }
            let counted = counted || range.end - range.start < elements;
            if !counted && tallies.iter().all(|tally| tally.shown) {
                continue;
            }
            if subject.reduces() && element.is_none() && needs_parts(*mutation, &subject.plan) {
                element = Some(Element::new(&subject.plan, index));
            }
            for (place, tally) in tallies.iter_mut().enumerate() {
                if !counted && tally.shown {
                    continue;
                }
                let seen = match (&element, mutation.hits_a_rank(subject.reduces())) {
                    (Some(element), true) => {
                        let rank = mutated.get(place).copied().unwrap_or(0);
                        f64::from(u8::from(subject.contribution_seen(*mutation, element, rank, index)))
                    }
                    _ => subject.output_seen(*mutation, element.as_ref(), owner, index),
                };
                if counted {
                    tally.elements += 1;
                    tally.seen += seen;
                }
                tally.shown |= seen > 0.0;
            }
        }
    }
    for ((_, tallies), range) in tallies.iter_mut().zip(&ranges) {
        if !range.is_empty() {
            for tally in tallies {
                tally.blocks += 1;
                tally.blocks_seen += u64::from(tally.shown);
            }
        }
    }
}

/// Mutations of the output alone need no rank's input.
fn needs_parts(mutation: Mutation, plan: &Plan) -> bool {
    let rounds = mutation == Mutation::BitFlip && plan.params().tolerance > 0;
    mutation.hits_a_rank(true) || rounds || matches!(mutation, Mutation::Narrowed(_))
}

fn summary(op: Option<Op>, dtype: DType, ranks: u32, mutation: Mutation, tallies: &[Tally], plan: &Plan) -> Score {
    let share = |seen: f64, all: u64| if all == 0 { 1.0 } else { seen / all as f64 };
    let sum = |f: &dyn Fn(&Tally) -> f64| tallies.iter().map(f).sum::<f64>();
    let least = |f: &dyn Fn(&Tally) -> f64| tallies.iter().map(f).fold(1.0, f64::min);
    let (elements, blocks) = tallies.iter().fold((0, 0), |(e, b), t| (e + t.elements, b + t.blocks));
    let most = |f: &dyn Fn(&Tally) -> u64| tallies.iter().map(f).max().unwrap_or(0);
    Score {
        op,
        dtype,
        ranks,
        mutation,
        element: share(sum(&|t| t.seen), elements),
        element_worst: least(&|t| share(t.seen, t.elements)),
        samples: most(&|t| t.elements),
        block: share(sum(&|t| t.blocks_seen as f64), blocks),
        block_worst: least(&|t| share(t.blocks_seen as f64, t.blocks)),
        block_samples: most(&|t| t.blocks),
        bound: bound::bound(plan, mutation),
    }
}

/// At most `most` of the ranks, evenly spread.
fn spread(ranks: u32, most: u32) -> Vec<u32> {
    let count = ranks.min(most.max(1));
    (0..count).map(|k| (u64::from(k) * u64::from(ranks) / u64::from(count)) as u32).collect()
}
