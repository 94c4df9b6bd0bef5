//! The coordinator's side: worker processes of one communicator, watched wherever they run.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::post::Lent;
use super::staff::{Own, Staff};
use super::wire::{self, Down, MOST, Up};
use crate::backend::host::Book;
use crate::backend::{Backend, Making, Opening, RankError, Unavailable};
use crate::case::{Case, DType, Op, Primitive};
use crate::fleet::inquest::{self, Cause, Witness};
use crate::fleet::log::{Log, now_ns};
use crate::fleet::protocol::{Report, Request};
use crate::fleet::team::{AFTER_DEATH, AFTER_REFUSAL, Ended, LOOK, NoTeam, Watch, Workers};
use crate::oracle::Data;
use crate::trace::Liveness;

/// Worker processes of one communicator. They are killed when it is dropped.
pub struct Crew {
    members: Vec<TcpStream>,
    heard: Receiver<(usize, Heard)>,
    staff: Box<dyn Staff>,
}

/// What a reader has from its worker.
enum Heard {
    Said(Up),
    /// The connection ended, and why.
    Lost(String),
}

impl Crew {
    /// Starts a process for each rank, here or where the backend's agents are, and lets them make the communicator within
    /// `limit`. `cases` is what will be asked of them.
    pub fn start(
        backend: &Arc<dyn Backend>,
        mut cases: Vec<Case>,
        making: &Making,
        limit: Duration,
        interrupt: &AtomicBool,
    ) -> Result<Crew, NoTeam> {
        let end = Instant::now() + limit;
        let recipe = backend.recipe(making)?;
        let environment = backend.environment();
        let mut staff: Box<dyn Staff> = match backend.agents() {
            Some(post) => Box::new(Lent::start(&post, recipe, environment.ranks_per_gpu)?),
            None => Box::new(Own::start(recipe, environment.ranks, environment.ranks_per_gpu)?),
        };
        let members = gather(staff.as_mut(), end, limit, interrupt)?;

        let (hear, heard) = channel();
        for (index, stream) in members.iter().enumerate() {
            let from = stream.try_clone().map_err(|e| Unavailable(format!("a worker cannot be heard: {e}")))?;
            let hear = hear.clone();
            let listen = move || {
                let mut from = from;
                loop {
                    let (heard, last) = match wire::receive(&mut from, MOST) {
                        Ok(up) => (Heard::Said(up), false),
                        Err(why) => (Heard::Lost(why.to_string()), true),
                    };
                    if hear.send((index, heard)).is_err() || last {
                        return;
                    }
                }
            };
            // it ends with the connection
            let thread = std::thread::Builder::new().name(format!("from rank {index}")).spawn(listen);
            thread.map_err(|e| Unavailable(format!("cannot start a thread: {e}")))?;
        }
        let mut crew = Crew { members, heard, staff };
        cases.sort_by_key(kind);
        cases.dedup_by_key(|case| kind(case));
        crew.tell(&Down::Cases(cases));
        crew.made(end, limit, interrupt)?;
        Ok(crew)
    }

    /// Waits until all have made their part of the communicator.
    fn made(&mut self, end: Instant, limit: Duration, interrupt: &AtomicBool) -> Result<(), NoTeam> {
        let ranks = self.members.len() as u32;
        let mut ready = vec![false; self.members.len()];
        let mut addresses = vec![None; self.members.len()];
        while ready.contains(&false) {
            match self.heard.recv_timeout(LOOK) {
                Ok((index, Heard::Said(Up::Ready))) => {
                    if let Some(ready) = ready.get_mut(index) {
                        *ready = true;
                    }
                }
                Ok((index, Heard::Said(Up::Listening(address)))) => {
                    let seen = self.members.get(index).and_then(|stream| Some(stream.peer_addr().ok()?.ip()));
                    if let Some(own) = addresses.get_mut(index) {
                        *own = Some(reachable(address, seen, self.staff.outside()));
                    }
                    if let Some(all) = addresses.iter().copied().collect() {
                        self.tell(&Down::Book(Book::new(all)));
                    }
                }
                Ok((0, Heard::Said(Up::Identity(identity)))) => self.tell(&Down::Identity(identity)),
                Ok((index, Heard::Said(Up::Failed(why)))) => {
                    return Err(Unavailable(format!("rank {index} cannot start: {why}")).into());
                }
                Ok((_, Heard::Said(Up::Unsupported(why)))) => return Err(Opening::Unsupported(why).into()),
                Ok(_) | Err(_) => {}
            }
            if interrupt.load(Ordering::Relaxed) {
                return Err(NoTeam::Interrupted);
            }
            let all: Vec<u32> = (0..ranks).collect();
            late(&self.staff.states(), &all, end, limit)?;
        }
        Ok(())
    }

    /// Whether others are held up in vain by a call that a worker could not make. Where its communicator is lost, as its log
    /// says, they do not come back by themselves; logs may be far away, and are looked at once.
    fn given_up(&mut self, meeting: &Round, late: bool, looked: &mut bool) -> bool {
        let Some(waited) = meeting.unwell_for() else {
            *looked = false;
            return false;
        };
        if waited >= AFTER_REFUSAL {
            return true;
        }
        if !late && (waited < AFTER_DEATH || *looked) {
            return false;
        }
        *looked = true;
        self.staff.logs().iter().flatten().any(|log| log.troubles().is_some())
    }

    /// Lets those go who wait in the meeting, and takes their reports; who is stuck in a call is aborted.
    fn released(&mut self, meeting: &mut Round, mut reports: Vec<Option<Vec<Report>>>) -> Vec<Report> {
        let end = Instant::now() + AFTER_DEATH;
        for index in meeting.arrived() {
            self.tell_one(index, &Down::Met(false));
        }
        while let Ok((index, heard)) = self.heard.recv_timeout(end.saturating_duration_since(Instant::now())) {
            match heard {
                Heard::Said(Up::Meet(_)) => self.tell_one(index, &Down::Met(false)),
                Heard::Said(Up::Reports(own)) => {
                    if let Some(place) = reports.get_mut(index) {
                        *place = Some(own);
                    }
                }
                _ => {}
            }
        }
        let aborted =
            |rank: usize| vec![Report { rank: rank as u32, placements: Vec::new(), error: Some(RankError::Aborted) }];
        reports.into_iter().enumerate().flat_map(|(rank, own)| own.unwrap_or_else(|| aborted(rank))).collect()
    }

    /// `said` is what each has said before.
    fn testimony(&mut self, said: Vec<Vec<String>>) -> Vec<Witness> {
        // who fetches logs learns how their owners are
        let logs = self.staff.logs();
        let known = self.staff.states().into_iter().zip(logs).zip(said).zip(0..);
        let witness = |(((liveness, log), mut messages), rank): (((_, Option<Log>), Vec<String>), _)| {
            messages.extend(log.as_ref().and_then(Log::troubles));
            Witness { rank, liveness, log, messages }
        };
        known.map(witness).collect()
    }

    fn tell(&mut self, message: &Down) {
        (0..self.members.len()).for_each(|index| self.tell_one(index, message));
    }

    fn tell_one(&mut self, index: usize, message: &Down) {
        if let Some(stream) = self.members.get_mut(index) {
            // Who does not listen is dead or stopped, and is found out as that.
            let _ = wire::send(stream, message);
        }
    }
}

impl Workers for Crew {
    fn processes(&self) -> Vec<u32> {
        self.staff.processes()
    }

    fn run(&mut self, request: &Request, watch: &mut Watch<'_>) -> Ended {
        let (deadline, interrupt) = (watch.deadline, watch.interrupt);
        let began_ns = now_ns();
        let end = Instant::now().checked_add(deadline);
        let size = self.members.len();
        let mut reports: Vec<Option<Vec<Report>>> = vec![None; size];
        let mut meeting = Round::new(size);
        let mut said = vec![Vec::new(); size];
        let mut give_up: Option<Instant> = None;
        let mut looked = false;
        // who cannot be told is dead, which is noticed below
        self.tell(&Down::Case(Box::new(request.clone())));
        while reports.iter().any(Option::is_none) {
            match self.heard.recv_timeout(LOOK) {
                Ok((index, Heard::Said(Up::Meet(well)))) => {
                    if let Some(all) = meeting.arrive(index, well) {
                        self.tell(&Down::Met(all));
                    }
                }
                Ok((index, Heard::Said(Up::Reports(own)))) => {
                    if let Some(place) = reports.get_mut(index) {
                        *place = Some(own);
                    }
                }
                Ok((
                    index,
                    Heard::Said(Up::Ready | Up::Failed(_) | Up::Unsupported(_) | Up::Identity(_) | Up::Listening(_)),
                )) => note(&mut said, index, "spoke out of turn"),
                Ok((index, Heard::Lost(why))) => {
                    note(&mut said, index, &format!("its connection ended: {why}"));
                    give_up.get_or_insert(Instant::now() + AFTER_DEATH);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(LOOK),
            }
            let now = Instant::now();
            let cause = if interrupt.load(Ordering::Relaxed) {
                return Ended::Interrupted;
            } else if give_up.is_some_and(|end| now >= end) {
                Cause::Died(Vec::new())
            } else if give_up.is_none() && self.given_up(&meeting, end.is_some_and(|end| now >= end), &mut looked) {
                // Who could not make the call says so once it is let go; the others are in it.
                return Ended::Reported(self.released(&mut meeting, reports));
            } else if end.is_some_and(|end| now >= end) && reports.iter().any(Option::is_none) {
                Cause::Deadline(deadline.as_secs_f64())
            } else {
                continue;
            };
            let witnesses = self.testimony(said);
            let gone = witnesses.iter().filter(|w| w.liveness.exited()).map(|w| w.rank).collect::<Vec<_>>();
            let cause = match cause {
                Cause::Died(_) => Cause::Died(gone),
                cause => cause,
            };
            let findings = inquest::hold(witnesses, (watch.said)(), request.epoch, cause, began_ns, now_ns());
            return Ended::Stopped(Box::new(findings));
        }
        Ended::Reported(reports.into_iter().flatten().flatten().collect())
    }

    fn witnesses(&mut self) -> Vec<Witness> {
        self.testimony(vec![Vec::new(); self.members.len()])
    }
}

/// What kernels depend on: one case of each kind is enough to load them all.
fn kind(case: &Case) -> (Primitive, Option<Op>, DType, u32) {
    (case.primitive, case.op, case.dtype, Data::of(&case.variants) as u32)
}

fn note(said: &mut [Vec<String>], index: usize, what: &str) {
    if let Some(said) = said.get_mut(index) {
        said.push(what.to_owned());
    }
}

/// Where other ranks reach one that listens at `address`. If that is any address of its host, it is the one by which the
/// coordinator sees it; and where that is the loopback device, both are on the host that others know as `outside`.
fn reachable(address: SocketAddr, seen: Option<IpAddr>, outside: Option<IpAddr>) -> SocketAddr {
    if !address.ip().is_unspecified() {
        return address;
    }
    let seen = seen.map(|ip| ip.to_canonical()).filter(|ip| !ip.is_loopback());
    SocketAddr::new(seen.or(outside).unwrap_or(Ipv4Addr::LOCALHOST.into()), address.port())
}

/// Waits for the workers to report for duty.
fn gather(
    staff: &mut dyn Staff,
    end: Instant,
    limit: Duration,
    interrupt: &AtomicBool,
) -> Result<Vec<TcpStream>, NoTeam> {
    loop {
        if let Some(streams) = staff.admit()? {
            return Ok(streams);
        }
        if interrupt.load(Ordering::Relaxed) {
            return Err(NoTeam::Interrupted);
        }
        late(&staff.states(), &staff.here(), end, limit)?;
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// An error if a worker has ended, or time is up. `here` have come so far.
fn late(states: &[Liveness], here: &[u32], end: Instant, limit: Duration) -> Result<(), NoTeam> {
    let gone: Vec<u32> = (0..).zip(states).filter(|(_, state)| state.exited()).map(|(rank, _)| rank).collect();
    let cause = if !gone.is_empty() {
        Cause::Died(gone)
    } else if Instant::now() >= end {
        Cause::Deadline(limit.as_secs_f64())
    } else {
        return Ok(());
    };
    Err(NoTeam::Late(Box::new(inquest::unmade(states, states.len() as u32, here, cause))))
}

/// One meeting.
struct Round {
    here: Vec<bool>,
    well: bool,
    unwell_since: Option<Instant>,
}

impl Round {
    fn new(size: usize) -> Round {
        Round { here: vec![false; size], well: true, unwell_since: None }
    }

    /// Whether all are well, once all are here.
    fn arrive(&mut self, index: usize, well: bool) -> Option<bool> {
        if let Some(here) = self.here.get_mut(index) {
            *here = true;
        }
        self.well &= well;
        if self.here.contains(&false) {
            if !well {
                self.unwell_since.get_or_insert_with(Instant::now);
            }
            return None;
        }
        let all = self.well;
        *self = Round::new(self.here.len());
        Some(all)
    }

    fn arrived(&self) -> Vec<usize> {
        self.here.iter().enumerate().filter(|(_, here)| **here).map(|(index, _)| index).collect()
    }

    fn unwell_for(&self) -> Option<Duration> {
        self.unwell_since.map(|since| since.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_that_listens_on_all_its_addresses_is_known_by_one_that_others_reach() {
        let ip = |text: &str| text.parse::<IpAddr>().ok();
        for (listens, seen, outside, known) in [
            ("127.0.0.1:7", "127.0.0.1", "10.0.0.1", "127.0.0.1:7"),
            ("0.0.0.0:7", "10.0.0.2", "10.0.0.1", "10.0.0.2:7"),
            ("0.0.0.0:7", "::ffff:10.0.0.2", "10.0.0.1", "10.0.0.2:7"),
            ("0.0.0.0:7", "127.0.0.1", "10.0.0.1", "10.0.0.1:7"),
            ("0.0.0.0:7", "127.0.0.1", "", "127.0.0.1:7"),
        ] {
            let found = reachable(listens.parse().unwrap(), ip(seen), ip(outside));
            assert_eq!(found.to_string(), known, "{listens} {seen} {outside}");
        }
    }
}
