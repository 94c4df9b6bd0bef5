//! A buffer between two guard zones, kept from case to case and grown where a case needs more.

use super::driver::{CudaError, DeviceMemory, Stream};
use crate::backend::{GUARD, GUARD_BYTE};

/// Allocations are whole multiples of this, the driver's own granularity for large ones.
const GRAIN: u64 = 2 << 20;

/// Device memory laid out as guard zone, data, guard zone, from `offset` on. Where the data ends is the case's matter.
#[derive(Debug, Default)]
pub struct Buffer {
    memory: Option<DeviceMemory>,
    /// Bytes that the front zone is moved back from an aligned address, and the data with it.
    offset: u64,
    /// Bytes of data between the zones.
    bytes: u64,
}

impl Buffer {
    /// Bytes of data that fit.
    pub fn capacity(&self) -> u64 {
        let length = self.memory.as_ref().map_or(0, |memory| memory.length() as u64);
        length.saturating_sub(2 * GUARD).saturating_sub(self.offset)
    }

    /// The first byte of data; 0 while there is none.
    pub fn base(&self) -> u64 {
        self.memory.as_ref().map_or(0, |memory| memory.address() + GUARD + self.offset)
    }

    /// Makes room for `bytes` of data, `offset` bytes behind an aligned address. When it fails the buffer is empty.
    pub fn place(&mut self, bytes: u64, offset: u64) -> Result<(), CudaError> {
        self.bytes = bytes;
        self.offset = offset;
        if self.memory.is_some() && self.capacity() >= bytes {
            return Ok(());
        }
        // The old one goes first: both together might not fit.
        self.memory = None;
        let length = usize::try_from(allocation(bytes.saturating_add(offset))).unwrap_or(usize::MAX);
        self.memory = Some(DeviceMemory::new(length)?);
        Ok(())
    }

    /// Gives the memory back.
    pub fn clear(&mut self) {
        *self = Buffer::default();
    }

    /// Queues writing the zones around the data.
    pub fn guard(&self, stream: &Stream) -> Result<(), CudaError> {
        for address in self.zones() {
            // SAFETY: the zones lie inside the allocation, which is freed only after the stream was waited for.
            unsafe { stream.set(address, GUARD_BYTE, GUARD as usize)? };
        }
        Ok(())
    }

    /// Bytes of data between the zones.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Addresses of the zones in front of the data and behind it; none where there is no memory.
    pub fn zones(&self) -> impl Iterator<Item = u64> {
        let base = self.base();
        let inside = self.memory.is_some() && self.bytes <= self.capacity();
        inside.then(|| [base - GUARD, base + self.bytes]).into_iter().flatten()
    }

    /// The address of element `start`, counted from byte `from`, of a stretch of `len` elements, if it lies inside.
    pub fn stretch(&self, from: u64, start: u64, len: u64, size: u64) -> Option<u64> {
        let end = start.checked_add(len)?.checked_mul(size)?.checked_add(from)?;
        (self.memory.is_some() && end <= self.capacity()).then(|| self.base() + from + start * size)
    }
}

/// Bytes to allocate for `bytes` of data and both guard zones.
pub fn allocation(bytes: u64) -> u64 {
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
    fn an_empty_buffer_has_no_stretch_and_no_zones() {
        let buffer = Buffer::default();
        assert_eq!(buffer.capacity(), 0);
        assert_eq!(buffer.stretch(0, 0, 0, 4), None);
        assert_eq!(buffer.zones().count(), 0);
    }
}
