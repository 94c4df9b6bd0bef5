//! Threads that are stuck in a library, and what becomes of the cases behind the one that they are stuck in.
//!
//! It has no harness of the compiler's, as this program starts itself again for each rank.

mod fleet_support;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use collcheck::backend::{Backend, Environment, Making, Opening, Recipe, Station};
use collcheck::case::Case;
use collcheck::cli;
use collcheck::run::result::{FailKind, Outcome};
use fleet_support::{Fault, Faulty, Misdeed, plan, run};
use libtest_mimic::{Arguments, Failed, Trial};

const DEADLINE: Duration = Duration::from_secs(1);

/// Longer than anybody waits for a thread.
const STUCK: Misdeed = Misdeed::Sleep(Duration::from_secs(3600));

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|arg| arg == "worker") {
        return cli::main(std::env::args_os()).into();
    }
    let trial = |name: &str, test: fn()| {
        Trial::test(name, move || {
            test();
            Ok::<(), Failed>(())
        })
    };
    let trials = vec![
        trial("behind_threads_that_are_stuck_ranks_are_processes", behind_threads_that_are_stuck_ranks_are_processes),
        trial("where_ranks_cannot_be_processes_they_stay_threads", where_ranks_cannot_be_processes_they_stay_threads),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// [`Faulty`], whose ranks can be processes as well: they have no fault there, and nothing can be opened in this process any
/// more once a thread is stuck.
struct Library {
    faulty: Arc<Faulty>,
    opened: AtomicU32,
}

impl Backend for Library {
    fn environment(&self) -> Environment {
        self.faulty.environment()
    }

    fn memory_per_rank(&self) -> Option<u64> {
        self.faulty.memory_per_rank()
    }

    fn open(&self, cases: &[Case], making: &Making) -> Result<Vec<Box<dyn Station>>, Opening> {
        let before = self.opened.fetch_add(1, Ordering::Relaxed);
        assert_eq!(before, 0, "the process is stuck, and was asked again");
        self.faulty.open(cases, making)
    }

    fn recipe(&self, making: &Making) -> Result<Recipe, Opening> {
        self.faulty.inner.recipe(making)
    }

    fn disturb(&self, station: Box<dyn Station>) -> Box<dyn Station> {
        self.faulty.disturb(station)
    }
}

const CASES: [&str; 3] =
    ["all_reduce::sum::float::64KiB", "all_gather::none::int8::1KiB", "reduce::max::half::4KiB@root2"];

fn faulty() -> Arc<Faulty> {
    Faulty::new(3, Some(Fault { rank: 1, launch: 1, misdeed: STUCK }))
}

fn behind_threads_that_are_stuck_ranks_are_processes() {
    let run = run(Arc::new(Library { faulty: faulty(), opened: 0.into() }), plan(&CASES, DEADLINE));
    let [first, rest @ ..] = &run.results[..] else { panic!("no results") };
    assert_eq!((first.outcome, first.kind), (Outcome::Fail, Some(FailKind::Hang)), "{}", first.message);
    assert!(first.message.contains("\nrecovery: threads are stuck in the library"), "{}", first.message);
    for next in rest {
        assert_eq!(next.outcome, Outcome::Pass, "{}: {}", next.name, next.message);
        assert!(!next.message.contains("recovery"), "{}", next.message);
        assert!(next.reference.note.contains("beside threads that are stuck"), "{:?}", next.reference);
    }
    assert_eq!(run.ended.aborted, None);
    assert!(run.seconds[0] < DEADLINE.as_secs_f64() + 15.0, "{:?}", run.seconds);
}

fn where_ranks_cannot_be_processes_they_stay_threads() {
    let run = run(faulty(), plan(&CASES, DEADLINE));
    assert!(!run.results[0].message.contains("recovery"), "{}", run.results[0].message);
    assert!(run.results[1..].iter().all(|result| result.outcome == Outcome::Pass));
}
