//! Where workers report for duty, and everybody else is sent away.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use super::door::{self, Door};
use super::wire::{self, Down, Hello, NoMessage, PROTOCOL, Who};

/// Why somebody is not let in.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// No greeting.
    #[error("it did not say hello: {0}")]
    NoHello(NoMessage),
    /// Another protocol or version, which would misread what follows.
    #[error("it is collcheck {theirs} (protocol {protocol}), this is {} (protocol {PROTOCOL})", env!("CARGO_PKG_VERSION"))]
    Version {
        /// Its version.
        theirs: String,
        /// Its protocol.
        protocol: u32,
    },
    /// Not of this run.
    #[error("its token is not that of this run")]
    Token,
    /// Neither a worker where workers are awaited, nor an agent where agents are.
    #[error("it is not of the kind that belongs here")]
    Kind,
    /// There is no such rank.
    #[error("it claims rank {rank} of {ranks}")]
    NoSuchRank {
        /// Claimed.
        rank: u32,
        /// There are.
        ranks: u32,
    },
    /// The rank is here already.
    #[error("rank {0} is here already")]
    Taken(u32),
    /// It was started as a part of something else.
    #[error("it is {theirs}, this run has {ours}")]
    OtherRun {
        /// As it counts.
        theirs: String,
        /// As the coordinator counts.
        ours: String,
    },
}

impl Refusal {
    /// What it is told.
    pub fn answer(&self) -> Down {
        match self {
            Refusal::NoHello(_) | Refusal::Token => Down::Stranger(self.to_string()),
            _ => Down::Refused(self.to_string()),
        }
    }
}

/// Who has said hello with this token. The token comes first: a stranger learns nothing.
pub fn identify(hello: Hello, token: &str) -> Result<Who, Refusal> {
    let Hello { protocol, collcheck, token: theirs, who } = hello;
    if theirs != token {
        return Err(Refusal::Token);
    }
    if protocol != PROTOCOL || collcheck != env!("CARGO_PKG_VERSION") {
        return Err(Refusal::Version { theirs: collcheck, protocol });
    }
    serde_json::from_value(who).map_err(|e| Refusal::NoHello(NoMessage::Garbage(e)))
}

/// The worker's rank, if it is the first of its name.
pub fn rank<T>(who: &Who, ranks: u32, here: &BTreeMap<u32, T>) -> Result<u32, Refusal> {
    match *who {
        Who::Agent(_) => Err(Refusal::Kind),
        Who::Worker { rank, .. } if rank >= ranks => Err(Refusal::NoSuchRank { rank, ranks }),
        Who::Worker { rank, .. } if here.contains_key(&rank) => Err(Refusal::Taken(rank)),
        Who::Worker { rank, .. } => Ok(rank),
    }
}

/// The open door.
pub struct Rendezvous {
    door: Door,
    token: String,
    ranks: u32,
    here: BTreeMap<u32, TcpStream>,
}

impl Rendezvous {
    /// Opens it on the loopback device, for so many ranks.
    pub fn open(ranks: u32) -> io::Result<Rendezvous> {
        let door = Door::new(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?)?;
        Ok(Rendezvous { door, token: door::token(), ranks, here: BTreeMap::new() })
    }

    /// Where workers connect to.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.door.address()
    }

    /// What they prove with that they belong here.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The ranks that have come.
    pub fn here(&self) -> Vec<u32> {
        self.here.keys().copied().collect()
    }

    /// Lets in who has come meanwhile, and says who was refused and why. All are here once it returns their connections,
    /// by rank.
    pub fn admit(&mut self, refused: &mut dyn FnMut(SocketAddr, &Refusal)) -> Option<Vec<TcpStream>> {
        for (address, mut stream, hello) in self.door.knocks() {
            let who = hello.map_err(Refusal::NoHello).and_then(|hello| identify(hello, &self.token));
            match who.and_then(|who| rank(&who, self.ranks, &self.here)) {
                Ok(rank) => {
                    // who is gone again is found out by its reader
                    let _ = wire::send(&mut stream, &Down::Welcome);
                    self.here.insert(rank, stream);
                }
                Err(refusal) => {
                    let _ = wire::send(&mut stream, &refusal.answer());
                    refused(address, &refusal);
                }
            }
        }
        let complete = self.here.len() == self.ranks as usize;
        complete.then(|| std::mem::take(&mut self.here).into_values().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::{Duration, Instant};

    use super::super::door::PATIENCE;
    use super::super::wire::MOST_HELLO;
    use super::*;

    struct Open {
        rendezvous: Rendezvous,
        refused: Vec<String>,
    }

    impl Open {
        fn new() -> Open {
            Open { rendezvous: Rendezvous::open(2).unwrap(), refused: Vec::new() }
        }

        fn hello(&self, rank: u32) -> Hello {
            Hello::new(self.rendezvous.token(), &Who::Worker { rank, process: 1 })
        }

        /// Connects, writes, and waits until it has been dealt with.
        fn knock(&mut self, write: impl FnOnce(&mut TcpStream)) -> (Down, Option<Vec<TcpStream>>) {
            let mut stream = TcpStream::connect(self.rendezvous.address().unwrap()).unwrap();
            write(&mut stream);
            let (here, refused) = (self.rendezvous.here().len(), self.refused.len());
            let end = Instant::now() + Duration::from_secs(20);
            loop {
                let all = self.rendezvous.admit(&mut |_, refusal| self.refused.push(refusal.to_string()));
                if all.is_some() || self.rendezvous.here().len() > here || self.refused.len() > refused {
                    return (wire::receive(&mut stream, MOST_HELLO).unwrap(), all);
                }
                assert!(Instant::now() < end);
                std::thread::sleep(Duration::from_millis(1));
            }
        }

        fn refusal(&mut self, write: impl FnOnce(&mut TcpStream)) -> String {
            let (Down::Refused(why) | Down::Stranger(why), None) = self.knock(write) else { panic!("it was let in") };
            assert_eq!(self.refused.last(), Some(&why));
            assert_eq!(why.lines().count(), 1);
            why
        }
    }

    #[test]
    fn workers_are_let_in_and_strangers_are_told_why_not() {
        let mut door = Open::new();
        let [zero, one, two] = [0, 1, 2].map(|rank| door.hello(rank));
        let stranger = Hello { token: "guessed".to_owned(), ..zero.clone() };
        let other = Hello { collcheck: "9.9.9".to_owned(), ..zero.clone() };
        let odd = Hello { who: serde_json::json!({"Worker": {"rank": -1}}), ..zero.clone() };
        let later = Hello { protocol: 99, who: serde_json::json!("somebody"), ..zero.clone() };
        assert_eq!(door.refusal(|s| wire::send(s, &stranger).unwrap()), Refusal::Token.to_string());
        let versions = format!("collcheck 9.9.9 (protocol {PROTOCOL})");
        assert!(door.refusal(|s| wire::send(s, &other).unwrap()).contains(&versions));
        assert!(door.refusal(|s| wire::send(s, &later).unwrap()).contains("(protocol 99)"));
        assert!(door.refusal(|s| wire::send(s, &odd).unwrap()).contains("did not say hello"));
        assert!(door.refusal(|s| wire::send(s, &two).unwrap()).contains("rank 2 of 2"));
        assert!(door.refusal(|s| s.write_all(b"\0\0\0\x05hello").unwrap()).contains("did not say hello"));
        assert!(door.refusal(|s| s.write_all(&[0xff; 64]).unwrap()).contains("4294967295 bytes"));
        assert!(matches!(door.knock(|s| wire::send(s, &one).unwrap()), (Down::Welcome, None)));
        assert_eq!(door.refusal(|s| wire::send(s, &one).unwrap()), "rank 1 is here already");
        assert_eq!(door.rendezvous.here(), [1]);
        let (Down::Welcome, Some(all)) = door.knock(|s| wire::send(s, &zero).unwrap()) else { panic!("not complete") };
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn one_who_speaks_slowly_is_sent_away_like_one_who_is_silent() {
        let mut door = Open::new();
        let began = Instant::now();
        let drip = |stream: &mut TcpStream| {
            let mut stream = stream.try_clone().unwrap();
            std::thread::spawn(move || {
                // as if much were to come
                while stream.write_all(&[0]).is_ok() {
                    std::thread::sleep(Duration::from_millis(600));
                }
            });
        };
        let why = door.refusal(|stream| {
            stream.write_all(&[0, 0, 15, 0]).unwrap();
            drip(stream);
        });
        assert!(why.contains("did not say hello: timed out") || why.contains("temporarily unavailable"), "{why}");
        assert!(began.elapsed() < 2 * PATIENCE, "{:?}", began.elapsed());
    }

    #[test]
    fn one_who_is_silent_does_not_keep_the_others_waiting() {
        let mut door = Open::new();
        let _silent = TcpStream::connect(door.rendezvous.address().unwrap()).unwrap();
        let hello = door.hello(0);
        let began = Instant::now();
        assert!(matches!(door.knock(|s| wire::send(s, &hello).unwrap()), (Down::Welcome, None)));
        assert!(began.elapsed() < PATIENCE);
    }
}
