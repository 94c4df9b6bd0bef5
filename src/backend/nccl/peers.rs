//! What the stations of one communicator share: whether it is lost, and a place to meet.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::backend::sockets::own::Snapshot;

/// How often one who waits looks whether the others can still come.
const LOOK: Duration = Duration::from_millis(20);

/// Shared by all stations of a communicator.
#[derive(Debug)]
pub struct Peers {
    /// Set by the first station whose communicator or GPU is lost; its peers then stop waiting for it.
    lost: AtomicBool,
    meeting: Mutex<Meeting>,
    changed: Condvar,
    stations: usize,
    /// Where the stations of other processes are met.
    apart: Option<Apart>,
    /// The sockets of this process before the communicator was made, where they could be told.
    before: Option<Snapshot>,
}

/// Waits until every station has said yes or no; true if all said yes.
pub type Assembly = Box<dyn Fn(bool) -> bool + Send + Sync>;

/// An assembly, which shows as nothing else.
struct Apart(Assembly);

impl fmt::Debug for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Apart")
    }
}

#[derive(Debug, Default)]
struct Meeting {
    arrived: usize,
    objections: usize,
    round: u64,
    /// What the last complete round came to.
    agreed: bool,
}

impl Peers {
    /// For so many stations of one process.
    pub fn new(stations: usize) -> Peers {
        let (lost, meeting, changed) = (AtomicBool::new(false), Mutex::default(), Condvar::new());
        Peers { lost, meeting, changed, stations, apart: None, before: None }
    }

    /// For the one station of this process. What it loses, others are told by whoever watches the processes.
    pub fn apart(assembly: Assembly) -> Peers {
        Peers { apart: Some(Apart(assembly)), ..Peers::new(1) }
    }

    /// The same, for a communicator that was made after there were these sockets.
    pub fn since(self, before: Option<Snapshot>) -> Peers {
        Peers { before, ..self }
    }

    /// The sockets of this process before the communicator was made.
    pub fn before(&self) -> Option<&Snapshot> {
        self.before.as_ref()
    }

    /// Whether other stations are in other processes.
    pub fn are_apart(&self) -> bool {
        self.apart.is_some()
    }

    /// Whether the communicator is lost.
    pub fn lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Tells all that it is.
    pub fn lose(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    /// Waits until every station has said yes or no; true if all said yes. False too where the communicator is lost
    /// meanwhile: then not all may come.
    pub fn all(&self, yes: bool) -> bool {
        if let Some(Apart(assembly)) = &self.apart {
            return assembly(yes);
        }
        let mut meeting = self.meeting.lock().unwrap_or_else(PoisonError::into_inner);
        meeting.arrived += 1;
        meeting.objections += usize::from(!yes);
        if meeting.arrived >= self.stations {
            let agreed = meeting.objections == 0;
            *meeting = Meeting { arrived: 0, objections: 0, round: meeting.round + 1, agreed };
            self.changed.notify_all();
            return agreed;
        }
        let round = meeting.round;
        while meeting.round == round {
            if self.lost() {
                meeting.arrived -= 1;
                meeting.objections -= usize::from(!yes);
                return false;
            }
            let waited = self.changed.wait_timeout(meeting, LOOK);
            meeting = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(meeting, _)| meeting);
        }
        meeting.agreed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_objection_is_heard_by_all_and_forgotten_in_the_next_round() {
        let peers = Peers::new(3);
        for objector in [Some(2), None, Some(0)] {
            let heard: Vec<bool> = std::thread::scope(|scope| {
                let peers = &peers;
                let threads: Vec<_> =
                    (0..3).map(|station| scope.spawn(move || peers.all(objector != Some(station)))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(heard, [objector.is_none(); 3]);
        }
    }

    #[test]
    fn stations_of_other_processes_are_asked_where_they_meet() {
        let peers = Peers::apart(Box::new(|yes| !yes));
        assert!(peers.all(false) && !peers.all(true));
    }

    #[test]
    fn nobody_waits_for_those_of_a_lost_communicator() {
        let peers = Peers::new(2);
        peers.lose();
        assert!(!peers.all(true));
        assert!(Peers::new(1).all(true));
    }
}
