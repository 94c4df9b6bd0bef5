//! Faults in one rank's contribution to a reduction: missing, twice, or another one in its place.

use super::candidate::Candidate;
use super::clue::{Clue, Scene};
use super::fault::Fault;
use crate::case::FloatFormat;
use crate::case::primitive::Source;
use crate::oracle::combine::{Change, Element, Value, contribution};
use crate::oracle::{Method, Plan};

/// Clues that ranks are picked by, before all clues are tried.
const PROBES: usize = 16;

/// Clues that the many ways of replacing a contribution are picked by.
const FEW: usize = 4;

/// Faults of one kind that all clues are tried on. Ranks may be many alike: where all shares are small, only all clues
/// together tell them apart.
const KEPT: usize = 1024;

/// Last places by which a sum may be off that contributions were added to which it was not made for.
const ROUNDING: u64 = 2;

/// Distances that contributions are taken from.
const DISTANCES: u32 = 20;

/// Earlier runs that contributions are taken from.
const EPOCHS: u64 = 2;

/// The clues of reductions, with all contributions to each.
pub(super) struct Contributions<'a> {
    plan: &'a Plan,
    clues: &'a [Clue],
    elements: Vec<Option<Element<'a>>>,
    bits: f64,
}

impl<'a> Contributions<'a> {
    /// Makes all inputs of all ranks for every clue.
    pub fn new(scene: &Scene<'a>, clues: &'a [Clue]) -> Contributions<'a> {
        let plan = scene.plan;
        let element = |clue: &Clue| match clue.source {
            Source::Reduced { element } => Some(Element::new(plan, element)),
            Source::Rank { .. } => None,
        };
        let p = plan.params();
        let bits = match p.method {
            // a quotient moves by one or two
            Method::IntAvg if p.width == 1 => 1.0,
            // a product loses a power of two of either sign, or only a sign
            Method::FloatProd if p.owners + 2 * p.pairs == p.ranks => (4.0 * p.pair_range as f64).log2(),
            Method::FloatProd => 1.0,
            // few values of many, within the rounding
            _ => f64::from(8 * p.width - 3),
        };
        Contributions { plan, clues, elements: clues.iter().map(element).collect(), bits }
    }

    /// One rank's contribution missing, or counted twice.
    pub fn lost_or_doubled(&self) -> Vec<Candidate> {
        let ranks = self.plan.params().ranks;
        let probes = self.probes(PROBES);
        let mut found = Vec::new();
        for (change, fault) in
            [(Change::Missing, Fault::Missing as fn(u32) -> Fault), (Change::Doubled, Fault::Doubled)]
        {
            let hits =
                (0..ranks).map(|rank| (probes.iter().filter(|&&at| self.explains(at, rank, change)).count(), rank));
            for rank in best(hits.collect(), KEPT) {
                found.push(self.candidate(fault(rank), f64::from(ranks), |at| self.explains(at, rank, change)));
            }
        }
        found
    }

    /// Another value in the place of one rank's contribution.
    pub fn replaced(&self) -> Vec<Candidate> {
        let ranks = self.plan.params().ranks;
        let mut found = Vec::new();
        found.extend(self.family(slots(ranks), &|fault, at| {
            let Fault::Slot { rank, read } = fault else { return None };
            Some((rank, contribution(self.plan, rank, read, self.clues.get(at)?.element())))
        }));
        let earlier: Vec<Option<Plan>> = (1..=EPOCHS).map(|epochs| self.plan.before(epochs)).collect();
        let stale =
            (0..ranks).flat_map(|rank| (1..=EPOCHS).map(move |epochs| Fault::StaleContribution { rank, epochs }));
        found.extend(self.family(stale.collect(), &|fault, at| {
            let Fault::StaleContribution { rank, epochs } = fault else { return None };
            let plan = earlier.get(epochs as usize - 1)?.as_ref()?;
            Some((rank, contribution(plan, rank, rank, self.clues.get(at)?.element())))
        }));
        let distances: Vec<i64> = (0..=DISTANCES).flat_map(|power| [1 << power, -(1 << power)]).collect();
        let moved = (0..ranks).flat_map(|rank| distances.iter().map(move |&by| Fault::MovedContribution { rank, by }));
        found.extend(self.family(moved.collect(), &|fault, at| {
            let Fault::MovedContribution { rank, by } = fault else { return None };
            let element = self.clues.get(at)?.element().checked_add_signed(by)?;
            Some((rank, contribution(self.plan, rank, rank, element)))
        }));
        found
    }

    /// Tries faults that put a value in a contribution's place on a few clues, and the best of them on all.
    fn family(&self, faults: Vec<Fault>, replacement: &dyn Fn(Fault, usize) -> Option<(u32, Value)>) -> Vec<Candidate> {
        let tried = faults.len() as f64;
        let explains = |fault: Fault, at: usize| {
            replacement(fault, at).is_some_and(|(rank, value)| self.explains(at, rank, Change::Replaced(value)))
        };
        let probes = self.probes(FEW);
        let hits = faults.into_iter().map(|fault| (probes.iter().filter(|&&at| explains(fault, at)).count(), fault));
        best(hits.collect(), KEPT)
            .into_iter()
            .map(|fault| self.candidate(fault, tried, |at| explains(fault, at)))
            .collect()
    }

    fn candidate(&self, fault: Fault, tried: f64, explains: impl Fn(usize) -> bool) -> Candidate {
        Candidate { fault, explains: (0..self.clues.len()).map(explains).collect(), bits: self.bits, tried }
    }

    /// Whether the fault gives what was found.
    fn explains(&self, at: usize, rank: u32, change: Change) -> bool {
        let (Some(clue), Some(Some(element))) = (self.clues.get(at), self.elements.get(at)) else { return false };
        // what is left of exact sums is exact, what is added to them depends on the order; a winner is never rounded
        let adds = !matches!(self.plan.params().method, Method::FloatMin | Method::FloatMax);
        let format = self.plan.dtype().float().filter(|_| adds && change != Change::Missing);
        let near = |code: u64| {
            let Some(format) = format else { return false };
            clue.actual.abs_diff(code) <= ROUNDING || self.cancels(&format, clue.actual, code, element, change)
        };
        // a fault that leaves this element right, as a loser that counts twice, does not explain why it is wrong
        let shows = |code: u64| !self.plan.accepts(code, clue.expected);
        let gives = |code: u64| shows(code) && (near(code) || self.plan.accepts(clue.actual, code));
        element.changed(rank, change).is_some_and(|results| results.codes().any(gives))
    }

    /// Whether a sum that nearly cancels may be off by that much: by last places of its largest part, not its own. Types of
    /// less than 4 bytes have too few bits for that.
    fn cancels(&self, format: &FloatFormat, actual: u64, code: u64, element: &Element<'_>, change: Change) -> bool {
        let p = self.plan.params();
        let sums = matches!(p.method, Method::FloatSum | Method::FloatAvg);
        if !sums || p.width < 4 {
            return false;
        }
        let replacement = if let Change::Replaced(value) = change { Some(value) } else { None };
        let parts = element.parts().iter().copied().chain(replacement);
        let largest = parts.map(|part| if let Value::Real(x) = part { x.abs() } else { 0.0 }).fold(0.0, f64::max);
        let last_place = largest * 2f64.powi(1 - format.precision() as i32);
        let width = 8 * p.width;
        let off = (format.decode(actual, width) - format.decode(code, width)).abs();
        off <= last_place * ROUNDING as f64 * f64::from(p.ranks).log2().max(1.0)
    }

    /// Some clues, spread over all.
    fn probes(&self, most: usize) -> Vec<usize> {
        let step = self.clues.len().div_ceil(most).max(1);
        (0..self.clues.len()).step_by(step).collect()
    }
}

/// Neighbours and partners that algorithms pair ranks with.
fn slots(ranks: u32) -> Vec<Fault> {
    let mut faults = Vec::new();
    for rank in 0..ranks {
        let mut partners: Vec<u32> = (0..ranks.ilog2() + 1)
            .flat_map(|power| {
                let step = (1u32 << power) % ranks;
                [(rank + step) % ranks, (rank + ranks - step) % ranks, rank ^ 1 << power]
            })
            .filter(|read| *read < ranks && *read != rank)
            .collect();
        partners.sort_unstable();
        partners.dedup();
        faults.extend(partners.into_iter().map(|read| Fault::Slot { rank, read }));
    }
    faults
}

/// Those with the most hits, and those with half as many: two faults may share the clues.
fn best<T>(mut hits: Vec<(usize, T)>, most: usize) -> Vec<T> {
    hits.retain(|(hits, _)| *hits > 0);
    hits.sort_by_key(|(hits, _)| std::cmp::Reverse(*hits));
    let least = hits.first().map_or(1, |(hits, _)| hits.div_ceil(4));
    hits.into_iter().filter(|(hits, _)| *hits >= least).take(most).map(|(_, what)| what).collect()
}
