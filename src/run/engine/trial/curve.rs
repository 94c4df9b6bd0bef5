//! Faults that slow things down: the curve with the fault against the curve without.
//!
//! A curve is three sizes: the smallest, one in the middle, a large one. Launches with the fault and without alternate, and the
//! best of all of one kind is compared: whatever else a machine does makes some launches slow, and seldom all.

use std::collections::BTreeMap;
use std::time::Instant;

use super::{Over, Seen, Trial};
use crate::case::{Bytes, Case};
use crate::fault::{Called, Detector, End, Name, Order, Sighting};
use crate::fleet::inquest::last_to_call;
use crate::run::result::{CaseResult, Outcome};

/// How often launches with the fault and without alternate at least, and at most where they do not tell what was to be told: on
/// a machine that is busy, the best times come late.
const ROUNDS: usize = 2;
const MOST_ROUNDS: usize = 10;

/// The part of all calls that a rank must be late in to be the one who is late.
const MOSTLY: f64 = 0.6;

/// How many times as long as without the fault a launch must take to count as slower.
const SLOWER: f64 = 2.0;

/// How many times as long it is to take where the fault strikes: far from the bound.
const STRIKES: f64 = 4.0;

/// Where it is not to strike, at most so much of the time is added.
const SPARES: f64 = 0.4;

/// Microseconds that are no loss yet, and what is added to be well above them: marks of a GPU are exact, those of threads that
/// share cores are not.
struct Whims {
    forgiven: f64,
    added: f64,
}

const HOST: Whims = Whims { forgiven: 200.0, added: 500.0 };
const NCCL: Whims = Whims { forgiven: 5.0, added: 20.0 };

/// The large size is taken four times as large, so often at most, until the ends of the curve lie far enough apart.
const GROWTHS: u32 = 5;

/// Three sizes, ascending.
type Three<T> = [T; 3];

/// How much later each size is to be, to be slower at this end only; `None` where the sizes are too much alike for that.
fn delays(end: End, sizes: Three<u64>, us: Three<f64>, whims: &Whims) -> Option<Three<f64>> {
    let [small, middle, large] = us;
    let strike = |us: f64| STRIKES * us + whims.added;
    Some(match end {
        End::Small | End::Mixed => {
            let all = SPARES * large;
            return (all >= strike(small)).then_some([all; 3]);
        }
        End::Middle => [0.0, strike(middle), 0.0],
        End::Large => sizes.map(|bytes| strike(large) * bytes as f64 / sizes[2].max(1) as f64),
        End::All => us.map(strike),
    })
}

/// Which sizes are slower with the fault than without.
fn slower(with: Three<f64>, without: Three<f64>, whims: &Whims) -> Three<bool> {
    let bounds = without.map(|us| SLOWER * us + whims.forgiven);
    [with[0] > bounds[0], with[1] > bounds[1], with[2] > bounds[2]]
}

/// The best of the timed launches, out of place.
fn best_us(result: &CaseResult) -> f64 {
    let time = result.placements.first().and_then(|placement| placement.time_us);
    time.map_or(f64::INFINITY, |time| time.min)
}

fn best(all: &mut Three<f64>, more: Three<f64>) {
    all.iter_mut().zip(more).for_each(|(us, more)| *us = us.min(more));
}

/// The sizes of a curve that ends at this one.
fn sizes(case: &Case, large: u64) -> Three<Case> {
    let middle = (8.0 * large as f64).sqrt() as u64;
    [8, middle, large].map(|bytes| Case { size: Bytes(bytes.max(case.dtype.size())), ..case.clone() })
}

impl Trial<'_, '_> {
    pub(super) fn curve(&mut self) -> Result<Seen, Over> {
        let whims = if self.session.environment.backend == "host" { HOST } else { NCCL };
        let Called::Curve(end) = self.kind.fault().expects().called else {
            return Err(self.over(Outcome::Fail, format!("fault-{} is not told by a curve", self.kind)));
        };
        let (cases, mut without) = self.start(end, &whims)?;
        let sizes = [&cases[0], &cases[1], &cases[2]].map(|case| case.size.0);
        let start = Instant::now();
        let (mut with, mut armed, mut calls) = ([f64::INFINITY; 3], 0, Calls::default());
        for round in 1..=MOST_ROUNDS {
            let Some(delays) = delays(end, sizes, without, &whims) else { break };
            for ((case, delay), us) in cases.iter().zip(delays).zip(&mut with) {
                let order = Order { delay_us: delay as u32, ..self.order() };
                let request = self.request(case, Some(order));
                *us = us.min(best_us(&self.passes(&request, "that is slow")?));
                let witnesses = self.session.witnesses();
                armed += self.times_armed(&witnesses, &request).0;
                calls.add(&last_to_call(&witnesses, request.epoch), delay);
            }
            best(&mut without, self.times(&cases, "after the fault")?);
            if round >= ROUNDS && End::of(slower(with, without, &whims)) == Some(end) {
                break;
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let sighting = End::of(slower(with, without, &whims)).map(|end| {
            let figures: Vec<String> = cases
                .iter()
                .zip(without.iter().zip(with))
                .map(|(case, (without, with))| format!("{} {without:.0} -> {with:.0} us", case.size))
                .collect();
            let culprits = calls.mostly_late().into_iter().collect();
            Sighting { by: Detector::Performance, name: Name::Curve(end), culprits, says: figures.join(", ") }
        });
        Ok(Seen { armed, sightings: sighting.into_iter().collect(), verdict: None, seconds })
    }

    /// Finds sizes that lie far enough apart, and what they take without the fault.
    fn start(&mut self, end: End, whims: &Whims) -> Result<(Three<Case>, Three<f64>), Over> {
        let mut large = self.sound.size.0;
        for _ in 0..=GROWTHS {
            let cases = sizes(&self.sound, large);
            if let Some(why) = self.session.too_large(&cases[2]) {
                return Err(self.over(Outcome::Skip, why));
            }
            let mut us = self.times(&cases, "before the fault")?;
            best(&mut us, self.times(&cases, "before the fault")?);
            if delays(end, [8, 8, large], us, whims).is_some() {
                return Ok((cases, us));
            }
            large = large.saturating_mul(4);
        }
        Err(self.over(Outcome::Skip, "the ends of the curve are too near each other to be told apart".to_owned()))
    }

    fn times(&mut self, cases: &Three<Case>, when: &str) -> Result<Three<f64>, Over> {
        let mut all = [0.0; 3];
        for (case, us) in cases.iter().zip(&mut all) {
            let request = self.request(case, None);
            *us = best_us(&self.passes(&request, when)?);
        }
        Ok(all)
    }
}

/// Who was late in how many calls.
#[derive(Debug, Default)]
struct Calls {
    late: BTreeMap<u32, usize>,
    all: usize,
}

impl Calls {
    /// `last` is who was the last in each call, and by how many nanoseconds; one is late from half of `delay_us` on.
    fn add(&mut self, last: &[(u32, u64)], delay_us: f64) {
        self.all += last.len();
        for (rank, _) in last.iter().filter(|(_, ns)| *ns as f64 / 1e3 >= delay_us / 2.0) {
            *self.late.entry(*rank).or_default() += 1;
        }
    }

    fn mostly_late(&self) -> Option<u32> {
        let (rank, late) = self.late.iter().max_by_key(|(_, late)| **late)?;
        (*late as f64 >= MOSTLY * self.all as f64).then_some(*rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Three<u64> = [8, 5792, 4 << 20];
    const US: Three<f64> = [20.0, 100.0, 5000.0];

    #[test]
    fn each_fault_moves_its_own_end_of_the_curve_and_no_other() {
        for end in [End::Small, End::Middle, End::Large, End::All] {
            let delays = delays(end, SIZES, US, &HOST).unwrap();
            let with = [0, 1, 2].map(|at: usize| US[at] + delays[at]);
            assert_eq!(End::of(slower(with, US, &HOST)), Some(end), "{with:?}");
        }
    }

    #[test]
    fn a_flat_curve_has_no_ends() {
        assert_eq!(delays(End::Small, SIZES, [900.0, 950.0, 1000.0], &NCCL), None);
    }

    #[test]
    fn twice_as_long_is_slower_and_a_whim_is_not() {
        assert_eq!(slower([230.0, 0.0, 0.0], US, &HOST), [false; 3]);
        assert_eq!(slower([250.0, 0.0, 0.0], US, &HOST), [true, false, false]);
        assert_eq!(slower([0.0, 0.0, 10_100.0], US, &HOST), [false; 3]);
    }

    #[test]
    fn a_straggler_is_late_in_most_calls_and_by_as_much_as_it_should() {
        let late = |last: &[(u32, u64)]| {
            let mut calls = Calls::default();
            calls.add(last, 1000.0);
            calls.mostly_late()
        };
        assert_eq!(late(&[(2, 900_000), (2, 800_000), (1, 600_000)]), Some(2));
        assert_eq!(late(&[(2, 90_000); 3]), None);
        assert_eq!(late(&[(2, 900_000), (1, 900_000)]), None);
        assert_eq!(late(&[]), None);
    }
}
