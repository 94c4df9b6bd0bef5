//! The CUDA driver as safe handles over cudarc's raw bindings: the one place that calls it.
//!
//! cudarc loads libcuda at the first call and panics where that fails, so [`start`] looks first and everything else here
//! is reached through what it returns. Result codes are compared and numbered, never formatted by cudarc: that too calls
//! into libcuda, and newer drivers have codes that its enum does not.

mod graph;
mod memory;
mod module;
mod stream;

use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;

use cudarc::driver::sys::{self, CUdevice_P2PAttribute as P2p, CUdevice_attribute as Attribute, CUresult};

use super::environment::cuda_version;
use crate::backend::RankError;

pub use graph::Graph;
pub use memory::{DeviceMemory, Pinned, PinnedBytes, free_memory};
pub use module::{Kernel, Module};
pub use stream::{Event, Stream};

/// A driver call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaError {
    call: &'static str,
    code: u32,
    name: String,
}

impl CudaError {
    #[cold]
    fn new(call: &'static str, result: CUresult) -> CudaError {
        let mut name: *const c_char = ptr::null();
        // SAFETY: the pointer is good for one pointer; the text it is set to is static.
        let named = unsafe { sys::cuGetErrorName(result, &mut name) } == CUresult::CUDA_SUCCESS && !name.is_null();
        // SAFETY: the driver has just set it to a static text.
        let name = if named { unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned() } else { String::new() };
        CudaError { call, code: result as u32, name }
    }

    /// Whether memory ran out.
    pub fn out_of_memory(&self) -> bool {
        self.code == CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32
    }
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} returned {} ({})", self.call, self.code, self.name)
    }
}

impl From<CudaError> for RankError {
    fn from(error: CudaError) -> RankError {
        let message = if error.name.is_empty() {
            format!("CUDA error {}", error.code)
        } else {
            format!("{} ({})", error.name, error.code)
        };
        RankError::Broken { call: error.call.to_owned(), message }
    }
}

type Result<T> = std::result::Result<T, CudaError>;

fn check(call: &'static str, result: CUresult) -> Result<()> {
    if result == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(CudaError::new(call, result)) }
}

/// Calls a driver function that writes one value through its first argument.
fn out<T>(call: &'static str, f: impl FnOnce(*mut T) -> CUresult) -> Result<T> {
    let mut value = MaybeUninit::uninit();
    check(call, f(value.as_mut_ptr()))?;
    // SAFETY: every function called through here sets the value when it succeeds.
    Ok(unsafe { value.assume_init() })
}

/// The oldest CUDA driver whose functions and PTX are relied on: CUDA 12.0, driver 525.
const OLDEST_DRIVER: i32 = 12_000;

/// Proof that libcuda is loaded and initialised.
#[derive(Debug, Clone, Copy)]
pub struct Cuda {
    /// What the driver supports, as 12020 for CUDA 12.2.
    pub version: i32,
}

/// Loads and initialises the driver once, or says why there is none.
pub fn start() -> std::result::Result<Cuda, String> {
    static STARTED: OnceLock<std::result::Result<Cuda, String>> = OnceLock::new();
    STARTED.get_or_init(try_start).clone()
}

fn try_start() -> std::result::Result<Cuda, String> {
    // SAFETY: opens and closes a library; libcuda's initialisers have no precondition.
    if !unsafe { sys::is_culib_present() } {
        return Err("the CUDA driver's library (libcuda.so.1) is not on this machine".to_owned());
    }
    // SAFETY: the library is there, and the function takes no pointer.
    check("cuInit", unsafe { sys::cuInit(0) }).map_err(|e| format!("the CUDA driver does not start: {e}"))?;
    // SAFETY: the pointer is good for one int.
    let version = out("cuDriverGetVersion", |p| unsafe { sys::cuDriverGetVersion(p) }).map_err(|e| e.to_string())?;
    if version < OLDEST_DRIVER {
        let (have, oldest) = (cuda_version(version), cuda_version(OLDEST_DRIVER));
        return Err(format!("the CUDA driver is for CUDA {have}; {oldest} or newer is needed"));
    }
    Ok(Cuda { version })
}

impl Cuda {
    /// Number of visible GPUs.
    pub fn count(self) -> Result<u32> {
        // SAFETY: the pointer is good for one int.
        let count = out("cuDeviceGetCount", |p: *mut c_int| unsafe { sys::cuDeviceGetCount(p) })?;
        Ok(u32::try_from(count).unwrap_or(0))
    }

    /// One of them.
    pub fn gpu(self, ordinal: u32) -> Result<Gpu> {
        let ordinal = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        // SAFETY: the pointer is good for one handle.
        out("cuDeviceGet", |p| unsafe { sys::cuDeviceGet(p, ordinal) }).map(Gpu)
    }
}

/// A visible GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gpu(sys::CUdevice);

impl Gpu {
    /// The model.
    pub fn name(self) -> Result<String> {
        // SAFETY: the buffer has the length that is passed.
        self.text("cuDeviceGetName", |buffer, length| unsafe { sys::cuDeviceGetName(buffer, length, self.0) })
    }

    /// `0000:17:00.0`.
    pub fn bus(self) -> Result<String> {
        // SAFETY: the buffer has the length that is passed.
        self.text("cuDeviceGetPCIBusId", |buffer, length| unsafe { sys::cuDeviceGetPCIBusId(buffer, length, self.0) })
    }

    fn text(self, call: &'static str, f: impl FnOnce(*mut c_char, c_int) -> CUresult) -> Result<String> {
        let mut buffer = [0u8; 256];
        // One byte is kept back, so that the text ends whatever the driver writes.
        check(call, f(buffer.as_mut_ptr().cast(), 255))?;
        let text = CStr::from_bytes_until_nul(&buffer).unwrap_or_default();
        Ok(text.to_string_lossy().into_owned())
    }

    fn attribute(self, attribute: Attribute) -> Result<u32> {
        // SAFETY: the pointer is good for one int, and the device came from the driver.
        let value = out("cuDeviceGetAttribute", |p| unsafe { sys::cuDeviceGetAttribute(p, attribute, self.0) })?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    /// Streaming multiprocessors.
    pub fn multiprocessors(self) -> Result<u32> {
        self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
    }

    /// The 9 of compute capability 9.0.
    pub fn compute_major(self) -> Result<u32> {
        self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
    }

    /// All of its memory, in bytes.
    pub fn memory(self) -> Result<u64> {
        // SAFETY: the pointer is good for one size, and the device came from the driver.
        let bytes = out("cuDeviceTotalMem", |p| unsafe { sys::cuDeviceTotalMem_v2(p, self.0) })?;
        Ok(bytes as u64)
    }

    /// Whether the link to a peer carries loads and stores directly, and all atomics: (access, atomics).
    pub fn link(self, peer: Gpu) -> Result<(bool, bool)> {
        let ask = |attribute| {
            // SAFETY: the pointer is good for one int, and both devices came from the driver.
            out("cuDeviceGetP2PAttribute", |p: *mut c_int| unsafe {
                sys::cuDeviceGetP2PAttribute(p, attribute, self.0, peer.0)
            })
        };
        let access = ask(P2p::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED)? != 0;
        let atomics = ask(P2p::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED)? != 0;
        Ok((access, atomics))
    }

    /// The primary context, which the runtime inside NCCL uses as well.
    ///
    /// It is never given back: that would pull it from under NCCL's threads, and the process' end does it.
    pub fn context(self) -> Result<Context> {
        // SAFETY: the pointer is good for one handle, and the device came from the driver.
        out("cuDevicePrimaryCtxRetain", |p| unsafe { sys::cuDevicePrimaryCtxRetain(p, self.0) }).map(Context)
    }
}

/// A GPU's primary context. Kept for the life of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context(sys::CUcontext);

// SAFETY: the driver's handles may be used from any thread; which context is current is a matter of the thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Makes it current for this thread.
    pub fn activate(self) -> Result<()> {
        // SAFETY: the context is never destroyed.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_driver_the_start_says_so_and_does_not_panic() {
        if let Err(reason) = start() {
            assert!(reason.contains("CUDA driver"), "{reason}");
        }
    }

    #[test]
    fn a_failed_call_breaks_the_rank_and_keeps_its_name() {
        let error = CudaError { call: "cuMemcpyDtoHAsync", code: 721, name: String::new() };
        let told = RankError::from(error).to_string();
        assert_eq!(told, "cuMemcpyDtoHAsync failed: CUDA error 721");
    }
}
