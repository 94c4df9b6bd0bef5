//! exit: a rank ends its process with status 0 while the others still call: it holds that all is done.

use super::super::{Expectation, Family, Fault, Injector, Needs};
use super::{CRASHES, First, PROCESS};

pub struct Exit;

impl Fault for Exit {
    fn name(&self) -> &'static str {
        "exit"
    }

    fn family(&self) -> Family {
        Family::Rank
    }

    fn deed(&self) -> &'static str {
        "exits with status 0 before launch 6"
    }

    fn needs(&self) -> Needs {
        PROCESS
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(First(|_| std::process::exit(0)))
    }

    fn expects(&self) -> Expectation {
        CRASHES
    }
}
