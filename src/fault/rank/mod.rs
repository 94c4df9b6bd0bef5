//! A rank that is gone, or busy with something else than its call.
//!
//! All happens right before launch [`super::STEP`], while the others make theirs.

pub(super) mod abort;
pub(super) mod busy;
pub(super) mod exit;
pub(super) mod kill;
pub(super) mod panic;
pub(super) mod sleep;
pub(super) mod stop;
pub(super) mod straggler;

use std::time::{Duration, Instant};

use super::armed::{Injector, Rank};
use super::{Called, Detector, Expectation, Needs, STEP, Who};
use crate::backend::{Call, RankError};
use crate::trace::Class;

const PROCESS: Needs = Needs { ranks: 2, processes: true, connections: None };

const CRASHES: Expectation =
    Expectation { by: &[Detector::Death], called: Called::Class(&[Class::ECrash]), who: Who::Culprit };

const HANGS: Expectation =
    Expectation { by: &[Detector::Deadline], called: Called::Class(&[Class::EStuck]), who: Who::Culprit };

/// The culprit does something before its call, from which it may come back.
struct First(fn(&Rank<'_>));

impl Injector for First {
    fn launch(&mut self, rank: &mut Rank<'_>, calls: &[Call<'_>]) -> Result<(), RankError> {
        if rank.acts_in(STEP) {
            rank.armed();
            (self.0)(rank);
        }
        rank.station.launch(calls)
    }
}

/// How long one who is to be stuck stays so: a thread cannot be killed, and is to come back once nobody waits any more.
fn stuck(rank: &Rank<'_>) -> Duration {
    Duration::from_millis(rank.order.stuck_ms)
}

/// No dump of this process's memory is to be left behind where it ends on purpose.
fn without_core_dump() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    // a dump is only a nuisance
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: None });
}

/// What comes after a signal to oneself: nothing, where it has arrived.
fn until_it_arrives(rank: &Rank<'_>) {
    let end = Instant::now() + stuck(rank);
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
}
