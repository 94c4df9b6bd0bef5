//! One rank: its GPU, stream, communicator, buffers, checker and time marks.

use std::sync::Arc;

use super::buffer::{self, Buffer, Buffers};
use super::checker::Checker;
use super::communicator::{Communicator, Place, abort_all};
use super::device::{Device, Kernels};
use super::driver::{self, Context, CudaError, Event, Stream};
use super::outbox::Outbox;
use super::peers::Peers;
use super::program::Site;
use super::storage::Shortage;
use crate::backend::{self, GUARD, GuardBreach, Need, RankError, Region};
use crate::case::DType;

/// Events made ahead, so that timed loops of the usual length make none.
const EVENTS: usize = 64;

/// Where work is queued, and launches are made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Track {
    /// On the second stream.
    pub aside: bool,
    /// On the second communicator.
    pub twin: bool,
}

/// One rank.
pub struct Lane {
    /// Its number.
    pub rank: u32,
    /// Its GPU.
    pub device: Arc<Device>,
    /// That GPU's kernels.
    pub kernels: Arc<Kernels>,
    /// Its work is queued here.
    pub stream: Stream,
    /// What goes aside is queued here, once something did.
    pub beside: Option<Stream>,
    /// Its communicator.
    pub communicator: Communicator,
    /// A second one of the same ranks, once it was asked for.
    pub twin: Option<Communicator>,
    twin_place: Place,
    /// What its checks find.
    pub checker: Checker,
    /// Its buffers.
    pub buffers: Buffers,
    outbox: Outbox,
    events: Vec<Event>,
    marks: usize,
}

impl Lane {
    /// Makes all but the buffers.
    pub fn new(
        rank: u32,
        device: Arc<Device>,
        kernels: Arc<Kernels>,
        communicator: Communicator,
    ) -> Result<Lane, CudaError> {
        device.context.activate()?;
        let stream = Stream::new()?;
        let checker = Checker::new(&stream)?;
        let events = (0..EVENTS).map(|_| Event::new()).collect::<Result<_, _>>()?;
        Ok(Lane {
            rank,
            device,
            kernels,
            stream,
            beside: None,
            communicator,
            twin: None,
            twin_place: Place::default(),
            checker,
            buffers: Buffers::default(),
            outbox: Outbox::default(),
            events,
            marks: 0,
        })
    }

    /// Where work of a track is queued.
    pub fn stream(&self, track: Track) -> &Stream {
        if track.aside { self.beside.as_ref().unwrap_or(&self.stream) } else { &self.stream }
    }

    /// The stream or streams that it has work on.
    pub fn streams(&self) -> impl Iterator<Item = &Stream> {
        std::iter::once(&self.stream).chain(&self.beside)
    }

    /// The communicator of a track's launches.
    pub fn communicator(&self, track: Track) -> &Communicator {
        if track.twin { self.twin.as_ref().unwrap_or(&self.communicator) } else { &self.communicator }
    }

    /// The same, to make reductions with.
    pub fn communicator_mut(&mut self, track: Track) -> &mut Communicator {
        if track.twin { self.twin.as_mut().unwrap_or(&mut self.communicator) } else { &mut self.communicator }
    }

    /// Makes the second stream, unless there is one. The GPU must be current.
    pub fn widen(&mut self) -> Result<(), RankError> {
        if self.beside.is_none() {
            self.beside = Some(Stream::new()?);
        }
        Ok(())
    }

    /// Takes over the second communicator.
    pub fn adopt(&mut self, twin: Communicator, peers: &Peers) -> Result<(), RankError> {
        let mut twin = twin.moved_to(&self.twin_place);
        if peers.lost() {
            // Who aborts may have looked for it before it was there.
            twin.close(true);
            return Err(RankError::Aborted);
        }
        self.twin = Some(twin);
        Ok(())
    }

    /// Aborts the second communicator from another thread, also one that is made later.
    pub fn twin_aborter(&self) -> impl Fn() + Send + Sync + use<> {
        let (library, twin) = (Arc::clone(self.communicator.library()), self.twin_place.clone());
        move || twin.abort(&library)
    }

    /// One of the buffers.
    pub fn buffer(&self, which: backend::Buffer) -> &Buffer {
        self.buffers.get(which)
    }

    /// Where a program finds the buffers.
    pub fn site(&self) -> Site {
        let base = |which| self.buffer(which).base();
        Site { rank: self.rank, send: base(backend::Buffer::Send), recv: base(backend::Buffer::Recv) }
    }

    /// Gives the buffers back, and what NCCL has been told of them first. Nothing may be in flight that uses them.
    pub fn release(&mut self) -> Result<(), RankError> {
        let taken_back = self.communicator.deregister();
        self.buffers.clear();
        taken_back
    }

    /// Makes buffers that are large enough, in place of those that there are.
    pub fn allocate(&mut self, need: &Need) -> Result<(), RankError> {
        self.communicator.deregister()?;
        let library = Arc::clone(self.communicator.library());
        self.buffers.allocate(&library, need).or_else(|shortage| match shortage {
            Shortage::Failed(e) => Err(e),
            Shortage::OutOfMemory => {
                let available = driver::free_memory()?;
                Err(RankError::Memory { rank: self.rank, needed: buffer::total(need), available })
            }
        })
    }

    /// Places the case's data in the buffers, and writes their guard zones.
    pub fn place(&mut self, need: &Need) -> Result<(), RankError> {
        self.checker.forget();
        Ok(self.buffers.place(need, &self.stream)?)
    }

    /// The address of a region, or why it is not the buffer's.
    pub fn address(&self, call: &str, region: &Region<'_>) -> Result<u64, RankError> {
        let size = region.plan.dtype().size();
        let buffer = self.buffer(region.buffer);
        buffer
            .stretch(region.base, region.start, region.len, size)
            .ok_or_else(|| outside(call, region.start, region.len, size, buffer))
    }

    /// Waits, and returns the fingerprint of a region.
    pub fn fingerprint(&mut self, region: &Region<'_>) -> Result<u64, RankError> {
        let address = self.address("fingerprint", region)?;
        let Lane { checker, device, kernels, stream, .. } = self;
        // SAFETY: the region was found to lie in its buffer, and the stream is waited for.
        Ok(unsafe { checker.fingerprint(address, region, device, kernels, stream)? })
    }

    /// Waits, and says where a guard zone was written to first.
    pub fn guards(&mut self) -> Result<Option<GuardBreach>, RankError> {
        let Lane { checker, buffers, device, kernels, stream, .. } = self;
        Ok(checker.guards(buffers.both(), device, kernels, stream)?)
    }

    /// Flips bits of one element, behind everything queued so far on the track.
    pub fn tamper(
        &mut self,
        track: Track,
        which: backend::Buffer,
        dtype: DType,
        index: u64,
        xor: u64,
    ) -> Result<(), RankError> {
        let stream = self.stream(track);
        let buffer = self.buffer(which);
        let size = dtype.size();
        let address = buffer.stretch(0, index, 1, size).ok_or_else(|| outside("tamper", index, 1, size, buffer))?;
        let mut bytes = [0u8; 8];
        let element = &mut bytes[..size as usize];
        // SAFETY: the element lies in the buffer.
        unsafe { stream.read(element, address)? };
        element.iter_mut().zip(xor.to_le_bytes()).for_each(|(byte, flip)| *byte ^= flip);
        // SAFETY: as above.
        unsafe { stream.write(address, element)? };
        Ok(())
    }

    /// Reads bytes of a buffer or its guard zones. The track's stream should have been waited for: a wait in here has no end
    /// if a rank is lost.
    pub fn peek(&self, track: Track, which: backend::Buffer, at: i64, into: &mut [u8]) -> Result<(), RankError> {
        let address = self.window("peek", which, at, into.len())?;
        // SAFETY: the window lies in the buffer's memory.
        unsafe { self.stream(track).read(into, address) }?;
        Ok(())
    }

    /// Queues writing bytes of a buffer or its guard zones.
    pub fn poke(&mut self, track: Track, which: backend::Buffer, at: i64, bytes: &[u8]) -> Result<(), RankError> {
        let address = self.window("poke", which, at, bytes.len())?;
        let Lane { stream, beside, outbox, .. } = self;
        let stream = if track.aside { beside.as_ref().unwrap_or(stream) } else { stream };
        // SAFETY: the window lies in the buffer's memory, which moves only after both streams were waited for.
        unsafe { outbox.send(bytes, address, stream) }?;
        Ok(())
    }

    fn window(&self, call: &str, which: backend::Buffer, at: i64, len: usize) -> Result<u64, RankError> {
        self.buffer(which).window(at, len as u64).ok_or_else(|| RankError::Refused {
            call: call.to_owned(),
            code: "out of range".to_owned(),
            message: format!("{len} bytes from byte {at} on are not all in the buffer and its guard zones"),
        })
    }

    /// Both streams have been waited for.
    pub fn rested(&mut self) {
        self.outbox.arrived();
    }

    /// Queues a time mark.
    pub fn mark(&mut self) -> Result<(), CudaError> {
        if self.marks == self.events.len() {
            self.events.push(Event::new()?);
        }
        if let Some(event) = self.events.get(self.marks) {
            event.record(&self.stream)?;
            self.marks += 1;
        }
        Ok(())
    }

    /// Microseconds between marks, which are forgotten. The stream must be idle.
    pub fn intervals(&mut self) -> Result<Vec<f32>, CudaError> {
        let marks = std::mem::take(&mut self.marks);
        let recorded = self.events.get(..marks).unwrap_or_default();
        recorded.windows(2).map(|pair| pair[1].microseconds_since(&pair[0])).collect()
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // What is dropped next is freed on the current context. An error means that the context, and all in it, is lost.
        let _ = self.device.context.activate();
    }
}

/// Ends the communicators of lanes: all of them before any buffer goes, as one rank's kernel may still read another's.
pub fn close(lanes: &mut [Lane], abort: bool) {
    let (mut twins, mut firsts) = (Vec::new(), Vec::new());
    for lane in lanes {
        firsts.push((lane.device.context, &mut lane.communicator));
        twins.extend(lane.twin.as_mut().map(|twin| (lane.device.context, twin)));
    }
    let close = |all: Vec<(Context, &mut Communicator)>| {
        for (context, communicator) in all {
            // Without its GPU current NCCL still takes the communicator down.
            let _ = context.activate();
            communicator.close(abort);
        }
    };
    if abort && !twins.is_empty() {
        abort_all(|| close(twins), || close(firsts));
    } else {
        // what was split off first
        close(twins);
        close(firsts);
    }
}

/// What a stretch that does not lie in its buffer is answered with.
pub fn outside(call: &str, start: u64, len: u64, size: u64, buffer: &Buffer) -> RankError {
    RankError::Refused {
        call: call.to_owned(),
        code: "out of range".to_owned(),
        message: format!(
            "elements {start}..{} of {size} bytes, the buffer has {} bytes",
            start.saturating_add(len),
            buffer.capacity()
        ),
    }
}

/// Bytes that one rank's buffers may take together on a GPU with `free` bytes and `sharing` ranks.
///
/// The reserve is for NCCL's own buffers, which grow with channels and peers, and for the driver.
pub fn budget(free: u64, sharing: u32) -> u64 {
    const RESERVE: u64 = 2 << 30;
    let guards = 2 * (2 * GUARD);
    (free.saturating_sub(RESERVE).max(free / 2) / u64::from(sharing.max(1))).saturating_sub(guards)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_keeps_a_reserve_and_is_shared() {
        assert_eq!(budget(100 << 30, 1), (98 << 30) - 4 * GUARD);
        assert_eq!(budget(100 << 30, 2), (49 << 30) - 4 * GUARD);
        assert_eq!(budget(2 << 30, 1), (1 << 30) - 4 * GUARD);
        assert_eq!(budget(0, 1), 0);
    }
}
