//! A channel over a TCP connection.
//!
//! What is written lies in a stage until the kernel has it. A send is done when the stage is empty, so that the rest of
//! its way needs nothing of this rank. Everybody who waits keeps asking, and each time the stage moves on.
//!
//! The stage is also where damage takes effect: bytes leave it later or slower, or, on a way that is cut, into nowhere.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::super::tcp::door::Door;
use super::super::tcp::hello::{Hello, Kind};
use super::super::tcp::line::{Came, Line};
use super::super::tcp::peer::Peer;
use super::super::tcp::{CAPACITY, Network};
use super::aligned;
use crate::backend::RankError;

/// Bytes of the stage.
const STAGE: usize = 256 << 10;

/// Bytes of the stage on a way that is delayed: what is on its way at a time. A delay is to cost no bandwidth, so this is far
/// more than any host moves in a millisecond.
const LONG_STAGE: usize = 8 << 20;

/// Bytes that are read ahead.
const AHEAD: usize = 64 << 10;

/// Bytes in one piece, between a first that is in use and a last.
#[derive(Debug, Default)]
struct Bytes {
    bytes: Vec<u8>,
    first: usize,
    last: usize,
}

impl Bytes {
    fn len(&self) -> usize {
        self.last - self.first
    }

    fn held(&self) -> &[u8] {
        self.bytes.get(self.first..self.last).unwrap_or_default()
    }

    /// Room behind what is held, as much as there can be of `capacity`, if not of `wanted` then of less.
    fn room(&mut self, wanted: usize, capacity: usize) -> &mut [u8] {
        if self.bytes.len() < capacity {
            self.bytes.resize(capacity, 0);
        }
        if self.first == self.last {
            (self.first, self.last) = (0, 0);
        } else if self.first > 0 && self.bytes.len() - self.last < wanted {
            self.bytes.copy_within(self.first..self.last, 0);
            (self.first, self.last) = (0, self.len());
        }
        self.bytes.get_mut(self.last..).unwrap_or_default()
    }

    fn add(&mut self, len: usize) {
        self.last = (self.last + len).min(self.bytes.len());
    }

    fn release(&mut self, len: usize) {
        self.first = (self.first + len).min(self.last);
    }
}

/// The writing end.
#[derive(Debug)]
pub struct Sender {
    peer: Arc<Peer>,
    hello: Hello,
    line: Option<Arc<Line>>,
    stage: Bytes,
    /// Bytes at the front of the stage that are the hello and no part of the channel.
    greeting: usize,
    /// When how many of the staged bytes may leave; those not mentioned may.
    held: VecDeque<(Instant, usize)>,
    tail: u64,
    /// Bytes without meaning before the next one.
    padding: usize,
    /// Bytes that a cut way has taken.
    vanished: usize,
    broken: Option<RankError>,
}

impl Sender {
    /// To `peer`; nothing where the book does not have it.
    pub fn new(network: &Network, kind: Kind, to: usize) -> Option<Sender> {
        let peer = network.peers.get(to)?.clone();
        let token = network.token;
        let hello = Hello { token, kind, from: u32::try_from(network.rank).ok()?, to: u32::try_from(to).ok()? };
        Some(Sender {
            peer,
            hello,
            line: None,
            stage: Bytes::default(),
            greeting: 0,
            held: VecDeque::new(),
            tail: 0,
            padding: 0,
            vanished: 0,
            broken: None,
        })
    }

    /// Connects now rather than at the first send. What goes wrong shows at the first send.
    pub fn open(mut self) -> Sender {
        if let Err(error) = self.connect().and_then(|()| self.flush()) {
            self.broken = Some(error);
        }
        self
    }

    fn connect(&mut self) -> Result<(), RankError> {
        if self.line.is_some() || self.peer.is_cut() {
            return Ok(());
        }
        let line = Arc::new(Line::connect(self.peer.rank, self.peer.address)?);
        self.peer.add(&line);
        self.line = Some(line);
        let hello = self.hello.to_bytes();
        if let Some(room) = self.stage.room(hello.len(), STAGE).first_chunk_mut() {
            *room = hello;
            self.stage.add(hello.len());
            self.greeting = hello.len();
        }
        Ok(())
    }

    pub fn begin(&mut self) {
        let start = aligned(self.tail + self.padding as u64);
        self.padding = (start - self.tail) as usize;
    }

    pub fn room(&mut self, wanted: usize) -> Result<&mut [u8], RankError> {
        self.connect()?;
        self.flush()?;
        let padding = self.padding;
        let capacity = if self.peer.delay().is_zero() { STAGE } else { LONG_STAGE };
        let room = self.stage.room(padding + wanted, capacity);
        // none, or at least an aligned piece: never so little that no element fits
        let free = room.len().saturating_sub(padding);
        let len = if free < wanted { free - free % super::ALIGN } else { wanted };
        Ok(room.get_mut(padding..padding + len).unwrap_or_default())
    }

    pub fn commit(&mut self, len: usize) {
        if len == 0 {
            return;
        }
        let bytes = std::mem::take(&mut self.padding) + len;
        let was_empty = self.stage.len() == 0;
        self.stage.add(bytes);
        self.tail += bytes as u64;
        let delay = self.peer.delay();
        if !delay.is_zero() || !self.held.is_empty() {
            // bytes keep their order, also where the delay was lowered
            let at = Instant::now() + delay;
            self.held.push_back((self.held.back().map_or(at, |(last, _)| at.max(*last)), bytes));
        }
        if was_empty {
            self.peer.resume(Instant::now());
        }
        if let Err(error) = self.flush() {
            self.broken = Some(error);
        }
    }

    pub fn flushed(&mut self) -> Result<bool, RankError> {
        self.flush()?;
        Ok(self.stage.len() == 0)
    }

    /// Gives the kernel what may leave, as far as it takes it.
    fn flush(&mut self) -> Result<(), RankError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        while self.stage.len() > 0 {
            if self.peer.is_cut() {
                self.vanish();
                return Ok(());
            }
            let Some(line) = &self.line else { return Ok(()) };
            let now = Instant::now();
            let due = if self.greeting > 0 { self.greeting } else { self.due(now).min(self.peer.allowed(now)) };
            let held = self.stage.held();
            let written = match line.write(held.get(..due).unwrap_or(held)) {
                Ok(written) if due > 0 => written,
                Ok(_) => 0,
                Err(error) => {
                    self.broken = Some(error.clone());
                    return Err(error);
                }
            };
            if written == 0 {
                return Ok(());
            }
            if self.greeting > 0 {
                self.greeting -= written;
            } else {
                self.peer.sent(written, now);
                self.left(written);
            }
            self.stage.release(written);
        }
        Ok(())
    }

    /// Staged bytes of the channel that have been held back for long enough.
    fn due(&self, now: Instant) -> usize {
        let early: usize = self.held.iter().filter(|(at, _)| *at > now).map(|(_, bytes)| bytes).sum();
        self.stage.len().saturating_sub(self.greeting + early)
    }

    /// So many bytes have left.
    fn left(&mut self, written: usize) {
        // bytes that are not in the list lie in front of those that are
        let listed: usize = self.held.iter().map(|(_, bytes)| bytes).sum();
        let mut rest = written.saturating_sub(self.stage.len().saturating_sub(listed));
        while let Some((_, bytes)) = self.held.front_mut() {
            if *bytes > rest {
                *bytes -= rest;
                return;
            }
            rest -= *bytes;
            self.held.pop_front();
        }
    }

    /// A cut way takes what a channel holds, and no more.
    fn vanish(&mut self) {
        let taken = self.stage.len().min(CAPACITY.saturating_sub(self.vanished));
        self.vanished += taken;
        if taken == self.stage.len() {
            self.held.clear();
        } else {
            self.left(taken);
        }
        self.greeting = self.greeting.saturating_sub(taken);
        self.stage.release(taken);
    }
}

/// The reading end.
#[derive(Debug)]
pub struct Receiver {
    peer: Arc<Peer>,
    door: Arc<Mutex<Door>>,
    kind: Kind,
    line: Option<Arc<Line>>,
    came: Bytes,
    head: u64,
    /// Bytes without meaning before the next one.
    padding: usize,
    /// What is to be said once there is nothing more to read.
    ended: Option<RankError>,
}

impl Receiver {
    /// From `peer`; nothing where the book does not have it.
    pub fn new(network: &Network, kind: Kind, from: usize) -> Option<Receiver> {
        Some(Receiver {
            peer: network.peers.get(from)?.clone(),
            door: network.door.clone(),
            kind,
            line: None,
            came: Bytes::default(),
            head: 0,
            padding: 0,
            ended: None,
        })
    }

    pub fn begin(&mut self) {
        let start = aligned(self.head);
        self.padding += (start - self.head) as usize;
        self.head = start;
    }

    pub fn ready(&mut self, wanted: usize) -> Result<&[u8], RankError> {
        self.skip();
        if self.came.len() < wanted {
            self.pull()?;
            self.skip();
        }
        match &self.ended {
            // what is missing never comes
            Some(error) if self.came.len() < wanted => Err(error.clone()),
            _ => Ok(self.came.held().get(..wanted).unwrap_or(self.came.held())),
        }
    }

    pub fn consume(&mut self, len: usize) {
        self.head += len as u64;
        self.came.release(len);
    }

    fn skip(&mut self) {
        let skipped = self.padding.min(self.came.len());
        self.came.release(skipped);
        self.padding -= skipped;
    }

    /// Reads what has come.
    fn pull(&mut self) -> Result<(), RankError> {
        if self.line.is_none() && !self.peer.is_cut() {
            let taken = self.door.lock().unwrap_or_else(PoisonError::into_inner).take(self.kind, self.peer.rank);
            self.line = taken.map_err(|error| RankError::Broken {
                call: format!("accept from rank {}", self.peer.rank),
                message: error.to_string(),
            })?;
        }
        let Some(line) = self.line.as_ref().filter(|_| self.ended.is_none()) else { return Ok(()) };
        match line.read(self.came.room(AHEAD / 2, AHEAD))? {
            Came::Bytes(len) => self.came.add(len),
            Came::End => self.ended = Some(line.broken("connection closed by the other end")),
        }
        Ok(())
    }
}
