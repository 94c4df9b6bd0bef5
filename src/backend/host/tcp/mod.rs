//! Channels over TCP connections, for ranks on several hosts and for connections that can really be damaged.
//!
//! ```text
//! every rank:  Listener ── address ──> Book (rank -> address, one token) ──> Joining ──> Links
//!                                        │
//!                        in memory for threads, from a coordinator for processes
//! ```
//!
//! A channel is one connection, in one direction. Its writer connects, its reader accepts: so a send needs nothing of
//! its receiver but that it listens. Connections of the ring and the tree are asked for when a rank joins, at most six
//! a rank; those between pairs at the first send. What a rank sends to itself stays in memory.
//!
//! The first [`hello::BYTES`] bytes of a connection say who it is from and which channel it is. What follows is the
//! channel's bytes and nothing else.
//!
//! The kernel's buffers are the channel's capacity. They are of fixed size, so that a send that nobody receives blocks
//! beyond it; how much fits exactly depends on how the kernel packs it, between [`CAPACITY`] and [`CEILING`].

pub mod damage;
pub mod door;
pub mod hello;
pub mod line;
pub mod peer;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};

pub use damage::{CannotDamage, Damage};
use door::Door;
use peer::Peer;

use crate::backend::descriptors;

/// What is asked of the kernel for the writing end of a connection. Linux takes twice as much, and counts its own
/// overhead in.
const SEND_BUFFER: usize = 256 << 10;

/// The same for the reading end. With less, windows are a few packets of the loopback device (64 KiB each), and the
/// kernel's timers set the pace: 30 MB/s were measured with half of both, 110 to 160 MB/s with these, on a busy machine.
const RECV_BUFFER: usize = 512 << 10;

/// Bytes that a channel holds at least. Some 180 KiB of messages of a byte were measured, each padded to 16, and
/// 1.5 MiB of large ones.
pub const CAPACITY: usize = 128 << 10;

/// Bytes that a channel never holds: more than both ends' buffers twice over, and what a reader has taken and not used.
pub const CEILING: usize = 2 << 20;

/// Connections that may wait to be accepted; the kernel has its own limit below that.
const BACKLOG: i32 = 4096;

/// Where a rank's channels come in. It listens from the start, so that nobody is refused who knows its address.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// On a port of the system's choice of this address, which other ranks must be able to reach.
    pub fn bind(ip: IpAddr) -> io::Result<Listener> {
        let address = SocketAddr::new(ip, 0);
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        // accepted connections inherit it; later would be too late for the window that they announce
        socket.set_recv_buffer_size(RECV_BUFFER)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        let listener = TcpListener::from(socket);
        let address = listener.local_addr()?;
        Ok(Listener { listener, address })
    }

    /// On the loopback device.
    pub fn loopback() -> io::Result<Listener> {
        Listener::bind(Ipv4Addr::LOCALHOST.into())
    }

    /// What the book says of it.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Where all ranks of a communicator listen. Every rank has the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Book {
    /// By rank.
    pub addresses: Vec<SocketAddr>,
    /// Proof that a connection belongs to this communicator.
    pub token: [u8; hello::TOKEN],
}

impl Book {
    /// With a new token.
    pub fn new(addresses: Vec<SocketAddr>) -> Book {
        Book { addresses, token: rand::random() }
    }
}

/// What a rank needs to make its links, in a process that has other ranks or not.
#[derive(Debug)]
pub struct Joining {
    /// Its own.
    pub listener: Listener,
    /// Everybody's.
    pub book: Book,
}

/// One rank's side of its connections: what channels are made of, and what damage is done to.
#[derive(Debug, Clone)]
pub(super) struct Network {
    pub(super) rank: usize,
    pub(super) token: [u8; hello::TOKEN],
    pub(super) peers: Arc<Vec<Arc<Peer>>>,
    pub(super) door: Arc<Mutex<Door>>,
}

impl Network {
    /// For `rank`, if the book has it.
    pub(super) fn new(joining: Joining, rank: usize) -> Option<Network> {
        let Joining { listener: Listener { listener, .. }, book: Book { addresses, token } } = joining;
        if rank >= addresses.len() {
            return None;
        }
        let peer = |(peer, address)| Arc::new(Peer::new(peer, address));
        let peers: Vec<_> = addresses.into_iter().enumerate().map(peer).collect();
        let door = Door::new(listener, token, rank, peers.clone());
        Some(Network { rank, token, peers: Arc::new(peers), door: Arc::new(Mutex::new(door)) })
    }
}

/// Lets this process have the descriptors that so many ranks in it can come to need, as far as the system allows it.
pub(super) fn allow_descriptors(ranks: usize) {
    // two ends of a connection for each ordered pair, six more and the listener for each rank
    let connections = ranks.saturating_mul(ranks.saturating_add(3)).saturating_mul(2);
    descriptors::allow(connections.saturating_add(ranks).try_into().unwrap_or(u64::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_book_survives_its_way_from_a_coordinator() {
        let listener = Listener::loopback().unwrap();
        let book = Book::new(vec![listener.address(), "[::1]:7".parse().unwrap()]);
        let text = serde_json::to_string(&book).unwrap();
        assert_eq!(serde_json::from_str::<Book>(&text).unwrap(), book);
        assert_ne!(Book::new(book.addresses.clone()).token, book.token);
    }

    #[test]
    fn a_rank_that_the_book_does_not_have_cannot_join() {
        let listener = Listener::loopback().unwrap();
        let book = Book::new(vec![listener.address()]);
        assert!(Network::new(Joining { listener, book }, 1).is_none());
    }
}
