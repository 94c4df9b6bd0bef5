//! A team: the worker threads of one communicator, seen by the runner as something that takes requests and gives reports.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::protocol::{Report, Request};
use super::worker::{self, Meeting};
use crate::backend::{Backend, Making, Opening, RankError, Station, Unavailable};
use crate::case::Case;

/// The workers of one communicator.
pub struct Team {
    requests: Vec<Sender<Request>>,
    reports: Receiver<Vec<Report>>,
    threads: Vec<JoinHandle<()>>,
    ranks: u32,
}

impl Team {
    /// Makes the communicator and starts a thread for each station. `cases` is what will be asked of it.
    pub fn start(backend: &dyn Backend, cases: &[Case], making: &Making) -> Result<Team, Opening> {
        let stations = backend.open(cases, making)?;
        let ranks = stations.iter().map(|s| s.ranks().len() as u32).sum();
        let meeting = Arc::new(Place::new(stations.len()));
        let (report, reports) = channel();
        let mut team = Team { requests: Vec::new(), reports, threads: Vec::new(), ranks };
        for station in stations {
            let (request, requests) = channel();
            let (meeting, report) = (meeting.clone(), report.clone());
            let name = format!("rank {}", station.ranks().first().copied().unwrap_or(0));
            let thread = std::thread::Builder::new()
                .name(name)
                .spawn(move || drive(station, &meeting, &requests, &report))
                .map_err(|e| Unavailable(format!("cannot start a worker thread: {e}")))?;
            team.requests.push(request);
            team.threads.push(thread);
        }
        Ok(team)
    }

    /// Ranks of the communicator.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Runs one case; one report per rank, in rank order. `Err` if a worker is gone.
    pub fn run(&self, request: &Request) -> Result<Vec<Report>, RankError> {
        let gone = || RankError::Broken { call: "worker".to_owned(), message: "a worker thread has ended".to_owned() };
        for sender in &self.requests {
            sender.send(request.clone()).map_err(|_| gone())?;
        }
        let mut all = Vec::with_capacity(self.ranks as usize);
        for _ in &self.requests {
            all.extend(self.reports.recv().map_err(|_| gone())?);
        }
        all.sort_by_key(|report| report.rank);
        Ok(all)
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.requests.clear(); // ends the workers' loops
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn drive(mut station: Box<dyn Station>, meeting: &Place, requests: &Receiver<Request>, report: &Sender<Vec<Report>>) {
    let entered = station.enter();
    while let Ok(request) = requests.recv() {
        let reports = match &entered {
            Ok(()) => worker::run(station.as_mut(), meeting, &request),
            Err(error) => {
                // the others must not wait for this one
                meeting.all_well(false);
                let failed = |&rank| Report { rank, placements: Vec::new(), error: Some(error.clone()) };
                station.ranks().iter().map(failed).collect()
            }
        };
        if report.send(reports).is_err() {
            return;
        }
    }
}

/// Where the threads of one process meet.
struct Place {
    state: Mutex<State>,
    changed: Condvar,
    size: usize,
}

#[derive(Default)]
struct State {
    arrived: usize,
    well: bool,
    round: u64,
    verdict: bool,
}

impl Place {
    fn new(size: usize) -> Place {
        Place { state: Mutex::new(State { well: true, ..State::default() }), changed: Condvar::new(), size }
    }
}

impl Meeting for Place {
    fn all_well(&self, well: bool) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.arrived += 1;
        state.well &= well;
        if state.arrived == self.size {
            state.arrived = 0;
            state.verdict = state.well;
            state.well = true;
            state.round += 1;
            self.changed.notify_all();
            return state.verdict;
        }
        let round = state.round;
        while state.round == round {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_not_well_is_known_to_all_and_forgotten_in_the_next_round() {
        let place = Place::new(3);
        for bad in [Some(1), None, Some(0)] {
            let verdicts: Vec<bool> = std::thread::scope(|s| {
                let threads: Vec<_> = (0..3)
                    .map(|i| {
                        s.spawn({
                            let place = &place;
                            move || place.all_well(Some(i) != bad)
                        })
                    })
                    .collect();
                threads.into_iter().map(|t| t.join().unwrap()).collect()
            });
            assert_eq!(verdicts, [bad.is_none(); 3]);
        }
    }
}
