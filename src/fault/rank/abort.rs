//! abort: the process of a rank aborts, as on a failed assertion.

use super::super::{Expectation, Family, Fault, Injector, Needs};
use super::{CRASHES, First, PROCESS, without_core_dump};

pub struct Abort;

impl Fault for Abort {
    fn name(&self) -> &'static str {
        "abort"
    }

    fn family(&self) -> Family {
        Family::Rank
    }

    fn deed(&self) -> &'static str {
        "aborts before launch 6"
    }

    fn needs(&self) -> Needs {
        PROCESS
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(First(|_| {
            without_core_dump();
            std::process::abort();
        }))
    }

    fn expects(&self) -> Expectation {
        CRASHES
    }
}
