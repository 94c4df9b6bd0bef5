//! Where the processes that a launcher has started report, as long as the run lasts; and workers that they lend.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::agent::{self, Greeted};
use super::card::{Card, Seat};
use super::door::{self, Door};
use super::errand::{Errand, Notice, Task};
use super::rendezvous::{self, Refusal};
use super::squad;
use super::staff::{self, Staff};
use super::wire::{self, Down, Hello, MOST, Who};
use crate::backend::{Recipe, Unavailable};
use crate::fleet::launcher::{Address, Placement, Unit};
use crate::fleet::log::Log;
use crate::trace::{Liveness, text};

/// How often the door is looked at.
const LOOK: Duration = Duration::from_millis(3);

/// How long agents may take to say how their workers are.
const TESTIMONY: Duration = Duration::from_secs(3);

/// How long agents may take to end once the run is over.
const PARTING: Duration = Duration::from_secs(5);

/// Why there is no coordinator, or not all of its processes. Each on one line.
#[derive(Debug, thiserror::Error)]
pub enum Absent {
    /// The port is in use by this very job.
    #[error(
        "another rank 0 of this job listens at {0} already: each rank is started once; \
         runs at the same time need a COLLCHECK_TOKEN and a --rendezvous each"
    )]
    SecondCoordinator(SocketAddr),
    /// The port is in use by something else.
    #[error("rank 0 cannot listen at {host}, port {ports}: {why}; give another by --rendezvous HOST:PORT")]
    NoPort {
        /// The host.
        host: String,
        /// The ports that were tried.
        ports: String,
        /// What the last one answered.
        why: io::Error,
    },
    /// Not all have come.
    #[error("{missing} did not arrive within {seconds:.0} s; here: {here}")]
    Missing {
        /// Who, and where known on which host.
        missing: String,
        /// How long they had.
        seconds: f64,
        /// Who has come, and from where.
        here: String,
    },
    /// The run was interrupted before all were here.
    #[error("interrupted")]
    Interrupted,
}

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

/// Workers of agents.
pub struct Lent {
    post: Arc<Post>,
    /// Mapped by workers of this host.
    _channels: OwnedFd,
}

impl Lent {
    /// Lets each agent start its own.
    pub fn start(post: &Arc<Post>, recipe: Recipe, ranks_per_gpu: u32) -> Result<Lent, Unavailable> {
        let channels = staff::channels(&recipe)?;
        let mut state = post.lock();
        let State { agents, seats, teams, team } = &mut *state;
        if let Some(gone) = agents.values().find(|agent| agent.gone) {
            let Card { host, .. } = &gone.card;
            let why = format!("the process of {} on {host} is gone", gone.card.name());
            return Err(Unavailable(why));
        }
        *teams += 1;
        let token = door::token();
        *team = Some(Team {
            number: *teams,
            token: token.clone(),
            here: BTreeMap::new(),
            process: None,
            states: vec![Liveness::Alive; seats.len()],
            logs: vec![None; seats.len()],
            question: 0,
            testified: Vec::new(),
            trouble: None,
        });
        for (index, agent) in agents.iter_mut() {
            let own = (0..).zip(&*seats).filter(|(_, seat)| seat.agent == *index);
            let task = Task {
                team: *teams,
                token: token.clone(),
                ranks: seats.len() as u32,
                own: own.map(|(rank, seat)| (rank, seat.gpu)).collect(),
                ranks_per_gpu,
                recipe: recipe.clone(),
                channels: squad::lent(&channels),
            };
            // who cannot be told is lost, which its reader finds out
            let _ = wire::send(&mut agent.stream, &Errand::Start(Box::new(task)));
        }
        drop(state);
        Ok(Lent { post: post.clone(), _channels: channels })
    }
}

impl Staff for Lent {
    fn admit(&mut self) -> Result<Option<Vec<TcpStream>>, Unavailable> {
        let mut state = self.post.lock();
        let ranks = state.seats.len();
        let Some(team) = &mut state.team else { return Err(Unavailable("the run is over".to_owned())) };
        if let Some(trouble) = &team.trouble {
            return Err(Unavailable(trouble.clone()));
        }
        if team.here.len() < ranks {
            return Ok(None);
        }
        team.here
            .values()
            .map(TcpStream::try_clone)
            .collect::<Result<_, _>>()
            .map(Some)
            .map_err(|e| Unavailable(format!("workers cannot be heard: {e}")))
    }

    fn here(&self) -> Vec<u32> {
        self.post.lock().team.iter().flat_map(|team| team.here.keys().copied()).collect()
    }

    /// Rank 0's: it is a child of this process.
    fn processes(&self) -> Vec<u32> {
        self.post.lock().team.iter().filter_map(|team| team.process).collect()
    }

    /// The one that agents of other hosts have used.
    fn outside(&self) -> Option<IpAddr> {
        let state = self.post.lock();
        let used = state.agents.values().filter_map(|agent| Some(agent.stream.local_addr().ok()?.ip()));
        used.map(|ip| ip.to_canonical()).find(|ip| !ip.is_loopback())
    }

    fn states(&mut self) -> Vec<Liveness> {
        self.post.lock().team.as_ref().map(|team| team.states.clone()).unwrap_or_default()
    }

    /// Agents that do not answer leave those of their ranks out.
    fn logs(&mut self) -> Vec<Option<Log>> {
        let end = Instant::now() + TESTIMONY;
        let mut state = self.post.lock();
        let State { agents, team, .. } = &mut *state;
        if let Some(team) = team {
            team.question += 1;
            team.testified.clear();
            team.logs.iter_mut().for_each(|log| *log = None);
            for agent in agents.values_mut() {
                let _ = wire::send(&mut agent.stream, &Errand::Testify(team.question));
            }
        }
        drop(state);
        loop {
            let state = self.post.lock();
            let Some(team) = &state.team else { return Vec::new() };
            let all = state.agents.iter().all(|(index, agent)| agent.gone || team.testified.contains(index));
            if all || Instant::now() >= end {
                return team.logs.clone();
            }
            drop(state);
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut state = self.post.lock();
        // closes the workers' connections, as far as the crew has let go of them
        state.team = None;
        for agent in state.agents.values_mut() {
            let _ = wire::send(&mut agent.stream, &Errand::Dismiss);
        }
    }
}

/// The first port that can be had. One that this very job listens at already is an error of its own.
fn listen(placement: &Placement) -> Result<Door, Absent> {
    let address = &placement.rendezvous;
    let ip = if address.local { loopback(&address.host) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
    let mut last = io::Error::other("no port is named");
    for port in &address.ports {
        match TcpListener::bind((ip, *port)).and_then(Door::new) {
            Ok(door) => return Ok(door),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                let nearby = if ip.is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { ip };
                let there = SocketAddr::new(nearby, *port);
                if let Greeted::Refused(_) = agent::greet(there, &agent::probe(placement)) {
                    return Err(Absent::SecondCoordinator(there));
                }
                last = error;
            }
            Err(error) => last = error,
        }
    }
    Err(no_port(address, last))
}

fn no_port(address: &Address, why: io::Error) -> Absent {
    let ports: Vec<String> = address.ports.iter().map(u16::to_string).collect();
    Absent::NoPort { host: address.host.clone(), ports: ports.join(", "), why }
}

/// The loopback address by that name.
fn loopback(host: &str) -> IpAddr {
    let named = (host, 0).to_socket_addrs().ok().and_then(|mut all| all.next());
    named.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| address.ip())
}

/// A few of many.
fn listed(all: &[String]) -> String {
    const MOST: usize = 16;
    let some: Vec<&str> = all.iter().take(MOST).map(String::as_str).collect();
    let more = all.len().saturating_sub(MOST);
    let list = if more > 0 { format!("{} and {more} more", some.join(", ")) } else { some.join(", ") };
    if list.is_empty() { "nobody".to_owned() } else { text::line(&list) }
}
