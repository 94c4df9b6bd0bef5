//! Backends: where ranks really run. The engine and the worker know them only through [`Backend`] and [`Station`].

pub mod host;
pub mod nccl;

use serde::{Deserialize, Serialize};

use crate::case::{Case, DType, Workload};
use crate::oracle::Plan;

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

fn detail(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

/// Why a backend cannot be used here. Exit code 3.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

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
    /// How the ranks' devices are linked: `nvlink`, `pcie`, `same-gpu`, `host`, or empty where unknown.
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

/// The result of checking regions of one buffer of one rank.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Wrong elements.
    pub wrong: u64,
    /// The first of them.
    pub first: Option<Wrong>,
    /// Up to [`MAX_SAMPLES`] of them, in no order.
    pub samples: Vec<Wrong>,
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

/// A kind of place where ranks run.
pub trait Backend: Send + Sync {
    /// What results hold for.
    fn environment(&self) -> Environment;

    /// Bytes that one rank's two buffers may take together, where that is known.
    fn memory_per_rank(&self) -> Option<u64>;

    /// Makes the communicator: one station per worker thread, together holding every rank once.
    ///
    /// `cases` is the selection: whatever it needs (modules, kernels) is loaded here, before anything is timed.
    fn open(&self, cases: &[Case]) -> Result<Vec<Box<dyn Station>>, Unavailable>;
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

    /// Makes both buffers of every lane at least this large (in bytes) and fills their guard zones.
    fn prepare(&mut self, send_bytes: u64, recv_bytes: u64) -> Result<(), RankError>;

    /// Writes the region's content.
    fn fill(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError>;

    /// Writes what is wrong in every element (the complement of the content), so that an unwritten element shows.
    fn poison(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError>;

    /// Compares the region with its content; the outcome is added to the lane's verdict.
    fn check(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError>;

    /// Waits for the lane, and returns and resets what its checks found. `dtype` is that of the checked regions.
    fn verdict(&mut self, lane: usize, dtype: DType) -> Result<Verdict, RankError>;

    /// Checks the guard zones of both buffers, which end at `send_bytes` and `recv_bytes`.
    fn guards(&mut self, lane: usize, send_bytes: u64, recv_bytes: u64) -> Result<Option<GuardBreach>, RankError>;

    /// Flips bits of one element, for tests that prove that a wrong result is seen.
    fn tamper(&mut self, lane: usize, buffer: Buffer, dtype: DType, index: u64, xor: u64) -> Result<(), RankError>;

    /// Launches the collective on all lanes.
    fn launch(&mut self, call: &Call<'_>) -> Result<(), RankError>;

    /// Records a time mark on every lane.
    fn mark(&mut self) -> Result<(), RankError>;

    /// Waits for all lanes, and returns per lane the microseconds between successive marks, forgetting them.
    fn intervals(&mut self) -> Result<Vec<Vec<f32>>, RankError>;

    /// Waits for everything queued on all lanes, as nccl-tests does: by polling, so that the host adds nothing.
    fn wait(&mut self) -> Result<(), RankError>;
}
