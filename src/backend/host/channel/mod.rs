//! A byte channel from one rank to one other: one writer, one reader, over shared memory or a TCP connection.
//!
//! Only bytes are exchanged: no lengths, types or sequence numbers. Ranks that disagree about what crosses the channel
//! read bytes that were meant as something else, or wait for bytes that nobody sends.
//!
//! A message starts at a multiple of [`ALIGN`], on both sides by their own count; the bytes between have no meaning. So
//! no element of a message lies across the end of a ring, and a stream spoils what comes later in the same way.
//!
//! Nothing here waits: who finds no room or no bytes comes back, between looks at the abort flag.

pub mod ring;
pub mod stream;

use crate::backend::RankError;

/// Where messages start, and what capacities are multiples of: no element is larger.
pub(super) const ALIGN: usize = 16;

fn aligned(position: u64) -> u64 {
    position.next_multiple_of(ALIGN as u64)
}

/// The writing end. There is one for each channel.
#[derive(Debug)]
pub(super) enum Sender {
    /// In shared memory.
    Ring(ring::Sender),
    /// Over a connection.
    Stream(Box<stream::Sender>),
}

impl Sender {
    /// Starts a message.
    pub(super) fn begin(&mut self) {
        match self {
            Sender::Ring(ring) => ring.begin(),
            Sender::Stream(stream) => stream.begin(),
        }
    }

    /// Free bytes in one piece at the write position, `wanted` at most, to be written and then committed.
    pub(super) fn room(&mut self, wanted: usize) -> Result<&mut [u8], RankError> {
        match self {
            Sender::Ring(ring) => Ok(ring.room(wanted)),
            Sender::Stream(stream) => stream.room(wanted),
        }
    }

    /// Hands over the next `len` bytes.
    pub(super) fn commit(&mut self, len: usize) {
        match self {
            Sender::Ring(ring) => ring.commit(len),
            Sender::Stream(stream) => stream.commit(len),
        }
    }

    /// Whether all that was committed is in the channel, from where it goes on without this rank. A send is not done
    /// before.
    pub(super) fn flushed(&mut self) -> Result<bool, RankError> {
        match self {
            Sender::Ring(_) => Ok(true),
            Sender::Stream(stream) => stream.flushed(),
        }
    }
}

/// The reading end. There is one for each channel.
#[derive(Debug)]
pub(super) enum Receiver {
    /// In shared memory.
    Ring(ring::Receiver),
    /// Over a connection.
    Stream(Box<stream::Receiver>),
}

impl Receiver {
    /// Starts a message.
    pub(super) fn begin(&mut self) {
        match self {
            Receiver::Ring(ring) => ring.begin(),
            Receiver::Stream(stream) => stream.begin(),
        }
    }

    /// Bytes that have come, in one piece at the read position, `wanted` at most, to be read and then consumed.
    pub(super) fn ready(&mut self, wanted: usize) -> Result<&[u8], RankError> {
        match self {
            Receiver::Ring(ring) => Ok(ring.ready(wanted)),
            Receiver::Stream(stream) => stream.ready(wanted),
        }
    }

    /// Gives the next `len` bytes back.
    pub(super) fn consume(&mut self, len: usize) {
        match self {
            Receiver::Ring(ring) => ring.consume(len),
            Receiver::Stream(stream) => stream.consume(len),
        }
    }
}
