//! Where connections come in: each is heard, and kept for the channel that it belongs to.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::hello::{BYTES, Hello, Kind, TOKEN};
use super::line::Line;
use super::peer::Peer;
use crate::backend::sockets::Connection;

/// How long one who has connected may take to say who it is.
const PATIENCE: Duration = Duration::from_secs(10);

/// Connections that may be about to say who they are: strangers beyond that wait in the kernel.
const CANDIDATES: usize = 1024;

/// A rank's listener, and the connections that came in and are not in use yet.
#[derive(Debug)]
pub struct Door {
    listener: TcpListener,
    token: [u8; TOKEN],
    rank: usize,
    peers: Vec<Arc<Peer>>,
    candidates: Vec<Candidate>,
    waiting: BTreeMap<(Kind, usize), Arc<Line>>,
}

/// One that has not said all of its hello.
#[derive(Debug)]
struct Candidate {
    stream: TcpStream,
    connection: Connection,
    said: [u8; BYTES],
    len: usize,
    since: Instant,
}

impl Door {
    pub fn new(listener: TcpListener, token: [u8; TOKEN], rank: usize, peers: Vec<Arc<Peer>>) -> Door {
        Door { listener, token, rank, peers, candidates: Vec::new(), waiting: BTreeMap::new() }
    }

    /// The connection that is this channel, if it has come.
    pub fn take(&mut self, kind: Kind, from: usize) -> io::Result<Option<Arc<Line>>> {
        self.look()?;
        Ok(self.waiting.remove(&(kind, from)))
    }

    /// Accepts and hears whoever is there. Who is no rank of this communicator is left standing, without an answer.
    pub fn look(&mut self) -> io::Result<()> {
        while self.candidates.len() < CANDIDATES {
            match self.listener.accept() {
                Ok((stream, remote)) => self.candidates.extend(candidate(stream, remote)),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => break,
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
        for mut candidate in std::mem::take(&mut self.candidates) {
            match candidate.hear() {
                Ok(true) => self.admit(candidate),
                Ok(false) if candidate.since.elapsed() < PATIENCE => self.candidates.push(candidate),
                Ok(false) | Err(_) => {}
            }
        }
        Ok(())
    }

    fn admit(&mut self, candidate: Candidate) {
        let Candidate { stream, connection, said, .. } = candidate;
        let Some(Hello { token, kind, from, to }) = Hello::from_bytes(&said) else { return };
        let from = from as usize;
        if token != self.token || to as usize != self.rank {
            return;
        }
        let Some(peer) = self.peers.get(from) else { return };
        let line = Arc::new(Line::accepted(from, stream, connection));
        peer.add(&line);
        self.waiting.entry((kind, from)).or_insert(line);
    }
}

fn candidate(stream: TcpStream, remote: std::net::SocketAddr) -> Option<Candidate> {
    stream.set_nonblocking(true).ok()?;
    let connection = Connection { local: stream.local_addr().ok()?, remote };
    Some(Candidate { stream, connection, said: [0; BYTES], len: 0, since: Instant::now() })
}

impl Candidate {
    /// Whether all has been said; an error if it never will be.
    fn hear(&mut self) -> io::Result<bool> {
        while let Some(rest) = self.said.get_mut(self.len..).filter(|rest| !rest.is_empty()) {
            match self.stream.read(rest) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => self.len += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn door() -> (Door, std::net::SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let peers = (0..3).map(|rank| Arc::new(Peer::new(rank, address))).collect();
        (Door::new(listener, [1; TOKEN], 2, peers), address)
    }

    #[test]
    fn ranks_are_told_apart_and_strangers_are_not_let_in() {
        let (mut door, address) = door();
        let good = Hello { token: [1; TOKEN], kind: Kind::Pair, from: 1, to: 2 };
        let say = |bytes: &[u8]| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(bytes).unwrap();
            stream
        };
        let _others = [
            say(&Hello { token: [2; TOKEN], ..good }.to_bytes()),
            say(&Hello { from: 3, ..good }.to_bytes()),
            say(&Hello { to: 1, ..good }.to_bytes()),
            say(b"GET / HTTP/1.1\r\nHost: nobody here at all\r\n\r\n"),
        ];
        let silent = say(&good.to_bytes()[..5]);
        assert!(door.take(Kind::Pair, 1).unwrap().is_none());
        assert!(door.waiting.is_empty());
        let stream = say(&good.to_bytes());
        assert!(door.take(Kind::Ring, 1).unwrap().is_none());
        let line = door.take(Kind::Pair, 1).unwrap().unwrap();
        assert_eq!(line.connection().remote, stream.local_addr().unwrap());
        assert!(door.take(Kind::Pair, 1).unwrap().is_none());
        assert_eq!(door.candidates.len(), 1, "one is still silent");
        drop(silent);
        door.look().unwrap();
        assert!(door.candidates.is_empty());
    }
}
