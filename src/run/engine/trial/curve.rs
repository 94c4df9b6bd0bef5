//! Faults that slow things down: the curve with the fault against the curve without.
//!
//! A curve is three sizes: the smallest, one in the middle, a large one. Requests with the fault and without alternate, and
//! all launches of each are compared: whatever else a machine does makes some of them slow, and seldom all.

use std::collections::BTreeMap;
use std::time::Instant;

use super::{Over, Seen, Trial};
use crate::case::{Bytes, Case};
use crate::fault::{Called, Detector, End, Name, Order, Sighting};
use crate::fleet::inquest::last_to_call;
use crate::fleet::protocol::{Report, Request};
use crate::run::result::Outcome;

/// How often launches with the fault and without alternate at least, and at most where they do not tell what was to be told: on
/// a machine that is busy, the best times come late.
const ROUNDS: usize = 2;
const MOST_ROUNDS: usize = 16;

/// Timed launches of a request.
const LAUNCHES: u32 = 10;

/// How likely it may be at most that launches that are all slow are so by chance.
const BY_CHANCE: f64 = 0.005;

/// The part of all calls that a rank must be late in to be the one who is late.
const MOSTLY: f64 = 0.6;

/// How many times as long as without the fault a launch must take to count as slower.
const SLOWER: f64 = 2.0;

/// How many times as long it is to take where the fault strikes: far from the bound.
const STRIKES: f64 = 4.0;

/// Where it is not to strike, at most so much of the time is added.
const SPARES: f64 = 0.4;

/// What is added in fact can be more, as whoever holds a stream up wakes late. From this part of the time on, the large size
/// would be slower too.
const SPARES_STILL: f64 = 0.7;

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
            // no more than it takes: of what is on its way for long, a connection holds only so much
            let all = strike(small);
            return (all <= SPARES * large).then_some([all; 3]);
        }
        End::Middle => [0.0, strike(middle), 0.0],
        End::Large => sizes.map(|bytes| strike(large) * bytes as f64 / sizes[2].max(1) as f64),
        End::All => us.map(strike),
    })
}

/// Whether the large size is long enough not to be moved by what the small one was held up for, if it is to stay.
fn spares(end: End, with: Three<f64>, without: Three<f64>) -> bool {
    end != End::Small || with[0] - without[0] <= SPARES_STILL * without[2]
}

/// Times of launches of each size.
#[derive(Debug, Clone, Default)]
struct Times(Three<Vec<f64>>);

impl Times {
    fn best(&self) -> Three<f64> {
        self.0.each_ref().map(|all| all.iter().copied().fold(f64::INFINITY, f64::min))
    }
}

/// Which sizes are slower with the fault than without. `explained` says that ranks' calls tell why, as one is late in most.
fn slower(with: &Times, without: &Times, whims: &Whims, explained: bool) -> Three<bool> {
    let [a, b, c] = &with.0;
    let [d, e, f] = &without.0;
    [(a, d), (b, e), (c, f)].map(|(with, without)| is_slower(with, without, whims, explained))
}

/// Whether all launches with the fault are beyond a bound that so many of those without keep, that it can hardly be chance. On
/// a machine that is busy, few of either do. What is explained is none by chance.
fn is_slower(with: &[f64], without: &[f64], whims: &Whims, explained: bool) -> bool {
    let best = without.iter().copied().fold(f64::INFINITY, f64::min);
    let bound = SLOWER * best + whims.forgiven;
    let within = without.iter().filter(|us| **us <= bound).count() as f64 / without.len().max(1) as f64;
    let chance = (1.0 - within).powf(with.len() as f64);
    with.iter().all(|us| *us > bound) && (explained && !without.is_empty() || chance <= BY_CHANCE)
}

/// Times of the timed launches out of place: each has ended when its last rank has.
fn launches(reports: &[Report]) -> Vec<f64> {
    let of = |report: &Report| report.placements.first().map_or(Vec::new(), |m| m.iteration_us.clone());
    let ranks: Vec<Vec<f32>> = reports.iter().map(of).collect();
    let least = ranks.iter().map(Vec::len).min().unwrap_or(0);
    let slowest =
        |k: usize| ranks.iter().filter_map(|us| us.get(k)).fold(0.0, |most: f64, us| most.max(f64::from(*us)));
    (0..least).map(slowest).collect()
}

/// The sizes of a curve that ends at this one.
fn sizes(case: &Case, large: u64) -> Three<Case> {
    let middle = (8.0 * large as f64).sqrt() as u64;
    [8, middle, large].map(|bytes| Case { size: Bytes(bytes.max(case.dtype.size())), ..case.clone() })
}

impl Trial<'_, '_> {
    /// Finds a large size that is far enough from the small one, and compares the curves up to it.
    pub(super) fn curve(&mut self) -> Result<Seen, Over> {
        let Called::Curve(end) = self.kind.fault().expects().called else {
            return Err(self.over(Outcome::Fail, format!("fault-{} is not told by a curve", self.kind)));
        };
        let mut large = self.sound.size.0;
        for _ in 0..=GROWTHS {
            if let Some(seen) = self.compared(end, large)? {
                return Ok(seen);
            }
            large = large.saturating_mul(4);
        }
        Err(self.over(Outcome::Skip, "the ends of the curve are too near each other to be told apart".to_owned()))
    }

    /// The curves up to this size, with the fault and without; `None` where its ends are too near each other.
    fn compared(&mut self, end: End, large: u64) -> Result<Option<Seen>, Over> {
        let whims = if self.session.environment.backend == "host" { HOST } else { NCCL };
        let cases = sizes(&self.sound, large);
        if let Some(why) = self.session.too_large(&cases[2]) {
            return Err(self.over(Outcome::Skip, why));
        }
        let sizes = [&cases[0], &cases[1], &cases[2]].map(|case| case.size.0);
        let mut without = Times::default();
        for _ in 0..ROUNDS {
            self.time(&cases, "before the fault", &mut without)?;
        }
        let start = Instant::now();
        let (mut with, mut armed, mut calls) = (Times::default(), 0, Calls::default());
        for round in 1..=MOST_ROUNDS {
            let Some(delays) = delays(end, sizes, without.best(), &whims) else { return Ok(None) };
            for ((case, delay), us) in cases.iter().zip(delays).zip(&mut with.0) {
                let order = Order { delay_us: delay as u32, ..self.order() };
                let request = self.timed(case, Some(order));
                us.extend(launches(&self.passes(&request, "that is slow")?));
                let witnesses = self.session.witnesses();
                armed += self.times_armed(&witnesses, &request).0;
                calls.add(&last_to_call(&witnesses, request.epoch), delay, &whims);
            }
            self.time(&cases, "after the fault", &mut without)?;
            if !spares(end, with.best(), without.best()) {
                return Ok(None);
            }
            if round >= ROUNDS && End::of(slower(&with, &without, &whims, calls.mostly_late().is_some())) == Some(end) {
                break;
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let late = calls.mostly_late();
        let sighting = End::of(slower(&with, &without, &whims, late.is_some())).map(|end| {
            let figures: Vec<String> = cases
                .iter()
                .zip(without.best().into_iter().zip(with.best()))
                .map(|(case, (without, with))| format!("{} {without:.0} -> {with:.0} us", case.size))
                .collect();
            // who is late makes all sizes slower; what is slow at one end only is not the ranks' own time
            let culprits = late.filter(|_| end == End::All).into_iter().collect();
            Sighting { by: Detector::Performance, name: Name::Curve(end), culprits, says: figures.join(", ") }
        });
        Ok(Some(Seen { armed, sightings: sighting.into_iter().collect(), verdict: None, seconds }))
    }

    fn timed(&mut self, case: &Case, order: Option<Order>) -> Request {
        Request { iters: LAUNCHES, ..self.request(case, order) }
    }

    fn time(&mut self, cases: &Three<Case>, when: &str, times: &mut Times) -> Result<(), Over> {
        for (case, us) in cases.iter().zip(&mut times.0) {
            let request = self.timed(case, None);
            us.extend(launches(&self.passes(&request, when)?));
        }
        Ok(())
    }
}

/// Who was late in how many calls.
#[derive(Debug, Default)]
struct Calls {
    late: BTreeMap<u32, usize>,
    all: usize,
}

impl Calls {
    /// `last` is who was the last in each call, and by how many nanoseconds; one is late from half of `delay_us` on. Where that is
    /// hardly anything, calls tell nothing: somebody is always the last.
    fn add(&mut self, last: &[(u32, u64)], delay_us: f64, whims: &Whims) {
        if delay_us < whims.added {
            return;
        }
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

    /// Several launches, all alike.
    fn of(us: Three<f64>) -> Times {
        Times(us.map(|us| vec![us; 10]))
    }

    #[test]
    fn each_fault_moves_its_own_end_of_the_curve_and_no_other() {
        for end in [End::Small, End::Middle, End::Large, End::All] {
            let delays = delays(end, SIZES, US, &HOST).unwrap();
            let with = [0, 1, 2].map(|at: usize| US[at] + delays[at]);
            assert_eq!(End::of(slower(&of(with), &of(US), &HOST, false)), Some(end), "{with:?}");
        }
    }

    #[test]
    fn a_flat_curve_has_no_ends() {
        assert_eq!(delays(End::Small, SIZES, [900.0, 950.0, 1000.0], &NCCL), None);
    }

    #[test]
    fn a_delay_that_is_longer_in_fact_needs_a_larger_size() {
        // seen with two ranks on a GPU: 164 us asked for, 485 had
        let (without, with) = ([11.0, 12.0, 411.0], [496.0, 476.0, 880.0]);
        assert!(!spares(End::Small, with, without));
        assert!(spares(End::All, with, without));
        assert!(spares(End::Small, with, [11.0, 12.0, 1644.0]));
    }

    #[test]
    fn twice_as_long_is_slower_and_a_whim_is_not() {
        let slower = |with| slower(&of(with), &of(US), &HOST, false);
        assert_eq!(slower([230.0, 0.0, 0.0]), [false; 3]);
        assert_eq!(slower([250.0, 0.0, 0.0]), [true, false, false]);
        assert_eq!(slower([0.0, 0.0, 10_100.0]), [false; 3]);
    }

    #[test]
    fn one_quick_launch_among_many_tells_nothing_of_the_slow_ones() {
        let slow = [14_000.0; 40];
        let quick = |launches: usize| -> Vec<f64> {
            (0..50).map(|k| if k < launches { 4_000.0 + k as f64 } else { 13_000.0 }).collect()
        };
        assert!(!is_slower(&slow, &quick(1), &HOST, false));
        assert!(is_slower(&slow, &quick(10), &HOST, false));
        // one quick launch with the fault speaks against it
        assert!(!is_slower(&[&slow[..], &[6_000.0]].concat(), &quick(10), &HOST, false));
        assert!(!is_slower(&slow, &[], &HOST, false) && !is_slower(&slow, &[], &HOST, true));
        // who is seen to be late needs no luck
        assert!(is_slower(&slow, &quick(1), &HOST, true) && !is_slower(&[6_000.0], &quick(1), &HOST, true));
    }

    #[test]
    fn a_straggler_is_late_in_most_calls_and_by_as_much_as_it_should() {
        let late = |last: &[(u32, u64)]| {
            let mut calls = Calls::default();
            calls.add(last, 1000.0, &HOST);
            calls.mostly_late()
        };
        assert_eq!(late(&[(2, 900_000), (2, 800_000), (1, 600_000)]), Some(2));
        assert_eq!(late(&[(2, 90_000); 3]), None);
        assert_eq!(late(&[(2, 900_000), (1, 900_000)]), None);
        assert_eq!(late(&[]), None);
        let mut calls = Calls::default();
        calls.add(&[(1, 3_000); 9], 2.0, &NCCL);
        assert_eq!(calls.mostly_late(), None, "the same rank is the last where none is held up");
    }
}
