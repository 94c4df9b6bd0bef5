//! A ring in a memory-mapped file: what was recorded outlives the process that recorded it.

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::ops::Deref;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use super::{HEADER, RingError, RingMemory, SLOT, Snapshot, snapshot, words};

/// No ring of ours is larger; a file that is, is not read.
const MAX_BYTES: u64 = 256 << 20;

/// A region that is a file's content.
#[derive(Debug)]
pub struct MappedRing {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping belongs to this value alone until it is dropped, and all access to it is by atomics.
unsafe impl Send for MappedRing {}
// SAFETY: as above.
unsafe impl Sync for MappedRing {}

impl MappedRing {
    /// Makes (or empties) the file at `path` and maps room for `slots` records.
    ///
    /// Nobody may shorten the file while it is mapped: the kernel would end this process at the next record.
    pub fn create(path: &Path, slots: usize) -> Result<Self, RingError> {
        let failed = |doing, source| RingError::File { doing, path: path.to_owned(), source };
        let words = words(slots.max(1));
        let bytes = words as u64 * 8;
        if bytes > MAX_BYTES {
            let source = std::io::Error::other(format!("{bytes} bytes, at most {MAX_BYTES} are allowed"));
            return Err(failed("make room for a ring in", source));
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .map_err(|e| failed("create", e))?;
        file.set_len(bytes).map_err(|e| failed("resize", e))?;
        MappedRing::over(&file, 0, words).map_err(|e| match e {
            RingError::File { doing, source, .. } => failed(doing, source),
            other => other,
        })
    }

    /// Maps `words` words of a file from a page's start on. The file must be that long, and stay so.
    pub fn over(file: &File, offset: u64, words: usize) -> Result<Self, RingError> {
        let failed = |source| RingError::File { doing: "map", path: "shared memory".into(), source };
        let bytes = words * 8;
        if bytes == 0 || file.metadata().map_err(failed)?.len() < offset.saturating_add(bytes as u64) {
            return Err(failed(std::io::Error::other("the file is too short")));
        }
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the kernel chooses the address, so no existing memory is replaced; the length is not 0 and lies in the
        // file.
        let start =
            unsafe { mmap(std::ptr::null_mut(), bytes, prot, flags, file, offset) }.map_err(|e| failed(e.into()))?;
        let start = NonNull::new(start.cast()).ok_or_else(|| failed(std::io::Error::other("at address 0")))?;
        Ok(MappedRing { start, words })
    }
}

impl Deref for MappedRing {
    type Target = RingMemory;

    fn deref(&self) -> &RingMemory {
        // SAFETY: the mapping is page-aligned, `words` words long and readable and writable until drop. Every bit
        // pattern is an AtomicU64, and other processes' writes are to atomics too.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for MappedRing {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `over`; the borrows that `deref` gave have ended.
        // It can only fail for arguments that are no mapping, and there is nobody to tell.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.words * 8) };
    }
}

/// Reads the ring in a file, whose writer may be at work, stuck or dead.
///
/// The file is read, not mapped, so that one that is cut off meanwhile is an error and not the end of this process. A
/// plain read is not ordered with the writer's stores; so it is done twice, and what differs is taken as being written.
pub fn read_file(path: &Path) -> Result<Snapshot, RingError> {
    let mut before = load(path)?;
    let mut now = load(path)?;
    for _ in 0..3 {
        if moving(&before, &now).is_empty() {
            break;
        }
        (before, now) = (now, load(path)?);
    }
    for slot in moving(&before, &now) {
        if let Some(lock) = now.get_mut(HEADER + slot * SLOT) {
            *lock |= 1;
        }
    }
    snapshot(&now.into_iter().map(AtomicU64::new).collect::<Vec<_>>())
}

/// Slots that differ in more than their times of start and completion, which are single stores.
fn moving(a: &[u64], b: &[u64]) -> Vec<usize> {
    let (a, b) = (a.get(HEADER..).unwrap_or_default(), b.get(HEADER..).unwrap_or_default());
    let settled = |a: &[u64], b: &[u64]| a.iter().zip(b).enumerate().all(|(i, (a, b))| a == b || i == 7 || i == 8);
    let pairs = a.chunks_exact(SLOT).zip(b.chunks_exact(SLOT)).enumerate();
    pairs.filter(|(_, (a, b))| !settled(a, b)).map(|(slot, _)| slot).collect()
}

fn load(path: &Path) -> Result<Vec<u64>, RingError> {
    let failed = |doing, source| RingError::File { doing, path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|e| failed("open", e))?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|e| failed("read", e))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(failed("read", std::io::Error::other("it is too large for a ring of records")));
    }
    let word = |chunk: &[u8]| chunk.try_into().map_or(0, u64::from_ne_bytes);
    Ok(bytes.chunks_exact(8).map(word).collect())
}
