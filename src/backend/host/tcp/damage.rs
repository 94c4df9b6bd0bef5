//! Deliberate damage to a rank's connections.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, PoisonError};

use super::Network;
use super::line::Line;
use super::peer::Peer;
use crate::backend::sockets::Damaged;
use crate::backend::sockets::own::Blow;

/// Damages the way between one rank and another, also while the rank is in a collective.
///
/// Packets that arrive are dropped by the kernel, at the sockets of this rank; data that this rank sends is stopped or
/// held back before the kernel has it. So one rank's damage takes effect in both directions, with two exceptions that
/// each function names. Connections that are made later share it.
#[derive(Debug, Clone)]
pub struct Damage {
    network: Network,
}

/// Why nothing was damaged.
#[derive(Debug, thiserror::Error)]
pub enum CannotDamage {
    /// Nobody to be cut off from.
    #[error("rank {rank} has no connection with rank {peer} of {ranks}")]
    NoPeer {
        /// Whose connections.
        rank: usize,
        /// The other one.
        peer: u32,
        /// There are.
        ranks: usize,
    },
    /// The system does not let it happen.
    #[error("cannot {what} the connections with rank {peer}: {error}")]
    System {
        /// What was tried.
        what: String,
        /// The other rank.
        peer: u32,
        /// Why not.
        error: io::Error,
    },
}

impl Damage {
    pub(in crate::backend::host) fn new(network: Network) -> Damage {
        Damage { network }
    }

    /// Pulls the cable: nothing passes any more, and neither side is told. What this rank sends is taken until a
    /// channel's capacity is full, as a kernel does that waits for acknowledgements.
    pub fn cut(&self, peer: u32) -> Result<Damaged, CannotDamage> {
        let (way, lines) = self.way(peer, "cut")?;
        way.set_cut();
        self.strike(peer, &lines, Blow::Cut)
    }

    /// Resets all connections that there are, which both sides are told. Those made later are sound.
    pub fn reset(&self, peer: u32) -> Result<Damaged, CannotDamage> {
        let (_, lines) = self.way(peer, "reset")?;
        self.strike(peer, &lines, Blow::Reset)
    }

    /// Sends no more than this many bytes a second to the peer, on all channels together; 0 lifts it. The other
    /// direction stays as it is.
    pub fn throttle(&self, peer: u32, bytes_per_s: u64) -> Result<Damaged, CannotDamage> {
        let (way, lines) = self.way(peer, "throttle")?;
        way.set_rate(bytes_per_s);
        Ok(outgoing(format!("throttled to {bytes_per_s} B/s"), &lines))
    }

    /// Holds back all that is sent to the peer for this long; 0 lifts it. The other direction stays as it is.
    pub fn delay(&self, peer: u32, us: u64) -> Result<Damaged, CannotDamage> {
        let (way, lines) = self.way(peer, "delay")?;
        way.set_delay(us);
        Ok(outgoing(format!("delayed by {us} us"), &lines))
    }

    fn way(&self, peer: u32, what: &str) -> Result<(&Peer, Vec<Arc<Line>>), CannotDamage> {
        let Network { rank, peers, door, .. } = &self.network;
        let found = peers.get(peer as usize).filter(|peer| peer.rank != *rank);
        let found = found.ok_or(CannotDamage::NoPeer { rank: *rank, peer, ranks: peers.len() })?;
        // the peer may have connected without this rank having looked
        let looked = door.lock().unwrap_or_else(PoisonError::into_inner).look();
        looked.map_err(|error| CannotDamage::System { what: what.to_owned(), peer, error })?;
        Ok((found, found.lines()))
    }

    fn strike(&self, peer: u32, lines: &[Arc<Line>], blow: Blow) -> Result<Damaged, CannotDamage> {
        for line in lines {
            let struck = blow.strike(line.as_fd());
            struck.map_err(|error| CannotDamage::System { what: blow.name(), peer, error })?;
        }
        Ok(Damaged { what: blow.name(), connections: lines.iter().map(|line| line.connection()).collect() })
    }
}

fn outgoing(what: String, lines: &[Arc<Line>]) -> Damaged {
    let connections = lines.iter().filter(|line| line.is_outgoing()).map(|line| line.connection()).collect();
    Damaged { what, connections }
}
