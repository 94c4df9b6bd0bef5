//! A process that a launcher has started: it starts, watches and kills workers as the coordinator asks for it.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::card::Card;
use super::errand::{Errand, Notice, Task};
use super::silence::{self, LEASE};
use super::squad::Squad;
use super::wire::{self, Down, Hello, MOST, MOST_HELLO, Who};
use crate::fleet::launcher::{Address, Placement};
use crate::fleet::log::Log;
use crate::trace::Liveness;

/// How often workers are looked at.
const LOOK: Duration = Duration::from_millis(50);

/// How long one try to meet the coordinator may take, and until the next.
const TRY: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);

/// How long the coordinator has to end the run after an interrupt that both have seen.
const GRACE: Duration = Duration::from_secs(15);

/// Why an agent ends without the coordinator's word. Each on one line.
#[derive(Debug, thiserror::Error)]
pub enum Adrift {
    /// There is none.
    #[error("{who}: rank 0 does not listen at {host}, port {ports}, within {seconds:.0} s: {last}")]
    NoCoordinator {
        /// This process.
        who: String,
        /// Where rank 0 should be.
        host: String,
        /// The ports that were tried.
        ports: String,
        /// How long.
        seconds: f64,
        /// What came of the last try.
        last: String,
    },
    /// It does not let this process in.
    #[error("{who}: rank 0 refused this process: {why}")]
    Refused {
        /// This process.
        who: String,
        /// Why.
        why: String,
    },
    /// It ended without a word.
    #[error("{who}: rank 0's process is gone")]
    Abandoned {
        /// This process.
        who: String,
    },
    /// Nothing is heard of its host.
    #[error("{who}: no word from rank 0's host for {} s", LEASE.as_secs())]
    CutOff {
        /// This process.
        who: String,
    },
    /// This process was interrupted, and the coordinator was not.
    #[error("{who}: interrupted")]
    Interrupted {
        /// This process.
        who: String,
    },
}

/// What comes of saying hello.
pub enum Greeted {
    /// We are in.
    Welcome(TcpStream),
    /// We are known, and not let in.
    Refused(String),
    /// We are not known there.
    Stranger(String),
    /// No coordinator is there.
    Nobody(String),
}

/// Meets the coordinator within `limit`, and works for it until the run is over. The run's exit code.
pub fn serve(placement: &Placement, card: Card, limit: Duration, interrupt: &AtomicBool) -> Result<u8, Adrift> {
    let who = placement.name();
    let hello = Hello::new(&placement.token, &Who::Agent(card));
    let stream = meet(&placement.rendezvous, &hello, limit, interrupt, &who)?;
    work(stream, interrupt).map_err(|end| match end {
        End::Lost => Adrift::Abandoned { who },
        End::Silent => Adrift::CutOff { who },
        End::Interrupted => Adrift::Interrupted { who },
    })
}

/// A greeting by which a second rank 0 of the same job is known.
pub fn probe(placement: &Placement) -> Hello {
    let card = Card::new(placement, "", Vec::new());
    Hello::new(&placement.token, &Who::Agent(card))
}

/// Says hello at one address.
pub fn greet(address: SocketAddr, hello: &Hello) -> Greeted {
    let said = || -> Result<(TcpStream, Down), wire::NoMessage> {
        let mut stream = TcpStream::connect_timeout(&address, TRY)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(2 * TRY))?;
        stream.set_write_timeout(Some(2 * TRY))?;
        wire::send(&mut stream, hello)?;
        let answer = wire::receive(&mut stream, MOST_HELLO)?;
        stream.set_read_timeout(None)?;
        Ok((stream, answer))
    };
    match said() {
        Ok((stream, Down::Welcome)) => Greeted::Welcome(stream),
        Ok((_, Down::Refused(why))) => Greeted::Refused(why),
        Ok((_, Down::Stranger(why))) => Greeted::Stranger(why),
        Ok(_) => Greeted::Nobody("it spoke out of turn".to_owned()),
        Err(error) => Greeted::Nobody(error.to_string()),
    }
}

/// Tries all ports in turn, as rank 0 may start later. One that does not know this job is not asked again.
fn meet(
    address: &Address,
    hello: &Hello,
    limit: Duration,
    interrupt: &AtomicBool,
    who: &str,
) -> Result<TcpStream, Adrift> {
    let end = Instant::now() + limit;
    let mut ports = address.ports.clone();
    let mut last = String::new();
    loop {
        let mut strangers = Vec::new();
        for port in &ports {
            match resolved(&address.host, *port).map(|there| greet(there, hello)) {
                Ok(Greeted::Welcome(stream)) => return Ok(stream),
                Ok(Greeted::Refused(why)) => return Err(Adrift::Refused { who: who.to_owned(), why }),
                Ok(Greeted::Stranger(why)) => {
                    strangers.push(*port);
                    last = why;
                }
                Ok(Greeted::Nobody(why)) => last = why,
                Err(error) => last = error.to_string(),
            }
        }
        ports.retain(|port| !strangers.contains(port));
        if ports.is_empty() {
            return Err(Adrift::Refused { who: who.to_owned(), why: last });
        }
        if interrupt.load(Ordering::Relaxed) {
            return Err(Adrift::Interrupted { who: who.to_owned() });
        }
        if Instant::now() >= end {
            let ports: Vec<String> = address.ports.iter().map(u16::to_string).collect();
            return Err(Adrift::NoCoordinator {
                who: who.to_owned(),
                host: address.host.clone(),
                ports: ports.join(", "),
                seconds: limit.as_secs_f64(),
                last,
            });
        }
        std::thread::sleep(PAUSE);
    }
}

/// IPv4 first, as that is what the coordinator listens at unless it is named by another address.
fn resolved(host: &str, port: u16) -> io::Result<SocketAddr> {
    let all: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    let first = all.iter().find(|address| address.is_ipv4()).or(all.first()).copied();
    first.ok_or_else(|| io::Error::other("the name has no address"))
}

/// Why work has ended without the coordinator's word.
pub enum End {
    /// The connection ended.
    Lost,
    /// Nothing has answered on it for ten seconds.
    Silent,
    /// An interrupt that the coordinator has not seen.
    Interrupted,
}

/// Does what the coordinator asks for, until the run is over. The run's exit code.
///
/// Workers are children of the calling thread, and die with it.
pub fn work(stream: TcpStream, interrupt: &AtomicBool) -> Result<u8, End> {
    let ended = obey(&stream, interrupt);
    // Who listens holds it too, and an agent that is a thread does not end with its process: the coordinator waits for this.
    let _ = stream.shutdown(Shutdown::Both);
    ended
}

fn obey(mut stream: &TcpStream, interrupt: &AtomicBool) -> Result<u8, End> {
    let (hear, heard) = channel();
    let mut from = stream.try_clone().map_err(|_| End::Lost)?;
    let address = stream.peer_addr().map_err(|_| End::Lost)?;
    silence::watch(stream, LEASE).map_err(|_| End::Lost)?;
    let listen = move || {
        loop {
            let errand = wire::receive::<Errand>(&mut from, MOST);
            let last = errand.is_err();
            if hear.send(errand).is_err() || last {
                return;
            }
        }
    };
    std::thread::Builder::new().name("coordinator".to_owned()).spawn(listen).map_err(|_| End::Lost)?;

    let mut present: Option<Present> = None;
    let mut give_up: Option<Instant> = None;
    loop {
        let notice = match heard.recv_timeout(LOOK) {
            Ok(Ok(Errand::Start(task))) => {
                present = None; // kills the former ones
                match Squad::start(&task, address) {
                    Ok(squad) => {
                        let told = vec![Liveness::Alive; task.own.len()];
                        present = Some(Present { task, squad, told });
                        None
                    }
                    Err(why) => Some(Notice::Failed { team: task.team, why: why.to_string() }),
                }
            }
            Ok(Ok(Errand::Tell { team, what })) => {
                if let Some(present) = present.as_mut().filter(|present| present.task.team == team) {
                    present.squad.tell(&what);
                }
                None
            }
            Ok(Ok(Errand::Dismiss)) => {
                present = None;
                None
            }
            Ok(Ok(Errand::Testify(question))) => present.as_mut().map(|present| present.testimony(question)),
            Ok(Ok(Errand::Over(code))) => return Ok(code),
            Ok(Err(why)) if silence::no_word(&why) => return Err(End::Silent),
            Ok(Err(_)) => return Err(End::Lost),
            Err(RecvTimeoutError::Timeout) => present.as_mut().and_then(Present::news),
            Err(RecvTimeoutError::Disconnected) => return Err(End::Lost),
        };
        if let Some(notice) = notice {
            // whichever of the two threads asks first gets the reason
            let end = |e| if silence::silent(&e) { End::Silent } else { End::Lost };
            wire::send(&mut stream, &notice).map_err(end)?;
        }
        if interrupt.load(Ordering::Relaxed) && Instant::now() >= *give_up.get_or_insert(Instant::now() + GRACE) {
            return Err(End::Interrupted);
        }
    }
}

/// The workers of the present communicator, and what the coordinator knows of them.
struct Present {
    task: Box<Task>,
    squad: Squad,
    told: Vec<Liveness>,
}

impl Present {
    /// How they are, if that is new.
    fn news(&mut self) -> Option<Notice> {
        let states = self.squad.states();
        if states == self.told {
            return None;
        }
        self.told.clone_from(&states);
        Some(Notice::States { team: self.task.team, states })
    }

    fn testimony(&mut self, question: u64) -> Notice {
        let logs = self.squad.logs().iter().map(Log::copy).collect();
        Notice::Testimony { team: self.task.team, question, states: self.squad.states(), logs }
    }
}
