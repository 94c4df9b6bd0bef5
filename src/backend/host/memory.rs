//! Raw memory: regions, and spans of their bytes.
//!
//! All of the host backend's memory is made of [`Region`]s: the channels between ranks share one, each buffer has one.
//! A region is bytes and atomics, never Rust values, so that it can as well be a mapping that processes share.
//!
//! Ranks touch their buffers through [`Span`]s, which are checked pointers and no references: whoever deliberately races on
//! a buffer from another thread gets torn data, not a broken Rust reference that outlived its statement.

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::alloc::{self, Layout};
use std::fs::File;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Alignment of a region's base.
pub(super) const PAGE: usize = 4096;

/// Zeroed memory that is freed when dropped. Pages that nobody touches cost nothing.
#[derive(Debug)]
pub(crate) struct Region {
    origin: Origin,
    base: NonNull<u8>,
    len: usize,
}

/// Where a region is from, and so how it is given back.
#[derive(Debug)]
enum Origin {
    Heap {
        allocation: NonNull<u8>,
        layout: Layout,
    },
    /// A file's pages, that other processes may map too.
    Mapping,
}

// SAFETY: a region is plain memory without thread affinity; those who share it agree on who touches which byte when.
unsafe impl Send for Region {}
// SAFETY: as above; through a shared reference only pointers, spans and atomics are had.
unsafe impl Sync for Region {}

impl Region {
    /// `len` zero bytes at a page's start, or nothing where the system has no such memory.
    pub(super) fn zeroed(len: usize) -> Option<Region> {
        // The allocator clears large blocks lazily only for alignments that malloc has anyway, so the page is found here.
        let layout = Layout::from_size_align(len.checked_add(PAGE)?, 16).ok()?;
        // SAFETY: the layout's size is at least a page.
        let allocation = NonNull::new(unsafe { alloc::alloc_zeroed(layout) })?;
        let skip = allocation.as_ptr().align_offset(PAGE).min(PAGE);
        // SAFETY: `skip` is at most a page, and the allocation is a page longer than `len`.
        let base = unsafe { allocation.add(skip) };
        Some(Region { origin: Origin::Heap { allocation, layout }, base, len })
    }

    /// `len` bytes of a file from byte `from` on, a multiple of [`PAGE`]; nothing where it is shorter or cannot be mapped.
    /// Nobody may shorten it.
    pub(crate) fn mapped(file: &File, from: usize, len: usize) -> Option<Region> {
        if len == 0 || file.metadata().ok()?.len() < from.checked_add(len)? as u64 {
            return None;
        }
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the kernel chooses the address, so no existing memory is replaced; the length is not 0 and is in the file.
        let start = unsafe { mmap(ptr::null_mut(), len, prot, flags, file, from as u64) }.ok()?;
        Some(Region { origin: Origin::Mapping, base: NonNull::new(start.cast())?, len })
    }

    /// Bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The address of a byte, if `len` bytes from there on lie inside.
    pub(super) fn at(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        // SAFETY: just checked to lie inside the allocation.
        Some(unsafe { self.base.add(offset) })
    }

    /// The word at the region's start, which a communicator uses as its abort flag. Whoever uses these bytes uses them as an
    /// atomic only.
    pub(crate) fn word(&self) -> Option<&AtomicU32> {
        let place = self.at(0, size_of::<AtomicU32>())?;
        // SAFETY: inside, aligned to a page, initialised by zeroing, and used as an atomic only.
        Some(unsafe { place.cast::<AtomicU32>().as_ref() })
    }

    /// The word of 8 bytes at a multiple of 8, if it lies inside. Whoever uses these bytes uses them as an atomic only.
    pub(crate) fn long(&self, offset: usize) -> Option<&AtomicU64> {
        let place =
            self.at(offset, size_of::<AtomicU64>()).filter(|_| offset.is_multiple_of(align_of::<AtomicU64>()))?;
        // SAFETY: inside, aligned as the base is to a page, initialised by zeroing or a file's pages, and used as an atomic.
        Some(unsafe { place.cast::<AtomicU64>().as_ref() })
    }

    /// `len` bytes from `offset` on, if they lie inside.
    pub(super) fn span(&self, offset: usize, len: usize) -> Option<Span<'_>> {
        Some(Span { base: self.at(offset, len)?, len, region: PhantomData })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        match self.origin {
            // SAFETY: allocated in `zeroed` with this layout, and freed once.
            Origin::Heap { allocation, layout } => unsafe { alloc::dealloc(allocation.as_ptr(), layout) },
            Origin::Mapping => {
                // SAFETY: exactly the mapping made in `mapped`. It can only fail for what is no mapping.
                let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
            }
        }
    }
}

/// Some bytes of a region, as a pointer that cannot leave them and does not outlive the region.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span<'a> {
    base: NonNull<u8>,
    len: usize,
    region: PhantomData<&'a Region>,
}

impl<'a> Span<'a> {
    /// Bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The part of `len` bytes from `start` on, cut off at the span's end.
    pub(super) fn part(&self, start: usize, len: usize) -> Span<'a> {
        let start = start.min(self.len);
        // SAFETY: at most one past the end of the same allocation.
        let base = unsafe { self.base.add(start) };
        Span { base, len: len.min(self.len - start), region: PhantomData }
    }

    /// Whether both start at the same byte.
    pub(super) fn starts_with(&self, other: &Span<'_>) -> bool {
        self.base == other.base
    }

    /// Copies the bytes out, as many as both have.
    pub(super) fn load(&self, to: &mut [u8]) {
        // SAFETY: both are valid for that many bytes, and a region is never reached through references that last.
        unsafe { ptr::copy_nonoverlapping(self.base.as_ptr(), to.as_mut_ptr(), self.len.min(to.len())) }
    }

    /// Overwrites the bytes, as many as both have.
    pub(super) fn store(&self, from: &[u8]) {
        // SAFETY: as for `load`.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.base.as_ptr(), self.len.min(from.len())) }
    }

    /// Copies another span's bytes here, as many as both have. They may overlap.
    pub(super) fn copy_from(&self, from: &Span<'_>) {
        if !self.starts_with(from) {
            // SAFETY: both are valid for that many bytes.
            unsafe { ptr::copy(from.base.as_ptr(), self.base.as_ptr(), self.len.min(from.len)) }
        }
    }

    /// The bytes as a slice, for one statement.
    ///
    /// # Safety
    /// No mutable reference to any of the bytes exists while the slice does.
    pub(super) unsafe fn bytes(&self) -> &'a [u8] {
        // SAFETY: valid and initialised; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }

    /// The bytes as a mutable slice, for one statement.
    ///
    /// # Safety
    /// No other reference to any of the bytes exists while the slice does.
    pub(super) unsafe fn bytes_mut(&self) -> &'a mut [u8] {
        // SAFETY: valid and initialised; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_zero_and_starts_at_a_page() {
        let region = Region::zeroed(10_000).unwrap();
        assert_eq!(region.base.as_ptr() as usize % PAGE, 0);
        let mut bytes = vec![1; 10_000];
        region.span(0, 10_000).unwrap().load(&mut bytes);
        assert!(bytes.iter().all(|b| *b == 0));
    }

    #[test]
    fn nothing_reaches_outside() {
        let region = Region::zeroed(64).unwrap();
        assert!(region.at(60, 5).is_none() && region.at(usize::MAX, 2).is_none());
        let span = region.span(0, 64).unwrap();
        assert_eq!((span.part(60, 10).len(), span.part(100, 1).len()), (4, 0));
        assert!(Region::zeroed(usize::MAX - 100).is_none());
    }

    #[test]
    fn overlapping_parts_copy_as_if_through_a_third_place() {
        let region = Region::zeroed(8).unwrap();
        let span = region.span(0, 8).unwrap();
        span.store(&[1, 2, 3, 4, 5, 6, 7, 8]);
        span.part(2, 4).copy_from(&span.part(0, 4));
        let mut bytes = [0; 8];
        span.load(&mut bytes);
        assert_eq!(bytes, [1, 2, 1, 2, 3, 4, 7, 8]);
    }
}
