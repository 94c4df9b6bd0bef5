//! Ranks as processes: they may be killed and stopped at any time, and so may their coordinator.

mod cli_support;
mod process_support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use cli_support::program;
use collcheck::report::results::{Results, read_results};
use collcheck::run::result::{CaseResult, FailKind, Outcome};
use collcheck::trace::Class;
use process_support::{children, running, send, within};
use rand::RngExt;
use rustix::process::Signal;

/// A run of three processes on the host backend.
struct Run {
    child: Child,
    json: PathBuf,
}

impl Run {
    fn start(dir: &Path, args: &[&str]) -> Run {
        let json = dir.join("results.json");
        let mut command = program();
        command.args(["run", "--backend", "host", "--layout", "processes", "--ranks", "3", "--json"]).arg(&json);
        command.args(args).stdout(Stdio::null()).stderr(Stdio::null());
        Run { child: command.spawn().unwrap(), json }
    }

    fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// The worker processes by rank, as they are started in that order; empty until all are there.
    fn workers(&self) -> Vec<i32> {
        let mut all = children(self.pid());
        all.sort_by_key(|child| child.started);
        all.into_iter().map(|child| child.pid).collect()
    }

    fn wait(&mut self) -> (Option<i32>, Results) {
        let code = self.child.wait().unwrap().code();
        (code, read_results(&self.json).unwrap())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a case that runs for minutes and one that does not; returns once the first is under way.
fn long(dir: &Path, deadline: &str) -> (Run, Vec<i32>) {
    long_over("shm", dir, deadline)
}

fn long_over(transport: &str, dir: &Path, deadline: &str) -> (Run, Vec<i32>) {
    let cases = ["all_reduce::sum::float::1MiB", "broadcast::none::int8::8B"];
    let way = ["-n", "100000", "--deadline", deadline, "--host-transport", transport];
    let run = Run::start(dir, &[&["--exact", cases[0], cases[1]], &way[..]].concat());
    within(Duration::from_secs(30), "workers that run", || {
        run.workers().len() == 3 && fs::read(dir.join("results.json.partial")).is_ok_and(|journal| !journal.is_empty())
    });
    std::thread::sleep(Duration::from_secs(2));
    let workers = run.workers();
    (run, workers)
}

fn expect(case: &CaseResult, kind: FailKind, class: Class, rank: u32) {
    let verdict = case.verdict.as_ref().unwrap();
    let found = (case.outcome, case.kind, verdict.class, &verdict.culprit_ranks[..]);
    assert_eq!(found, (Outcome::Fail, Some(kind), class, &[rank][..]), "{}", case.message);
}

#[test]
fn processes_run_what_threads_run() {
    for (transport, link) in [("shm", "host"), ("tcp", "tcp")] {
        let dir = tempfile::tempdir().unwrap();
        let cases = ["--primitive", "all", "--dtype", "half", "--op", "sum,none", "-b", "8", "-e", "256K", "-n", "2"];
        let (code, results) = Run::start(dir.path(), &[&cases[..], &["--host-transport", transport]].concat()).wait();
        let failed: Vec<&CaseResult> = results.cases.iter().filter(|case| case.outcome == Outcome::Fail).collect();
        assert_eq!((code, failed.first().map(|case| &case.message)), (Some(0), None));
        assert!(results.summary.passed > 10, "{:?}", results.summary);
        assert_eq!(results.environment.link, link);
    }
}

#[test]
fn a_killed_worker_is_a_crash_of_its_rank_and_the_next_case_runs() {
    for transport in ["shm", "tcp"] {
        a_killed_worker_over(transport);
    }
}

fn a_killed_worker_over(transport: &str) {
    let dir = tempfile::tempdir().unwrap();
    let (mut run, workers) = long_over(transport, dir.path(), "20");
    send(workers[1], Signal::KILL);
    let (code, results) = run.wait();
    expect(&results.cases[0], FailKind::Crash, Class::ECrash, 1);
    assert!(results.cases[0].message.contains("SIGKILL"), "{}", results.cases[0].message);
    // 100000 launches may not be through before the deadline; what counts is that it ran
    assert_ne!(results.cases[1].kind, Some(FailKind::Crash), "{}", results.cases[1].message);
    assert_eq!((code, workers.iter().any(|pid| running(*pid))), (Some(101), false));
}

#[test]
fn a_stopped_worker_is_stuck() {
    let dir = tempfile::tempdir().unwrap();
    let (mut run, workers) = long(dir.path(), "5");
    send(workers[2], Signal::STOP);
    let (_, results) = run.wait();
    expect(&results.cases[0], FailKind::Hang, Class::EStuck, 2);
    assert!(results.cases[0].duration_s < 15.0);
    assert!(!workers.iter().any(|pid| running(*pid)));
}

#[test]
fn workers_die_with_their_coordinator_even_if_they_are_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let (run, workers) = long(dir.path(), "60");
    send(workers[0], Signal::STOP);
    send(run.pid(), Signal::KILL);
    within(Duration::from_secs(5), "an end of all workers", || !workers.iter().any(|pid| running(*pid)));
}

#[test]
fn an_interrupted_run_ends_with_130_and_keeps_its_results() {
    let dir = tempfile::tempdir().unwrap();
    let (mut run, workers) = long(dir.path(), "60");
    send(run.pid(), Signal::INT);
    let (code, results) = run.wait();
    assert_eq!((code, results.cases.len(), results.finished.is_some()), (Some(130), 2, true));
    assert!(!workers.iter().any(|pid| running(*pid)));
}

/// A thousand cases while workers are killed and stopped at random.
#[test]
fn every_case_is_accounted_for_once_whatever_happens_to_workers() {
    const CASES: usize = 1000;
    let dir = tempfile::tempdir().unwrap();
    let suite = dir.path().join("chaos.toml");
    let text = r#"
name = "chaos"
description = "small cases"

[[cases]]
primitives = ["all_reduce", "broadcast", "alltoall", "sendrecv"]
ops = ["sum", "max"]
dtypes = "all"
sizes = [8, 16, 24, 40, 64, 100, 128, 256, 500, 1000, 1024, 2000, 2048, 4000, 4096, 16384, 65536]
"#;
    fs::write(&suite, text).unwrap();
    let mut run = Run::start(dir.path(), &["--suite", suite.to_str().unwrap(), "-n", "3", "--deadline", "1"]);
    let mut seen = BTreeSet::new();
    let mut hits = 0;
    let mut random = rand::rng();
    while run.child.try_wait().unwrap().is_none() {
        let workers = run.workers();
        // who has been there a while is past the set-up, which has a much longer deadline
        let old: Vec<i32> = workers.iter().copied().filter(|pid| seen.contains(pid)).collect();
        if !old.is_empty() {
            let victim = old[random.random_range(0..old.len())];
            send(victim, if random.random_bool(0.2) { Signal::STOP } else { Signal::KILL });
            hits += 1;
        }
        seen.extend(workers);
        std::thread::sleep(Duration::from_millis(random.random_range(80..300)));
    }
    let (code, results) = run.wait();
    let names: BTreeSet<&str> = results.cases.iter().map(|case| case.name.as_str()).collect();
    assert!(results.cases.len() >= CASES && names.len() == results.cases.len(), "{} cases", results.cases.len());
    for case in &results.cases {
        let allowed = match case.outcome {
            Outcome::Pass => true,
            Outcome::Fail => matches!(case.kind, Some(FailKind::Crash | FailKind::Hang)) && case.verdict.is_some(),
            Outcome::Skip => false,
        };
        assert!(allowed, "{}: {:?}: {}", case.name, case.kind, case.message);
    }
    let summary = results.summary;
    assert_eq!(summary.cases, results.cases.len() as u64);
    assert!(hits >= 10 && summary.failed >= 5 && summary.passed >= 100, "{hits} hits, {summary:?}");
    assert_eq!(code, Some(101));
    assert!(!seen.iter().any(|pid| running(*pid)));
}
