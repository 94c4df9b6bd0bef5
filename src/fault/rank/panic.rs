//! panic: a rank's thread unwinds. A thread takes its rank with it, a process ends.

use super::super::{Expectation, Family, Fault, Injector};
use super::{CRASHES, First};

pub struct Panic;

impl Fault for Panic {
    fn name(&self) -> &'static str {
        "panic"
    }

    fn family(&self) -> Family {
        Family::Rank
    }

    fn deed(&self) -> &'static str {
        "panics before launch 6"
    }

    fn injector(&self) -> Box<dyn Injector> {
        // without the hook, which would print to the standard error
        Box::new(First(|_| std::panic::resume_unwind(Box::new("a deliberate fault"))))
    }

    fn expects(&self) -> Expectation {
        CRASHES
    }
}
