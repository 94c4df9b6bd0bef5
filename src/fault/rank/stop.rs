//! stop: the process of a rank is stopped, as by a debugger or a scheduler.

use rustix::process::{Signal, getpid, kill_process};

use super::super::{Expectation, Family, Fault, Injector, Needs};
use super::{First, HANGS, PROCESS, until_it_arrives};

pub struct Stop;

impl Fault for Stop {
    fn name(&self) -> &'static str {
        "stop"
    }

    fn family(&self) -> Family {
        Family::Rank
    }

    fn deed(&self) -> &'static str {
        "is stopped by SIGSTOP before launch 6"
    }

    fn needs(&self) -> Needs {
        PROCESS
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(First(|rank| {
            // it cannot fail: the process is there, and it is its own
            let _ = kill_process(getpid(), Signal::STOP);
            until_it_arrives(rank);
        }))
    }

    fn expects(&self) -> Expectation {
        HANGS
    }
}
