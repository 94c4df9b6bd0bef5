//! An open port: whoever connects is heard, none of them by those who wait behind.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use super::wire::{self, Hello, MOST_HELLO, NoMessage};

/// How long one who has connected may take to say who it is, however it spreads its words.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Connections that may be about to say who they are at the same time.
const CANDIDATES: usize = 256;

/// Connections that may wait to be let in; the kernel has its own limit below that.
const BACKLOG: i32 = 4096;

/// Who has connected, and what it said.
pub type Knock = (SocketAddr, TcpStream, Result<Hello, NoMessage>);

/// A listener, and those who are about to say who they are.
pub struct Door {
    listener: TcpListener,
    greet: Sender<Knock>,
    greeted: Receiver<Knock>,
    candidates: usize,
}

impl Door {
    /// Listens from now on.
    pub fn new(listener: TcpListener) -> io::Result<Door> {
        listener.set_nonblocking(true)?;
        // all ranks may come at once; who finds no room tries again a second later
        rustix::net::listen(&listener, BACKLOG)?;
        let (greet, greeted) = channel();
        Ok(Door { listener, greet, greeted, candidates: 0 })
    }

    /// Where it is.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Who has said hello, or something else, meanwhile. It does not wait.
    pub fn knocks(&mut self) -> Vec<Knock> {
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
        let knocks: Vec<Knock> = self.greeted.try_iter().collect();
        self.candidates = self.candidates.saturating_sub(knocks.len());
        knocks
    }
}

/// A token that nobody guesses.
pub fn token() -> String {
    format!("{:032x}", rand::random::<u128>())
}

fn hear(stream: &mut TcpStream) -> Result<Hello, NoMessage> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let hello = wire::receive(&mut Hurried { stream, end: Instant::now() + PATIENCE }, MOST_HELLO)?;
    stream.set_read_timeout(None)?;
    Ok(hello)
}

/// A stream that has to have said everything by then.
struct Hurried<'s> {
    stream: &'s mut TcpStream,
    end: Instant,
}

impl Read for Hurried<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(into)
    }
}
