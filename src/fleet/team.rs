//! A team: the worker threads of one communicator, seen by the runner as something that takes requests and gives reports.
//!
//! Nobody waits for a worker without an end. When a deadline passes or a worker dies, what all of them are doing is put
//! down first; then the communicator is aborted, so that those who are stuck in it come back. A thread that does not is
//! left behind with what it holds, as only processes can be killed. The team is of no use any more then.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::inquest::{self, Cause, Findings, Witness};
use super::log::{Doing, Log, now_ns};
use super::place::Place;
use super::protocol::{Report, Request};
use super::recorder::Recorder;
use super::worker::{self, Meeting};
use crate::backend::{Aborter, Backend, Making, Opening, RankError, Station, Unavailable, Watcher};
use crate::case::Case;
use crate::trace::Liveness;

/// How often one who waits looks whether the run was interrupted.
pub(super) const LOOK: Duration = Duration::from_millis(50);

/// How long the others have to get stuck, or to come back, after a worker has died.
pub(super) const AFTER_DEATH: Duration = Duration::from_millis(500);

/// How long the others may be held up by a call that one of them could not make.
pub(super) const AFTER_REFUSAL: Duration = Duration::from_secs(5);

/// How long workers have to come back once they are aborted.
const AFTER_ABORT: Duration = Duration::from_secs(5);

/// How long workers have to close a sound communicator.
const CLOSING: Duration = Duration::from_secs(60);

/// Set once a thread was left behind.
static LEFT_BEHIND: AtomicBool = AtomicBool::new(false);

/// Whether a thread of this process was left behind in a library that does not let it go.
pub fn left_behind() -> bool {
    LEFT_BEHIND.load(Ordering::Relaxed)
}

/// How a case ended.
#[derive(Debug)]
pub enum Ended {
    /// All ranks reported: one report for each, in rank order.
    Reported(Vec<Report>),
    /// They did not.
    Stopped(Box<Findings>),
    /// The run was interrupted.
    Interrupted,
}

/// What a case is watched with.
pub struct Watch<'a> {
    /// What it may take.
    pub deadline: Duration,
    /// Set once the run is to end.
    pub interrupt: &'a AtomicBool,
    /// What the library has said of late, and which rank of its ranks, where that is known: asked where a case has no end.
    pub said: &'a mut dyn FnMut() -> Vec<inquest::Said>,
}

/// Why there is no team.
#[derive(Debug)]
pub enum NoTeam {
    /// The communicator cannot be made.
    Opening(Opening),
    /// It was not made in time.
    Late(Box<Findings>),
    /// The run was interrupted.
    Interrupted,
}

impl<E: Into<Opening>> From<E> for NoTeam {
    fn from(error: E) -> NoTeam {
        NoTeam::Opening(error.into())
    }
}

/// What takes requests and gives reports, whatever its workers are.
pub trait Workers: Send {
    /// Runs one case, until its end or the deadline.
    fn run(&mut self, request: &Request, watch: &mut Watch<'_>) -> Ended;

    /// The process in which each rank lives, in rank order; one where all share it.
    fn processes(&self) -> Vec<u32>;

    /// What is known of each rank after a case, however it ended: one for each rank.
    fn witnesses(&mut self) -> Vec<Witness>;

    /// Whether a case was given up: they can run no other.
    fn spent(&self) -> bool;

    /// Ends them; false if some cannot be ended.
    fn dismiss(self: Box<Self>) -> bool;
}

/// The workers of one communicator.
pub struct Team {
    workers: Vec<Worker>,
    said: Receiver<Said>,
    place: Arc<Place>,
    ranks: u32,
    aborted: bool,
    /// Some of its threads do not end.
    left_behind: bool,
}

struct Worker {
    ranks: Vec<u32>,
    logs: Vec<Log>,
    /// `None` once it is to end.
    requests: Option<Sender<Request>>,
    thread: JoinHandle<()>,
    /// `None` once it was used.
    aborter: Option<Aborter>,
    watcher: Watcher,
}

enum Said {
    Reports(usize, Vec<Report>),
    Died(usize, String),
}

impl Team {
    /// Makes the communicator within `limit`, and starts a thread for each station. `cases` is what will be asked of it.
    pub fn start(
        backend: &Arc<dyn Backend>,
        cases: Vec<Case>,
        making: &Making,
        limit: Duration,
        interrupt: &AtomicBool,
    ) -> Result<Team, NoTeam> {
        let stations = open(backend, cases, making, limit, interrupt)?;
        let ranks = stations.iter().map(|s| s.ranks().len() as u32).sum();
        let place = Arc::new(Place::new(stations.len()));
        let (say, said) = channel();
        let mut team =
            Team { workers: Vec::new(), said, place: place.clone(), ranks, aborted: false, left_behind: false };
        for (index, station) in stations.into_iter().enumerate() {
            let own = station.ranks().to_vec();
            let logs: Vec<Log> = own.iter().map(|_| Log::allocate()).collect();
            let (aborter, watcher) = (station.aborter(), station.watcher());
            let recorder =
                Recorder::new(station, &logs).map_err(|e| Unavailable(format!("calls cannot be recorded: {e}")))?;
            let station = backend.disturb(Box::new(recorder));
            let (request, requests) = channel();
            let name = format!("rank {}", own.first().copied().unwrap_or(0));
            let meeting = Logged { place: place.clone(), logs: logs.clone() };
            let say = say.clone();
            let thread = std::thread::Builder::new()
                .name(name)
                .spawn(move || drive(station, &meeting, &requests, index, &say))
                .map_err(|e| Unavailable(format!("cannot start a worker thread: {e}")))?;
            let (requests, aborter) = (Some(request), Some(aborter));
            team.workers.push(Worker { ranks: own, logs, requests, thread, aborter, watcher });
        }
        Ok(team)
    }

    /// Ranks of the communicator.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    fn ranks_of(&self, index: usize) -> Vec<u32> {
        self.workers.get(index).map(|worker| worker.ranks.clone()).unwrap_or_default()
    }

    /// `dead` are workers that have died, and why.
    fn testimony(&self, dead: &[(usize, String)]) -> Vec<Witness> {
        let mut all = Vec::new();
        for (index, worker) in self.workers.iter().enumerate() {
            let death = dead.iter().find(|(dead, _)| *dead == index).map(|(_, why)| why);
            // a dead worker's station is gone
            let troubles = if death.is_some() { Vec::new() } else { (worker.watcher)() };
            let liveness =
                if death.is_some() { Liveness::Exited { code: None, signal: None } } else { Liveness::Alive };
            all.extend(worker.ranks.iter().zip(&worker.logs).map(|(&rank, log)| {
                Witness {
                    rank,
                    host: String::new(),
                    liveness,
                    log: Some(log.clone()),
                    messages: death
                        .into_iter()
                        .chain(troubles.iter().filter(|(of, _)| *of == rank).map(|(_, what)| what))
                        .cloned()
                        .chain(log.troubles())
                        .collect(),
                }
            }));
        }
        all.sort_by_key(|witness| witness.rank);
        all
    }

    /// Whether others are held up in vain by a call that a worker could not make, one that waits for them or has reported. Where
    /// its communicator is lost, they do not come back by themselves. What they wait for at the deadline is only what came of it.
    fn given_up(&self, wake: &Wake, late: bool) -> bool {
        let lost = || self.workers.iter().flat_map(|worker| &worker.logs).any(|log| log.troubles().is_some());
        let waited = self.place.unwell_for().max(wake.failed.map(|since| since.elapsed()));
        waited.is_some_and(|waited| late || waited >= AFTER_REFUSAL || (waited >= AFTER_DEATH && lost()))
    }

    /// Takes the reports of those who come back once they are aborted.
    fn drain(&self, wake: &mut Wake) {
        let end = Instant::now() + AFTER_ABORT;
        while wake.reports.iter().any(Option::is_none) {
            match self.said.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(Said::Reports(index, reports)) => wake.reported(index, reports),
                Ok(Said::Died(index, why)) => wake.died(index, why),
                Err(_) => return,
            }
        }
    }

    /// All reports in rank order; who gave none was aborted.
    fn assemble(&self, wake: Wake) -> Vec<Report> {
        let missing = |worker: &Worker| {
            let report = |&rank| Report { rank, placements: Vec::new(), error: Some(RankError::Aborted) };
            worker.ranks.iter().map(report).collect()
        };
        let reports = wake.reports.into_iter().zip(&self.workers);
        let mut all: Vec<Report> =
            reports.flat_map(|(reports, worker)| reports.unwrap_or_else(|| missing(worker))).collect();
        all.sort_by_key(|report| report.rank);
        all
    }

    /// Frees all who wait for others. Aborting may be held up by the library, so that it has a thread of its own.
    fn abort(&mut self) {
        self.aborted = true;
        self.place.close();
        for aborter in self.workers.iter_mut().filter_map(|worker| worker.aborter.take()) {
            // Without a thread to be had, the workers stay where they are.
            let _ = std::thread::Builder::new().name("abort".to_owned()).spawn(aborter);
        }
    }

    /// Lets the workers end, and leaves those behind who do not.
    fn close(&mut self) {
        if self.left_behind {
            return;
        }
        self.workers.iter_mut().for_each(|worker| worker.requests = None); // ends the workers' loops
        if !self.aborted && !self.ended(CLOSING) {
            self.abort();
        }
        if self.aborted && !self.ended(AFTER_ABORT) {
            self.left_behind = true;
            LEFT_BEHIND.store(true, Ordering::Relaxed);
        }
    }

    /// Whether all workers have ended before the time is up.
    fn ended(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        loop {
            if self.workers.iter().all(|worker| worker.thread.is_finished()) {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Workers for Team {
    fn processes(&self) -> Vec<u32> {
        vec![std::process::id()]
    }

    fn run(&mut self, request: &Request, watch: &mut Watch<'_>) -> Ended {
        let (deadline, interrupt) = (watch.deadline, watch.interrupt);
        let began_ns = now_ns();
        let end = Instant::now().checked_add(deadline);
        let name = request.case.name();
        for log in self.workers.iter().flat_map(|worker| &worker.logs) {
            log.begin(request.epoch, &name);
        }
        let mut wake = Wake { reports: vec![None; self.workers.len()], dead: Vec::new(), give_up: None, failed: None };
        for (index, worker) in self.workers.iter().enumerate() {
            let sent = worker.requests.as_ref().is_some_and(|requests| requests.send(request.clone()).is_ok());
            if !sent {
                wake.died(index, "its thread has ended".to_owned());
            }
        }
        while wake.reports.iter().any(Option::is_none) {
            match self.said.recv_timeout(LOOK) {
                Ok(Said::Reports(index, reports)) => wake.reported(index, reports),
                Ok(Said::Died(index, why)) => wake.died(index, why),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(LOOK),
            }
            let now = Instant::now();
            let cause = if interrupt.load(Ordering::Relaxed) {
                self.abort();
                return Ended::Interrupted;
            } else if wake.give_up.is_some_and(|end| now >= end) {
                Cause::Died(wake.dead.iter().flat_map(|(index, _)| self.ranks_of(*index)).collect())
            } else if wake.dead.is_empty()
                && wake.reports.iter().any(Option::is_none)
                && self.given_up(&wake, end.is_some_and(|end| now >= end))
            {
                // Not a riddle: who could not make the call says so. The others are only to be freed.
                let witnesses = self.testimony(&[]);
                self.abort();
                self.drain(&mut wake);
                if end.is_none_or(|end| now < end) || has_reason(wake.reports.iter().flatten().flatten()) {
                    break;
                }
                // but for one that only has not the means
                let cause = Cause::Deadline(deadline.as_secs_f64());
                let findings = inquest::hold(witnesses, (watch.said)(), request.epoch, cause, began_ns, now_ns());
                return Ended::Stopped(Box::new(findings));
            } else if end.is_some_and(|end| now >= end) && wake.reports.iter().any(Option::is_none) {
                Cause::Deadline(deadline.as_secs_f64())
            } else {
                continue;
            };
            let witnesses = self.testimony(&wake.dead);
            let said = (watch.said)();
            let findings = inquest::hold(witnesses, said, request.epoch, cause, began_ns, now_ns());
            self.abort();
            return Ended::Stopped(Box::new(findings));
        }
        Ended::Reported(self.assemble(wake))
    }

    fn witnesses(&mut self) -> Vec<Witness> {
        self.testimony(&[])
    }

    fn spent(&self) -> bool {
        self.aborted
    }

    fn dismiss(mut self: Box<Self>) -> bool {
        self.close();
        !self.left_behind
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.close();
    }
}

/// What has been heard of the workers in one case.
struct Wake {
    reports: Vec<Option<Vec<Report>>>,
    dead: Vec<(usize, String)>,
    /// When to stop waiting after a death.
    give_up: Option<Instant>,
    /// Since when one is known to have failed that meets nobody any more.
    failed: Option<Instant>,
}

impl Wake {
    fn reported(&mut self, index: usize, reports: Vec<Report>) {
        if reports.iter().any(|report| report.error.is_some()) {
            self.failed.get_or_insert_with(Instant::now);
        }
        if let Some(place) = self.reports.get_mut(index) {
            *place = Some(reports);
        }
    }

    fn died(&mut self, index: usize, why: String) {
        self.dead.push((index, why));
        self.give_up.get_or_insert(Instant::now() + AFTER_DEATH);
    }
}

/// Whether an error says why others do not come back: more than that something cannot be done here.
pub(super) fn has_reason<'a>(reports: impl IntoIterator<Item = &'a Report>) -> bool {
    reports.into_iter().filter_map(|report| report.error.as_ref()).any(|error| !error.is_excuse())
}

/// Makes the communicator on a thread of its own, which is left behind if it does not come back.
fn open(
    backend: &Arc<dyn Backend>,
    cases: Vec<Case>,
    making: &Making,
    limit: Duration,
    interrupt: &AtomicBool,
) -> Result<Vec<Box<dyn Station>>, NoTeam> {
    let ranks = backend.environment().ranks;
    let (done, opened) = channel();
    let (backend, making) = (backend.clone(), *making);
    let opening = move || {
        // nobody listens any more once it is late
        let _ = done.send(backend.open(&cases, &making));
    };
    let thread = std::thread::Builder::new().name("opening".to_owned()).spawn(opening);
    thread.map_err(|e| Unavailable(format!("cannot start a thread: {e}")))?;
    let end = Instant::now() + limit;
    loop {
        match opened.recv_timeout(LOOK) {
            Ok(stations) => return Ok(stations?),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Unavailable("making the communicator panicked".to_owned()).into());
            }
            Err(RecvTimeoutError::Timeout) if interrupt.load(Ordering::Relaxed) => return Err(NoTeam::Interrupted),
            Err(RecvTimeoutError::Timeout) if Instant::now() >= end => {
                // one call makes all ranks
                let all: Vec<u32> = (0..ranks).collect();
                return Err(NoTeam::Late(Box::new(inquest::unmade(
                    &[],
                    &[],
                    ranks,
                    &all,
                    Cause::Deadline(limit.as_secs_f64()),
                ))));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// A worker's life. A panic is its last word.
fn drive(
    mut station: Box<dyn Station>,
    meeting: &Logged,
    requests: &Receiver<Request>,
    index: usize,
    say: &Sender<Said>,
) {
    let entered = catch_unwind(AssertUnwindSafe(|| station.enter()))
        .unwrap_or_else(|panic| Err(RankError::Broken { call: "enter".to_owned(), message: words(panic.as_ref()) }));
    while let Ok(request) = requests.recv() {
        let reports = catch_unwind(AssertUnwindSafe(|| match &entered {
            Ok(()) => worker::run(station.as_mut(), meeting, &request),
            Err(error) => {
                // the others must not wait for this one
                meeting.all_well(false);
                let failed = |&rank| Report { rank, placements: Vec::new(), error: Some(error.clone()) };
                station.ranks().iter().map(failed).collect()
            }
        }));
        let (last, word) = match reports {
            Ok(reports) => {
                meeting.at(Doing::Reported);
                (false, Said::Reports(index, reports))
            }
            Err(panic) => (true, Said::Died(index, format!("panicked: {}", words(panic.as_ref())))),
        };
        if say.send(word).is_err() || last {
            return;
        }
    }
}

/// What a panic said.
fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "something that is no text".to_owned())
}

/// The meeting of one worker's, noted in its logs.
struct Logged {
    place: Arc<Place>,
    logs: Vec<Log>,
}

impl Logged {
    fn at(&self, doing: Doing) {
        self.logs.iter().for_each(|log| log.at(doing));
    }
}

impl Meeting for Logged {
    fn all_well(&self, well: bool) -> bool {
        self.at(Doing::Meeting);
        let all = self.place.all_well(well);
        self.at(Doing::Beginning);
        all
    }

    fn armed(&self) {
        self.logs.iter().for_each(Log::armed);
    }
}
