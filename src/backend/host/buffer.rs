//! A rank's buffer: bytes between two guard zones.

use super::memory::{Region, Span};
use crate::backend::{GUARD, GUARD_BYTE};

const ZONE: usize = GUARD as usize;

/// One buffer. It grows, and never shrinks.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    region: Option<Region>,
}

impl Buffer {
    /// Bytes between the guard zones.
    pub(super) fn capacity(&self) -> usize {
        self.region.as_ref().map_or(0, |region| region.len().saturating_sub(2 * ZONE))
    }

    /// Bytes that have to be allocated for a capacity, zones included; what is there already counts for nothing if it is
    /// too small, as it is given back first.
    pub(super) fn missing(&self, bytes: usize) -> usize {
        if self.region.is_some() && bytes <= self.capacity() { 0 } else { bytes.saturating_add(2 * ZONE) }
    }

    /// Makes the buffer at least this large; its contents are lost if it grows. Whether there was memory for it.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        let missing = self.missing(bytes);
        if missing > 0 {
            self.region = None;
            self.region = Region::zeroed(missing);
        }
        self.region.is_some()
    }

    /// `len` bytes from `start` on, if they lie between the zones.
    pub(super) fn span(&self, start: usize, len: usize) -> Option<Span<'_>> {
        let end = start.checked_add(len)?;
        if end > self.capacity() {
            return None;
        }
        self.region.as_ref()?.span(ZONE + start, len)
    }

    /// The zones in front of the buffer and behind its first `bytes` bytes.
    fn zones(&self, bytes: usize) -> Option<[Span<'_>; 2]> {
        let region = self.region.as_ref()?;
        let behind = region.span(ZONE.checked_add(bytes)?, ZONE)?;
        Some([region.span(0, ZONE)?, behind])
    }

    /// Fills the zones of a buffer of `bytes` bytes. Whether they lie inside.
    pub(super) fn guard(&self, bytes: usize) -> bool {
        let zones = self.zones(bytes);
        for zone in zones.iter().flatten() {
            zone.store(&[GUARD_BYTE; ZONE]);
        }
        zones.is_some()
    }

    /// The first byte of the zones that is not as it was filled, relative to the buffer's base; an error where the zones
    /// do not lie inside.
    pub(super) fn breach(&self, bytes: usize) -> Result<Option<i64>, OutOfBounds> {
        let [before, behind] = self.zones(bytes).ok_or(OutOfBounds)?;
        let mut zone = [0; ZONE];
        for (span, base) in [(before, -(ZONE as i64)), (behind, bytes as i64)] {
            span.load(&mut zone);
            if let Some(at) = zone.iter().position(|byte| *byte != GUARD_BYTE) {
                return Ok(Some(base + at as i64));
            }
        }
        Ok(None)
    }
}

/// A buffer is asked for bytes that it does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OutOfBounds;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_breach_is_told_by_its_first_byte() {
        let mut buffer = Buffer::default();
        assert!(buffer.grow(100) && buffer.guard(60));
        assert_eq!(buffer.breach(60), Ok(None));
        buffer.span(60, 40).unwrap().part(5, 1).store(&[0]);
        assert_eq!(buffer.breach(60), Ok(Some(65)));
        buffer.region.as_ref().unwrap().span(ZONE - 3, 1).unwrap().store(&[0]);
        assert_eq!(buffer.breach(60), Ok(Some(-3)));
    }

    #[test]
    fn it_grows_when_it_must_and_keeps_its_memory_otherwise() {
        let mut buffer = Buffer::default();
        assert!(!buffer.guard(0) && buffer.span(0, 0).is_none());
        assert!(buffer.grow(0) && buffer.guard(0));
        assert!(buffer.grow(1000));
        buffer.span(0, 1).unwrap().store(&[9]);
        assert!(buffer.grow(500));
        let mut byte = [0];
        buffer.span(0, 1).unwrap().load(&mut byte);
        assert_eq!((byte, buffer.capacity(), buffer.missing(1001)), ([9], 1000, 1001 + 2 * ZONE));
        assert!(buffer.span(999, 2).is_none() && buffer.breach(1001) == Err(OutOfBounds));
        assert!(!buffer.grow(usize::MAX));
    }
}
