//! Faults that slow things down: the curve with the fault against the curve without.
//!
//! A curve is three sizes: the smallest, one in the middle, the case's own. What a size may take is what it took without the
//! fault, before it and after it: so whatever else the machine does is in the range. The best of several launches is
//! compared, as a machine that is busy makes some of them slow, and seldom all.

use std::time::Instant;

use super::{Over, Seen, Trial};
use crate::case::{Bytes, Case};
use crate::fault::{Detector, End, Name, Order, Sighting};
use crate::fleet::inquest::last_to_call;
use crate::run::result::{CaseResult, Outcome};

/// How many times as long as without the fault a launch must take to count as slower.
const SLOWER: f64 = 2.0;

/// How many times as long a launch is to take where the fault strikes: far from the bound.
const STRIKES: f64 = 5.0;

/// Where it does not, at most so much of the time is added.
const SPARES: f64 = 0.2;

/// Added on top, as the shortest times are no longer than a clock's or a scheduler's whims.
const EXTRA_US: f64 = 500.0;

/// Three sizes, ascending.
type Three<T> = [T; 3];

/// How much later each size is to be, to be slower at this end only; `None` where the sizes are too much alike for that.
fn delays(end: End, sizes: Three<u64>, us: Three<f64>) -> Option<Three<f64>> {
    let [small, middle, large] = us;
    Some(match end {
        End::Small | End::Mixed => {
            let both = SPARES * large;
            return (both >= STRIKES * small).then_some([both; 3]);
        }
        End::Middle => [0.0, STRIKES * middle + EXTRA_US, 0.0],
        End::Large => sizes.map(|bytes| STRIKES * large * bytes as f64 / sizes[2].max(1) as f64),
        End::All => us.map(|us| STRIKES * us + EXTRA_US),
    })
}

/// Which sizes are slower with the fault than they ever were without.
fn slower(with: Three<f64>, before: Three<f64>, after: Three<f64>) -> Three<bool> {
    let bounds = [0, 1, 2].map(|at: usize| SLOWER * before[at].max(after[at]));
    [with[0] > bounds[0], with[1] > bounds[1], with[2] > bounds[2]]
}

/// The best of the timed launches, out of place.
fn best_us(result: &CaseResult) -> Option<f64> {
    let time = result.placements.first()?.time_us?;
    Some(time.min)
}

impl Trial<'_, '_> {
    pub(super) fn curve(&mut self) -> Result<Seen, Over> {
        let of = |bytes: u64| Case { size: Bytes(bytes.max(self.sound.dtype.size())), ..self.sound.clone() };
        let large = self.sound.size.0;
        let cases = [of(8), of((8.0 * large as f64).sqrt() as u64), of(large)];
        let sizes = [cases[0].size.0, cases[1].size.0, large];
        let end = match self.kind.fault().expects().called {
            crate::fault::Called::Curve(end) => end,
            _ => End::All,
        };
        let before = self.times(&cases, "before the fault")?;
        let Some(delays) = delays(end, sizes, before) else {
            let why = format!(
                "{:.0} us for {} and {:.0} us for {} are too near each other to tell the ends of the curve apart: \
                 take a larger size",
                before[0], cases[0].size, before[2], cases[2].size
            );
            return Err(self.over(Outcome::Skip, why));
        };
        let start = Instant::now();
        let (mut with, mut armed) = ([0.0; 3], 0);
        let mut late: Vec<Option<(u32, f64)>> = Vec::new();
        for ((case, delay), us) in cases.iter().zip(delays).zip(&mut with) {
            let order = Order { delay_us: delay as u32, ..self.order() };
            let request = self.request(case, Some(order));
            let result = self.passes(&request, "that is slow")?;
            let witnesses = self.session.witnesses();
            armed += self.times_armed(&witnesses, &request).0;
            late.push(last_to_call(&witnesses, request.epoch));
            *us = best_us(&result).unwrap_or(0.0);
        }
        let seconds = start.elapsed().as_secs_f64();
        let after = self.times(&cases, "after the fault")?;
        let sighting = End::of(slower(with, before, after)).map(|end| {
            let excess: Vec<f64> = with.iter().zip(before).map(|(with, before)| with - before).collect();
            let figures: Vec<String> = cases
                .iter()
                .zip(before.iter().zip(with))
                .map(|(case, (before, with))| format!("{} {before:.0} -> {with:.0} us", case.size))
                .collect();
            let culprits: Vec<u32> = culprit(&late, &excess).into_iter().collect();
            Sighting { by: Detector::Performance, name: Name::Curve(end), culprits, says: figures.join(", ") }
        });
        Ok(Seen { armed, sightings: sighting.into_iter().collect(), verdict: None, seconds })
    }

    fn times(&mut self, cases: &Three<Case>, when: &str) -> Result<Three<f64>, Over> {
        let mut all = [0.0; 3];
        for (case, us) in cases.iter().zip(&mut all) {
            let request = self.request(case, None);
            let result = self.passes(&request, when)?;
            *us = best_us(&result).unwrap_or(0.0);
        }
        Ok(all)
    }
}

/// The rank that was the last to call at every size, by at least half of what was lost there.
fn culprit(late: &[Option<(u32, f64)>], excess_us: &[f64]) -> Option<u32> {
    let (first, _) = (*late.first()?)?;
    let same = |(late, excess): (&Option<(u32, f64)>, &f64)| {
        late.is_some_and(|(rank, seconds)| rank == first && seconds * 1e6 >= excess / 2.0)
    };
    late.iter().zip(excess_us).all(same).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Three<u64> = [8, 5792, 4 << 20];
    const US: Three<f64> = [20.0, 100.0, 5000.0];

    #[test]
    fn each_fault_moves_its_own_end_of_the_curve_and_no_other() {
        for end in [End::Small, End::Middle, End::Large, End::All] {
            let delays = delays(end, SIZES, US).unwrap();
            let with = [0, 1, 2].map(|at: usize| US[at] + delays[at]);
            assert_eq!(End::of(slower(with, US, US)), Some(end), "{with:?}");
        }
    }

    #[test]
    fn a_flat_curve_has_no_ends() {
        assert_eq!(delays(End::Small, SIZES, [900.0, 950.0, 1000.0]), None);
    }

    #[test]
    fn what_the_controls_took_is_no_loss() {
        assert_eq!(slower([90.0, 0.0, 0.0], US, [50.0, 100.0, 5000.0]), [false; 3]);
        assert_eq!(slower([110.0, 0.0, 0.0], US, [50.0, 100.0, 5000.0]), [true, false, false]);
    }

    #[test]
    fn a_straggler_is_the_last_at_every_size_by_most_of_the_loss() {
        let excess = [1000.0; 3];
        assert_eq!(culprit(&[Some((2, 9e-4)); 3], &excess), Some(2));
        assert_eq!(culprit(&[Some((2, 1e-4)); 3], &excess), None);
        assert_eq!(culprit(&[Some((2, 9e-4)), Some((1, 9e-4)), Some((2, 9e-4))], &excess), None);
        assert_eq!(culprit(&[Some((2, 9e-4)), None, Some((2, 9e-4))], &excess), None);
    }
}
