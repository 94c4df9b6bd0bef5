//! Bytes of the host on their way to the GPU, in memory that stays until they have arrived.

use super::driver::{CudaError, PinnedBytes, Stream};

/// Bytes of a chunk: what is written for a fault is small, and then pinned memory is allocated once, in its first use.
/// Allocating it can wait for the GPU, which would put an end to a race.
const CHUNK: usize = 1 << 20;

/// What is being sent.
#[derive(Debug, Default)]
pub struct Outbox {
    /// The last one is filled.
    chunks: Vec<PinnedBytes>,
    used: usize,
}

impl Outbox {
    /// Queues a copy of the bytes to the GPU.
    ///
    /// # Safety
    /// `to` must be device memory of at least that many bytes, that lives until [`Outbox::arrived`]. The GPU's context must
    /// be current.
    pub unsafe fn send(&mut self, bytes: &[u8], to: u64, stream: &Stream) -> Result<(), CudaError> {
        let room = self.chunks.last().map_or(0, |chunk| chunk.len() - self.used);
        if bytes.len() > room {
            self.chunks.push(PinnedBytes::new(bytes.len().max(CHUNK))?);
            self.used = 0;
        }
        let Some(chunk) = self.chunks.last_mut() else { return Ok(()) };
        // SAFETY: there is room for them behind what was used; chunks stay until everything has arrived. The rest is the
        // caller's promise.
        unsafe { chunk.send(self.used, bytes, to, stream)? };
        self.used += bytes.len();
        Ok(())
    }

    /// Everything that was queued is done: memory is free again.
    pub fn arrived(&mut self) {
        self.used = 0;
        if self.chunks.len() > 1 {
            self.chunks.drain(..self.chunks.len() - 1);
        }
    }
}
