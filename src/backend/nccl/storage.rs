//! The memory that buffers lie in: the driver's, or NCCL's own.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use super::api;
use super::driver::{self, DeviceMemory};
use super::library::Library;
use crate::backend::{Memory, RankError};

/// Why there is no memory.
#[derive(Debug)]
pub enum Shortage {
    /// There is not so much.
    OutOfMemory,
    /// Something else is wrong.
    Failed(RankError),
}

impl<E: Into<RankError>> From<E> for Shortage {
    fn from(error: E) -> Shortage {
        Shortage::Failed(error.into())
    }
}

/// Memory of the GPU that was current when it was made.
#[derive(Debug)]
pub enum Storage {
    /// Of `cuMemAlloc`.
    Device(DeviceMemory),
    /// Of `ncclMemAlloc`.
    Nccl(NcclMemory),
}

impl Storage {
    /// Allocates `length` bytes on the current context's GPU.
    pub fn new(library: &Arc<Library>, memory: Memory, length: u64) -> Result<Storage, Shortage> {
        let bytes = usize::try_from(length).map_err(|_| Shortage::OutOfMemory)?;
        match memory {
            Memory::Device => match DeviceMemory::new(bytes) {
                Err(e) if e.out_of_memory() => Err(Shortage::OutOfMemory),
                made => Ok(Storage::Device(made?)),
            },
            // NCCL answers a lack of memory with the code that it has for any CUDA error: ask first.
            Memory::Nccl if driver::free_memory()? < length => Err(Shortage::OutOfMemory),
            Memory::Nccl => Ok(Storage::Nccl(NcclMemory::new(library, bytes)?)),
        }
    }

    /// Its first byte.
    pub fn address(&self) -> u64 {
        match self {
            Storage::Device(memory) => memory.address(),
            Storage::Nccl(memory) => memory.address.addr() as u64,
        }
    }
}

/// Memory of `ncclMemAlloc`.
pub struct NcclMemory {
    library: Arc<Library>,
    address: *mut c_void,
}

// SAFETY: it owns its memory, and NCCL frees it from any thread.
unsafe impl Send for NcclMemory {}
// SAFETY: what can be had of a shared one is its address.
unsafe impl Sync for NcclMemory {}

impl std::fmt::Debug for NcclMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NcclMemory({:p})", self.address)
    }
}

impl NcclMemory {
    fn new(library: &Arc<Library>, bytes: usize) -> Result<NcclMemory, RankError> {
        let mut address = ptr::null_mut();
        // SAFETY: the pointer is good for one pointer.
        let code = unsafe { (library.api.mem_alloc)(&mut address, bytes) };
        if code == api::SUCCESS && address.is_null() {
            return Err(library.failure("ncclMemAlloc", api::INTERNAL_ERROR));
        }
        library.check("ncclMemAlloc", code)?;
        Ok(NcclMemory { library: Arc::clone(library), address })
    }
}

impl Drop for NcclMemory {
    fn drop(&mut self) {
        // SAFETY: it came from ncclMemAlloc; who drops it has waited for what uses it and has taken back registrations.
        unsafe { (self.library.api.mem_free)(self.address) };
    }
}
