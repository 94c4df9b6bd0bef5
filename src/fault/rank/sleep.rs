//! sleep: a rank is busy outside of communication, and waits there: a checkpoint, a lock, a data loader.

use super::super::{Expectation, Family, Fault, Injector};
use super::{First, HANGS, stuck};

pub struct Sleep;

impl Fault for Sleep {
    fn name(&self) -> &'static str {
        "sleep"
    }

    fn family(&self) -> Family {
        Family::Rank
    }

    fn deed(&self) -> &'static str {
        "sleeps before launch 6, until long after the deadline"
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(First(|rank| std::thread::sleep(stuck(rank))))
    }

    fn expects(&self) -> Expectation {
        HANGS
    }
}
