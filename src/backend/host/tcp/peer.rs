//! One other rank, and the state of the way to it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::line::Line;
use crate::backend::sockets::filter;

/// What a channel may have earned while nothing was to be sent: sleeps are no longer than that.
const SLACK: Duration = Duration::from_millis(1);

/// Longest stretch of time that is sent for at once.
const STRETCH: Duration = Duration::from_millis(2);

/// Another rank as one rank sees it. Damage to the way outlives single connections.
#[derive(Debug)]
pub struct Peer {
    /// Who.
    pub rank: usize,
    /// Where it listens.
    pub address: SocketAddr,
    cut: AtomicBool,
    /// Bytes a second; 0 is as fast as it goes.
    rate: AtomicU64,
    delay_us: AtomicU64,
    /// By when the bytes sent so far have passed at the rate set. All channels to the peer share it.
    passed: Mutex<Option<Instant>>,
    lines: Mutex<Vec<Weak<Line>>>,
}

impl Peer {
    /// Undamaged.
    pub fn new(rank: usize, address: SocketAddr) -> Peer {
        Peer {
            rank,
            address,
            cut: AtomicBool::new(false),
            rate: AtomicU64::new(0),
            delay_us: AtomicU64::new(0),
            passed: Mutex::new(None),
            lines: Mutex::default(),
        }
    }

    /// A new connection with it, which shares what was done to others.
    pub fn add(&self, line: &Arc<Line>) {
        let mut lines = self.registered();
        lines.retain(|line| line.strong_count() > 0);
        lines.push(Arc::downgrade(line));
        // Filters go where the first ones went; a kernel without them has said so then.
        if self.is_cut() {
            let _ = filter::cut(line.as_ref());
        }
    }

    /// All connections with it.
    pub fn lines(&self) -> Vec<Arc<Line>> {
        self.registered().iter().filter_map(Weak::upgrade).collect()
    }

    fn registered(&self) -> MutexGuard<'_, Vec<Weak<Line>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing passes any more.
    pub fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire)
    }

    pub fn set_cut(&self) {
        self.cut.store(true, Ordering::Release);
    }

    pub fn set_rate(&self, bytes_per_s: u64) {
        self.rate.store(bytes_per_s, Ordering::Release);
    }

    /// How long data is held back before it is sent.
    pub fn delay(&self) -> Duration {
        Duration::from_micros(self.delay_us.load(Ordering::Acquire))
    }

    pub fn set_delay(&self, us: u64) {
        self.delay_us.store(us, Ordering::Release);
    }

    /// There is something to send again after a while of nothing: the while does not count.
    pub fn resume(&self, now: Instant) {
        if self.rate.load(Ordering::Acquire) > 0 {
            let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
            *passed = (*passed).max(now.checked_sub(SLACK));
        }
    }

    /// Bytes that the rate lets pass now.
    pub fn allowed(&self, now: Instant) -> usize {
        let rate = self.rate.load(Ordering::Acquire);
        if rate == 0 {
            return usize::MAX;
        }
        let passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        let ahead = passed.is_none_or(|passed| passed <= now);
        // a byte at least, at any rate
        if ahead { ((rate as f64 * STRETCH.as_secs_f64()) as usize).max(1) } else { 0 }
    }

    /// So many were sent.
    pub fn sent(&self, bytes: usize, now: Instant) {
        let rate = self.rate.load(Ordering::Acquire);
        if rate > 0 && bytes > 0 {
            let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
            let lasts = Duration::try_from_secs_f64(bytes as f64 / rate as f64).unwrap_or(Duration::MAX);
            *passed = passed.unwrap_or(now).checked_add(lasts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_over_time_and_idle_time_earns_nothing() {
        let peer = Peer::new(0, "127.0.0.1:1".parse().unwrap());
        let start = Instant::now();
        assert_eq!(peer.allowed(start), usize::MAX);
        peer.set_rate(1_000_000);
        let mut total = 0;
        let mut over = |from: u64, to: u64| {
            peer.resume(start + Duration::from_millis(from));
            total = 0;
            for ms in from..to {
                let now = start + Duration::from_millis(ms);
                // several looks in one millisecond, as when it was late before
                for _ in 0..8 {
                    let bytes = peer.allowed(now);
                    peer.sent(bytes, now);
                    total += bytes;
                }
            }
            total
        };
        let (first, second) = (over(0, 100), over(5000, 5100));
        for total in [first, second] {
            assert!((98_000..=104_000).contains(&total), "{total} bytes in 100 ms at 1 MB/s");
        }
    }
}
