//! Where the processes that a launcher has started report, as long as the run lasts.

mod absent;
mod lent;
mod listen;

pub use absent::Absent;
pub use lent::Lent;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::card::{Card, Seat};
use super::door::{self, Door};
use super::errand::{Errand, Notice};
use super::rendezvous::{self, Refusal};
use super::staff;
use super::wire::{self, Down, Hello, MOST, Who};
use crate::fleet::launcher::{Placement, Unit};
use crate::fleet::log::Log;
use crate::trace::Liveness;
use absent::listed;
use listen::{listen, no_port};

/// How often the door is looked at.
const LOOK: Duration = Duration::from_millis(3);

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
}

struct Agent {
    card: Card,
    stream: TcpStream,
    gone: bool,
}

/// The workers of the present communicator.
struct Team {
    number: u64,
    token: String,
    here: BTreeMap<u32, TcpStream>,
    /// Rank 0's.
    process: Option<u32>,
    states: Vec<Liveness>,
    logs: Vec<Option<Log>>,
    /// Questions so far, and who has answered the last.
    question: u64,
    testified: Vec<u32>,
    trouble: Option<String>,
}

impl Post {
    /// Listens for the agents of the job, of which `placement` is the first.
    pub fn open(placement: &Placement) -> Result<Arc<Post>, Absent> {
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
        let keeper = post.clone();
        let thread = std::thread::Builder::new().name("door".to_owned()).spawn(move || keeper.keep(door));
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
        self.lock().seats = seats;
    }

    /// Tells all agents that the run has ended, and gives them time to end. Nobody is let in any more.
    pub fn over(&self, code: u8) {
        let mut state = self.lock();
        state.team = None;
        for agent in state.agents.values_mut() {
            let _ = wire::send(&mut agent.stream, &Errand::Over(code));
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

    /// Answers whoever connects, until the run is over.
    fn keep(self: Arc<Post>, mut door: Door) {
        while !self.closed.load(Ordering::Relaxed) {
            for (address, mut stream, hello) in door.knocks() {
                let answer = hello.map_err(Refusal::NoHello).and_then(|hello| self.admit(hello, &stream));
                match answer {
                    Ok(None) => {}
                    Ok(Some(index)) => self.clone().attend(index),
                    Err(refusal) => {
                        let _ = wire::send(&mut stream, &refusal.answer());
                        staff::refused(address, &refusal);
                    }
                }
            }
            std::thread::sleep(LOOK);
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
            team.here.insert(rank, stream);
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
        let _ = wire::send(&mut stream, &Down::Welcome);
        state.agents.insert(index, Agent { card, stream, gone: false });
        Ok(Some(index))
    }

    /// Listens to an agent until its connection ends.
    fn attend(self: Arc<Post>, index: u32) {
        let stream = self.lock().agents.get(&index).and_then(|agent| agent.stream.try_clone().ok());
        let post = self.clone();
        let listen = move || {
            if let Some(mut stream) = stream {
                while let Ok(notice) = wire::receive(&mut stream, MOST) {
                    post.note(index, notice);
                }
            }
            post.lost(index);
        };
        if std::thread::Builder::new().name(format!("from agent {index}")).spawn(listen).is_err() {
            self.lost(index);
        }
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

    fn lost(&self, index: u32) {
        let mut state = self.lock();
        let State { agents, seats, team, .. } = &mut *state;
        if let Some(agent) = agents.get_mut(&index) {
            agent.gone = true;
        }
        let Some(team) = team else { return };
        // its workers die with it
        for (seat, state) in seats.iter().zip(&mut team.states) {
            if seat.agent == index && !state.exited() {
                *state = Liveness::Exited { code: None, signal: None };
            }
        }
    }
}
