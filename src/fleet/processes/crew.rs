//! The coordinator's side: worker processes of one communicator, watched wherever they run.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::gathered::{Gathered, Round};
use super::post::Lent;
use super::staff::{Own, Staff};
use super::wire::{self, Down, MOST, ToAll, Up};
use super::wires::{Heard, Wires};
use crate::backend::host::Book;
use crate::backend::{Backend, Making, Opening, RankError, Unavailable};
use crate::case::{Case, DType, Op, Primitive};
use crate::fleet::inquest::{self, Cause, Witness};
use crate::fleet::log::{Log, now_ns};
use crate::fleet::protocol::{Report, Request};
use crate::fleet::team::{AFTER_DEATH, AFTER_REFUSAL, Ended, LOOK, NoTeam, Watch, Workers, has_reason};
use crate::oracle::Data;
use crate::trace::Liveness;

/// Worker processes of one communicator. They are killed when it is dropped.
pub struct Crew {
    /// Their connections, by rank.
    members: Wires<Up>,
    ranks: u32,
    staff: Box<dyn Staff>,
    /// Some cannot get to their gate.
    alone: bool,
    /// A case was given up.
    spent: bool,
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

        let ranks = members.len() as u32;
        let mut wires = Wires::new(MOST).map_err(unheard)?;
        for (rank, stream) in (0..).zip(members) {
            wires.add(rank, stream).map_err(unheard)?;
        }
        let mut crew = Crew { members: wires, ranks, staff, alone: false, spent: false };
        cases.sort_by_key(kind);
        cases.dedup_by_key(|case| kind(case));
        crew.staff.tell(ToAll::Cases(cases));
        crew.made(end, limit, interrupt)?;
        Ok(crew)
    }

    /// Waits until all have made their part of the communicator.
    fn made(&mut self, end: Instant, limit: Duration, interrupt: &AtomicBool) -> Result<(), NoTeam> {
        let all: Vec<u32> = (0..self.ranks).collect();
        let outside = self.staff.outside();
        let mut ready = Gathered::new(self.ranks);
        let mut addresses = Gathered::new(self.ranks);
        while !ready.complete() {
            let heard = self.members.hear(LOOK);
            let idle = heard.is_none();
            match heard {
                Some((rank, Heard::Said(Up::Ready { gate }))) => ready.put(rank, gate),
                Some((rank, Heard::Said(Up::Listening(address)))) => {
                    let seen = self.members.stream(rank).and_then(|stream| Some(stream.peer_addr().ok()?.ip()));
                    addresses.put(rank, reachable(address, seen, outside));
                    if addresses.complete() {
                        self.staff.tell(ToAll::Book(Book::new(addresses.take())));
                    }
                }
                Some((0, Heard::Said(Up::Identity(identity)))) => self.staff.tell(ToAll::Identity(identity)),
                Some((rank, Heard::Said(Up::Failed(why)))) => {
                    return Err(Unavailable(format!("rank {rank} cannot start: {why}")).into());
                }
                Some((_, Heard::Said(Up::Unsupported(why)))) => return Err(Opening::Unsupported(why).into()),
                Some(_) | None => {}
            }
            if interrupt.load(Ordering::Relaxed) {
                return Err(NoTeam::Interrupted);
            }
            // not at each of thousands of messages
            if idle || Instant::now() >= end {
                late(self.staff.as_mut(), &all, end, limit)?;
            }
        }
        self.alone = ready.take().contains(&false);
        Ok(())
    }

    /// Whether others are held up in vain by a call that a worker could not make: for as long as it `waited` for them. Where its
    /// communicator is lost, as its log says, they do not come back by themselves; logs may be far away, and are looked at once.
    fn given_up(&mut self, waited: Option<Duration>, late: bool, looked: &mut bool) -> bool {
        let Some(waited) = waited else {
            *looked = false;
            return false;
        };
        if late || waited >= AFTER_REFUSAL {
            return true;
        }
        if waited < AFTER_DEATH || *looked {
            return false;
        }
        *looked = true;
        self.staff.logs().iter().flatten().any(|log| log.troubles().is_some())
    }

    /// Lets those go who wait for others, and takes their reports. Who is stuck in a call is aborted.
    fn released(&mut self, epoch: u64, meeting: &Round, mut reports: Gathered<Report>) -> Vec<Report> {
        let end = Instant::now() + AFTER_DEATH;
        self.staff.tell(ToAll::Release);
        self.answer(meeting.speakers(), &Down::Met(false));
        while !reports.complete()
            && let Some((rank, heard)) = self.members.hear(end.saturating_duration_since(Instant::now()))
        {
            match heard {
                Heard::Said(Up::Meet { .. }) => self.answer(&[rank], &Down::Met(false)),
                Heard::Said(Up::Reports { case, reports: own }) if case == epoch => {
                    own.into_iter().for_each(|report| reports.put(report.rank, report));
                }
                _ => {}
            }
        }
        let aborted = |rank| Report { rank, placements: Vec::new(), error: Some(RankError::Aborted) };
        (0..).zip(reports.places).map(|(rank, own)| own.unwrap_or_else(|| aborted(rank))).collect()
    }

    /// `said` is what each has said before.
    fn testimony(&mut self, said: Vec<Vec<String>>) -> Vec<Witness> {
        // who fetches logs learns how their owners are
        let logs = self.staff.logs();
        let mut hosts = self.staff.hosts().into_iter();
        let known = self.staff.states().into_iter().zip(logs).zip(said);
        let mut witnesses = Vec::new();
        for (rank, ((liveness, log), mut messages)) in (0..).zip(known) {
            messages.extend(log.as_ref().and_then(Log::troubles));
            if log.is_none() && liveness == Liveness::Alive {
                messages.push("the process that has started it does not answer".to_owned());
            }
            witnesses.push(Witness { rank, host: hosts.next().unwrap_or_default(), liveness, log, messages });
        }
        witnesses
    }

    fn answer(&self, ranks: &[u32], message: &Down) {
        if let Ok(frame) = wire::frame(message) {
            ranks.iter().for_each(|rank| self.members.tell(*rank, &frame));
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
        let mut reports = Gathered::new(self.ranks);
        let mut meeting = Round::new(self.ranks);
        let mut said = vec![Vec::new(); self.ranks as usize];
        let mut give_up: Option<Instant> = None;
        // since when a rank is known to have failed that meets nobody any more
        let mut failed: Option<Instant> = None;
        let mut looked = false;
        // who does not hear is missed below
        self.staff.tell(ToAll::Case { request: Box::new(request.clone()), alone: self.alone });
        while !reports.complete() {
            let mut silent = false;
            match self.members.hear(LOOK) {
                Some((rank, Heard::Said(Up::Meet { together, well }))) if (1..=self.ranks).contains(&together) => {
                    if let Some((speakers, all)) = meeting.arrive(rank, together, well) {
                        self.answer(&speakers, &Down::Met(all));
                    }
                }
                Some((_, Heard::Said(Up::Reports { case, reports: own }))) => {
                    // one that was given up may still be told of
                    for report in own.into_iter().filter(|_| case == request.epoch) {
                        if report.error.is_some() {
                            failed.get_or_insert_with(Instant::now);
                        }
                        reports.put(report.rank, report);
                    }
                }
                Some((
                    rank,
                    Heard::Said(
                        Up::Ready { .. }
                        | Up::Failed(_)
                        | Up::Unsupported(_)
                        | Up::Identity(_)
                        | Up::Listening(_)
                        | Up::Meet { .. },
                    ),
                )) => note(&mut said, rank, "spoke out of turn"),
                Some((rank, Heard::Lost(why))) => {
                    note(&mut said, rank, &format!("its connection ended: {why}"));
                    give_up.get_or_insert(Instant::now() + AFTER_DEATH);
                }
                None => silent = self.staff.silent(),
            }
            let now = Instant::now();
            let is_late = end.is_some_and(|end| now >= end);
            let unwell = meeting.unwell_for().max(failed.map(|since| since.elapsed()));
            let cause = if interrupt.load(Ordering::Relaxed) {
                return Ended::Interrupted;
            } else if silent {
                Cause::Silent(Vec::new())
            } else if give_up.is_some_and(|end| now >= end) {
                Cause::Died(Vec::new())
            } else if give_up.is_none() && !reports.complete() && self.given_up(unwell, is_late, &mut looked) {
                // Who could not make the call says so once it is let go; the others are in it.
                self.spent = true;
                let witnesses = is_late.then(|| self.testimony(said));
                let reports = self.released(request.epoch, &meeting, reports);
                return match witnesses {
                    Some(witnesses) if !has_reason(&reports) => {
                        let cause = Cause::Deadline(deadline.as_secs_f64());
                        let said = (watch.said)();
                        let findings = inquest::hold(witnesses, said, request.epoch, cause, began_ns, now_ns());
                        Ended::Stopped(Box::new(findings))
                    }
                    _ => Ended::Reported(reports),
                };
            } else if is_late && !reports.complete() {
                Cause::Deadline(deadline.as_secs_f64())
            } else {
                continue;
            };
            let witnesses = self.testimony(said);
            let of = |is: &dyn Fn(Liveness) -> bool| -> Vec<u32> {
                witnesses.iter().filter(|w| is(w.liveness)).map(|w| w.rank).collect()
            };
            let cause = match cause {
                Cause::Died(_) => Cause::Died(of(&Liveness::exited)),
                Cause::Silent(_) => Cause::Silent(of(&Liveness::unreachable)),
                cause => cause,
            };
            let findings = inquest::hold(witnesses, (watch.said)(), request.epoch, cause, began_ns, now_ns());
            return Ended::Stopped(Box::new(findings));
        }
        Ended::Reported(reports.take())
    }

    fn witnesses(&mut self) -> Vec<Witness> {
        self.testimony(vec![Vec::new(); self.ranks as usize])
    }

    fn spent(&self) -> bool {
        self.spent
    }

    fn dismiss(self: Box<Self>) -> bool {
        true // whatever a process is stuck in, it is killed
    }
}

/// What kernels depend on: one case of each kind is enough to load them all.
fn kind(case: &Case) -> (Primitive, Option<Op>, DType, u32) {
    (case.primitive, case.op, case.dtype, Data::of(&case.variants) as u32)
}

fn unheard(error: std::io::Error) -> Unavailable {
    Unavailable(format!("workers cannot be heard: {error}"))
}

fn note(said: &mut [Vec<String>], rank: u32, what: &str) {
    if let Some(said) = said.get_mut(rank as usize) {
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
        let here = staff.here();
        late(staff, &here, end, limit)?;
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// An error if a worker has ended, its host is silent, or time is up. `here` have come so far.
fn late(staff: &mut dyn Staff, here: &[u32], end: Instant, limit: Duration) -> Result<(), NoTeam> {
    let states = staff.states();
    let of = |is: fn(Liveness) -> bool| -> Vec<u32> {
        (0..).zip(&states).filter(|(_, state)| is(**state)).map(|(rank, _)| rank).collect()
    };
    let (silent, gone) = (of(Liveness::unreachable), of(Liveness::exited));
    let cause = if !silent.is_empty() {
        Cause::Silent(silent)
    } else if !gone.is_empty() {
        Cause::Died(gone)
    } else if Instant::now() >= end {
        Cause::Deadline(limit.as_secs_f64())
    } else {
        return Ok(());
    };
    Err(NoTeam::Late(Box::new(inquest::unmade(&states, &staff.hosts(), states.len() as u32, here, cause))))
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
