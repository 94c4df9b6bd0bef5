//! Where workers report for duty, and everybody else is sent away.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::wire::{self, Down, Hello, MOST_HELLO, NoMessage, PROTOCOL};

/// How long one who has connected may take to say who it is.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connections that may be about to say who they are at the same time.
const CANDIDATES: usize = 256;

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
    /// Not started by this run.
    #[error("its token is not that of this run")]
    Token,
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
}

/// Who has connected, and what it said.
type Greeting = (SocketAddr, TcpStream, Result<Hello, NoMessage>);

/// The open door.
pub struct Rendezvous {
    listener: TcpListener,
    token: String,
    ranks: u32,
    here: BTreeMap<u32, TcpStream>,
    greet: Sender<Greeting>,
    greeted: Receiver<Greeting>,
    candidates: usize,
}

impl Rendezvous {
    /// Opens it on the loopback device, for so many ranks.
    pub fn open(ranks: u32) -> io::Result<Rendezvous> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let token = format!("{:032x}", rand::random::<u128>());
        let (greet, greeted) = channel();
        Ok(Rendezvous { listener, token, ranks, here: BTreeMap::new(), greet, greeted, candidates: 0 })
    }

    /// Where workers connect to.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
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
        // Each has a thread until it has said hello: nobody who is silent keeps another one waiting.
        while self.candidates < CANDIDATES
            && let Ok((stream, address)) = self.listener.accept()
        {
            let greet = self.greet.clone();
            let hear = move || {
                let mut stream = stream;
                let hello = hear(&mut stream);
                let _ = greet.send((address, stream, hello));
            };
            // without a thread to be had, it is not heard
            if std::thread::Builder::new().name("hello".to_owned()).spawn(hear).is_ok() {
                self.candidates += 1;
            }
        }
        while let Ok((address, mut stream, hello)) = self.greeted.try_recv() {
            self.candidates -= 1;
            let answer = hello.map_err(Refusal::NoHello).and_then(|hello| self.check(&hello));
            match answer {
                Ok(rank) => {
                    // who is gone again is found out by its reader
                    let _ = wire::send(&mut stream, &Down::Welcome);
                    self.here.insert(rank, stream);
                }
                Err(refusal) => {
                    let _ = wire::send(&mut stream, &Down::Refused(refusal.to_string()));
                    refused(address, &refusal);
                }
            }
        }
        let complete = self.here.len() == self.ranks as usize;
        complete.then(|| std::mem::take(&mut self.here).into_values().collect())
    }

    /// The rank, if it is one of ours and the first of its name. The token comes first: a stranger learns nothing.
    fn check(&self, hello: &Hello) -> Result<u32, Refusal> {
        let Hello { protocol, collcheck, token, rank } = hello;
        if *token != self.token {
            Err(Refusal::Token)
        } else if *protocol != PROTOCOL || collcheck != env!("CARGO_PKG_VERSION") {
            Err(Refusal::Version { theirs: collcheck.clone(), protocol: *protocol })
        } else if *rank >= self.ranks {
            Err(Refusal::NoSuchRank { rank: *rank, ranks: self.ranks })
        } else if self.here.contains_key(rank) {
            Err(Refusal::Taken(*rank))
        } else {
            Ok(*rank)
        }
    }
}

fn hear(stream: &mut TcpStream) -> Result<Hello, NoMessage> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let hello = wire::receive(stream, MOST_HELLO)?;
    stream.set_read_timeout(None)?;
    Ok(hello)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Instant;

    use super::*;

    struct Door {
        rendezvous: Rendezvous,
        refused: Vec<String>,
    }

    impl Door {
        fn new() -> Door {
            Door { rendezvous: Rendezvous::open(2).unwrap(), refused: Vec::new() }
        }

        fn hello(&self, rank: u32) -> Hello {
            let token = self.rendezvous.token().to_owned();
            Hello { protocol: PROTOCOL, collcheck: env!("CARGO_PKG_VERSION").to_owned(), token, rank }
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
            let (Down::Refused(why), None) = self.knock(write) else { panic!("it was let in") };
            assert_eq!(self.refused.last(), Some(&why));
            assert_eq!(why.lines().count(), 1);
            why
        }
    }

    #[test]
    fn workers_are_let_in_and_strangers_are_told_why_not() {
        let mut door = Door::new();
        let [zero, one, two] = [0, 1, 2].map(|rank| door.hello(rank));
        let stranger = Hello { token: "guessed".to_owned(), ..zero.clone() };
        let other = Hello { collcheck: "9.9.9".to_owned(), ..zero.clone() };
        assert_eq!(door.refusal(|s| wire::send(s, &stranger).unwrap()), Refusal::Token.to_string());
        assert!(
            door.refusal(|s| wire::send(s, &other).unwrap())
                .contains(&format!("collcheck 9.9.9 (protocol {PROTOCOL})"))
        );
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
    fn one_who_is_silent_does_not_keep_the_others_waiting() {
        let mut door = Door::new();
        let _silent = TcpStream::connect(door.rendezvous.address().unwrap()).unwrap();
        let hello = door.hello(0);
        let began = Instant::now();
        assert!(matches!(door.knock(|s| wire::send(s, &hello).unwrap()), (Down::Welcome, None)));
        assert!(began.elapsed() < PATIENCE);
    }
}
