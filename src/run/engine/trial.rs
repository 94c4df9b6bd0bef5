//! How a case with a deliberate fault runs: control, fault, control, judgement.
//!
//! It passes if the fault was done, one of the detectors that must notice it did, with the right name and the right culprit,
//! and both controls passed: before it, so that what is noticed is the fault, and after it, so that it is known to be over.

mod curve;
mod notice;

use std::time::{Duration, Instant};

use super::{CaseEnded, Session};
use crate::backend::Making;
use crate::case::Case;
use crate::fault::{Family, ITERS, Kind, Method, Order, Sighting, WARMUP, judge};
use crate::fleet::inquest::{Cause, Witness};
use crate::fleet::log::now_ns;
use crate::fleet::protocol::{Report, Request};
use crate::run::assemble::frame;
use crate::run::plan::LayoutChoice;
use crate::run::result::{CaseResult, Deed, FailKind, FaultRecord, Outcome};
use crate::trace::Verdict;

/// After how long a fault that hangs is judged, where no deadline is set. Controls have the deadlines of any case.
const HOST_LIMIT: Duration = Duration::from_millis(1500);
const NCCL_LIMIT: Duration = Duration::from_secs(5);

/// How many times as long there is in a second attempt, where a machine was too busy to get to the fault in time.
const PATIENCE: u32 = 4;

/// How long beyond its limit who is to be stuck stays so.
const BEYOND: Duration = Duration::from_millis(500);

/// What is left to be said when a trial cannot go on: the case's result.
type Over = Box<CaseResult>;

/// Runs the case.
pub(super) fn run(session: &mut Session, case: &Case, kind: Kind) -> CaseResult {
    let ranks = session.environment.ranks;
    if let Some(why) = kind.lacks(&session.environment, session.layout() == LayoutChoice::Processes) {
        return session.skip(case, why);
    }
    if !session.plan.check {
        return session.skip(case, format!("fault-{kind} cannot be noticed: checks are off"));
    }
    // any rank but 0, which is the root
    let culprit = 1 + (session.plan.seed % u64::from(ranks.max(2) - 1)) as u32;
    let trial = Trial { sound: case.sound(), making: Making::of(case), session, case, kind, culprit };
    let lab = trial.session.plan.lab;
    let result = if lab { trial.bare() } else { trial.run() };
    result.unwrap_or_else(|over| *over)
}

/// What came of the part with the fault.
struct Seen {
    armed: u64,
    sightings: Vec<Sighting>,
    verdict: Option<Verdict>,
    seconds: f64,
}

struct Trial<'s, 'c> {
    session: &'s mut Session,
    case: &'c Case,
    /// The same without the fault.
    sound: Case,
    /// Of the communicator, with the fault and without.
    making: Making,
    kind: Kind,
    culprit: u32,
}

impl Trial<'_, '_> {
    fn run(mut self) -> Result<CaseResult, Over> {
        let method = self.kind.fault().method();
        let seen = if method == Method::Curve {
            self.curve()?
        } else {
            self.control("before the fault")?;
            let mut seen = self.faulted()?;
            if method == Method::NextUse {
                self.next_use(&mut seen)?;
            }
            if self.spoils() {
                self.session.dismiss();
            }
            self.control("after the fault")?;
            seen
        };
        Ok(self.judge(seen))
    }

    /// The fault alone, as it would look in earnest.
    fn bare(mut self) -> Result<CaseResult, Over> {
        let limit = self.limit();
        let request = self.armed_request(limit);
        let ended = self.answer(&request, Some(limit))?;
        let result = self.session.conclude(&request, &ended);
        if self.spoils() {
            self.session.dismiss();
        }
        Ok(CaseResult { name: self.case.name(), variants: self.case.variants.clone(), ..result })
    }

    /// Whether messages that nobody took may lie in the communicator's channels afterwards, or what was struck stays so.
    fn spoils(&self) -> bool {
        matches!(self.kind.fault().family(), Family::Mismatch | Family::Fabric)
    }

    fn judge(self, seen: Seen) -> CaseResult {
        let blind = self.session.plan.blind;
        let heard: Vec<Sighting> = seen.sightings.iter().filter(|s| Some(s.by) != blind).cloned().collect();
        let judged =
            judge(&self.kind.fault().expects(), self.culprit, self.session.environment.ranks, seen.armed, &heard);
        let told = judged.as_ref().ok().copied().or(heard.first());
        let mut noticed_by: Vec<_> = heard.iter().map(|sighting| sighting.by).collect();
        noticed_by.sort_unstable();
        noticed_by.dedup();
        let record = FaultRecord {
            name: self.kind,
            family: self.kind.fault().family(),
            armed: self.deeds(seen.armed),
            noticed_by,
            class: told.map(|sighting| sighting.name.to_string()).unwrap_or_default(),
            culprits: told.map(|sighting| sighting.culprits.clone()).unwrap_or_default(),
            explanation: told.map(|sighting| sighting.says.clone()).unwrap_or_default(),
            seconds: seen.seconds,
        };
        let mut result = CaseResult {
            fault: Some(record),
            verdict: seen.verdict,
            ..frame(self.case, self.session.environment.ranks)
        };
        if let Err(why) = &judged {
            let mut message = format!("fault-{}: {why}", self.kind);
            for sighting in &heard {
                message += &format!(
                    "\n{} says: {}, of ranks {:?}: {}",
                    sighting.by, sighting.name, sighting.culprits, sighting.says
                );
            }
            result.outcome = Outcome::Fail;
            result.kind = Some(FailKind::Error);
            result.message = message;
        }
        result
    }

    fn deeds(&self, times: u64) -> Vec<Deed> {
        let deed = || Deed { rank: self.culprit, times, what: self.kind.fault().deed().to_owned() };
        (times > 0).then(deed).into_iter().collect()
    }

    /// A request like those with the fault, for the case without or for another size of it.
    fn request(&mut self, case: &Case, order: Option<Order>) -> Request {
        let request = self.session.request(case);
        Request { warmup: WARMUP, iters: ITERS, tamper: None, fault: order, ..request }
    }

    fn order(&self) -> Order {
        Order { kind: self.kind, culprit: self.culprit, ordered: false, stuck_ms: 0, delay_us: 0 }
    }

    /// The same work without the fault must pass.
    fn control(&mut self, when: &str) -> Result<(), Over> {
        let ordered = self.kind.fault().method() == Method::Ordered;
        let order = ordered.then(|| Order { ordered: true, ..self.order() });
        let sound = self.sound.clone();
        let request = self.request(&sound, order);
        self.passes(&request, when).map(drop)
    }

    /// What ranks report of a request that must pass.
    fn passes(&mut self, request: &Request, when: &str) -> Result<Vec<Report>, Over> {
        let (result, ended) = match self.session.ask(request, &self.making, None) {
            Ok(ended) => (self.session.conclude(request, &ended), Some(ended)),
            Err(result) => (*result, None),
        };
        match result.outcome {
            Outcome::Pass => Ok(match ended {
                Some(CaseEnded::Reported(reports)) => reports,
                _ => Vec::new(),
            }),
            Outcome::Skip => Err(self.over(Outcome::Skip, result.message)),
            Outcome::Fail => {
                Err(self.over(Outcome::Fail, format!("the control {when} failed without a fault: {}", result.message)))
            }
        }
    }

    fn over(&self, outcome: Outcome, message: String) -> Over {
        let kind = (outcome == Outcome::Fail).then_some(FailKind::Error);
        Box::new(CaseResult { outcome, kind, message, ..frame(self.case, self.session.environment.ranks) })
    }

    /// How long a fault may take.
    fn limit(&self) -> Duration {
        let host = self.session.environment.backend == "host";
        self.session.plan.deadline.unwrap_or(if host { HOST_LIMIT } else { NCCL_LIMIT })
    }

    fn armed_request(&mut self, limit: Duration) -> Request {
        let stuck_ms = u64::try_from((limit + BEYOND).as_millis()).unwrap_or(u64::MAX);
        let order = Order { stuck_ms, ..self.order() };
        let sound = self.sound.clone();
        self.request(&sound, Some(order))
    }

    /// The case with its fault: what is noticed. Once more with more time, where the machine did not get to it in time.
    fn faulted(&mut self) -> Result<Seen, Over> {
        let limit = self.limit();
        match self.attempt(limit)? {
            Some(seen) => Ok(seen),
            None => {
                let seen = self.attempt(limit.saturating_mul(PATIENCE))?;
                seen.ok_or_else(|| self.over(Outcome::Fail, format!("{} was not done in time", self.kind)))
            }
        }
    }

    /// `None` where the deadline struck too early to tell anything.
    fn attempt(&mut self, limit: Duration) -> Result<Option<Seen>, Over> {
        let request = self.armed_request(limit);
        let start = Instant::now();
        let ended = self.answer(&request, Some(limit))?;
        let seconds = start.elapsed().as_secs_f64();
        let witnesses = self.session.witnesses();
        let (armed, at_ns) = self.times_armed(&witnesses, &request);
        let since = Duration::from_nanos(now_ns().saturating_sub(at_ns));
        let struck = matches!(&ended, CaseEnded::Stopped(findings) if matches!(findings.cause, Cause::Deadline(_)));
        let early = struck && (armed == 0 || since < limit / 2);
        let mut result = self.session.conclude(&request, &ended);
        if result.verdict.is_none() && matches!(ended, CaseEnded::Reported(_)) {
            // also where the backend got over it and nothing is wrong
            self.session.account_for(&request, &mut result);
        }
        if result.outcome == Outcome::Skip {
            return Err(self.over(Outcome::Skip, result.message));
        }
        let sightings = notice::sightings(&request, &ended, &result);
        Ok((!early || self.session.plan.deadline.is_some()).then_some(Seen {
            armed,
            sightings,
            verdict: result.verdict,
            seconds,
        }))
    }

    fn answer(&mut self, request: &Request, limit: Option<Duration>) -> Result<CaseEnded, Over> {
        self.session.ask(request, &self.making, limit).map_err(|result| self.over(result.outcome, result.message))
    }

    /// How often the culprit did it, and when the last time.
    fn times_armed(&self, witnesses: &[Witness], request: &Request) -> (u64, u64) {
        let own =
            witnesses.iter().find(|witness| witness.rank == self.culprit).and_then(|witness| witness.log.as_ref());
        own.filter(|log| log.case() == request.epoch).map_or((0, 0), |log| log.times_armed())
    }

    /// What the next use of the same communicator shows.
    fn next_use(&mut self, seen: &mut Seen) -> Result<(), Over> {
        let sound = self.sound.clone();
        let request = self.request(&sound, None);
        let ended = self.answer(&request, None)?;
        let result = self.session.conclude(&request, &ended);
        seen.sightings.extend(notice::sightings(&request, &ended, &result));
        seen.verdict = seen.verdict.take().or(result.verdict);
        Ok(())
    }
}
