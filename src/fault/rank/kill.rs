//! kill: the process of a rank is killed, as by the kernel when memory runs out.

use rustix::process::{Signal, getpid, kill_process};

use super::super::{Expectation, Family, Fault, Injector, Needs};
use super::{CRASHES, First, PROCESS, until_it_arrives};

pub struct Kill;

impl Fault for Kill {
    fn name(&self) -> &'static str {
        "kill"
    }

    fn family(&self) -> Family {
        Family::Rank
    }

    fn deed(&self) -> &'static str {
        "is killed by SIGKILL before launch 6"
    }

    fn needs(&self) -> Needs {
        PROCESS
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(First(|rank| {
            // it cannot fail: the process is there, and it is its own
            let _ = kill_process(getpid(), Signal::KILL);
            until_it_arrives(rank);
        }))
    }

    fn expects(&self) -> Expectation {
        CRASHES
    }
}
