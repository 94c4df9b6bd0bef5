//! Streams, what is queued on them, and time marks.

use std::ffi::c_void;
use std::ptr;
use std::time::Duration;

use cudarc::driver::sys::{self, CUresult};

use super::{Kernel, Result, check, out};

/// A stream that does not wait for the default stream.
#[derive(Debug)]
pub struct Stream(sys::CUstream);

// SAFETY: handles of the driver may be used from any thread.
unsafe impl Send for Stream {}

impl Stream {
    /// A new stream on the current context.
    pub fn new() -> Result<Stream> {
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the pointer is good for one handle.
        out("cuStreamCreate", |p| unsafe { sys::cuStreamCreate(p, flags) }).map(Stream)
    }

    /// As NCCL takes it.
    pub fn raw(&self) -> *mut c_void {
        self.0.cast()
    }

    /// As the driver takes it.
    pub(super) fn handle(&self) -> sys::CUstream {
        self.0
    }

    /// Whether everything queued is done.
    pub fn idle(&self) -> Result<bool> {
        // SAFETY: the stream lives.
        match unsafe { sys::cuStreamQuery(self.0) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            result => check("cuStreamQuery", result).map(|()| true),
        }
    }

    /// Waits for everything queued.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream lives.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.0) })
    }

    /// Queues a launch.
    ///
    /// # Safety
    /// `arguments` must point to values of the kernel's parameter types, and what they make it touch must be memory that
    /// lives until it is done.
    pub unsafe fn launch(&self, kernel: Kernel, grid: (u32, u32), arguments: &mut [*mut c_void]) -> Result<()> {
        let (blocks, threads) = grid;
        let parameters = arguments.as_mut_ptr();
        // SAFETY: stream and kernel live; the caller promises the rest.
        check("cuLaunchKernel", unsafe {
            sys::cuLaunchKernel(kernel.0, blocks, 1, 1, threads, 1, 1, 0, self.0, parameters, ptr::null_mut())
        })
    }

    /// Queues filling with one byte.
    ///
    /// # Safety
    /// The bytes must be device memory that lives until it is done.
    pub unsafe fn set(&self, address: u64, byte: u8, length: usize) -> Result<()> {
        // SAFETY: the caller promises it.
        check("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(address, byte, length, self.0) })
    }

    /// Queues filling `rows` stretches of `width` bytes, `pitch` bytes apart, with one byte.
    ///
    /// # Safety
    /// The bytes must be device memory that lives until it is done.
    pub unsafe fn set_rows(&self, address: u64, pitch: usize, byte: u8, width: usize, rows: usize) -> Result<()> {
        // SAFETY: the caller promises it.
        check("cuMemsetD2D8Async", unsafe { sys::cuMemsetD2D8Async(address, pitch, byte, width, rows, self.0) })
    }

    /// Queues a copy within the GPU.
    ///
    /// # Safety
    /// Both stretches must be device memory that lives until it is done.
    pub unsafe fn copy(&self, to: u64, from: u64, length: usize) -> Result<()> {
        // SAFETY: the caller promises it.
        check("cuMemcpyDtoDAsync", unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, length, self.0) })
    }

    /// Queues a sleep: what is queued next begins that much later. A thread of the driver's sleeps, not the caller.
    pub fn sleep(&self, us: u32) -> Result<()> {
        extern "C" fn sleep(us: *mut c_void) {
            std::thread::sleep(Duration::from_micros(us.addr() as u64));
        }
        // SAFETY: the stream lives. The function takes a number in the shape of a pointer, and calls no CUDA function.
        check("cuLaunchHostFunc", unsafe {
            sys::cuLaunchHostFunc(self.0, Some(sleep), ptr::without_provenance_mut(us as usize))
        })
    }

    /// Queues a copy from pinned memory of the host, and does not wait for it.
    ///
    /// # Safety
    /// Both stretches must live, and the host's must stay as it is, until it is done.
    pub(super) unsafe fn send(&self, to: u64, from: *const c_void, length: usize) -> Result<()> {
        // SAFETY: the caller promises it.
        check("cuMemcpyHtoDAsync", unsafe { sys::cuMemcpyHtoDAsync_v2(to, from, length, self.0) })
    }

    /// Copies to the host and waits for it.
    ///
    /// # Safety
    /// The stretch must be device memory of at least `to`'s length.
    pub unsafe fn read(&self, to: &mut [u8], from: u64) -> Result<()> {
        let pointer = to.as_mut_ptr().cast();
        // SAFETY: `to` is borrowed until the wait below is over; the caller promises the device's side.
        check("cuMemcpyDtoHAsync", unsafe { sys::cuMemcpyDtoHAsync_v2(pointer, from, to.len(), self.0) })?;
        self.synchronize()
    }

    /// Copies from the host and waits for it.
    ///
    /// # Safety
    /// The stretch must be device memory of at least `from`'s length.
    pub unsafe fn write(&self, to: u64, from: &[u8]) -> Result<()> {
        let pointer = from.as_ptr().cast();
        // SAFETY: `from` is borrowed until the wait below is over; the caller promises the device's side.
        check("cuMemcpyHtoDAsync", unsafe { sys::cuMemcpyHtoDAsync_v2(to, pointer, from.len(), self.0) })?;
        self.synchronize()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: nothing uses it any more. An error means that the context is lost, and the stream with it.
        unsafe { sys::cuStreamDestroy_v2(self.0) };
    }
}

/// A mark in time.
#[derive(Debug)]
pub struct Event(sys::CUevent);

// SAFETY: handles of the driver may be used from any thread.
unsafe impl Send for Event {}

impl Event {
    /// A new event that takes the time.
    pub fn new() -> Result<Event> {
        let flags = sys::CUevent_flags::CU_EVENT_DEFAULT as u32;
        // SAFETY: the pointer is good for one handle.
        out("cuEventCreate", |p| unsafe { sys::cuEventCreate(p, flags) }).map(Event)
    }

    /// Queues taking the time.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        // SAFETY: both live.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.0, stream.0) })
    }

    /// Microseconds from an earlier mark to this one; both must be over.
    pub fn microseconds_since(&self, earlier: &Event) -> Result<f32> {
        // SAFETY: the pointer is good for one float; both events live.
        let milliseconds =
            out("cuEventElapsedTime", |p: *mut f32| unsafe { sys::cuEventElapsedTime(p, earlier.0, self.0) })?;
        Ok(milliseconds * 1000.0)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: nothing uses it any more.
        unsafe { sys::cuEventDestroy_v2(self.0) };
    }
}
