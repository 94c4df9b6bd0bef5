//! A buffer between two guard zones, kept from case to case and grown where a case needs more.

use super::driver::{CudaError, DeviceMemory, Stream};
use crate::backend::{GUARD, GUARD_BYTE};

/// Allocations are whole multiples of this, the driver's own granularity for large ones.
const GRAIN: u64 = 2 << 20;

/// Device memory laid out as guard zone, data, guard zone. Where the data ends is the case's matter.
#[derive(Debug, Default)]
pub struct Buffer {
    memory: Option<DeviceMemory>,
}

impl Buffer {
    /// Bytes of data that fit.
    pub fn capacity(&self) -> u64 {
        self.memory.as_ref().map_or(0, |memory| memory.length() as u64 - 2 * GUARD)
    }

    /// The first byte of data; 0 while there is none.
    pub fn base(&self) -> u64 {
        self.memory.as_ref().map_or(0, |memory| memory.address() + GUARD)
    }

    /// Makes room for at least `bytes`. When it fails the buffer is empty.
    pub fn grow(&mut self, bytes: u64) -> Result<(), CudaError> {
        if self.memory.is_some() && self.capacity() >= bytes {
            return Ok(());
        }
        // The old one goes first: both together might not fit.
        self.memory = None;
        let length = usize::try_from(allocation(bytes)).unwrap_or(usize::MAX);
        self.memory = Some(DeviceMemory::new(length)?);
        Ok(())
    }

    /// Gives the memory back.
    pub fn clear(&mut self) {
        self.memory = None;
    }

    /// Queues writing the zones in front of the data and behind `bytes` of it.
    pub fn guard(&self, bytes: u64, stream: &Stream) -> Result<(), CudaError> {
        for address in self.zones(bytes) {
            // SAFETY: the zones lie inside the allocation, which is freed only after the stream was waited for.
            unsafe { stream.set(address, GUARD_BYTE, GUARD as usize)? };
        }
        Ok(())
    }

    /// Addresses of the zones in front of the data and behind `bytes` of it; none where they would lie outside.
    pub fn zones(&self, bytes: u64) -> impl Iterator<Item = u64> {
        let base = self.base();
        let inside = self.memory.is_some() && bytes <= self.capacity();
        inside.then(|| [base - GUARD, base + bytes]).into_iter().flatten()
    }

    /// The address of element `start` of a stretch of `len` elements, if it lies inside.
    pub fn stretch(&self, start: u64, len: u64, size: u64) -> Option<u64> {
        let end = start.checked_add(len)?.checked_mul(size)?;
        (self.memory.is_some() && end <= self.capacity()).then(|| self.base() + start * size)
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
        assert_eq!(buffer.stretch(0, 0, 4), None);
        assert_eq!(buffer.zones(0).count(), 0);
    }
}
