//! The engine: a plan and a backend in, events out. libtest-mimic drives the trials.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use chrono::Local;
use libtest_mimic::{Arguments, Completion, Failed, Trial};

use super::assemble::{assemble, frame, stopped};
use super::event::{Consumer, Event};
use super::launches::combine;
use super::plan::{LayoutChoice, RunPlan};
use super::result::{CaseResult, FailKind, Outcome, Summary};
use crate::backend::{Backend, Environment, Making, Opening, RankError, Unavailable};
use crate::case::Case;
use crate::fleet::inquest::Cause;
use crate::fleet::processes::Crew;
use crate::fleet::protocol::{Measured, Request};
use crate::fleet::team::{Ended as CaseEnded, NoTeam, Team, Workers};
use crate::fleet::{deadline, footprint};
use crate::oracle::Plan;
use crate::reference::{Observed, References, Subject, missing_reference};

/// Communicators in a row that may fail to come about in time before the machine counts as one that cannot run it.
const LATE_OPENINGS: u32 = 2;

/// Why cases are not run after an interruption.
const INTERRUPTED: &str = "not run: interrupted";

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    /// Counts.
    pub summary: Summary,
    /// The backend was lost, and cases stayed unrun: why.
    pub aborted: Option<String>,
    /// It was interrupted, and cases stayed unrun.
    pub interrupted: bool,
    /// Reports that could not be written to the end.
    pub lost_reports: Vec<String>,
}

/// Runs the plan. `harness` is what libtest-mimic is told: where it prints, how it filters. Once `interrupt` is set, the
/// case that runs is aborted, and the others are skipped.
pub fn run(
    command: Vec<String>,
    plan: RunPlan,
    backend: Arc<dyn Backend>,
    references: References,
    consumers: Vec<Box<dyn Consumer>>,
    harness: &Arguments,
    interrupt: Arc<AtomicBool>,
) -> Ended {
    let environment = backend.environment();
    let mut hub = Hub { consumers, lost: Vec::new() };
    hub.send(&Event::Started {
        at: Local::now(),
        command,
        seed: plan.seed,
        environment: Box::new(environment.clone()),
        cases: plan.cases.len(),
    });
    let started = Instant::now();
    let launches = plan.repeat.max(1);
    let cases = plan.cases.clone();
    let session = Arc::new(Mutex::new(Session {
        earlier: vec![Vec::new(); cases.len()],
        plan,
        backend,
        environment,
        references,
        hub,
        team: None,
        fresh: true,
        late: 0,
        interrupt,
        interrupted: false,
        last: launches == 1,
        epoch: 0,
        summary: Summary::default(),
        stop: None,
        aborted: None,
    }));
    for launch in 1..=launches {
        {
            let mut session = lock(&session);
            session.last = launch == launches;
            session.team = None; // a fresh communicator for every launch
        }
        let trials = cases.iter().enumerate().map(|(index, case)| {
            let session = session.clone();
            Trial::ignorable_test(case.name(), move || lock(&session).trial(index))
        });
        // what it counts is counted here too, with more to tell
        let _ = libtest_mimic::run(harness, trials.collect());
    }
    let mut session = lock(&session);
    session.team = None;
    session.summary.duration_s = started.elapsed().as_secs_f64();
    let summary = session.summary;
    session.hub.send(&Event::Finished { at: Local::now(), summary });
    Ended {
        summary,
        aborted: session.aborted.take(),
        interrupted: session.interrupted,
        lost_reports: std::mem::take(&mut session.hub.lost),
    }
}

/// A run that could not start: reports are told, so that their files say so.
pub fn refuse(command: Vec<String>, reason: &str, consumers: Vec<Box<dyn Consumer>>) {
    let mut hub = Hub { consumers, lost: Vec::new() };
    hub.send(&Event::Started { at: Local::now(), command, seed: 0, environment: Box::default(), cases: 0 });
    hub.send(&Event::Aborted { reason: reason.to_owned() });
    hub.send(&Event::Finished { at: Local::now(), summary: Summary::default() });
}

fn lock(session: &Mutex<Session>) -> std::sync::MutexGuard<'_, Session> {
    session.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hands events to consumers, and parts with one that fails.
struct Hub {
    consumers: Vec<Box<dyn Consumer>>,
    lost: Vec<String>,
}

impl Hub {
    fn send(&mut self, event: &Event) {
        self.consumers.retain_mut(|consumer| match consumer.take(event) {
            Ok(()) => true,
            Err(error) => {
                self.lost.push(format!("{error:#}"));
                false
            }
        });
    }
}

/// The state that trials share.
struct Session {
    plan: RunPlan,
    backend: Arc<dyn Backend>,
    environment: Environment,
    references: References,
    hub: Hub,
    team: Option<(Making, Box<dyn Workers>)>,
    /// The team has not run a case yet.
    fresh: bool,
    /// Communicators in a row that were not made in time.
    late: u32,
    interrupt: Arc<AtomicBool>,
    interrupted: bool,
    /// Results of earlier launches, by case.
    earlier: Vec<Vec<CaseResult>>,
    /// This is the last launch: results are final.
    last: bool,
    epoch: u64,
    summary: Summary,
    /// Why further cases are not run.
    stop: Option<String>,
    aborted: Option<String>,
}

impl Session {
    fn trial(&mut self, index: usize) -> Result<Completion, Failed> {
        let Some(case) = self.plan.cases.get(index).cloned() else {
            return Err(Failed::from("no such case"));
        };
        self.hub.send(&Event::CaseStarted { case: case.clone() });
        let start = Instant::now();
        let mut result = self.run(&case);
        result.duration_s = start.elapsed().as_secs_f64();
        if !self.last {
            if let Some(earlier) = self.earlier.get_mut(index) {
                earlier.push(result);
            }
            return Ok(Completion::Completed);
        }
        let mut launches = self.earlier.get_mut(index).map(std::mem::take).unwrap_or_default();
        launches.push(result);
        let mut result = combine(launches);
        self.judge(&case, &mut result);
        self.summary.add(&result);
        if result.outcome == Outcome::Fail && self.plan.fail_fast && self.stop.is_none() {
            self.stop = Some(format!("not run: {} failed and --fail-fast is set", result.name));
        }
        let completion = match result.outcome {
            Outcome::Pass => Ok(Completion::Completed),
            Outcome::Skip => Ok(Completion::ignored_with(&result.message)),
            Outcome::Fail => Err(Failed::from(&result.message)),
        };
        self.hub.send(&Event::CaseFinished { result: Box::new(result) });
        completion
    }

    fn run(&mut self, case: &Case) -> CaseResult {
        let ranks = self.environment.ranks;
        let skip = |why: String| CaseResult { outcome: Outcome::Skip, message: why, ..frame(case, ranks) };
        if self.interrupt.load(Ordering::Relaxed) {
            return skip(self.interrupted().to_owned());
        }
        if let Some(why) = &self.stop {
            return skip(why.clone());
        }
        if let Some(why) = case.primitive.unit().refuses(ranks) {
            return skip(why);
        }
        if case.root() >= ranks {
            return skip(format!("root {} does not exist among {ranks} ranks", case.root()));
        }
        if let Some(why) = self.too_large(case) {
            return skip(why);
        }
        match self.assure_team(case) {
            Ok(()) => {}
            Err(NoTeam::Opening(Opening::Unsupported(why))) => return skip(why),
            Err(NoTeam::Opening(Opening::Unavailable(error))) => return skip(self.abort(&error)),
            Err(NoTeam::Interrupted) => return skip(self.interrupted().to_owned()),
            Err(NoTeam::Late(findings)) => {
                // who dies on the way is the case's misfortune, not the machine's
                self.late += u32::from(matches!(findings.cause, Cause::Deadline(_)));
                let result = stopped(case, ranks, &findings);
                if self.late >= LATE_OPENINGS {
                    self.abort(&Unavailable(format!("{LATE_OPENINGS} communicators in a row were not made in time")));
                }
                return result;
            }
        }
        self.epoch += 1;
        let request = Request {
            case: case.clone(),
            ranks,
            seed: self.plan.seed,
            epoch: self.epoch,
            warmup: self.plan.warmup,
            iters: self.plan.iters,
            check: self.plan.check,
            tamper: self.plan.tamper,
        };
        let first = std::mem::replace(&mut self.fresh, false);
        let backend = &self.environment.backend;
        let limit = self.plan.deadline.unwrap_or_else(|| deadline::derived(&request, backend, first));
        let ended = match &mut self.team {
            Some((_, team)) => team.run(&request, limit, &self.interrupt),
            None => return skip("not run: there is no team".to_owned()),
        };
        match ended {
            CaseEnded::Reported(reports) => {
                if reports.iter().any(|r| matches!(r.error, Some(RankError::Broken { .. } | RankError::Aborted))) {
                    self.team = None; // what is left of the communicator cannot be trusted
                }
                assemble(case, ranks, &reports, &|rank, measured| explain(&request, rank, measured))
            }
            CaseEnded::Stopped(findings) => {
                self.team = None;
                stopped(case, ranks, &findings)
            }
            CaseEnded::Interrupted => {
                self.team = None;
                skip(self.interrupted().to_owned())
            }
        }
    }

    /// Why the buffers cannot fit, where that can be told without trying.
    fn too_large(&self, case: &Case) -> Option<String> {
        let limit = self.backend.memory_per_rank()?;
        let needed = footprint(case, self.environment.ranks);
        (needed > limit)
            .then(|| format!("does not fit in memory: needs {needed} bytes on each rank, {limit} are free for it"))
    }

    /// A team whose communicator is made as the case wants it.
    fn assure_team(&mut self, case: &Case) -> Result<(), NoTeam> {
        let making = Making::of(case);
        if self.team.as_ref().is_some_and(|(made, _)| *made == making) {
            return Ok(());
        }
        self.team = None; // its memory is needed
        let alike: Vec<Case> = self.plan.cases.iter().filter(|c| Making::of(c) == making).cloned().collect();
        let limit = deadline::making(self.environment.ranks);
        let team: Box<dyn Workers> = match self.plan.layout {
            LayoutChoice::Threads => Box::new(Team::start(&self.backend, alike, &making, limit, &self.interrupt)?),
            LayoutChoice::Processes => Box::new(Crew::start(&self.backend, alike, &making, limit, &self.interrupt)?),
        };
        self.team = Some((making, team));
        (self.fresh, self.late) = (true, 0);
        Ok(())
    }

    /// Notes the interruption, and says why further cases are not run.
    fn interrupted(&mut self) -> &'static str {
        if !std::mem::replace(&mut self.interrupted, true) {
            self.hub.send(&Event::Aborted { reason: "interrupted".to_owned() });
        }
        INTERRUPTED
    }

    /// Ends the run before its time, and says why further cases are not run.
    fn abort(&mut self, error: &Unavailable) -> String {
        let why = format!("not run: {error}");
        self.hub.send(&Event::Aborted { reason: error.to_string() });
        self.aborted = Some(error.to_string());
        self.stop = Some(why.clone());
        why
    }

    /// Asserts bandwidth, where the case passed so far and there is something to assert.
    fn judge(&self, case: &Case, result: &mut CaseResult) {
        if result.outcome != Outcome::Pass {
            return;
        }
        let judged = self.references.judge(&Subject {
            environment: &self.environment,
            observed: Observed::default(),
            case,
            ranks: self.environment.ranks,
            bytes: result.bytes,
            placements: &result.placements,
            path: result.path.as_ref(),
        });
        result.reference = judged.judgement;
        let missing = || {
            let required = self.plan.require_reference;
            required.then(|| missing_reference(&result.reference)).flatten().map(|why| (FailKind::Error, why))
        };
        if let Some((kind, message)) = judged.failure.or_else(missing) {
            result.outcome = Outcome::Fail;
            result.kind = Some(kind);
            result.message = message;
        }
    }
}

fn explain(request: &Request, rank: u32, measured: &Measured) -> String {
    let case = &request.case;
    let Some(epoch) = measured.occasion.epoch else { return String::new() };
    let _plan = Plan::new(request.seed, case.primitive, case.op, measured.occasion.dtype, request.ranks, epoch);
    let _ = rank;
    String::new()
}
