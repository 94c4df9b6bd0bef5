//! Damage to TCP connections from inside the process that holds them, without privileges.
//!
//! A packet filter on a socket decides about every packet that arrives for it, acknowledgements and resets included.
//! So a connection can be made as dead as a pulled cable leaves it, with both ends still believing in it. What leaves a
//! socket passes no filter of its own: data that goes out dies at a filter of the other end, or in a sender that stops.
//!
//! `filter` does it to one socket, and `pace` slows one down; `own` finds the sockets of this process, whoever opened them,
//! NCCL included.

pub mod filter;
pub mod own;
pub mod pace;

use std::fmt;
use std::net::SocketAddr;

/// The two ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Connection {
    /// This process's.
    pub local: SocketAddr,
    /// The other one's.
    pub remote: SocketAddr,
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} - {}", self.local, self.remote)
    }
}

/// What can be done to the way between two ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// Nothing passes any more, in either direction, and neither side is told.
    Cut,
    /// Its connections are broken, and both sides are told.
    Reset,
    /// What the one that does it sends is held back for so many microseconds; 0 lifts it.
    Delay(u32),
    /// It sends no more than so many bytes a second; 0 lifts it.
    Throttle(u64),
}

/// What was done, and to which connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    /// What, as `cut`.
    pub what: String,
    /// To which; the length is the number of sockets.
    pub connections: Vec<Connection>,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} sockets", self.what, self.connections.len())?;
        for (k, connection) in self.connections.iter().enumerate() {
            write!(f, "{}{connection}", if k == 0 { ": " } else { ", " })?;
        }
        Ok(())
    }
}
