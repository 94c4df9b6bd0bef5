//! Who starts, watches and kills the workers of one communicator: this process itself, or agents.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;

use super::errand::Task;
use super::hall::{Hall, Spot};
use super::rendezvous::{Refusal, Rendezvous};
use super::squad::{self, Squad};
use super::wire::ToAll;
use crate::backend::{Recipe, Unavailable, descriptors};
use crate::fleet::log::Log;
use crate::trace::Liveness;

/// The workers of one communicator. They are killed when it is dropped.
pub trait Staff: Send {
    /// Lets workers in who have come meanwhile. Their connections, by rank, once all are here.
    fn admit(&mut self) -> Result<Option<Vec<TcpStream>>, Unavailable>;

    /// Tells all workers the same.
    fn tell(&mut self, what: ToAll);

    /// The ranks that have come.
    fn here(&self) -> Vec<u32>;

    /// The process of each rank, or of rank 0 alone where not all are of this host.
    fn processes(&self) -> Vec<u32>;

    /// By which address other hosts reach this one, if there are any.
    fn outside(&self) -> Option<IpAddr>;

    /// The host of each rank; empty where all are on this one.
    fn hosts(&self) -> Vec<String>;

    /// Whether the host of any rank is cut off: none of its agents has been heard of for a while.
    fn silent(&self) -> bool;

    /// How each rank's process is.
    fn states(&mut self) -> Vec<Liveness>;

    /// Each rank's log, as far as it can be had.
    fn logs(&mut self) -> Vec<Option<Log>>;
}

/// Says who was refused.
pub fn refused(address: SocketAddr, why: &Refusal) {
    eprintln!("refused a connection from {address}: {why}");
}

/// Memory that the recipe's ranks share.
pub fn channels(recipe: &Recipe) -> Result<OwnedFd, Unavailable> {
    let bytes = match recipe {
        Recipe::Host { bytes } => *bytes,
        Recipe::HostTcp { .. } | Recipe::Nccl { .. } => 0,
    };
    squad::shared("channels", bytes).map_err(unshared)
}

fn unshared(error: std::io::Error) -> Unavailable {
    Unavailable(format!("no memory can be shared with workers: {error}"))
}

/// Workers that are children of this process.
pub struct Own {
    rendezvous: Rendezvous,
    squad: Squad,
    /// Inherited by workers; kept for none but them.
    _channels: OwnedFd,
    _hall: Hall,
}

impl Own {
    /// Starts one for each rank.
    pub fn start(recipe: Recipe, ranks: u32, ranks_per_gpu: u32) -> Result<Own, Unavailable> {
        let network = |e: std::io::Error| Unavailable(format!("workers cannot be waited for: {e}"));
        // of each rank: its connection, its standard input, and both once more while it is started
        descriptors::allow(4 * u64::from(ranks));
        let channels = channels(&recipe)?;
        let hall = Hall::new().map_err(unshared)?;
        let rendezvous = Rendezvous::open(ranks).map_err(network)?;
        let own: Vec<(u32, u32)> = match &recipe {
            Recipe::Nccl { gpus, .. } => (0..ranks).zip(gpus.iter().copied()).collect(),
            Recipe::Host { .. } | Recipe::HostTcp { .. } => (0..ranks).map(|rank| (rank, 0)).collect(),
        };
        if own.len() < ranks as usize {
            return Err(Unavailable(format!("{ranks} ranks, and GPUs are known for {} of them", own.len())));
        }
        let task = Task {
            team: 0,
            token: rendezvous.token().to_owned(),
            ranks,
            own,
            ranks_per_gpu,
            recipe,
            channels: squad::inherited(&channels),
            gate: Some(Spot { site: hall.inherited(), size: ranks, slot: 0 }),
        };
        let squad = Squad::start(&task, rendezvous.address().map_err(network)?)?;
        Ok(Own { rendezvous, squad, _channels: channels, _hall: hall })
    }
}

impl Staff for Own {
    fn admit(&mut self) -> Result<Option<Vec<TcpStream>>, Unavailable> {
        Ok(self.rendezvous.admit(&mut refused))
    }

    fn tell(&mut self, what: ToAll) {
        self.squad.tell(&what);
    }

    fn here(&self) -> Vec<u32> {
        self.rendezvous.here()
    }

    fn processes(&self) -> Vec<u32> {
        self.squad.processes()
    }

    fn outside(&self) -> Option<IpAddr> {
        None
    }

    fn hosts(&self) -> Vec<String> {
        Vec::new()
    }

    fn silent(&self) -> bool {
        false
    }

    fn states(&mut self) -> Vec<Liveness> {
        self.squad.states()
    }

    fn logs(&mut self) -> Vec<Option<Log>> {
        self.squad.logs().iter().cloned().map(Some).collect()
    }
}
