//! The NCCL backend: ranks on this machine's GPUs, in one process.
//!
//! ```text
//! mod        NcclBackend: which GPUs, which library, opening a communicator
//! search     where libnccl.so.2 is looked for
//! library    one loaded NCCL    api  its C interface    version
//! driver     the CUDA driver    device  a GPU and its kernels    checker  what check kernels find
//! storage    memory, the driver's or NCCL's    buffer  between guard zones    registration  telling NCCL of them
//! outbox     bytes on their way to the GPU
//! making     communicators of a process' ranks    communicator  one rank's
//! program    what cases make ranks call    launch  ready for calling
//! station    one thread's ranks    lane  one rank    peers  what stations share    fabric  harm to its sockets
//! forming    one more communicator, beside
//! process    one rank in a process of its own
//! ```
//!
//! Needed on the machine: the CUDA driver (525 or newer) and NCCL (2.19 or newer). No toolkit.

mod api;
mod buffer;
mod checker;
mod communicator;
mod device;
mod driver;
mod environment;
mod fabric;
mod forming;
mod lane;
mod launch;
mod library;
mod making;
mod outbox;
mod peers;
pub mod process;
mod program;
mod registration;
mod search;
mod station;
mod storage;
mod version;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

use self::device::Visible;
use self::lane::Lane;
use self::making::Party;
use self::peers::Peers;
use self::station::NcclStation;
use super::sockets::own;
use super::{Backend, Environment, Making, Opening, RankError, Recipe, Station, Unavailable};
use crate::case::Case;

pub use self::library::Library;
pub use self::search::{NotFound, Places};
pub use self::version::Version;

/// What is asked of the backend.
#[derive(Debug, Clone)]
pub struct Options {
    /// The library; searched for where it is not given.
    pub nccl: Option<PathBuf>,
    /// Ranks of the communicator; as many as the GPUs take where it is not given.
    pub ranks: Option<u32>,
    /// Ranks that share one GPU.
    pub ranks_per_gpu: u32,
    /// Ranks that one thread drives, by group calls.
    pub ranks_per_thread: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options { nccl: None, ranks: None, ranks_per_gpu: 1, ranks_per_thread: 1 }
    }
}

/// Why the backend cannot be used as asked. Exit code 3.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Unusable {
    /// No driver, no GPU or no library.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// There are GPUs, but not as many as were asked for: another backend is no substitute.
    #[error("{ranks} ranks need {needed} GPUs, {visible} are visible")]
    TooFewGpus {
        /// Ranks asked for.
        ranks: u32,
        /// GPUs that they need.
        needed: u32,
        /// GPUs that are visible.
        visible: u32,
    },
}

impl From<Unusable> for Unavailable {
    fn from(why: Unusable) -> Unavailable {
        match why {
            Unusable::Unavailable(unavailable) => unavailable,
            few => Unavailable(few.to_string()),
        }
    }
}

/// Ranks on this machine's GPUs.
pub struct NcclBackend {
    library: Arc<Library>,
    /// Each rank's; ranks that share a GPU share this too.
    gpus: Vec<Arc<Visible>>,
    ranks_per_gpu: u32,
    ranks_per_thread: u32,
    environment: Environment,
}

impl NcclBackend {
    /// Finds driver, GPUs and library, after [`set_variables`].
    pub fn new(options: Options) -> Result<NcclBackend, Unusable> {
        let unavailable = |why: String| Unavailable(why);
        let Options { nccl, ranks, ranks_per_gpu, ranks_per_thread } = options;
        max_ctas(ranks_per_gpu).map_err(unavailable)?;
        let cuda = driver::start().map_err(unavailable)?;
        let visible = cuda.count().map_err(|e| Unavailable(format!("no GPU is visible: {e}")))?;
        let ranks = rank_count(ranks, visible, ranks_per_gpu, ranks_per_thread)?;
        let library = Places::of_process(nccl).find(Library::open).map_err(|e| Unavailable(e.to_string()))?;
        if ranks_per_gpu > 1 {
            let what = format!("--ranks-per-gpu {ranks_per_gpu}");
            library.require(&what, Version::SHARED_GPU).map_err(|e| Unavailable(e.to_string()))?;
        }

        let found = (0..ranks.div_ceil(ranks_per_gpu))
            .map(|ordinal| Visible::find(cuda, ordinal).map(Arc::new))
            .collect::<Result<Vec<_>, _>>()
            .map_err(unopened)?;
        let gpus: Vec<Arc<Visible>> =
            found.iter().flat_map(|gpu| (0..ranks_per_gpu).map(|_| Arc::clone(gpu))).take(ranks as usize).collect();

        let environment = Environment {
            backend: "nccl".to_owned(),
            ranks,
            nodes: 1,
            ranks_per_gpu,
            device: gpus.first().map(|gpu| gpu.name.clone()).unwrap_or_default(),
            devices: gpus.iter().map(|gpu| format!("{} {}", gpu.ordinal, gpu.bus)).collect(),
            link: device::link(&gpus),
            nccl_version: library.version.to_string(),
            nccl_path: library.path.display().to_string(),
            cuda_driver: environment::cuda_version(cuda.version),
            driver: environment::driver(),
            host: environment::host(),
            os: environment::os(),
            variables: environment::variables(
                std::env::vars_os().filter(|(name, _)| name != RAS || !ras_address_is_ours()),
            ),
        };
        Ok(NcclBackend { library: Arc::new(library), gpus, ranks_per_gpu, ranks_per_thread, environment })
    }

    /// The file that NCCL was loaded from.
    pub fn library_path(&self) -> &Path {
        &self.library.path
    }
}

impl Backend for NcclBackend {
    fn environment(&self) -> Environment {
        self.environment.clone()
    }

    fn memory_per_rank(&self) -> Option<u64> {
        self.gpus.iter().map(|gpu| lane::budget(gpu.memory(), self.ranks_per_gpu)).min()
    }

    fn recipe(&self, making: &Making) -> Result<Recipe, Opening> {
        making::supported(&self.library, making).map_err(opening)?;
        let gpus = self.arranged(making.permuted)?.iter().map(|gpu| gpu.ordinal).collect();
        Ok(Recipe::Nccl { library: self.library.path.clone(), gpus, making: *making })
    }

    fn open(&self, cases: &[Case], making: &Making) -> Result<Vec<Box<dyn Station>>, Opening> {
        let kernels = |e| Unavailable(format!("the check kernels cannot be loaded: {e}"));
        making::supported(&self.library, making).map_err(opening)?;
        let opened: Result<Vec<_>, _> = self.arranged(making.permuted)?.iter().map(|gpu| gpu.open()).collect();
        let devices = opened.map_err(unopened)?;
        let ranks = devices.len() as u32;

        // Kernels come first: once collectives run, loading might wait for them.
        let mut loaded: Vec<Arc<device::Kernels>> = Vec::new();
        for (rank, device) in devices.iter().enumerate() {
            let twin = devices.iter().take(rank).position(|other| other.ordinal == device.ordinal);
            loaded.push(match twin.and_then(|twin| loaded.get(twin)) {
                Some(shared) => Arc::clone(shared),
                None => device.kernels(cases, ranks).map_err(kernels)?,
            });
        }

        // what is opened from here on is NCCL's
        let before = own::snapshot().ok();
        let party = Party { first: 0, devices: &devices, ranks };
        let id = self.library.unique_id().map_err(opening)?;
        let communicators = making::communicators(&self.library, &party, id, making).map_err(opening)?;
        let mut lanes = Vec::new();
        for (rank, communicator) in communicators.into_iter().enumerate() {
            let (Some(device), Some(kernels)) = (devices.get(rank), loaded.get(rank)) else { continue };
            let lane = Lane::new(rank as u32, Arc::clone(device), Arc::clone(kernels), communicator);
            lanes.push(lane.map_err(|e| opening(e.into()))?);
        }

        let peers = Arc::new(Peers::new(lanes.len().div_ceil(self.ranks_per_thread as usize)).since(before));
        let mut stations: Vec<Box<dyn Station>> = Vec::new();
        let mut lanes = lanes.into_iter().peekable();
        while lanes.peek().is_some() {
            let own = lanes.by_ref().take(self.ranks_per_thread as usize).collect();
            stations.push(Box::new(NcclStation::new(Arc::clone(&self.library), ranks, own, Arc::clone(&peers))));
        }
        Ok(stations)
    }
}

impl NcclBackend {
    /// Each rank's GPU.
    fn arranged(&self, permuted: bool) -> Result<Vec<Arc<Visible>>, Opening> {
        if !permuted {
            return Ok(self.gpus.clone());
        }
        let ordinals: Vec<u32> = self.gpus.iter().map(|gpu| gpu.ordinal).collect();
        let order = making::permutation(&ordinals)
            .ok_or_else(|| Opening::Unsupported("permuted devices: needs two GPUs".to_owned()))?;
        Ok(order.into_iter().filter_map(|place| self.gpus.get(place).cloned()).collect())
    }
}

/// A GPU that grants no context.
fn unopened(e: driver::CudaError) -> Unavailable {
    Unavailable(format!("a GPU cannot be used: {e}"))
}

/// What a rank that cannot be made says of its communicator.
fn opening(error: RankError) -> Opening {
    match error {
        RankError::Unsupported(why) => Opening::Unsupported(why),
        e => Unavailable(format!("NCCL cannot start: {e}")).into(),
    }
}

/// The ranks to run, if the visible GPUs take them.
fn rank_count(asked: Option<u32>, visible: u32, per_gpu: u32, per_thread: u32) -> Result<u32, Unusable> {
    let unavailable = |why: &str| Unusable::Unavailable(Unavailable(why.to_owned()));
    if per_gpu == 0 || per_thread == 0 || asked == Some(0) {
        return Err(unavailable("ranks, ranks per GPU and ranks per thread must be at least 1"));
    }
    if visible == 0 {
        return Err(unavailable("no GPU is visible to the CUDA driver"));
    }
    let ranks = asked.unwrap_or(visible.saturating_mul(per_gpu));
    let needed = ranks.div_ceil(per_gpu);
    if needed > visible { Err(Unusable::TooFewGpus { ranks, needed, visible }) } else { Ok(ranks) }
}

/// The most CTAs a rank may use where several share a GPU, `None` for no limit.
///
/// The kernels of all ranks must be resident at once, or they wait for each other forever. Measured on one H200 with NCCL
/// 2.30.7 and 2.32.3: 2 ranks run without a limit, 4 with 8 CTAs each, 8 with 2; 8 with 4, and 16 with 2, hang.
fn max_ctas(ranks_per_gpu: u32) -> Result<Option<u32>, String> {
    match ranks_per_gpu {
        0..=2 => Ok(None),
        3..=4 => Ok(Some(8)),
        5..=8 => Ok(Some(2)),
        more => Err(format!("{more} ranks do not run on one GPU: beyond 8 their kernels are not resident together")),
    }
}

/// The variables that let NCCL put so many ranks on one GPU.
///
/// Their streams must not share a hardware queue: work of one rank would wait behind a collective of another, which
/// waits for it. With the default of 8 queues, 4 ranks that replay graphs were seen to hang so, and with 32 not.
pub fn sharing(ranks_per_gpu: u32) -> Vec<(&'static str, String)> {
    if ranks_per_gpu < 2 {
        return Vec::new();
    }
    let fixed = [("NCCL_MULTI_RANK_GPU_ENABLE", "1"), ("CUDA_DEVICE_MAX_CONNECTIONS", "32")];
    let limit = max_ctas(ranks_per_gpu).ok().flatten().map(|ctas| ("NCCL_MAX_CTAS", ctas.to_string()));
    fixed.map(|(name, value)| (name, value.to_owned())).into_iter().chain(limit).collect()
}

/// PCI bus ids of the GPUs that this process sees, in the order of their numbers; none where there is no driver.
pub fn visible_gpus() -> Vec<String> {
    let Ok(cuda) = driver::start() else { return Vec::new() };
    let count = cuda.count().unwrap_or(0);
    let bus = |ordinal| cuda.gpu(ordinal).and_then(|gpu| gpu.bus());
    // one that does not answer keeps its number
    (0..count).map(|ordinal| bus(ordinal).unwrap_or_else(|e| format!("GPU {ordinal}: {e}"))).collect()
}

/// Sets what NCCL and the driver read of this process' variables: sharing of GPUs, and an address for RAS. What the user has set
/// stays as it is.
///
/// Call it before other threads start; later calls change nothing.
pub fn set_variables(ranks_per_gpu: u32) {
    share_gpus(ranks_per_gpu);
    give_ras_an_address();
}

/// The address for NCCL's RAS that collcheck has chosen, for processes that inherit it and are another job.
const OWN_RAS: &str = "COLLCHECK_OWN_RAS";
const RAS: &str = "NCCL_RAS_ADDR";

/// Has NCCL's RAS answer at an address of this run's own, as at the usual one another job of this host may.
fn give_ras_an_address() {
    static ONCE: Once = Once::new();
    ONCE.call_once(choose_ras_address);
}

fn choose_ras_address() {
    if std::env::var_os(RAS).is_some() && !ras_address_is_ours() {
        return;
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let Ok(address) = port.map(|address| address.to_string()) else { return };
    for name in [RAS, OWN_RAS] {
        // SAFETY: no other thread has started, as `set_variables` asks for. NCCL reads it with its first communicator.
        unsafe { std::env::set_var(name, &address) };
    }
}

/// Whether it was chosen here, or by the process that has started this one: no setting of the user's.
fn ras_address_is_ours() -> bool {
    std::env::var_os(RAS) == std::env::var_os(OWN_RAS)
}

/// Lets NCCL put several ranks on one GPU.
fn share_gpus(ranks_per_gpu: u32) {
    for (name, value) in sharing(ranks_per_gpu) {
        if std::env::var_os(name).is_none() {
            // SAFETY: no other thread has started, as `set_variables` asks for. The driver and NCCL, which read these once,
            // are started only afterwards.
            unsafe { std::env::set_var(name, value) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_default_to_what_the_gpus_take() {
        assert_eq!(rank_count(None, 8, 1, 1).ok(), Some(8));
        assert_eq!(rank_count(None, 2, 4, 1).ok(), Some(8));
        assert_eq!(rank_count(Some(3), 8, 1, 1).ok(), Some(3));
        assert_eq!(rank_count(Some(3), 2, 2, 1).ok(), Some(3));
    }

    #[test]
    fn too_few_gpus_is_an_error_of_its_own_with_all_three_numbers() {
        let error = rank_count(Some(5), 2, 2, 1).unwrap_err();
        assert!(matches!(error, Unusable::TooFewGpus { ranks: 5, needed: 3, visible: 2 }));
        assert_eq!(Unavailable::from(error).to_string(), "5 ranks need 3 GPUs, 2 are visible");
        for (ranks, visible, per_gpu, per_thread) in
            [(None, 0, 1, 1), (Some(0), 1, 1, 1), (None, 1, 0, 1), (None, 1, 1, 0)]
        {
            assert!(matches!(rank_count(ranks, visible, per_gpu, per_thread), Err(Unusable::Unavailable(_))));
        }
    }

    #[test]
    fn the_cta_limit_is_what_was_seen_to_run() {
        assert_eq!(max_ctas(1), Ok(None));
        assert_eq!(max_ctas(2), Ok(None));
        assert_eq!(max_ctas(4), Ok(Some(8)));
        assert_eq!(max_ctas(8), Ok(Some(2)));
        assert!(max_ctas(16).is_err());
    }

    #[test]
    fn ranks_that_share_a_gpu_are_told_so_with_a_queue_for_each_stream() {
        assert_eq!(sharing(1), []);
        let named =
            |ranks| sharing(ranks).into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>();
        assert_eq!(named(2), ["NCCL_MULTI_RANK_GPU_ENABLE=1", "CUDA_DEVICE_MAX_CONNECTIONS=32"]);
        assert_eq!(named(4).last().map(String::as_str), Some("NCCL_MAX_CTAS=8"));
    }

    #[test]
    fn without_a_driver_the_backend_is_unavailable_and_names_libcuda() {
        if driver::start().is_ok() {
            eprintln!("not run: this machine has a CUDA driver");
            return;
        }
        let why = NcclBackend::new(Options::default()).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(why.contains("libcuda"), "{why}");
    }
}
