//! Memory of the GPU, and memory of the host that it can write to.

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys::{self, CUresult};

use super::{CudaError, Result, Stream, out};

/// Free bytes on the current context's GPU.
pub fn free_memory() -> Result<u64> {
    let mut total = 0usize;
    // SAFETY: both pointers are good for one number.
    let free = out("cuMemGetInfo", |p: *mut usize| unsafe { sys::cuMemGetInfo_v2(p, &mut total) })?;
    Ok(free as u64)
}

/// Memory of a GPU.
#[derive(Debug)]
pub struct DeviceMemory {
    address: u64,
}

impl DeviceMemory {
    /// Allocates on the current context's GPU; at least one byte.
    pub fn new(length: usize) -> Result<DeviceMemory> {
        let length = length.max(1);
        // SAFETY: the pointer is good for one address.
        let address = out("cuMemAlloc", |p| unsafe { sys::cuMemAlloc_v2(p, length) })?;
        Ok(DeviceMemory { address })
    }

    /// Its first byte.
    pub fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: who drops it has waited for what uses it; the driver waits for the rest.
        unsafe { sys::cuMemFree_v2(self.address) };
    }
}

/// Host memory that the GPU can write to, as a value that is all zeros at first.
///
/// For a plain struct of integers only: the GPU writes its bytes.
#[derive(Debug)]
pub struct Pinned<T>(ptr::NonNull<T>);

// SAFETY: it owns its memory.
unsafe impl<T: Send> Send for Pinned<T> {}

impl<T> Pinned<T> {
    /// Allocates it.
    ///
    /// # Safety
    /// Every bit pattern, all zeros too, must be a valid `T`.
    pub unsafe fn zeroed() -> Result<Pinned<T>> {
        // SAFETY: the pointer is good for one pointer. Flags 0: not write-combined, which would be slow to read.
        let pointer =
            out("cuMemHostAlloc", |p: *mut *mut c_void| unsafe { sys::cuMemHostAlloc(p, size_of::<T>(), 0) })?;
        let pointer = ptr::NonNull::new(pointer.cast::<T>())
            .ok_or_else(|| CudaError::new("cuMemHostAlloc", CUresult::CUDA_ERROR_OUT_OF_MEMORY))?;
        // SAFETY: it is new, page-aligned and large enough.
        unsafe { pointer.as_ptr().write_bytes(0, 1) };
        Ok(Pinned(pointer))
    }

    /// Copies from the device, waits for it, and lends the result.
    ///
    /// # Safety
    /// There must be a `T`'s bytes of device memory at `from`.
    pub unsafe fn read(&mut self, stream: &Stream, from: u64) -> Result<&T> {
        // SAFETY: the memory is ours alone, for as long as the slice is used.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr().cast::<u8>(), size_of::<T>()) };
        // SAFETY: the caller promises the device's side.
        unsafe { stream.read(bytes, from)? };
        // SAFETY: initialised, and valid whatever the bytes are.
        Ok(unsafe { self.0.as_ref() })
    }
}

impl<T> Drop for Pinned<T> {
    fn drop(&mut self) {
        // SAFETY: it came from cuMemHostAlloc, and reads into it have been waited for.
        unsafe { sys::cuMemFreeHost(self.0.as_ptr().cast()) };
    }
}
