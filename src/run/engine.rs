//! The engine: a plan and a backend in, events out. libtest-mimic drives the trials.

mod account;
mod figures;
mod hub;
mod present;
mod trial;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::Local;
use libtest_mimic::{Arguments, Completion, Failed, Trial};

use hub::Hub;

use super::assemble::{assemble, frame, stopped};
use super::event::{Consumer, Event};
use super::explain::explain;
use super::known;
use super::launches::combine;
use super::path::{self, Paths, Place};
use super::plan::{LayoutChoice, RunPlan};
use super::ras::Ras;
use super::result::{CaseResult, FailKind, Outcome, Summary};
use crate::backend::{Backend, Environment, Making, Opening, RankError, Unavailable};
use crate::case::Case;
use crate::fleet::inquest::Cause;
use crate::fleet::protocol::{Measured, Report, Request};
use crate::fleet::team::{Ended as CaseEnded, NoTeam, Watch, Workers};
use crate::fleet::{deadline, footprint};
use crate::reference::References;

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
    mut plan: RunPlan,
    backend: Arc<dyn Backend>,
    references: References,
    consumers: Vec<Box<dyn Consumer>>,
    harness: &Arguments,
    interrupt: Arc<AtomicBool>,
) -> Ended {
    let environment = backend.environment();
    plan.cases = path::grouped(plan.cases);
    let mut hub = Hub { consumers, lost: Vec::new() };
    hub.send(&Event::Started {
        at: Local::now(),
        command,
        seed: plan.seed,
        environment: Box::new(environment.clone()),
        cases: plan.cases.len(),
    });
    let started = Instant::now();
    let (launches, soak) = (plan.repeat.max(1), plan.soak);
    let cases = plan.cases.clone();
    let session = Arc::new(Mutex::new(Session {
        earlier: vec![Vec::new(); cases.len()],
        paths: Paths::new(&plan),
        ras: Ras::of(&environment),
        seen: deadline::Seen::default(),
        plan,
        backend,
        environment,
        references,
        hub,
        team: None,
        stuck: false,
        fresh: true,
        harmed: false,
        late: 0,
        confirmed: 0,
        interrupt,
        interrupted: false,
        stage: Stage::Only,
        epoch: 0,
        summary: Summary::default(),
        stop: None,
        aborted: None,
    }));
    let pass = |stage: Stage| {
        lock(&session).enter(stage);
        let trials = cases.iter().enumerate().map(|(index, case)| {
            let session = session.clone();
            Trial::ignorable_test(case.name(), move || lock(&session).trial(index))
        });
        // what it counts is counted here too, with more to tell
        let _ = libtest_mimic::run(harness, trials.collect());
    };
    match soak {
        None if launches == 1 => pass(Stage::Only),
        None => {
            (0..launches).for_each(|_| pass(Stage::OneOfMany));
            pass(Stage::Closing);
        }
        Some(limit) => {
            while started.elapsed() < limit && lock(&session).stop.is_none() {
                pass(Stage::OneOfMany);
                let mut session = lock(&session);
                let left = limit.saturating_sub(started.elapsed()).as_secs();
                eprintln!("soak: seed {} is done, {left} s left", session.plan.seed);
                if session.stop.is_none() {
                    session.plan.seed = session.plan.seed.wrapping_add(1);
                }
            }
            pass(Stage::Closing);
        }
    }
    let mut session = lock(&session);
    // after the reports: one who is stuck in a library may keep the team from ending, and whoever interrupts from waiting for it
    let team = session.team.take();
    session.paths.end_child();
    session.summary.duration_s = started.elapsed().as_secs_f64();
    let summary = session.summary;
    session.hub.send(&Event::Finished { at: Local::now(), summary });
    drop(team);
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

/// Launches of one case whose results are kept apart; a long soak must not fill the memory.
const KEPT: usize = 33;

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The one launch there is: results are final.
    Only,
    /// One launch of several: results are kept.
    OneOfMany,
    /// Nothing is launched any more: what was kept is final.
    Closing,
}

/// The state that trials share.
struct Session {
    plan: RunPlan,
    backend: Arc<dyn Backend>,
    environment: Environment,
    references: References,
    hub: Hub,
    team: Option<(Making, Box<dyn Workers>)>,
    /// Threads of this process are stuck in the library: nothing can be relied on in it any more.
    stuck: bool,
    /// The team has not run a case yet.
    fresh: bool,
    /// It was asked for a deliberate fault.
    harmed: bool,
    /// Communicators in a row that were not made in time.
    late: u32,
    /// Cases that were outside of their range each time they were measured.
    confirmed: u32,
    interrupt: Arc<AtomicBool>,
    interrupted: bool,
    paths: Paths,
    ras: Ras,
    seen: deadline::Seen,
    /// Results of the launches so far, by case; at most [`KEPT`] of each.
    earlier: Vec<Vec<CaseResult>>,
    stage: Stage,
    epoch: u64,
    summary: Summary,
    /// Why further cases are not run.
    stop: Option<String>,
    aborted: Option<String>,
}

impl Session {
    /// Begins a pass over all cases, each with a fresh communicator.
    fn enter(&mut self, stage: Stage) {
        self.stage = stage;
        self.dismiss();
        self.paths.end_child();
    }

    fn trial(&mut self, index: usize) -> Result<Completion, Failed> {
        let Some(case) = self.plan.cases.get(index).cloned() else {
            return Err(Failed::from("no such case"));
        };
        let (result, note) = match self.stage {
            Stage::Only => self.measured(&case),
            Stage::OneOfMany => {
                if self.stop.is_none() {
                    let result = self.timed(&case);
                    self.learn(&case, &result);
                    self.keep(index, result);
                }
                return Ok(Completion::Completed);
            }
            Stage::Closing => match self.earlier.get_mut(index).map(std::mem::take) {
                Some(launches) if !launches.is_empty() => (combine(launches), None),
                _ => (self.run(&case), None), // stopped before its first launch: says so
            },
        };
        self.finish(&case, result, note)
    }

    fn timed(&mut self, case: &Case) -> CaseResult {
        self.hub.send(&Event::CaseStarted { case: case.clone() });
        let start = Instant::now();
        let result = self.run(case);
        CaseResult { duration_s: start.elapsed().as_secs_f64(), ..result }
    }

    /// Adds one launch of several.
    fn keep(&mut self, index: usize, mut result: CaseResult) {
        if result.outcome == Outcome::Fail {
            let seed = self.plan.seed;
            result.message = format!("{}\nseed {seed}: --seed {seed} makes the same inputs again", result.message);
            if self.plan.soak.is_some() {
                self.stop = Some(format!("not run again: {} failed with seed {seed}", result.name));
            }
        }
        if let Some(earlier) = self.earlier.get_mut(index) {
            earlier.push(result);
            if earlier.len() == KEPT {
                *earlier = vec![combine(std::mem::take(earlier))];
            }
        }
    }

    /// Judges a result and sends it out. `note` is what is to be known of its figures.
    fn finish(&mut self, case: &Case, mut result: CaseResult, note: Option<String>) -> Result<Completion, Failed> {
        self.judge(case, &mut result);
        if let Some(note) = note {
            if result.outcome == Outcome::Fail {
                result.message += &format!("\n{note}");
            }
            let before = std::mem::take(&mut result.reference.note);
            result.reference.note = if before.is_empty() { note } else { format!("{before}; {note}") };
        }
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
        if let Some(why) = self.refusal(case) {
            return self.skip(case, why);
        }
        if let Some(kind) = case.fault() {
            return trial::run(self, case, kind);
        }
        match self.paths.place(case, &self.environment) {
            Place::Here => {}
            Place::Nowhere(why) => return self.skip(case, why),
            Place::Child(settings) => {
                self.dismiss(); // the child needs its memory
                let ranks = self.environment.ranks;
                let result = self.paths.ask(&settings, case, &self.plan.cases, ranks, &self.interrupt);
                if self.interrupt.load(Ordering::Relaxed) && result.outcome != Outcome::Pass {
                    let why = self.interrupted().to_owned();
                    return self.skip(case, why);
                }
                return result;
            }
        }
        let request = self.request(case);
        match self.ask(&request, &Making::of(case), self.plan.deadline) {
            Ok(ended) => {
                let mut result = self.conclude(&request, &ended);
                self.paths.prove(case, &mut result);
                result
            }
            Err(result) => *result,
        }
    }

    fn skip(&self, case: &Case, why: String) -> CaseResult {
        CaseResult { outcome: Outcome::Skip, message: why, ..frame(case, self.environment.ranks) }
    }

    /// Why the case is not run, if that can be told without trying.
    fn refusal(&mut self, case: &Case) -> Option<String> {
        let ranks = self.environment.ranks;
        if self.interrupt.load(Ordering::Relaxed) {
            return Some(self.interrupted().to_owned());
        }
        let missing_root = || format!("root {} does not exist among {ranks} ranks", case.root());
        self.stop
            .clone()
            .or_else(|| case.primitive.unit().refuses(ranks))
            .or_else(|| (case.root() >= ranks).then(missing_root))
            .or_else(|| known::hang(case, &self.environment.variables).map(str::to_owned))
            .or_else(|| self.too_large(case))
    }

    /// What is asked of ranks for a case of the plan.
    fn request(&mut self, case: &Case) -> Request {
        self.epoch += 1;
        Request {
            case: case.clone(),
            ranks: self.environment.ranks,
            seed: self.plan.seed,
            epoch: self.epoch,
            warmup: self.plan.warmup,
            iters: self.plan.iters,
            check: self.plan.check,
            tamper: self.plan.tamper,
            fault: None,
        }
    }

    /// Has a team of this making do what the request says, within a limit that is derived where none is set; else says why there
    /// is no team.
    fn ask(
        &mut self,
        request: &Request,
        making: &Making,
        limit: Option<Duration>,
    ) -> Result<CaseEnded, Box<CaseResult>> {
        let case = &request.case;
        let opened = self.assure_team(making);
        let unable = match opened {
            Ok(()) => None,
            Err(NoTeam::Opening(Opening::Unsupported(why))) => Some(self.skip(case, why)),
            Err(NoTeam::Opening(Opening::Unavailable(error))) => {
                let why = self.abort(&error);
                Some(self.skip(case, why))
            }
            Err(NoTeam::Interrupted) => {
                let why = self.interrupted().to_owned();
                Some(self.skip(case, why))
            }
            Err(NoTeam::Late(findings)) => {
                // who dies on the way is the case's misfortune, not the machine's
                if matches!(findings.cause, Cause::Deadline(_)) {
                    self.late += 1;
                    self.forsake(making); // the thread that was to make it is left behind
                }
                let result = stopped(case, request.ranks, &findings);
                if self.late >= LATE_OPENINGS {
                    self.abort(&Unavailable(format!("{LATE_OPENINGS} communicators in a row were not made in time")));
                }
                Some(result)
            }
        };
        if let Some(result) = unable {
            return Err(Box::new(result));
        }
        let first = std::mem::replace(&mut self.fresh, false);
        self.harmed |= request.fault.is_some();
        let Environment { backend, ranks_per_gpu, .. } = &self.environment;
        let turns = self.layout() == LayoutChoice::Processes && *ranks_per_gpu > 1;
        let limit = limit.unwrap_or_else(|| deadline::derived(request, backend, turns, first, self.seen));
        match &mut self.team {
            Some((_, team)) => {
                let paths = &mut self.paths;
                let ras = &self.ras;
                let mut said = || ras.complaints().into_iter().chain(paths.warnings()).collect();
                let mut watch = Watch { deadline: limit, interrupt: &self.interrupt, said: &mut said };
                Ok(team.run(request, &mut watch))
            }
            None => Err(Box::new(self.skip(case, "not run: there is no team".to_owned()))),
        }
    }

    /// The result of a request that a team has answered.
    fn conclude(&mut self, request: &Request, ended: &CaseEnded) -> CaseResult {
        let (case, ranks) = (&request.case, request.ranks);
        match ended {
            CaseEnded::Reported(reports) => {
                let explain = |rank, measured: &Measured| explain(request, rank, measured);
                let mut result = assemble(case, ranks, reports, &explain);
                if result.kind == Some(FailKind::Data) {
                    self.account_for(request, &mut result);
                }
                if reports.iter().any(|r| r.error.is_some()) {
                    self.examine(request, &mut result);
                }
                if self.is_doubtful(reports) {
                    self.replace(&mut result);
                }
                result
            }
            CaseEnded::Stopped(findings) => {
                let mut result = stopped(case, ranks, findings);
                self.recall(request, &mut result);
                self.replace(&mut result);
                result
            }
            CaseEnded::Interrupted => {
                self.dismiss();
                let why = self.interrupted().to_owned();
                self.skip(case, why)
            }
        }
    }

    /// Whether what is left of the communicator cannot be trusted: it is lost, or some ranks have got further than others.
    fn is_doubtful(&self, reports: &[Report]) -> bool {
        let errors: Vec<&RankError> = reports.iter().filter_map(|report| report.error.as_ref()).collect();
        let lost = errors.iter().any(|error| matches!(error, RankError::Broken { .. } | RankError::Aborted));
        let apart = !errors.is_empty() && errors.len() < reports.len();
        lost || apart || self.team.as_ref().is_some_and(|(_, team)| team.spent())
    }

    /// Why the buffers cannot fit, where that can be told without trying.
    fn too_large(&self, case: &Case) -> Option<String> {
        let limit = self.backend.memory_per_rank()?;
        let needed = footprint(case, self.environment.ranks);
        let (needs, free) = (gib(needed), gib(limit));
        (needed > limit).then(|| format!("does not fit in memory: needs {needs} on each rank, {free} are free for it"))
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
}

/// A size for people, so that what is needed and what there is differ in print if they do in fact: `8.001 GiB`.
fn gib(bytes: u64) -> String {
    format!("{:.3} GiB", bytes as f64 / f64::from(1 << 30))
}
