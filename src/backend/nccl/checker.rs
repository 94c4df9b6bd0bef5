//! What a lane's check kernels find: counts and samples on the device, read back only when asked for.

use std::ffi::c_void;
use std::mem::offset_of;

use super::buffer::Buffer;
use super::device::{Device, Kernels};
use super::driver::{CudaError, DeviceMemory, Pinned, Stream};
use crate::backend::{Content, GUARD, GUARD_BYTE, GuardBreach, MAX_SAMPLES, Region, Verdict, Wrong};
use crate::kernels::{self, Action, Job, Outcome, Sample};
use crate::oracle::Plan;

/// Outcomes on the device: the checks' own, and one for each of four guard zones.
const OUTCOMES: usize = 5;
/// Bytes in front of the samples.
const HEADER: usize = offset_of!(Outcome, samples);

/// What a kernel does to a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// The action.
    pub action: Action,
    /// Whether what is queued next may begin before a fill has ended.
    pub early: bool,
}

impl From<Action> for Work {
    fn from(action: Action) -> Work {
        Work { action, early: false }
    }
}

/// A region that was checked since the last verdict, to look up a wrong element that was not sampled.
struct Checked {
    address: u64,
    start: u64,
    len: u64,
    plan: Plan,
    content: Content,
}

/// Launches fill, poison, check and guard kernels for one lane, and keeps what they find.
pub struct Checker {
    device: DeviceMemory,
    host: Pinned<[Outcome; OUTCOMES]>,
    /// A fingerprint is added up here.
    sum: DeviceMemory,
    checked: Vec<Checked>,
}

impl Checker {
    /// Allocates on the current context's GPU.
    pub fn new(stream: &Stream) -> Result<Checker, CudaError> {
        let device = DeviceMemory::new(size_of::<[Outcome; OUTCOMES]>())?;
        // SAFETY: outcomes are plain integers.
        let host = unsafe { Pinned::zeroed()? };
        let sum = DeviceMemory::new(size_of::<u64>())?;
        let checker = Checker { device, host, sum, checked: Vec::new() };
        checker.reset(0, OUTCOMES, stream)?;
        Ok(checker)
    }

    fn outcome(&self, index: usize) -> u64 {
        self.device.address() + (index * size_of::<Outcome>()) as u64
    }

    /// Queues emptying some outcomes: no wrong element, no sample, and the first wrong index as far off as can be.
    fn reset(&self, index: usize, count: usize, stream: &Stream) -> Result<(), CudaError> {
        let address = self.outcome(index);
        let first = address + offset_of!(Outcome, first) as u64;
        let pitch = size_of::<Outcome>();
        // SAFETY: both stretches lie in the outcomes, which live as long as the stream is used.
        unsafe {
            stream.set_rows(address, pitch, 0, HEADER, count)?;
            stream.set_rows(first, pitch, 0xff, size_of::<u64>(), count)
        }
    }

    /// Queues a kernel over a region whose elements lie from `address` on.
    ///
    /// # Safety
    /// The region's bytes must be device memory that lives until the stream is done.
    pub unsafe fn launch(
        &mut self,
        work: Work,
        address: u64,
        region: &Region<'_>,
        device: &Device,
        kernels: &Kernels,
        stream: &Stream,
    ) -> Result<(), CudaError> {
        if region.len == 0 {
            return Ok(());
        }
        let Work { action, early } = work;
        let (rank, element, reduced) = match region.content {
            Content::Input { rank, element } => (rank, element, false),
            Content::Reduced { element } => (0, element, true),
        };
        let mut params = *region.plan.params();
        let mut job = Job {
            ptr: address,
            len: region.len,
            index: region.start,
            element,
            rank,
            reduced: u32::from(reduced),
            action: action as u32,
            early: early.into(),
        };
        let mut outcome = self.outcome(0);
        let kernel = kernels.get(kernels::name(action, reduced, &params))?;
        let grid = kernels::grid(region.len * region.plan.dtype().size(), device.multiprocessors);
        let mut arguments: [*mut c_void; 3] =
            [(&raw mut params).cast(), (&raw mut job).cast(), (&raw mut outcome).cast()];
        // SAFETY: these are the kernel's parameters; the driver copies them before it returns. The region is the
        // caller's promise, and the outcome is this checker's.
        unsafe { stream.launch(kernel, grid, &mut arguments)? };
        if action == Action::Check {
            let Region { start, len, content, .. } = *region;
            self.checked.push(Checked { address, start, len, plan: region.plan.clone(), content });
        }
        Ok(())
    }

    /// Forgets which regions were checked: their buffers are about to move.
    pub fn forget(&mut self) {
        self.checked.clear();
    }

    /// Waits, and returns and forgets what checks found.
    pub fn verdict(&mut self, stream: &Stream) -> Result<Verdict, CudaError> {
        let checked = std::mem::take(&mut self.checked);
        // SAFETY: the first outcome begins there; all of them are copied.
        let [outcome, ..] = unsafe { self.host.read(stream, self.device.address())? };
        let mut verdict = Verdict { wrong: outcome.wrong, ..Verdict::default() };
        if outcome.wrong > 0 {
            let sampled = (outcome.sampled as usize).min(MAX_SAMPLES);
            let sample = |s: &Sample| Wrong { index: s.index, actual: s.actual, expected: s.expected };
            verdict.samples = outcome.samples.iter().take(sampled).map(sample).collect();
            verdict.first = match verdict.samples.iter().find(|w| w.index == outcome.first) {
                Some(sampled) => Some(*sampled),
                None => look_up(&checked, outcome.first, stream)?,
            };
            self.reset(0, 1, stream)?;
        }
        // The list keeps its memory, so that later checks do not allocate.
        self.checked = checked;
        self.checked.clear();
        Ok(verdict)
    }

    /// Waits, and returns the fingerprint of a region whose elements lie from `address` on.
    ///
    /// # Safety
    /// The region's bytes must be device memory.
    pub unsafe fn fingerprint(
        &mut self,
        address: u64,
        region: &Region<'_>,
        device: &Device,
        kernels: &Kernels,
        stream: &Stream,
    ) -> Result<u64, CudaError> {
        let size = region.plan.dtype().size();
        let (mut address, mut length, mut width, mut sum) = (address, region.len, size as u32, self.sum.address());
        let mut arguments: [*mut c_void; 4] =
            [(&raw mut address).cast(), (&raw mut length).cast(), (&raw mut width).cast(), (&raw mut sum).cast()];
        let grid = kernels::small_grid(length * size, device.multiprocessors);
        let mut bytes = [0; size_of::<u64>()];
        // SAFETY: these are the kernel's parameters, `sum` is this checker's, and the region is the caller's promise.
        unsafe {
            stream.write(sum, &bytes)?;
            stream.launch(kernels.fingerprint, grid, &mut arguments)?;
            stream.read(&mut bytes, sum)?;
        }
        Ok(u64::from_le_bytes(bytes))
    }

    /// Waits, and says where a guard zone of either buffer was written to first.
    pub fn guards(
        &mut self,
        buffers: [&Buffer; 2],
        device: &Device,
        kernels: &Kernels,
        stream: &Stream,
    ) -> Result<Option<GuardBreach>, CudaError> {
        self.reset(1, OUTCOMES - 1, stream)?;
        for (which, buffer) in buffers.into_iter().enumerate() {
            for (side, zone) in buffer.zones().enumerate() {
                let mut address = zone;
                let mut length = GUARD;
                let mut byte = u32::from(GUARD_BYTE);
                let mut outcome = self.outcome(1 + 2 * which + side);
                let mut arguments: [*mut c_void; 4] = [
                    (&raw mut address).cast(),
                    (&raw mut length).cast(),
                    (&raw mut byte).cast(),
                    (&raw mut outcome).cast(),
                ];
                let grid = kernels::grid(GUARD, device.multiprocessors);
                // SAFETY: these are the kernel's parameters; zones lie in the buffer, outcomes in this checker.
                unsafe { stream.launch(kernels.guard, grid, &mut arguments)? };
            }
        }
        // SAFETY: the first outcome begins there; all of them are copied.
        let outcomes = unsafe { self.host.read(stream, self.device.address())? };
        for (which, buffer) in buffers.into_iter().enumerate() {
            for side in 0..2 {
                let outcome = &outcomes[1 + 2 * which + side];
                if outcome.wrong > 0 {
                    let zone = if side == 0 { -(GUARD as i64) } else { buffer.bytes() as i64 };
                    return Ok(Some(GuardBreach { recv: which == 1, offset: zone + outcome.first as i64 }));
                }
            }
        }
        Ok(None)
    }
}

/// A wrong element that is not among the samples, read from its buffer.
fn look_up(checked: &[Checked], index: u64, stream: &Stream) -> Result<Option<Wrong>, CudaError> {
    let inside = |c: &&Checked| index >= c.start && index - c.start < c.len;
    let Some(region) = checked.iter().find(inside) else { return Ok(None) };
    let offset = index - region.start;
    let size = region.plan.dtype().size();
    let mut bytes = [0u8; 8];
    // SAFETY: the element lies in a region that a check has just read; buffers change only in `prepare`.
    unsafe { stream.read(&mut bytes[..size as usize], region.address + offset * size)? };
    let expected = match region.content {
        Content::Input { rank, element } => region.plan.input(rank, element + offset),
        Content::Reduced { element } => region.plan.reduced(element + offset),
    };
    Ok(Some(Wrong { index, actual: u64::from_le_bytes(bytes), expected }))
}
