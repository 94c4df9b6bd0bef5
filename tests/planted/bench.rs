//! One rank's output, right as the collective left it, and damage to a block of it.

use collcheck::backend::host::HostStation;
use collcheck::backend::{Buffer, Content, Placement, Region, Station, Verdict};
use collcheck::case::primitive::{Segment, Source};
use collcheck::case::{Case, Kind, Op};
use collcheck::oracle::Plan;
use collcheck::oracle::forensics::{Explanation, Fault, Scene, explain};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::host_support::{Trial, backend, on_all_ranks};

#[path = "fold.rs"]
mod fold;
pub use fold::fold;

/// The seed of inputs, as in [`Trial::new`].
const SEED: u64 = 11;

/// What earlier epochs are counted from.
const EPOCH: u64 = 9;

/// One rank's part of a case, for planting faults.
pub struct Bench<'a> {
    pub station: &'a mut HostStation,
    pub case: &'a Case,
    pub plan: Plan,
    pub segments: Vec<Segment>,
    pub rank: u32,
    pub ranks: u32,
    /// What was planted, for messages.
    pub context: String,
}

/// A run of elements of the output.
#[derive(Debug, Clone, Copy)]
pub struct Block {
    pub start: u64,
    pub len: u64,
}

impl Block {
    pub fn indices(self) -> std::ops::Range<u64> {
        self.start..self.start + self.len
    }
}

/// A block of a stretch of elements, at least `least` long, and not too near the ends for shifts of `margin`.
pub fn block(rng: &mut StdRng, from: u64, to: u64, least: u64, margin: u64) -> Block {
    let start = rng.random_range(from + margin..to - margin - least);
    Block { start, len: rng.random_range(least..=(to - margin - start).min(4 * least)) }
}

/// Runs the collective on all ranks, and then `work` on one of them, drawn at random.
pub fn on_one_rank(case: &Case, seed: u64, work: impl Fn(&mut Bench<'_>, &mut StdRng) + Sync) {
    let mut rng = StdRng::seed_from_u64(seed);
    let ranks = [3u32, 4, 5, 8][rng.random_range(0..4usize)];
    let victim = rng.random_range(0..ranks);
    on_all_ranks(&backend(ranks), |rank, station| {
        let trial = Trial::new(case, ranks, rank, Placement::OutOfPlace, EPOCH);
        let right = trial.run(station).unwrap();
        assert_eq!(right.output.wrong, 0, "{case}: wrong before any fault");
        if rank == victim {
            let mut rng = StdRng::seed_from_u64(seed + 1);
            work(&mut Bench::new(station, case, rank, ranks), &mut rng);
        }
    });
}

impl<'a> Bench<'a> {
    pub fn new(station: &'a mut HostStation, case: &'a Case, rank: u32, ranks: u32) -> Bench<'a> {
        let plan = Plan::of(case, SEED, ranks, EPOCH);
        let segments = case.primitive.unit().expected(&case.workload(ranks), rank);
        Bench { station, case, plan, segments, rank, ranks, context: String::new() }
    }

    /// The same case so many epochs before.
    pub fn earlier(&self, epochs: u64) -> Plan {
        Plan::of(self.case, SEED, self.ranks, EPOCH - epochs)
    }

    /// What should be at an index.
    pub fn expected(&self, index: u64) -> u64 {
        let segment = self.segments.iter().find(|s| s.start <= index && index < s.start + s.len).unwrap();
        let offset = index - segment.start;
        match segment.source {
            Source::Reduced { element } => self.plan.reduced(element + offset),
            Source::Rank { rank, element } => self.plan.input(rank, element + offset),
        }
    }

    fn content(&self, segment: &Segment, offset: u64) -> Content {
        match segment.source {
            Source::Reduced { element } => Content::Reduced { element: element + offset },
            Source::Rank { rank, element } => Content::Input { rank, element: element + offset },
        }
    }

    /// Writes what should be there, to the bit.
    pub fn restore(&mut self) {
        for segment in self.segments.clone() {
            let content = self.content(&segment, 0);
            let plan = self.plan.clone();
            self.fill(Block { start: segment.start, len: segment.len }, &plan, content);
        }
    }

    /// Writes a content into a block of the output.
    pub fn fill(&mut self, block: Block, plan: &Plan, content: Content) {
        let region = Region { buffer: Buffer::Recv, start: block.start, len: block.len, plan, content, base: 0 };
        self.station.fill(0, &region).unwrap();
    }

    /// Changes single elements of a restored output: `value` has index and expected bits.
    pub fn write(&mut self, indices: impl Iterator<Item = u64>, value: impl Fn(u64, u64) -> u64) {
        let dtype = self.case.dtype;
        for index in indices {
            let expected = self.expected(index);
            let actual = value(index, expected) & dtype.mask();
            self.station.tamper(0, Buffer::Recv, dtype, index, actual ^ expected).unwrap();
        }
    }

    /// Checks the whole output, and says what is wrong with it.
    pub fn explain(&mut self) -> Option<Explanation> {
        for segment in &self.segments {
            let content = self.content(segment, 0);
            let Segment { start, len, .. } = *segment;
            let region = Region { buffer: Buffer::Recv, start, len, plan: &self.plan, content, base: 0 };
            self.station.check(0, &region).unwrap();
        }
        let verdict: Verdict = self.station.verdict(0, self.case.dtype).unwrap();
        explain(&Scene { plan: &self.plan, segments: &self.segments, rank: self.rank }, &verdict)
    }

    /// Asserts that just this fault is named, and explains all that is wrong; another that gives the same values may
    /// stand in front of it.
    pub fn names(&mut self, fault: Fault) {
        let context = format!("{} on rank {} of {}, {}", self.case, self.rank, self.ranks, self.context);
        let Some(found) = self.explain() else { panic!("{context}: {fault} does not show") };
        named(&found, fault, &context);
        self.restore();
    }
}

/// Asserts the same of an explanation.
pub fn named(found: &Explanation, fault: Fault, context: &str) {
    let told = format!("{context}: planted {fault}, told {found}; {}", found.shape);
    assert!(found.findings.len() == 1 && found.unexplained == 0, "{told}");
    mostly_named(found, fault, context);
}

/// Asserts that this fault is named first, and explains four in five: in short types a sum of inputs that were not made for
/// each other rounds by more than forensics allows for.
pub fn mostly_named(found: &Explanation, fault: Fault, context: &str) {
    let told = format!("{context}: planted {fault}, told {found}; {}", found.shape);
    let Some(finding) = found.findings.first() else { panic!("{told}") };
    assert!(5 * finding.covers >= 4 * found.shape.sampled, "{told}");
    assert!(finding.fault == fault || finding.alternatives.contains(&fault), "{told}");
}
