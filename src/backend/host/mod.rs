//! The host backend: ranks are threads of this machine, and collectives run over shared memory or TCP connections.
//!
//! ```text
//! HostBackend ── open ──> HostStation, one a rank ── side (a second thread of the rank)
//!                           │ launch
//!                           v
//!   site (buffers and findings)   port (whose turn it is on a communicator)   board (making one more)
//!                           │
//!   algorithms (ring, tree, pairs) ── step, arithmetic
//!                           │
//!   transport (which channel goes where, groups of sends and receives)
//!                           │
//!   channel (bytes from one rank to one other) ─┬─ ring ── memory (regions, spans)
//!                                               └─ stream ── tcp (who connects to whom; damage)
//! ```
//!
//! It is a real transport, not a simulation of one: ranks share nothing but channels and an abort flag. There is no
//! lock, no barrier, and no check that ranks agree. So it deadlocks, mixes up data and loses ranks as the real thing does,
//! which is what the harness is tested with. A rank that waits is freed only by [`HostBackend::abort`].
//!
//! Over TCP ([`Transport::Tcp`]) a rank sees only its own [`Listener`] and the [`Book`] of all: that works as well in a
//! process of its own, on another host ([`HostBackend::connect`]). A connection that is closed or reset is an error that
//! names the peer and both addresses. One that is silent is waited for. [`Damage`] makes them so.
//!
//! A rank may work on two threads and, over shared memory, have two communicators, for deliberate faults only. Its threads
//! then race on the bytes of its buffers, and share nothing else without a lock.
//!
//! `unsafe` is in `memory` and `channel::ring`, and where collectives take spans of a rank's own buffers as slices for one
//! statement.

mod algorithms;
mod arithmetic;
mod board;
mod buffer;
mod channel;
mod content;
mod machine;
mod memory;
mod port;
mod side;
mod site;
mod station;
mod tcp;
mod transport;
mod wait;

use std::collections::BTreeMap;
use std::fs::File;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

pub use algorithms::Algorithm;
pub use station::{Direction, HostStation, Transfer};
pub use tcp::{Book, CannotDamage, Damage, Joining, Listener};
pub use wait::Abort;

use super::{Backend, Environment, Layout, Making, Opening, Recipe, Station, Unavailable};
use crate::case::Case;
use board::Board;
pub(crate) use memory::Region;
use station::Spare;
use tcp::Network;
use transport::{BOARD, Geometry, HEADER, Links};

/// Ranks that a communicator may have: channels between all pairs of more would be gigabytes, if of untouched memory.
pub const MAX_RANKS: u32 = 1024;

/// What ranks of the host backend exchange bytes over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Transport {
    /// Shared memory.
    #[default]
    Shm,
    /// TCP connections, on the loopback device where ranks are threads.
    Tcp,
}

impl Transport {
    /// [`Environment::link`].
    fn link(self) -> &'static str {
        match self {
            Transport::Shm => "host",
            Transport::Tcp => "tcp",
        }
    }
}

/// Ranks as threads of this machine.
#[derive(Debug)]
pub struct HostBackend {
    ranks: u32,
    transport: Transport,
    forced: Option<Algorithm>,
    /// The communicators opened so far, as far as they live.
    communicators: Mutex<Vec<Weak<Region>>>,
}

impl HostBackend {
    /// Ranks as `layout` says. A worker thread drives one rank, and there are no GPUs to share.
    pub fn new(layout: &Layout) -> Result<HostBackend, Unavailable> {
        if !(1..=MAX_RANKS).contains(&layout.ranks) {
            return Err(Unavailable(format!("the host backend runs 1 to {MAX_RANKS} ranks, not {}", layout.ranks)));
        }
        if layout.ranks_per_thread > 1 {
            return Err(Unavailable(format!(
                "the host backend runs one rank on each thread, not {}: its launches do not return before they are done",
                layout.ranks_per_thread
            )));
        }
        if layout.ranks_per_gpu > 1 {
            return Err(Unavailable(format!(
                "the host backend has no GPU that {} ranks could share",
                layout.ranks_per_gpu
            )));
        }
        let communicators = Mutex::default();
        Ok(HostBackend { ranks: layout.ranks, transport: Transport::default(), forced: None, communicators })
    }

    /// Takes `algorithm` where a primitive has it, whatever the size.
    pub fn force(mut self, algorithm: Algorithm) -> HostBackend {
        self.forced = Some(algorithm);
        self
    }

    /// Lets ranks exchange bytes over `transport`.
    pub fn over(mut self, transport: Transport) -> HostBackend {
        self.transport = transport;
        self
    }

    /// Bytes that a send takes before it waits for its receive. A connection can take more, up to
    /// [`HostBackend::channel_ceiling`].
    pub fn channel_capacity(&self) -> u64 {
        match self.transport {
            Transport::Shm => Geometry::new(self.ranks as usize).pair_capacity() as u64,
            Transport::Tcp => tcp::CAPACITY as u64,
        }
    }

    /// Bytes that a send never takes without its receive.
    pub fn channel_ceiling(&self) -> u64 {
        match self.transport {
            Transport::Shm => self.channel_capacity() + 1,
            Transport::Tcp => tcp::CEILING as u64,
        }
    }

    /// A communicator's stations, by rank.
    pub fn stations(&self) -> Result<Vec<HostStation>, Unavailable> {
        self.stations_over(self.transport)
    }

    fn stations_over(&self, transport: Transport) -> Result<Vec<HostStation>, Unavailable> {
        match transport {
            Transport::Shm => self.in_memory(),
            Transport::Tcp => self.connected(),
        }
    }

    /// What the ranks of a communicator exchange bytes over.
    fn transport(&self, making: &Making) -> Transport {
        if making.connected { Transport::Tcp } else { self.transport }
    }

    fn in_memory(&self) -> Result<Vec<HostStation>, Unavailable> {
        let geometry = Geometry::new(self.ranks as usize);
        let too_many = || Unavailable(format!("there is no memory for the channels of {} ranks", self.ranks));
        let region = Arc::new(geometry.bytes().and_then(Region::zeroed).ok_or_else(too_many)?);
        self.remember(&region);
        // the second communicator's channels, which most runs never need
        let second = Arc::new(OnceLock::<Option<Arc<Region>>>::new());
        let station = |rank| {
            let (second, abort) = (Arc::clone(&second), Abort::new(Arc::clone(&region)));
            let spare = Spare::new(move || {
                let region = second.get_or_init(|| geometry.bytes().and_then(Region::zeroed).map(Arc::new));
                Some(Links::new(region.as_ref()?, geometry, rank)?.aborted_by(abort.clone()))
            });
            let board = Some(Board::new(Arc::clone(&region), BOARD, rank));
            Some(HostStation::new(Links::new(&region, geometry, rank)?, spare, board, self.forced))
        };
        (0..self.ranks as usize).map(station).collect::<Option<_>>().ok_or_else(too_many)
    }

    /// A rank's station in a process of its own. `channels` is memory as [`Recipe::Host`] says that all ranks
    /// share, zero before the first of them joins; each rank joins once.
    pub fn join(channels: &File, ranks: u32, rank: u32) -> Result<HostStation, Unavailable> {
        let geometry = Geometry::new(ranks as usize);
        let broken = || Unavailable("the channels cannot be mapped".to_owned());
        let rank = rank as usize;
        let bytes = geometry.bytes().ok_or_else(broken)?;
        let region = Arc::new(Region::mapped(channels, 0, bytes).ok_or_else(broken)?);
        let links = Links::new(&region, geometry, rank).ok_or_else(broken)?;
        let board = Some(Board::new(Arc::clone(&region), BOARD, rank));
        let (channels, abort) = (channels.try_clone().map_err(|_| broken())?, Abort::new(region));
        let spare = Spare::new(move || {
            let region = Region::mapped(&channels, geometry.paged()?, bytes)?;
            Some(Links::new(&Arc::new(region), geometry, rank)?.aborted_by(abort.clone()))
        });
        Ok(HostStation::new(links, spare, board, None))
    }

    /// All ranks listen before the first of them connects.
    fn connected(&self) -> Result<Vec<HostStation>, Unavailable> {
        tcp::allow_descriptors(self.ranks as usize);
        let listen = |rank| {
            Listener::loopback().map_err(|error| Unavailable(format!("rank {rank} cannot listen on loopback: {error}")))
        };
        let listeners = (0..self.ranks).map(listen).collect::<Result<Vec<_>, _>>()?;
        let book = Book::new(listeners.iter().map(Listener::address).collect());
        let region = Region::zeroed(HEADER).ok_or_else(|| Unavailable("there is no memory".to_owned()))?;
        let region = Arc::new(region);
        self.remember(&region);
        let join = |(rank, listener)| {
            let board = Some(Board::new(region.clone(), BOARD, rank as usize));
            join(Joining { listener, book: book.clone() }, rank, Abort::new(region.clone()), board, self.forced)
        };
        (0..).zip(listeners).map(join).collect()
    }

    /// A rank's station over connections with ranks that can be in other processes and on other hosts. Their number is
    /// the book's. Nobody is waited for: who is not there is noticed by those who need something of it.
    pub fn connect(joining: Joining, rank: u32) -> Result<HostStation, Unavailable> {
        let region = Region::zeroed(HEADER).ok_or_else(|| Unavailable("there is no memory".to_owned()))?;
        // ranks that share no memory have no board
        join(joining, rank, Abort::new(Arc::new(region)), None, None)
    }

    fn remember(&self, region: &Arc<Region>) {
        let mut communicators = self.communicators.lock().unwrap_or_else(PoisonError::into_inner);
        communicators.retain(|communicator| communicator.strong_count() > 0);
        communicators.push(Arc::downgrade(region));
    }

    /// Frees every rank that waits in a communicator of this backend: it returns [`super::RankError::Aborted`], and so
    /// does every later launch there.
    pub fn abort(&self) {
        let communicators = self.communicators.lock().unwrap_or_else(PoisonError::into_inner);
        communicators.iter().filter_map(Weak::upgrade).for_each(|region| Abort::new(region).raise());
    }
}

/// Bytes that one rank's buffers take at most: what is made for a GPU's memory would keep processors busy for minutes.
const MOST_MEMORY: u64 = 4 << 30;

impl Backend for HostBackend {
    fn environment(&self) -> Environment {
        let processor = machine::processor();
        Environment {
            backend: "host".into(),
            ranks: self.ranks,
            nodes: 1,
            ranks_per_gpu: 1,
            devices: (0..self.ranks).map(|rank| format!("rank {rank} on {processor}")).collect(),
            device: processor,
            link: self.transport.link().into(),
            nccl_version: String::new(),
            nccl_path: String::new(),
            cuda_driver: String::new(),
            driver: String::new(),
            host: machine::host_name(),
            os: machine::system(),
            // none of them has an effect here
            variables: BTreeMap::new(),
        }
    }

    /// Half of this rank's share of what is free, and at most `MOST_MEMORY`.
    fn memory_per_rank(&self) -> Option<u64> {
        let share = machine::available_memory().map(|free| free / u64::from(self.ranks) / 2);
        Some(share.unwrap_or(u64::MAX).min(MOST_MEMORY))
    }

    fn recipe(&self, making: &Making) -> Result<Recipe, Opening> {
        if let Some(what) = beyond(making) {
            return Err(Opening::Unsupported(format!("the host backend has no {what}")));
        }
        if self.transport(making) == Transport::Tcp {
            return Ok(Recipe::HostTcp { ip: Ipv4Addr::LOCALHOST.into() });
        }
        // for a communicator and its twin, of which untouched pages take nothing
        let bytes = Geometry::new(self.ranks as usize).paged().and_then(|bytes| bytes.checked_mul(2));
        let bytes = bytes.and_then(|bytes| u64::try_from(bytes).ok());
        let bytes = bytes.ok_or_else(|| Unavailable("there is no memory for the channels".to_owned()))?;
        Ok(Recipe::Host { bytes })
    }

    fn open(&self, _cases: &[Case], making: &Making) -> Result<Vec<Box<dyn Station>>, Opening> {
        if let Some(what) = beyond(making) {
            return Err(Opening::Unsupported(format!("the host backend has no {what}")));
        }
        let stations = self.stations_over(self.transport(making))?;
        Ok(stations.into_iter().map(|station| Box::new(station) as Box<dyn Station>).collect())
    }
}

fn join(
    joining: Joining,
    rank: u32,
    abort: Abort,
    board: Option<Board>,
    forced: Option<Algorithm>,
) -> Result<HostStation, Unavailable> {
    let ranks = joining.book.addresses.len();
    let network = Network::new(joining, rank as usize);
    let network =
        network.ok_or_else(|| Unavailable(format!("the address book has {ranks} ranks, and no rank {rank}")))?;
    let links = Links::over(network, abort).ok_or_else(|| Unavailable("there is no memory for channels".to_owned()))?;
    // a second communicator would need connections of its own
    Ok(HostStation::new(links, Spare::new(|| None), board, forced))
}

/// What a communicator of this backend cannot be, if it is asked for.
fn beyond(making: &Making) -> Option<&'static str> {
    let Making { cta_policy, permuted, split, nonblocking, connected: _ } = *making;
    [
        (cta_policy.is_some(), "CTA policy"),
        (permuted, "devices to permute"),
        (split, "communicator to split"),
        (nonblocking, "nonblocking communicator"),
    ]
    .into_iter()
    .find_map(|(asked, what)| asked.then_some(what))
}

#[cfg(test)]
mod tests {
    use super::super::{Memory, Need, RankError, Registration};
    use super::*;

    fn layout(ranks: u32, ranks_per_thread: u32, ranks_per_gpu: u32) -> Layout {
        Layout { ranks, ranks_per_thread, ranks_per_gpu }
    }

    fn need(bytes: u64) -> Need {
        Need { send_bytes: bytes, recv_bytes: bytes, ..Need::default() }
    }

    #[test]
    fn what_it_cannot_do_it_refuses_with_the_reason() {
        for (layout, reason) in [
            (layout(0, 1, 1), "1 to 1024 ranks, not 0"),
            (layout(u32::MAX, 1, 1), "1 to 1024 ranks"),
            (layout(4, 2, 1), "one rank on each"),
            (layout(4, 1, 2), "no GPU"),
        ] {
            let message = HostBackend::new(&layout).unwrap_err().to_string();
            assert!(message.contains(reason), "{message}");
        }
    }

    #[test]
    fn the_environment_says_host_and_names_every_rank() {
        let environment = HostBackend::new(&layout(3, 1, 1)).unwrap().environment();
        assert_eq!((environment.backend.as_str(), environment.link.as_str(), environment.ranks), ("host", "host", 3));
        assert_eq!(environment.devices.len(), 3);
        assert!(!environment.device.is_empty());
    }

    #[test]
    fn each_rank_has_one_station() {
        let stations = HostBackend::new(&layout(5, 1, 1)).unwrap().open(&[], &Making::default()).unwrap();
        assert_eq!(stations.iter().map(|s| s.ranks().to_vec()).collect::<Vec<_>>(), [[0], [1], [2], [3], [4]]);
    }

    #[test]
    fn buffers_that_do_not_fit_are_refused_and_the_rank_goes_on() {
        let mut station = HostBackend::new(&layout(1, 1, 1)).unwrap().stations().unwrap().remove(0);
        let error = station.prepare(&need(1 << 50)).unwrap_err();
        assert!(matches!(error, RankError::Memory { rank: 0, .. }), "{error}");
        assert!(matches!(station.prepare(&need(u64::MAX)), Err(RankError::Memory { .. })));
        station.prepare(&need(64)).unwrap();
        assert_eq!(station.guards(0).unwrap(), None);
    }

    #[test]
    fn communicators_and_buffers_of_another_kind_are_unsupported_and_say_so() {
        let backend = HostBackend::new(&layout(2, 1, 1)).unwrap();
        for making in [
            Making { cta_policy: Some(1), ..Making::default() },
            Making { permuted: true, ..Making::default() },
            Making { split: true, ..Making::default() },
            Making { nonblocking: true, ..Making::default() },
        ] {
            let refused = backend.open(&[], &making).err().unwrap();
            assert!(matches!(&refused, Opening::Unsupported(why) if why.contains("host backend")), "{refused}");
        }
        let mut station = backend.stations().unwrap().remove(0);
        for need in [
            Need { memory: Memory::Nccl, ..need(64) },
            Need { registration: Registration::Local, ..need(64) },
            Need { registration: Registration::Window, ..need(64) },
            Need { registration: Registration::SharedWindows, ..need(64) },
        ] {
            let refused = station.prepare(&need).unwrap_err();
            assert!(matches!(&refused, RankError::Unsupported(why) if why.contains("host backend")), "{refused}");
        }
        assert!(matches!(station.begin_capture(), Err(RankError::Unsupported(_))));
    }
}
