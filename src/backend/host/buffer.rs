//! A rank's buffer: bytes between two guard zones.

use std::sync::Arc;

use super::memory::{Region, Span};
use crate::backend::{GUARD, GUARD_BYTE};

const ZONE: usize = GUARD as usize;

/// One buffer. Its memory grows, and never shrinks; what it is used for changes from case to case. A clone is of the same
/// memory, and keeps it.
#[derive(Debug, Clone, Default)]
pub(super) struct Buffer {
    region: Option<Arc<Region>>,
    /// Bytes that the front zone is moved back from the memory's start, and the data with it.
    offset: usize,
    /// Bytes of data between the zones.
    bytes: usize,
}

impl Buffer {
    /// Bytes that could lie between the guard zones.
    pub(super) fn capacity(&self) -> usize {
        self.region.as_ref().map_or(0, |region| region.len().saturating_sub(2 * ZONE).saturating_sub(self.offset))
    }

    /// Bytes that have to be allocated for so much data at such an offset, zones included; what is there already counts
    /// for nothing if it is too small, as it is given back first.
    pub(super) fn missing(&self, bytes: usize, offset: usize) -> usize {
        let total = bytes.saturating_add(offset).saturating_add(2 * ZONE);
        if self.region.as_ref().is_some_and(|region| total <= region.len()) { 0 } else { total }
    }

    /// Makes room for so much data, `offset` bytes behind an aligned address, and fills the zones around it. What it held
    /// is lost if it grows. Whether there was memory for it.
    pub(super) fn prepare(&mut self, bytes: usize, offset: usize) -> bool {
        let missing = self.missing(bytes, offset);
        if missing > 0 {
            self.region = None;
            self.region = Region::zeroed(missing).map(Arc::new);
        }
        self.offset = offset;
        self.bytes = bytes;
        let zones = self.zones();
        for zone in zones.iter().flatten() {
            zone.store(&[GUARD_BYTE; ZONE]);
        }
        zones.is_some()
    }

    /// `len` bytes from `start` on, if they lie between the zones or could.
    pub(super) fn span(&self, start: usize, len: usize) -> Option<Span<'_>> {
        let end = start.checked_add(len)?;
        if end > self.capacity() {
            return None;
        }
        self.region.as_ref()?.span(self.offset + ZONE + start, len)
    }

    /// `len` bytes from `at` on, counted from the data's start, if they lie in the data as prepared or in the zones.
    pub(super) fn window(&self, at: i64, len: usize) -> Option<Span<'_>> {
        let start = usize::try_from(at.checked_add(ZONE as i64)?).ok()?;
        if start.checked_add(len)? > self.bytes.checked_add(2 * ZONE)? {
            return None;
        }
        self.region.as_ref()?.span(self.offset.checked_add(start)?, len)
    }

    /// The zones in front of the data and behind it.
    fn zones(&self) -> Option<[Span<'_>; 2]> {
        let region = self.region.as_ref()?;
        let data = self.offset.checked_add(ZONE)?;
        Some([region.span(self.offset, ZONE)?, region.span(data.checked_add(self.bytes)?, ZONE)?])
    }

    /// The first byte of the zones that is not as it was filled, relative to the data's start; an error where there is no
    /// memory.
    pub(super) fn breach(&self) -> Result<Option<i64>, OutOfBounds> {
        let [before, behind] = self.zones().ok_or(OutOfBounds)?;
        let mut zone = [0; ZONE];
        for (span, base) in [(before, -(ZONE as i64)), (behind, self.bytes as i64)] {
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
        for offset in [0, 1, 12] {
            let mut buffer = Buffer::default();
            assert!(buffer.prepare(100, offset) && buffer.prepare(60, offset));
            assert_eq!(buffer.breach(), Ok(None));
            buffer.span(60, 40).unwrap().part(5, 1).store(&[0]);
            assert_eq!(buffer.breach(), Ok(Some(65)));
            buffer.region.as_ref().unwrap().span(offset + ZONE - 3, 1).unwrap().store(&[0]);
            assert_eq!(buffer.breach(), Ok(Some(-3)));
        }
    }

    #[test]
    fn a_window_reaches_both_zones_and_no_further() {
        let mut buffer = Buffer::default();
        assert!(buffer.window(0, 0).is_none());
        assert!(buffer.prepare(100, 4) && buffer.prepare(60, 4));
        let zone = ZONE as i64;
        buffer.window(-zone, 1).unwrap().store(&[0]);
        assert_eq!(buffer.breach(), Ok(Some(-zone)));
        assert!(buffer.window(-zone, 60 + 2 * ZONE).is_some());
        for (at, len) in [(-zone - 1, 1), (60 + zone, 1), (0, 61 + ZONE), (i64::MIN, 1), (i64::MAX, 1), (0, usize::MAX)]
        {
            assert!(buffer.window(at, len).is_none(), "{len} bytes at {at}");
        }
    }

    #[test]
    fn data_starts_at_the_offset_behind_an_aligned_address() {
        let mut buffer = Buffer::default();
        assert!(buffer.prepare(8, 6));
        buffer.span(0, 1).unwrap().store(&[7]);
        let mut byte = [0];
        buffer.region.as_ref().unwrap().span(ZONE + 6, 1).unwrap().load(&mut byte);
        assert_eq!((byte, ZONE % 64), ([7], 0));
    }

    #[test]
    fn it_grows_when_it_must_and_keeps_its_memory_otherwise() {
        let mut buffer = Buffer::default();
        assert!(buffer.span(0, 0).is_none() && buffer.breach() == Err(OutOfBounds));
        assert!(buffer.prepare(0, 0));
        assert!(buffer.prepare(1000, 0));
        buffer.span(0, 1).unwrap().store(&[9]);
        assert!(buffer.prepare(500, 0));
        let mut byte = [0];
        buffer.span(0, 1).unwrap().load(&mut byte);
        assert_eq!((byte, buffer.capacity(), buffer.missing(1001, 0)), ([9], 1000, 1001 + 2 * ZONE));
        assert_eq!((buffer.missing(996, 4), buffer.missing(997, 4)), (0, 1001 + 2 * ZONE));
        assert!(buffer.span(999, 2).is_none());
        assert!(!buffer.prepare(usize::MAX, 0));
        assert_eq!(buffer.breach(), Err(OutOfBounds));
    }
}
