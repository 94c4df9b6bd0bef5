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

/// Host memory that copies to the GPU read while the caller goes on.
#[derive(Debug)]
pub struct PinnedBytes {
    first: ptr::NonNull<u8>,
    length: usize,
}

// SAFETY: it owns its memory.
unsafe impl Send for PinnedBytes {}

impl PinnedBytes {
    /// Allocates so many bytes, at least one.
    pub fn new(length: usize) -> Result<PinnedBytes> {
        let length = length.max(1);
        // SAFETY: the pointer is good for one pointer.
        let first = out("cuMemHostAlloc", |p: *mut *mut c_void| unsafe { sys::cuMemHostAlloc(p, length, 0) })?;
        let first = ptr::NonNull::new(first.cast::<u8>())
            .ok_or_else(|| CudaError::new("cuMemHostAlloc", CUresult::CUDA_ERROR_OUT_OF_MEMORY))?;
        Ok(PinnedBytes { first, length })
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Puts bytes in from `at` on and queues their copy to the GPU.
    ///
    /// # Safety
    /// `to` must be device memory of at least that many bytes. It and this must live, and these bytes of this must not be
    /// put in anew, until the copy is done. They must fit.
    pub unsafe fn send(&mut self, at: usize, bytes: &[u8], to: u64, stream: &Stream) -> Result<()> {
        // SAFETY: the caller promises that they fit and that no copy reads what is overwritten.
        let from = unsafe {
            let from = self.first.add(at);
            ptr::copy_nonoverlapping(bytes.as_ptr(), from.as_ptr(), bytes.len());
            from
        };
        // SAFETY: the caller promises that both sides live until the copy is done.
        unsafe { stream.send(to, from.as_ptr().cast(), bytes.len()) }
    }
}

impl Drop for PinnedBytes {
    fn drop(&mut self) {
        // SAFETY: it came from cuMemHostAlloc, and copies from it have been waited for.
        unsafe { sys::cuMemFreeHost(self.first.as_ptr().cast()) };
    }
}
