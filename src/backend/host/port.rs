//! One rank's end of one communicator, for those of the rank's threads that launch on it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::transport::Links;
use super::wait::{Abort, Waiter};
use crate::backend::RankError;

/// Links that are used by one launch at a time, in the order in which the launches were made, as a communicator of NCCL's
/// is whatever streams its launches are on.
#[derive(Debug)]
pub(super) struct Port {
    links: Mutex<Links>,
    line: Mutex<Line>,
    abort: Abort,
    ranks: usize,
}

/// Launches that are not done, the first of which has the links.
#[derive(Debug, Default)]
struct Line {
    last: u64,
    waiting: VecDeque<u64>,
}

impl Port {
    pub(super) fn new(links: Links) -> Arc<Port> {
        let (abort, ranks) = (links.waiter.abort().clone(), links.ranks);
        Arc::new(Port { links: Mutex::new(links), line: Mutex::default(), abort, ranks })
    }

    /// The flag that ends its waits.
    pub(super) fn abort(&self) -> &Abort {
        &self.abort
    }

    /// Ranks of the communicator.
    pub(super) fn ranks(&self) -> usize {
        self.ranks
    }

    /// A turn behind all that were booked before.
    pub(super) fn book(self: &Arc<Port>) -> Turn {
        let mut line = self.line();
        line.last += 1;
        let number = line.last;
        line.waiting.push_back(number);
        drop(line);
        Turn { port: Arc::clone(self), number }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A launch's turn. It is over, also where it was not taken, when this is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    port: Arc<Port>,
    number: u64,
}

impl Turn {
    /// Waits until it comes, and uses the links.
    pub(super) fn take<T>(self, work: impl FnOnce(&mut Links) -> Result<T, RankError>) -> Result<T, RankError> {
        let mut waiter = Waiter::new(self.port.abort.clone());
        while self.port.line().waiting.front() != Some(&self.number) {
            waiter.pause()?;
        }
        self.port.abort.check()?;
        work(&mut self.port.links.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.port.line().waiting.retain(|number| *number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::super::memory::Region;
    use super::super::transport::Geometry;
    use super::*;

    fn port() -> Arc<Port> {
        let geometry = Geometry::new(1);
        let region = Arc::new(Region::zeroed(geometry.bytes().unwrap()).unwrap());
        Port::new(Links::new(&region, geometry, 0).unwrap())
    }

    #[test]
    fn turns_come_in_the_order_in_which_they_were_booked() {
        let port = port();
        let (first, dropped, last) = (port.book(), port.book(), port.book());
        let (tell, told) = channel();
        let tell_too = tell.clone();
        let late = std::thread::spawn(move || last.take(|_| Ok(tell.send("last"))));
        std::thread::sleep(Duration::from_millis(20));
        drop(dropped);
        first.take(|_| Ok(tell_too.send("first"))).unwrap().unwrap();
        late.join().unwrap().unwrap().unwrap();
        assert_eq!(told.iter().take(2).collect::<Vec<_>>(), ["first", "last"]);
    }

    #[test]
    fn an_abort_ends_the_wait_for_a_turn() {
        let port = port();
        let (_held, waits) = (port.book(), port.book());
        let abort = port.abort().clone();
        let waiting = std::thread::spawn(move || waits.take(|_| Ok(())));
        abort.raise();
        assert_eq!(waiting.join().unwrap(), Err(RankError::Aborted));
    }
}
