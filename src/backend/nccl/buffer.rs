//! A rank's two buffers, each between guard zones, kept from case to case as long as cases need the same kind.

use std::sync::Arc;

use super::driver::{CudaError, Stream};
use super::library::Library;
use super::storage::{Shortage, Storage};
use crate::backend::{self, GUARD, GUARD_BYTE, Memory, Need, Registration};

/// Allocations are whole multiples of this, the driver's own granularity for large ones. Windows cut from one allocation
/// start at such multiples, which is more than the 4096 bytes that NCCL asks for.
const GRAIN: u64 = 2 << 20;

/// A stretch of memory laid out as guard zone, data, guard zone, from `offset` on.
#[derive(Debug, Default)]
pub struct Buffer {
    memory: Option<Arc<Storage>>,
    /// First byte of the stretch within the memory.
    from: u64,
    /// Bytes of it.
    length: u64,
    /// Bytes that the front zone is moved back from an aligned address, and the data with it.
    offset: u64,
    /// Bytes of data between the zones.
    bytes: u64,
}

impl Buffer {
    fn new(memory: Arc<Storage>, from: u64, length: u64) -> Buffer {
        Buffer { memory: Some(memory), from, length, ..Buffer::default() }
    }

    /// Address of the stretch.
    fn address(&self) -> u64 {
        self.memory.as_ref().map_or(0, |memory| memory.address() + self.from)
    }

    /// Bytes of data that fit.
    pub fn capacity(&self) -> u64 {
        self.length.saturating_sub(2 * GUARD).saturating_sub(self.offset)
    }

    /// Bytes of data between the zones.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The first byte of data; 0 while there is none.
    pub fn base(&self) -> u64 {
        if self.memory.is_some() { self.address() + GUARD + self.offset } else { 0 }
    }

    fn place(&mut self, bytes: u64, offset: u64) {
        self.bytes = bytes;
        self.offset = offset;
    }

    /// Queues writing the zones around the data.
    fn guard(&self, stream: &Stream) -> Result<(), CudaError> {
        for address in self.zones() {
            // SAFETY: the zones lie inside the memory, which is freed only after the stream was waited for.
            unsafe { stream.set(address, GUARD_BYTE, GUARD as usize)? };
        }
        Ok(())
    }

    /// Addresses of the zones in front of the data and behind it; none where they would lie outside.
    pub fn zones(&self) -> impl Iterator<Item = u64> {
        let base = self.base();
        let inside = self.memory.is_some() && self.bytes <= self.capacity();
        inside.then(|| [base - GUARD, base + self.bytes]).into_iter().flatten()
    }

    /// The address of byte `at`, counted from the base, of a stretch of `len` bytes that lies in the data as placed or in the
    /// zones; nothing if it does not.
    pub fn window(&self, at: i64, len: u64) -> Option<u64> {
        let zone = self.zones().next()?;
        let start = within(at, len, self.bytes)?;
        Some(zone + start)
    }

    /// The address of element `start`, counted from byte `base`, of a stretch of `len` elements, if it lies inside.
    pub fn stretch(&self, base: u64, start: u64, len: u64, size: u64) -> Option<u64> {
        let end = start.checked_add(len)?.checked_mul(size)?.checked_add(base)?;
        (self.memory.is_some() && end <= self.capacity()).then(|| self.base() + base + start * size)
    }
}

/// Both buffers.
#[derive(Debug, Default)]
pub struct Buffers {
    send: Buffer,
    recv: Buffer,
    /// What kind they are, once there are any.
    kind: Option<Kind>,
}

/// What has to be the same for buffers to be used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind {
    memory: Memory,
    registration: Registration,
}

impl Kind {
    fn of(need: &Need) -> Kind {
        let windows = matches!(need.registration, Registration::Window | Registration::SharedWindows);
        let memory = if windows { Memory::Nccl } else { need.memory };
        Kind { memory, registration: need.registration }
    }
}

impl Buffers {
    /// One of them.
    pub fn get(&self, which: backend::Buffer) -> &Buffer {
        match which {
            backend::Buffer::Send => &self.send,
            backend::Buffer::Recv => &self.recv,
        }
    }

    /// Both, the send buffer first.
    pub fn both(&self) -> [&Buffer; 2] {
        [&self.send, &self.recv]
    }

    /// Whether they are of the kind needed and large enough.
    pub fn fit(&self, need: &Need) -> bool {
        let [send, recv] = lengths(need);
        self.kind == Some(Kind::of(need)) && self.send.length >= send && self.recv.length >= recv
    }

    /// Gives the memory back. Nothing may use it any more, and no registration hold it.
    pub fn clear(&mut self) {
        *self = Buffers::default();
    }

    /// Makes new ones that fit, in place of those that there are. When it fails there are none.
    ///
    /// Windows are as large on all ranks, so those are made as large as needed and no larger.
    pub fn allocate(&mut self, library: &Arc<Library>, need: &Need) -> Result<(), Shortage> {
        let needed = lengths(need);
        let kind = Kind::of(need);
        let grown = match (self.kind, kind.registration) {
            (Some(old), Registration::None | Registration::Local) if old == kind => {
                [needed[0].max(self.send.length), needed[1].max(self.recv.length)]
            }
            _ => needed,
        };
        // The old ones go first: both together might not fit.
        self.clear();
        match self.make(library, kind, grown) {
            // One may still have been as large as an earlier case needed it.
            Err(Shortage::OutOfMemory) if grown != needed => self.make(library, kind, needed),
            made => made,
        }
    }

    fn make(&mut self, library: &Arc<Library>, kind: Kind, lengths: [u64; 2]) -> Result<(), Shortage> {
        let [send, recv] = lengths;
        let storage = |length| Storage::new(library, kind.memory, length).map(Arc::new);
        let (send, recv) = if kind.registration == Registration::SharedWindows {
            let both = storage(send.saturating_add(recv))?;
            (Buffer::new(Arc::clone(&both), 0, send), Buffer::new(both, send, recv))
        } else {
            (Buffer::new(storage(send)?, 0, send), Buffer::new(storage(recv)?, 0, recv))
        };
        *self = Buffers { send, recv, kind: Some(kind) };
        Ok(())
    }

    /// Places the case's data in them, and queues writing their guard zones.
    pub fn place(&mut self, need: &Need, stream: &Stream) -> Result<(), CudaError> {
        self.send.place(need.send_bytes, need.offset);
        self.recv.place(need.recv_bytes, need.offset);
        self.send.guard(stream)?;
        self.recv.guard(stream)
    }

    /// Address and length of what is registered: both stretches with their guard zones.
    pub fn stretches(&self) -> [(u64, u64); 2] {
        self.both().map(|buffer| (buffer.address(), buffer.length))
    }
}

/// Where a stretch begins, from the front zone's first byte on, if it ends before the back zone does: `at` counts from the
/// first of `bytes` of data.
fn within(at: i64, len: u64, bytes: u64) -> Option<u64> {
    let start = u64::try_from(at.checked_add(GUARD as i64)?).ok()?;
    (start.checked_add(len)? <= bytes.checked_add(2 * GUARD)?).then_some(start)
}

/// Bytes of memory for the send and the receive buffer.
fn lengths(need: &Need) -> [u64; 2] {
    [need.send_bytes, need.recv_bytes].map(|bytes| allocation(bytes.saturating_add(need.offset)))
}

/// Bytes of memory for both buffers.
pub fn total(need: &Need) -> u64 {
    let [send, recv] = lengths(need);
    send.saturating_add(recv)
}

/// Bytes to allocate for `bytes` of data and both guard zones.
fn allocation(bytes: u64) -> u64 {
    bytes.saturating_add(2 * GUARD).checked_next_multiple_of(GRAIN).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_holds_data_and_both_zones() {
        assert_eq!(allocation(0), GRAIN);
        assert_eq!(allocation(GRAIN - 2 * GUARD), GRAIN);
        assert_eq!(allocation(GRAIN), 2 * GRAIN);
        assert_eq!(allocation(u64::MAX), u64::MAX);
    }

    #[test]
    fn a_window_reaches_both_zones_and_no_further() {
        let zone = GUARD as i64;
        assert_eq!(within(-zone, 60 + 2 * GUARD, 60), Some(0));
        assert_eq!(within(60, GUARD, 60), Some(GUARD + 60));
        for (at, len) in [(-zone - 1, 1), (60 + zone, 1), (0, 61 + GUARD), (i64::MIN, 1), (i64::MAX, 1), (0, u64::MAX)]
        {
            assert_eq!(within(at, len, 60), None, "{len} bytes at {at}");
        }
    }

    #[test]
    fn an_offset_counts_as_data() {
        let need = Need { send_bytes: GRAIN - 2 * GUARD, ..Need::default() };
        assert_eq!(total(&need), 2 * GRAIN);
        assert_eq!(total(&Need { offset: 1, ..need }), 3 * GRAIN);
    }

    #[test]
    fn windows_are_memory_of_nccls_whatever_the_case_says() {
        for registration in [Registration::Window, Registration::SharedWindows] {
            assert_eq!(Kind::of(&Need { registration, ..Need::default() }).memory, Memory::Nccl);
        }
        let local = Need { registration: Registration::Local, ..Need::default() };
        assert_eq!(Kind::of(&local).memory, Memory::Device);
    }

    #[test]
    fn without_memory_nothing_fits_and_there_is_no_stretch_and_no_zone() {
        let buffers = Buffers::default();
        assert!(!buffers.fit(&Need::default()));
        let buffer = buffers.get(backend::Buffer::Send);
        assert_eq!(buffer.capacity(), 0);
        assert_eq!(buffer.stretch(0, 0, 0, 4), None);
        assert_eq!(buffer.window(0, 0), None);
        assert_eq!(buffer.zones().count(), 0);
    }
}
