//! A channel in shared memory: a ring of bytes, two positions, one writer, one reader.
//!
//! Positions count bytes since the start and never wrap; the writer moves `tail`, the reader moves `head`. Nothing else
//! is exchanged.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::memory::Region;
use super::{ALIGN, aligned};

/// Bytes in front of a channel's data: `tail` and `head`, each alone in what a processor fetches at once.
pub const CONTROL: usize = 256;

/// The shared side of a channel.
#[derive(Debug, Clone)]
struct Ring {
    /// Keeps the memory.
    _region: Arc<Region>,
    tail: NonNull<AtomicU64>,
    head: NonNull<AtomicU64>,
    data: NonNull<u8>,
    capacity: usize,
}

// SAFETY: the pointers go into the region, which the ring keeps; positions are atomics, and data bytes belong to the
// writer or to the reader by the positions.
unsafe impl Send for Ring {}

impl Ring {
    fn new(region: &Arc<Region>, offset: usize, capacity: usize) -> Option<Ring> {
        if capacity == 0 || !capacity.is_multiple_of(ALIGN) || !offset.is_multiple_of(ALIGN) {
            return None;
        }
        let control = region.at(offset, CONTROL.checked_add(capacity)?)?;
        // SAFETY: the whole channel lies in the region, as just checked.
        let (head, data) = unsafe { (control.add(CONTROL / 2), control.add(CONTROL)) };
        Some(Ring { _region: region.clone(), tail: control.cast(), head: head.cast(), data, capacity })
    }

    fn tail(&self) -> &AtomicU64 {
        // SAFETY: inside the region, aligned, initialised by zeroing, and used as an atomic only.
        unsafe { self.tail.as_ref() }
    }

    fn head(&self) -> &AtomicU64 {
        // SAFETY: as for `tail`.
        unsafe { self.head.as_ref() }
    }

    /// The byte at a position, and how many follow it before the ring's end.
    fn place(&self, position: u64) -> (NonNull<u8>, usize) {
        let offset = (position % self.capacity as u64) as usize;
        // SAFETY: `offset` is below the capacity.
        (unsafe { self.data.add(offset) }, self.capacity - offset)
    }
}

/// The writing end. There is one for each channel.
#[derive(Debug)]
pub struct Sender {
    ring: Ring,
    tail: u64,
    /// Where the reader was last seen.
    head: u64,
}

impl Sender {
    /// The writing end of the channel at `offset`; nothing if it does not fit the region.
    pub fn new(region: &Arc<Region>, offset: usize, capacity: usize) -> Option<Sender> {
        Some(Sender { ring: Ring::new(region, offset, capacity)?, tail: 0, head: 0 })
    }

    /// Starts a message.
    pub fn begin(&mut self) {
        self.tail = aligned(self.tail);
    }

    /// Free bytes in one piece at the write position, `wanted` at most, to be written and then committed.
    pub fn room(&mut self, wanted: usize) -> &mut [u8] {
        if self.free() < wanted {
            self.head = self.ring.head().load(Ordering::Acquire);
        }
        let (place, before_end) = self.ring.place(self.tail);
        let len = wanted.min(before_end).min(self.free());
        // SAFETY: the bytes lie in the ring, and the reader has left them and does not come back before a commit.
        unsafe { std::slice::from_raw_parts_mut(place.as_ptr(), len) }
    }

    /// Hands the next `len` bytes to the reader.
    pub fn commit(&mut self, len: usize) {
        self.tail += len as u64;
        self.ring.tail().store(self.tail, Ordering::Release);
    }

    fn free(&self) -> usize {
        let used = self.tail.saturating_sub(self.head);
        (self.ring.capacity as u64).saturating_sub(used) as usize
    }
}

/// The reading end. There is one for each channel.
#[derive(Debug)]
pub struct Receiver {
    ring: Ring,
    head: u64,
    /// Where the writer was last seen.
    tail: u64,
}

impl Receiver {
    /// The reading end of the channel at `offset`; nothing if it does not fit the region.
    pub fn new(region: &Arc<Region>, offset: usize, capacity: usize) -> Option<Receiver> {
        Some(Receiver { ring: Ring::new(region, offset, capacity)?, head: 0, tail: 0 })
    }

    /// Starts a message.
    pub fn begin(&mut self) {
        self.head = aligned(self.head);
    }

    /// Bytes that have come, in one piece at the read position, `wanted` at most, to be read and then consumed.
    pub fn ready(&mut self, wanted: usize) -> &[u8] {
        if self.waiting() < wanted {
            self.tail = self.ring.tail().load(Ordering::Acquire);
        }
        let (place, before_end) = self.ring.place(self.head);
        let len = wanted.min(before_end).min(self.waiting());
        // SAFETY: the bytes lie in the ring, and the writer has left them and does not come back before they are consumed.
        unsafe { std::slice::from_raw_parts(place.as_ptr(), len) }
    }

    /// Gives the next `len` bytes back to the writer.
    pub fn consume(&mut self, len: usize) {
        self.head += len as u64;
        self.ring.head().store(self.head, Ordering::Release);
    }

    fn waiting(&self) -> usize {
        self.tail.saturating_sub(self.head).min(self.ring.capacity as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(capacity: usize) -> (Sender, Receiver) {
        let region = Arc::new(Region::zeroed(CONTROL + capacity).unwrap());
        (Sender::new(&region, 0, capacity).unwrap(), Receiver::new(&region, 0, capacity).unwrap())
    }

    #[test]
    fn bytes_arrive_in_order_while_both_ends_run() {
        let (mut sender, mut receiver) = channel(64);
        let total = 100_000u32;
        let writer = std::thread::spawn(move || {
            let mut next = 0u32;
            while next < total {
                let room = sender.room(((total - next) as usize).min(1 + next as usize % 23));
                room.iter_mut().zip(next..).for_each(|(byte, i)| *byte = (i % 251) as u8);
                let len = room.len();
                sender.commit(len);
                next += len as u32;
                if len == 0 {
                    std::thread::yield_now();
                }
            }
        });
        let mut next = 0u32;
        while next < total {
            let ready = receiver.ready(1 + next as usize % 19);
            for (byte, i) in ready.iter().zip(next..) {
                assert_eq!(*byte, (i % 251) as u8, "byte {i}");
            }
            let len = ready.len();
            receiver.consume(len);
            next += len as u32;
            if len == 0 {
                std::thread::yield_now();
            }
        }
        writer.join().unwrap();
    }

    #[test]
    fn a_full_channel_has_no_room_and_an_empty_one_nothing_ready() {
        let (mut sender, mut receiver) = channel(64);
        assert!(receiver.ready(1).is_empty());
        assert_eq!(sender.room(100).len(), 64);
        sender.commit(64);
        assert!(sender.room(1).is_empty());
        assert_eq!(receiver.ready(100).len(), 64);
        receiver.consume(16);
        assert_eq!(sender.room(100).len(), 16);
    }

    /// Elements of up to eight bytes stay in one piece whatever odd messages went before.
    #[test]
    fn messages_start_aligned_on_both_sides() {
        let (mut sender, mut receiver) = channel(64);
        for len in [3usize, 40, 1, 24, 7, 56] {
            sender.begin();
            receiver.begin();
            let mut left = len;
            while left > 0 {
                // what is free can end inside an element; what lies before the ring's end cannot
                let room = sender.room(left).len();
                let n = if room == left { room } else { room - room % 8 };
                assert!(n > 0);
                sender.commit(n);
                assert_eq!(receiver.ready(n).len(), n);
                receiver.consume(n);
                left -= n;
            }
        }
    }

    #[test]
    fn positions_out_of_order_never_leave_the_ring() {
        let (mut sender, mut receiver) = channel(64);
        receiver.consume(7); // a reader ahead of its writer
        receiver.begin();
        assert!(receiver.ready(64).is_empty());
        assert_eq!(sender.room(64).len(), 64);
        sender.commit(500); // a writer that claims more than fits
        assert!(sender.room(64).is_empty());
        assert!(receiver.ready(1000).len() <= 64);
    }
}
