//! busy: a rank is busy outside of communication, and computes.

use std::time::Instant;

use super::super::{Expectation, Family, Fault, Injector};
use super::{First, HANGS, stuck};

pub struct Busy;

impl Fault for Busy {
    fn name(&self) -> &'static str {
        "busy"
    }

    fn family(&self) -> Family {
        Family::Rank
    }

    fn deed(&self) -> &'static str {
        "computes before launch 6, until long after the deadline"
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(First(|rank| {
            let end = Instant::now() + stuck(rank);
            while Instant::now() < end {
                std::hint::spin_loop();
            }
        }))
    }

    fn expects(&self) -> Expectation {
        HANGS
    }
}
