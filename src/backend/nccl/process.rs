//! One rank in a process of its own.

use std::path::Path;
use std::sync::Arc;

use super::api::UniqueId;
use super::device::{Device, Kernels};
use super::driver;
use super::lane::Lane;
use super::library::Library;
use super::making::{self, Party};
use super::peers::Peers;
use super::station::NcclStation;
use crate::backend::{Making, RankError, Station};
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
    /// Takes the rank's GPU, by its number among the visible ones, and loads what `cases` need.
    pub fn new(library: &Path, rank: u32, ranks: u32, ranks_per_gpu: u32, cases: &[Case]) -> Result<Candidate, String> {
        let cuda = driver::start()?;
        let library = Library::open(library)?;
        let device =
            Device::open(cuda, rank / ranks_per_gpu.max(1)).map_err(|e| format!("the GPU is of no use: {e}"))?;
        let kernels = device.kernels(cases, ranks).map_err(|e| format!("the check kernels cannot be loaded: {e}"))?;
        Ok(Candidate { library: Arc::new(library), device: Arc::new(device), kernels, rank, ranks })
    }

    /// A new communicator's identity, which one rank makes and all others need. Its process must live until all have
    /// joined: it listens for them.
    pub fn identity(&self) -> Result<Vec<u8>, RankError> {
        let id = self.library.unique_id()?;
        Ok(id.internal.to_vec())
    }

    /// Joins the communicator of that identity, and returns once all ranks have.
    pub fn join(self, identity: &[u8]) -> Result<Box<dyn Station>, RankError> {
        let Candidate { library, device, kernels, rank, ranks } = self;
        let mut id = UniqueId { internal: [0; 128] };
        if identity.len() != id.internal.len() {
            let message = format!("an identity has {} bytes, not {}", id.internal.len(), identity.len());
            return Err(RankError::Broken { call: "ncclCommInitRankConfig".to_owned(), message });
        }
        id.internal.iter_mut().zip(identity).for_each(|(to, from)| *to = *from);
        let party = Party { first: rank, devices: std::slice::from_ref(&device), ranks };
        let made = making::communicators(&library, &party, id, &Making::default())?;
        let lane = |communicator| Lane::new(rank, Arc::clone(&device), Arc::clone(&kernels), communicator);
        let lanes = made.into_iter().map(lane).collect::<Result<Vec<_>, _>>()?;
        Ok(Box::new(NcclStation::new(library, ranks, lanes, Arc::new(Peers::new(1)))))
    }
}
