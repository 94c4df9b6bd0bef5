//! Where the processes that a launcher has started report, as long as the run lasts.

mod absent;
mod cut_off;
mod lent;
mod listen;

pub use absent::Absent;
pub use lent::Lent;

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::card::{Card, Seat};
use super::door::{self, Door};
use super::errand::{Errand, Notice};
use super::rendezvous::{self, Refusal};
use super::silence::{self, SETTLING, SILENCE};
use super::staff;
use super::wire::{self, Down, Hello, MOST, NoMessage, Who};
use super::wires::{Heard, Wires};
use crate::backend::descriptors;
use crate::fleet::launcher::{Placement, Unit};
use crate::fleet::log::Log;
use crate::trace::Liveness;
use absent::listed;
use listen::{listen, no_port};

/// How often the door is looked at.
const LOOK: Duration = Duration::from_millis(3);

/// Descriptors of an agent: one to write to, one to listen to.
const CONNECTIONS_EACH: u64 = 2;

/// How long agents may take to end once the run is over.
const PARTING: Duration = Duration::from_secs(5);

/// The coordinator's end of all agents.
pub struct Post {
    /// What agents prove with that they belong to this job.
    token: String,
    /// What rank 0's own agent proves that with.
    own: String,
    unit: Unit,
    of: u32,
    hosts: Vec<String>,
    address: SocketAddr,
    closed: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    agents: BTreeMap<u32, Agent>,
    /// Who starts which rank; empty until all agents are here and have been looked at.
    seats: Vec<Seat>,
    teams: u64,
    team: Option<Team>,
    /// Hosts have fallen silent, and are told of from then on.
    settling: Option<Instant>,
}

struct Agent {
    card: Card,
    stream: TcpStream,
    /// Its connection has ended.
    gone: bool,
    /// It ended because nothing answered.
    silent: bool,
}

impl Agent {
    /// Who cannot be told is lost, which is found out where it is listened to.
    fn ask(&mut self, errand: &Errand) {
        if let Ok(frame) = wire::frame(errand) {
            self.tell(&frame);
        }
    }

    fn tell(&mut self, frame: &[u8]) {
        if let Err(error) = self.stream.write_all(frame) {
            // the kernel gives the reason once, to whoever asks first
            self.silent |= silence::silent(&error);
            // half of a message is none
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }
}

/// The workers of the present communicator.
struct Team {
    number: u64,
    token: String,
    /// Their connections, until the crew takes them.
    here: BTreeMap<u32, Option<TcpStream>>,
    /// Rank 0's.
    process: Option<u32>,
    states: Vec<Liveness>,
    /// Some of them are on hosts that are silent.
    silent: bool,
    logs: Vec<Option<Log>>,
    /// Questions so far, and who has answered the last.
    question: u64,
    testified: Vec<u32>,
    trouble: Option<String>,
}

impl Post {
    /// Listens for the agents of the job, of which `placement` is the first.
    pub fn open(placement: &Placement) -> Result<Arc<Post>, Absent> {
        descriptors::allow(CONNECTIONS_EACH * u64::from(placement.of));
        let door = listen(placement)?;
        let cannot = |why| no_port(&placement.rendezvous, why);
        let post = Arc::new(Post {
            token: placement.token.clone(),
            own: door::token(),
            unit: placement.unit,
            of: placement.of,
            hosts: placement.hosts.clone(),
            address: door.address().map_err(cannot)?,
            closed: AtomicBool::new(false),
            state: Mutex::default(),
        });
        let (keeper, agents) = (post.clone(), Wires::new(MOST).map_err(cannot)?);
        let thread = std::thread::Builder::new().name("door".to_owned()).spawn(move || keeper.keep(door, agents));
        thread.map_err(cannot)?;
        Ok(post)
    }

    /// Where agents of this host connect to.
    pub fn nearby(&self) -> SocketAddr {
        let any = self.address.ip().is_unspecified();
        let ip = if any { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { self.address.ip() };
        SocketAddr::new(ip, self.address.port())
    }

    /// What rank 0's own agent says.
    pub fn own_hello(&self, card: Card) -> Hello {
        Hello::new(&self.own, &Who::Agent(card))
    }

    /// Waits for all agents, and returns what they say of themselves, in the order of their numbers.
    pub fn arrive(&self, limit: Duration, interrupt: &AtomicBool) -> Result<Vec<Card>, Absent> {
        let end = Instant::now() + limit;
        loop {
            let state = self.lock();
            if state.agents.len() == self.of as usize {
                return Ok(state.agents.values().map(|agent| agent.card.clone()).collect());
            }
            if Instant::now() >= end {
                return Err(self.missing(&state, limit));
            }
            drop(state);
            if interrupt.load(Ordering::Relaxed) {
                return Err(Absent::Interrupted);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Who starts which rank.
    pub fn seat(&self, seats: Vec<Seat>) {
        descriptors::allow(seats.len() as u64 + CONNECTIONS_EACH * u64::from(self.of));
        self.lock().seats = seats;
    }

    /// Tells all agents that the run has ended, and gives them time to end. Nobody is let in any more.
    pub fn over(&self, code: u8) {
        let mut state = self.lock();
        state.team = None;
        for agent in state.agents.values_mut() {
            agent.ask(&Errand::Over(code));
        }
        drop(state);
        let end = Instant::now() + PARTING;
        while self.lock().agents.values().any(|agent| !agent.gone) && Instant::now() < end {
            std::thread::sleep(LOOK);
        }
        self.closed.store(true, Ordering::Relaxed);
    }

    fn missing(&self, state: &State, limit: Duration) -> Absent {
        let host = |index: u32| match self.hosts.get(index as usize) {
            Some(host) if self.hosts.len() == self.of as usize => format!(" (host {host})"),
            _ => String::new(),
        };
        let missing = (0..self.of).filter(|index| !state.agents.contains_key(index));
        let missing: Vec<String> = missing.map(|index| format!("{} {index}{}", self.unit, host(index))).collect();
        let here = state.agents.iter().map(|(index, agent)| format!("{} {index} on {}", self.unit, agent.card.host));
        Absent::Missing {
            missing: format!("{} of {} at {}", listed(&missing), self.of, self.address),
            seconds: limit.as_secs_f64(),
            here: listed(&here.collect::<Vec<_>>()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers whoever connects, and listens to agents, until the run is over.
    fn keep(&self, mut door: Door, mut agents: Wires<Notice>) {
        while !self.closed.load(Ordering::Relaxed) {
            for (address, mut stream, hello) in door.knocks() {
                let answer = hello.map_err(Refusal::NoHello).and_then(|hello| self.admit(hello, &stream));
                match answer {
                    Ok(None) => {}
                    Ok(Some(index)) => {
                        if let Err(error) = agents.add(index, stream) {
                            self.lost(index, &error.into());
                        }
                    }
                    Err(refusal) => {
                        let _ = wire::send(&mut stream, &refusal.answer());
                        staff::refused(address, &refusal);
                    }
                }
            }
            let mut wait = LOOK;
            while let Some((index, heard)) = agents.hear(wait) {
                match heard {
                    Heard::Said(notice) => self.note(index, notice),
                    Heard::Lost(why) => self.lost(index, &why),
                }
                wait = Duration::ZERO;
            }
            self.settle();
        }
    }

    /// Lets a worker of the present team or an agent in; the agent's number.
    fn admit(&self, hello: Hello, stream: &TcpStream) -> Result<Option<u32>, Refusal> {
        let mut state = self.lock();
        let ranks = state.seats.len() as u32;
        let copy = |stream: &TcpStream| stream.try_clone().map_err(|e| Refusal::NoHello(e.into()));
        if let Some(team) = state.team.as_mut().filter(|team| team.token == hello.token) {
            let token = team.token.clone();
            let who = rendezvous::identify(hello, &token)?;
            let rank = rendezvous::rank(&who, ranks, &team.here)?;
            if let Who::Worker { rank: 0, process } = who {
                team.process = Some(process);
            }
            let mut stream = copy(stream)?;
            // who is gone again is found out by its reader
            let _ = wire::send(&mut stream, &Down::Welcome);
            team.here.insert(rank, Some(stream));
            return Ok(None);
        }
        let own = hello.token == self.own;
        let Who::Agent(card) = rendezvous::identify(hello, if own { &self.own } else { &self.token })? else {
            return Err(Refusal::Kind);
        };
        let index = card.index;
        if (card.unit, card.of) != (self.unit, self.of) {
            let ours = format!("{} {}s", self.of, self.unit);
            return Err(Refusal::OtherRun { theirs: card.name(), ours });
        }
        if index >= self.of {
            return Err(Refusal::NoSuchRank { rank: index, ranks: self.of });
        }
        if (index == 0 && !own) || state.agents.contains_key(&index) {
            return Err(Refusal::Taken(index));
        }
        let mut stream = copy(stream)?;
        silence::watch(&stream, SILENCE).map_err(|e| Refusal::NoHello(e.into()))?;
        let _ = wire::send(&mut stream, &Down::Welcome);
        state.agents.insert(index, Agent { card, stream, gone: false, silent: false });
        Ok(Some(index))
    }

    fn note(&self, index: u32, notice: Notice) {
        let mut state = self.lock();
        let State { seats, team, .. } = &mut *state;
        let Some(team) = team else { return };
        let ranks = || (0..).zip(&*seats).filter(|(_, seat)| seat.agent == index).map(|(rank, _): (usize, _)| rank);
        let (number, states, logs) = match notice {
            Notice::Failed { team: number, why } => {
                if number == team.number {
                    team.trouble = Some(why);
                }
                return;
            }
            Notice::States { team, states } => (team, states, None),
            Notice::Testimony { team, question, states, logs } => (team, states, Some((question, logs))),
        };
        if number != team.number {
            return; // of a team that is no more
        }
        for (rank, state) in ranks().zip(states) {
            if let Some(place) = team.states.get_mut(rank) {
                *place = state;
            }
        }
        if let Some((question, logs)) = logs
            && question == team.question
        {
            for (rank, log) in ranks().zip(logs) {
                if let Some(place) = team.logs.get_mut(rank) {
                    *place = Some(Log::of_copy(&log));
                }
            }
            team.testified.push(index);
        }
    }

    fn lost(&self, index: u32, why: &NoMessage) {
        let mut state = self.lock();
        let State { agents, seats, team, settling, .. } = &mut *state;
        let Some(agent) = agents.get_mut(&index) else { return };
        agent.gone = true;
        agent.silent |= silence::no_word(why);
        if agent.silent {
            settling.get_or_insert(Instant::now() + SETTLING);
            return;
        }
        let Some(team) = team else { return };
        // its workers die with it
        for (seat, state) in seats.iter().zip(&mut team.states) {
            if seat.agent == index && !state.exited() {
                *state = Liveness::Exited { code: None, signal: None };
            }
        }
    }

    /// Tells of silent hosts, once all their agents have had the time to be missed.
    fn settle(&self) {
        let mut state = self.lock();
        let State { agents, seats, team, settling, .. } = &mut *state;
        if settling.is_none_or(|end| Instant::now() < end) {
            return;
        }
        *settling = None;
        let Some(team) = team else { return };
        team.silent = true;
        for (seat, state) in seats.iter().zip(&mut team.states) {
            if agents.get(&seat.agent).is_some_and(|agent| agent.silent) && !state.exited() {
                *state = Liveness::Unreachable { seconds: SILENCE.as_secs() as u32 };
            }
        }
    }
}
