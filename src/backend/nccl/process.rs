//! One rank in a process of its own.
//!
//! Its coordinator has set the variables that NCCL and the driver read, and they are inherited. Ranks that share a GPU take
//! turns on it, unless CUDA's multi-process service (MPS) runs: correct, but of no meaning as a time.

use std::path::Path;
use std::sync::Arc;

use super::api::UniqueId;
use super::device::{Device, Kernels, Visible};
use super::lane::Lane;
use super::library::Library;
use super::making::{self, Party};
use super::peers::{Assembly, Peers};
use super::station::NcclStation;
use super::{driver, opening, unopened};
use crate::backend::sockets::own;
use crate::backend::{Making, Opening, Station, Unavailable};
use crate::case::Case;

/// A rank that has its GPU, its kernels and its library, and is about to join the others.
pub struct Candidate {
    library: Arc<Library>,
    device: Arc<Device>,
    kernels: Arc<Kernels>,
    rank: u32,
    ranks: u32,
}

impl Candidate {
    /// Takes its GPU, by its number among the visible ones, and loads what `cases` need.
    pub fn new(library: &Path, gpu: u32, rank: u32, ranks: u32, cases: &[Case]) -> Result<Candidate, Unavailable> {
        let cuda = driver::start().map_err(Unavailable)?;
        let library = Library::open(library).map_err(Unavailable)?;
        let device = Visible::find(cuda, gpu).and_then(|gpu| gpu.open()).map_err(unopened)?;
        let kernels = device.kernels(cases, ranks);
        let kernels = kernels.map_err(|e| Unavailable(format!("the check kernels cannot be loaded: {e}")))?;
        Ok(Candidate { library: Arc::new(library), device, kernels, rank, ranks })
    }

    /// A new communicator's identity, which one rank makes and all others need. Its process must live until all have
    /// joined: it listens for them.
    pub fn identity(&self) -> Result<Vec<u8>, Opening> {
        let id = self.library.unique_id().map_err(opening)?;
        Ok(id.internal.to_vec())
    }

    /// Joins the communicator of that identity, and returns once all ranks have. `assembly` is where all of them meet from
    /// then on.
    pub fn join(self, identity: &[u8], making: &Making, assembly: Assembly) -> Result<Box<dyn Station>, Opening> {
        let Candidate { library, device, kernels, rank, ranks } = self;
        // what is opened from here on is NCCL's
        let before = own::snapshot().ok();
        let mut id = UniqueId { internal: [0; 128] };
        if identity.len() != id.internal.len() {
            let message = format!("an identity has {} bytes, not {}", id.internal.len(), identity.len());
            return Err(Unavailable(message).into());
        }
        id.internal.iter_mut().zip(identity).for_each(|(to, from)| *to = *from);
        let party = Party { first: rank, devices: std::slice::from_ref(&device), ranks };
        let made = making::communicators(&library, &party, id, making).map_err(opening)?;
        let lane = |communicator| Lane::new(rank, Arc::clone(&device), Arc::clone(&kernels), communicator);
        let lanes = made.into_iter().map(lane).collect::<Result<Vec<_>, _>>().map_err(|e| opening(e.into()))?;
        Ok(Box::new(NcclStation::new(library, ranks, lanes, Arc::new(Peers::apart(assembly).since(before)))))
    }
}
