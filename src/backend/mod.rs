//! Backends: where ranks really run. The engine and the worker know them only through [`Backend`] and [`Station`].

pub mod descriptors;
pub mod host;
mod making;
pub mod nccl;
pub mod sockets;
mod twist;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::case::{Case, DType, Forced, Variant, Workload};
use crate::fleet::processes::Post;
use crate::oracle::Plan;

pub use making::Making;
pub use sockets::Harm;
pub use twist::Twist;

/// Bytes of guard zone before and after every buffer. A multiple of any alignment that matters.
pub const GUARD: u64 = 4096;

/// The byte that guard zones are filled with.
pub const GUARD_BYTE: u8 = 0xc5;

/// What happened to a rank that could not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum RankError {
    /// The library said no to a call, and the communicator is still sound.
    #[error("{call} returned {code}{}", detail(.message))]
    Refused {
        /// The call, as `ncclAllReduce`.
        call: String,
        /// The result's name, as `ncclInvalidArgument`.
        code: String,
        /// The library's last error text, empty where it has none.
        message: String,
    },
    /// The library or this build cannot do this at all.
    #[error("{0}")]
    Unsupported(String),
    /// The buffers do not fit.
    #[error("needs {needed} bytes of memory on rank {rank}, {available} are free")]
    Memory {
        /// Who.
        rank: u32,
        /// Bytes needed.
        needed: u64,
        /// Bytes free.
        available: u64,
    },
    /// The device or the communicator is no longer usable.
    #[error("{call} failed: {message}")]
    Broken {
        /// The call that showed it.
        call: String,
        /// What it said.
        message: String,
    },
    /// Another rank failed first, and this one stopped waiting for it.
    #[error("stopped because another rank failed")]
    Aborted,
}

impl RankError {
    /// Whether it says no more than that this cannot be done here: no reason for others not to come back.
    pub const fn is_excuse(&self) -> bool {
        matches!(self, RankError::Unsupported(_) | RankError::Memory { .. } | RankError::Aborted)
    }
}

fn detail(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

/// Why a backend cannot be used here. Exit code 3.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

/// Why no communicator was made.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Opening {
    /// Not of this making: the library or this backend does not have it.
    #[error("{0}")]
    Unsupported(String),
    /// The machine cannot.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// The machine and libraries that results hold for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// `host` or `nccl`.
    pub backend: String,
    /// Ranks of the communicator.
    pub ranks: u32,
    /// Hosts that they run on.
    pub nodes: u32,
    /// Ranks that share one GPU, if more than one.
    pub ranks_per_gpu: u32,
    /// The GPU model of rank 0 as the driver names it, or the CPU model on the host backend.
    pub device: String,
    /// One line per rank: device ordinal and PCI bus id.
    pub devices: Vec<String>,
    /// How the ranks' devices are linked: `nvlink`, `pcie`, `same-gpu`, `host` (shared memory), `tcp`, or empty where unknown.
    pub link: String,
    /// `2.28.9`, empty on the host backend.
    pub nccl_version: String,
    /// The file it was loaded from.
    pub nccl_path: String,
    /// CUDA driver version, as `13.0`.
    pub cuda_driver: String,
    /// Kernel driver version, as `580.159.03`, empty where unknown.
    pub driver: String,
    /// Host name.
    pub host: String,
    /// Operating system and kernel.
    pub os: String,
    /// NCCL_*, CUDA_VISIBLE_DEVICES and launcher variables, nothing else.
    pub variables: std::collections::BTreeMap<String, String>,
}

/// The two ways a case places its buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Separate send and receive buffers.
    OutOfPlace,
    /// One buffer, laid out as [`crate::case::primitive::InPlace`] says.
    InPlace,
}

/// One of a rank's two buffers. An in-place call uses only `Recv`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffer {
    /// The send buffer.
    Send,
    /// The receive buffer.
    Recv,
}

/// Some elements of a buffer, and what is or should be in them.
#[derive(Debug, Clone, Copy)]
pub struct Region<'a> {
    /// Which buffer.
    pub buffer: Buffer,
    /// First element, counted from the buffer's base.
    pub start: u64,
    /// Number of elements.
    pub len: u64,
    /// The oracle.
    pub plan: &'a Plan,
    /// The contents.
    pub content: Content,
    /// Bytes from the start of the case's part of the buffer to element 0; several calls of one group lie behind each
    /// other. A multiple of the element's size.
    pub base: u64,
}

/// What an element of a region is, as the oracle defines it. Element `k` of the region is logical element `element + k`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Rank `rank`'s input.
    Input {
        /// Whose.
        rank: u32,
        /// First logical element.
        element: u64,
    },
    /// The reduction of all ranks' inputs.
    Reduced {
        /// First logical element.
        element: u64,
    },
}

/// One wrong element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wrong {
    /// Element of the buffer.
    pub index: u64,
    /// Bits found.
    pub actual: u64,
    /// Bits expected.
    pub expected: u64,
}

/// The result of checking regions of one buffer of one rank. Written without what is not wrong: most verdicts are of nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Verdict {
    /// Wrong elements.
    #[serde(skip_serializing_if = "is_zero")]
    pub wrong: u64,
    /// The first of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<Wrong>,
    /// Up to [`MAX_SAMPLES`] of them, in no order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Wrong>,
}

fn is_zero(wrong: &u64) -> bool {
    *wrong == 0
}

/// Samples of wrong elements that a check keeps.
pub const MAX_SAMPLES: usize = 256;

/// Whether guard zones are whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardBreach {
    /// The send or the receive buffer.
    pub recv: bool,
    /// Byte relative to the buffer's base: negative before it, past its end after it.
    pub offset: i64,
}

/// One collective to launch, the same for all ranks.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    /// The case.
    pub case: &'a Case,
    /// What it moves.
    pub workload: Workload,
    /// Where the buffers are.
    pub placement: Placement,
    /// The oracle: scalars of mulsum come from it.
    pub plan: &'a Plan,
    /// See [`Region::base`], for both buffers.
    pub base: u64,
    /// What of its sends and receives is left out or misdirected, for deliberate faults.
    pub twist: Option<Twist>,
}

/// What buffers a case needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Need {
    /// Bytes of the send buffer.
    pub send_bytes: u64,
    /// Bytes of the receive buffer.
    pub recv_bytes: u64,
    /// Bytes between an aligned address and the start of either buffer.
    pub offset: u64,
    /// Where they come from.
    pub memory: Memory,
    /// What the communicator is told of them.
    pub registration: Registration,
}

impl Need {
    /// What the case's variants ask for, with buffers of this size.
    pub fn of(case: &Case, send_bytes: u64, recv_bytes: u64) -> Need {
        let mut need = Need { send_bytes, recv_bytes, ..Need::default() };
        for variant in &case.variants {
            match variant {
                Variant::Unaligned(elements) => need.offset = u64::from(*elements) * case.dtype.size(),
                Variant::NcclMemory => need.memory = Memory::Nccl,
                Variant::Registered => need.registration = Registration::Local,
                Variant::Window => need.registration = Registration::Window,
                Variant::Windows => need.registration = Registration::SharedWindows,
                // symmetric kernels run on nothing else
                Variant::Path(Forced::Symmetric(_)) => need.registration = Registration::Window,
                _ => {}
            }
        }
        need
    }
}

/// Where buffers come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Memory {
    /// `cuMemAlloc`; on the host backend, the heap.
    #[default]
    Device,
    /// `ncclMemAlloc`.
    Nccl,
}

/// What the communicator is told of buffers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Registration {
    /// Nothing.
    #[default]
    None,
    /// `ncclCommRegister`.
    Local,
    /// `ncclCommWindowRegister`, symmetric: implies [`Memory::Nccl`].
    Window,
    /// Both buffers as windows of one allocation.
    SharedWindows,
}

impl Registration {
    /// Whether all ranks have to register together.
    pub const fn is_collective(self) -> bool {
        matches!(self, Registration::Window | Registration::SharedWindows)
    }
}

/// How ranks are laid out on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Ranks of the communicator.
    pub ranks: u32,
    /// Ranks that one worker thread drives, by group calls.
    pub ranks_per_thread: u32,
    /// Ranks that share one GPU.
    pub ranks_per_gpu: u32,
}

/// Frees whoever is in a call of a station, from another thread; see [`Station::aborter`].
pub type Aborter = Box<dyn Fn() + Send + Sync>;

/// Tells what has failed behind a station's calls, by rank; see [`Station::watcher`].
pub type Watcher = Box<dyn Fn() -> Vec<(u32, String)> + Send + Sync>;

/// What another process needs to be a rank of a communicator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recipe {
    /// The host backend, see [`host::HostBackend::join`].
    Host {
        /// Bytes of memory that all ranks share.
        bytes: u64,
    },
    /// The host backend over connections, see [`host::HostBackend::connect`].
    HostTcp {
        /// Where ranks listen.
        ip: std::net::IpAddr,
    },
    /// NCCL, see [`nccl::process`].
    Nccl {
        /// The library.
        library: std::path::PathBuf,
        /// Each rank's GPU, by its number among the visible ones.
        gpus: Vec<u32>,
        /// How the communicator is made.
        making: Making,
    },
}

/// A kind of place where ranks run.
pub trait Backend: Send + Sync {
    /// What results hold for.
    fn environment(&self) -> Environment;

    /// Bytes that one rank's two buffers may take together, where that is known.
    fn memory_per_rank(&self) -> Option<u64>;

    /// Makes the communicator: one station per worker thread, together holding every rank once.
    ///
    /// `cases` is what will run on it: whatever they need (modules, kernels) is loaded here, before anything is timed.
    /// [`Opening::Unsupported`] is no fault of the machine: such cases are skipped.
    fn open(&self, cases: &[Case], making: &Making) -> Result<Vec<Box<dyn Station>>, Opening>;

    /// What other processes need to be ranks of one communicator; an error where they cannot.
    fn recipe(&self, _making: &Making) -> Result<Recipe, Opening> {
        Err(Opening::Unsupported("ranks of this backend cannot be processes: use --layout threads".to_owned()))
    }

    /// The processes that a launcher has started for this run, which start its ranks; `None` where ranks are children or
    /// threads of this process.
    fn agents(&self) -> Option<Arc<Post>> {
        None
    }

    /// Puts something between a worker and its station, outside of what records its calls, for tests with misdeeds that no
    /// fault of [`crate::fault`] is.
    fn disturb(&self, station: Box<dyn Station>) -> Box<dyn Station> {
        station
    }
}

/// One worker thread's ranks (lanes), with their buffers, streams and communicators.
///
/// Everything but [`Station::prepare`], [`Station::wait`], [`Station::verdict`] and the like is queued in order on the
/// lane's stream and may return before it is done, as on a GPU.
pub trait Station: Send {
    /// The ranks held, in lane order.
    fn ranks(&self) -> &[u32];

    /// Called once, first, on the thread that drives the station from then on.
    fn enter(&mut self) -> Result<(), RankError>;

    /// Makes both buffers of every lane at least this large, of this kind, and fills their guard zones.
    ///
    /// Registration may be collective: all stations call this with the same need at the same time.
    fn prepare(&mut self, need: &Need) -> Result<(), RankError>;

    /// Writes the region's content.
    fn fill(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError>;

    /// Writes what is wrong in every element (the complement of the content), so that an unwritten element shows.
    fn poison(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError>;

    /// Compares the region with its content; the outcome is added to the lane's verdict.
    fn check(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError>;

    /// Waits for the lane, and returns and resets what its checks found. `dtype` is that of the checked regions.
    fn verdict(&mut self, lane: usize, dtype: DType) -> Result<Verdict, RankError>;

    /// Checks the guard zones around both buffers as they were last prepared.
    fn guards(&mut self, lane: usize) -> Result<Option<GuardBreach>, RankError>;

    /// Waits for the lane, and returns the [`crate::oracle::fingerprint`] of the region's bits: the same number for the same
    /// bits, in whatever rank's buffer.
    fn fingerprint(&mut self, lane: usize, region: &Region<'_>) -> Result<u64, RankError>;

    /// Flips bits of one element, for tests that prove that a wrong result is seen.
    fn tamper(&mut self, lane: usize, buffer: Buffer, dtype: DType, index: u64, xor: u64) -> Result<(), RankError>;

    /// Reads bytes of a buffer, from byte `at` relative to its base on, which may lie in a guard zone: all of them between
    /// [`GUARD`] bytes before the base and [`GUARD`] bytes behind the last byte prepared. Waits for what was queued where this
    /// would be queued, see [`Station::aside`], and for nothing else.
    fn peek(&mut self, lane: usize, buffer: Buffer, at: i64, into: &mut [u8]) -> Result<(), RankError>;

    /// Writes bytes where [`Station::peek`] reads them, in order with what is queued. For deliberate faults.
    fn poke(&mut self, lane: usize, buffer: Buffer, at: i64, bytes: &[u8]) -> Result<(), RankError>;

    /// With `true`, whatever is queued from here on goes beside the lanes' streams: to others that nothing orders against
    /// them. [`Station::wait`], [`Station::verdict`] and [`Station::guards`] wait for both; marks stay on the lanes' own, and
    /// nothing beside can be recorded. For deliberate races.
    fn aside(&mut self, aside: bool) -> Result<(), RankError>;

    /// With `true`, launches from here on are of a second communicator of the same ranks, which the first such call
    /// makes: all stations make that call at the same time. For deliberate faults.
    fn twin(&mut self, twin: bool) -> Result<(), RankError>;

    /// Does harm to the way between this rank and another, until it is lifted or the communicator is made anew. Returns how
    /// many connections were struck. Stations of several ranks have no such way. For deliberate faults.
    fn harm(&mut self, _peer: u32, _harm: Harm) -> Result<usize, RankError> {
        Err(RankError::Unsupported("these ranks have no connections that could be harmed".to_owned()))
    }

    /// Makes one more communicator, of `ranks` ranks as this one holds, and gives it up again. All stations do this at the
    /// same time. Where it does not come about within the time given, a [`RankError::Refused`] says so, and the communicator
    /// that there is stays sound. For deliberate faults.
    fn form(&mut self, _ranks: u32, _within: Duration) -> Result<(), RankError> {
        Err(RankError::Unsupported("these ranks cannot make one more communicator".to_owned()))
    }

    /// Launches collectives on all lanes; several of them in one group.
    fn launch(&mut self, calls: &[Call<'_>]) -> Result<(), RankError>;

    /// Writes the region's content as [`Station::fill`] does, but lets what is queued next begin before it has ended
    /// (programmatic dependent launch).
    fn fill_early(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError>;

    /// Keeps the lane busy for this long before what is queued next.
    fn delay(&mut self, lane: usize, us: u32) -> Result<(), RankError>;

    /// From here on what is queued on all lanes is recorded instead of carried out.
    fn begin_capture(&mut self) -> Result<(), RankError>;

    /// Ends the recording.
    fn end_capture(&mut self) -> Result<(), RankError>;

    /// Queues what was last recorded.
    fn replay(&mut self) -> Result<(), RankError>;

    /// Announces launches that are timed: these calls again and again, or replays. For who looks on: what is noted of each
    /// launch must cost next to nothing until [`Station::end_batch`].
    fn begin_batch(&mut self, _calls: &[Call<'_>], _replayed: bool) {}

    /// The announced launches are over. Not called where one of them failed.
    fn end_batch(&mut self) {}

    /// Records a time mark on every lane.
    fn mark(&mut self) -> Result<(), RankError>;

    /// Waits for all lanes, and returns per lane the microseconds between successive marks, forgetting them.
    fn intervals(&mut self) -> Result<Vec<Vec<f32>>, RankError>;

    /// Waits for everything queued on all lanes, as nccl-tests does: by polling, so that the host adds nothing.
    fn wait(&mut self) -> Result<(), RankError>;

    /// Whether what was launched is done when [`Station::launch`] returns.
    fn synchronous(&self) -> bool {
        false
    }

    /// What tells of failures behind the calls while this station's thread may be inside of one. It may be asked from any
    /// thread, but not any more once the station goes.
    fn watcher(&self) -> Watcher {
        Box::new(Vec::new)
    }

    /// What makes calls in flight, and all later ones, return an error. It may be called from any thread, more than once
    /// and after the station is gone, and may itself be held up by the library. The station is of no use afterwards.
    fn aborter(&self) -> Aborter {
        Box::new(|| {})
    }
}
