//! The harness notices every deliberate fault, names it, and goes on: on the host backend, with threads and with processes.

mod cli_support;

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use cli_support::program;
use collcheck::backend::host::HostBackend;
use collcheck::backend::{Backend, Layout, Making};
use collcheck::case::Case;
use collcheck::fault::{CATALOGUE, Detector, Family, Kind, Method, Order};
use collcheck::fleet::protocol::Request;
use collcheck::fleet::team::{Ended, Team, Watch, Workers};
use collcheck::report::results::{Results, read_results};
use collcheck::run::result::{CaseResult, FailKind, Outcome};
use collcheck::trace::Class;

/// Marks processes of one run, workers included, by a variable that they inherit.
const MARK: &str = "FAULT_TEST_RUN";

/// Runs cases of the suite, and returns how it ended. No process may be left of it.
fn run(layout: &str, ranks: u32, more: &[&str]) -> (Option<i32>, Results) {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("results.json");
    let mark = dir.path().display().to_string();
    let mut command = program();
    command.args(["run", "--suite", "faults", "--backend", "host", "--layout", layout]);
    command.args(["--ranks", &ranks.to_string(), "--json"]).arg(&json).args(more);
    command.env(MARK, &mark).stdout(Stdio::null()).stderr(Stdio::null());
    let code = command.status().unwrap().code();
    let marked = format!("{MARK}={mark}");
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&environment).contains(&marked), "{:?} is left behind", entry.path());
    }
    (code, read_results(&json).unwrap())
}

fn fault(case: &CaseResult) -> Kind {
    case.name.parse::<Case>().unwrap().fault().unwrap()
}

fn names(results: &Results, outcome: Outcome) -> BTreeSet<String> {
    results.cases.iter().filter(|case| case.outcome == outcome).map(|case| fault(case).to_string()).collect()
}

/// Every fault of the catalogue was found, but for those that cannot be had, which say why.
fn found_all_but(code: Option<i32>, results: &Results, lacking: &[&str]) {
    let failed = results.cases.iter().filter(|case| case.outcome == Outcome::Fail);
    let failed: Vec<String> = failed.map(|case| format!("{}: {}", case.name, case.message)).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    assert_eq!(code, Some(0));
    assert_eq!(names(results, Outcome::Skip), lacking.iter().map(|name| (*name).to_owned()).collect());
    let all: BTreeSet<String> = CATALOGUE.iter().map(|fault| fault.name().to_owned()).collect();
    let seen: BTreeSet<String> = results.cases.iter().map(|case| fault(case).to_string()).collect();
    assert_eq!(seen, all);
    for case in results.cases.iter().filter(|case| case.outcome == Outcome::Pass) {
        let record = case.fault.as_ref().unwrap();
        assert_eq!(record.armed.first().map(|deed| deed.rank), Some(1), "{}", case.name);
        assert!(!record.noticed_by.is_empty() && !record.class.is_empty(), "{}: {record:?}", case.name);
    }
}

/// A thread cannot be killed or stopped without its process.
const OF_PROCESSES: [&str; 4] = ["abort", "exit", "kill", "stop"];

#[test]
fn every_fault_is_found_among_four_threads() {
    let (code, results) = run("threads", 4, &[]);
    found_all_but(code, &results, &OF_PROCESSES);
}

#[test]
fn every_fault_is_found_among_three_processes_and_none_is_left_behind() {
    let (code, results) = run("processes", 3, &[]);
    found_all_but(code, &results, &[]);
}

/// Without a majority, what came before decides.
#[test]
fn every_fault_is_found_between_two_threads() {
    let (code, results) = run("threads", 2, &[]);
    found_all_but(code, &results, &["abort", "exit", "kill", "peer", "stop"]);
}

/// Over connections the other ranks see that a rank has ended, as an error that is none of theirs.
#[test]
fn faults_keep_their_names_where_all_ranks_are_connected() {
    let chosen =
        ["size", "count", "unpaired", "kill", "exit", "panic", "stop", "sleep", "flip", "cut", "reset", "nranks"];
    let suite: Vec<String> = chosen.iter().map(|name| case_of(name)).collect();
    for (layout, lacking) in [("processes", &["nranks"][..]), ("threads", &["exit", "kill", "stop"])] {
        let mut arguments = vec!["--host-transport", "tcp", "--exact"];
        arguments.extend(suite.iter().map(String::as_str));
        let (code, results) = run(layout, 4, &arguments);
        let failed = results.cases.iter().filter(|case| case.outcome == Outcome::Fail);
        let failed: Vec<String> = failed.map(|case| format!("{}: {}", case.name, case.message)).collect();
        assert!(failed.is_empty(), "{layout}: {}", failed.join("\n\n"));
        assert_eq!((code, results.cases.len()), (Some(0), chosen.len()));
        // ranks that share no memory have no place to make one more communicator
        assert_eq!(names(&results, Outcome::Skip), lacking.iter().map(|name| (*name).to_owned()).collect());
    }
}

/// Where a call is between two ranks, what is broken is the way between them; and the control passes over a new one.
#[test]
fn a_broken_way_between_two_ranks_is_named_by_both_ends() {
    let [cut, reset] = ["cut", "reset"].map(|name| format!("sendrecv::none::float::64KiB@fault-{name}"));
    for (layout, ranks, seed, ends) in [
        ("threads", 4, "0", [0, 1]),
        ("threads", 2, "0", [0, 1]),
        ("processes", 3, "0", [0, 1]),
        ("threads", 5, "2", [2, 3]),
    ] {
        let (code, results) = run(layout, ranks, &["--seed", seed, "--exact", &cut, &reset]);
        assert_eq!((code, names(&results, Outcome::Pass).len()), (Some(0), 2), "{layout}, {ranks} ranks");
        for case in &results.cases {
            let record = case.fault.as_ref().unwrap();
            assert_eq!(record.class, "F.fabric");
            // who was told of a reset depends on who was sending
            let told = if record.culprits.is_empty() && case.name == reset { &ends[..] } else { &record.culprits };
            assert_eq!(told, ends, "{layout}, {ranks} ranks: {record:?}");
            let expected: &[Detector] = if case.name == cut { &[Detector::Deadline] } else { &[Detector::Error] };
            assert_eq!(record.noticed_by, expected);
        }
    }
}

/// A communicator that is not made costs neither the case's own nor the wait for its deadline.
#[test]
fn ranks_that_do_not_agree_how_many_they_are_are_told_within_their_own_limit() {
    for layout in ["threads", "processes"] {
        let (code, results) = run(layout, 3, &["--lab", "fault-nranks"]);
        let case = results.cases.first().unwrap();
        assert_eq!((code, case.kind), (Some(101), Some(FailKind::Error)), "{layout}: {}", case.message);
        let verdict = case.verdict.as_ref().unwrap();
        assert_eq!((verdict.class, &verdict.culprit_ranks[..]), (Class::Init, &[1][..]), "{layout}");
        assert!(case.message.contains("rank 1 asks for 4 ranks"), "{layout}: {}", case.message);
        assert!(case.duration_s < 1.4, "{layout}: {} s", case.duration_s);
    }
}

#[test]
fn the_seed_moves_the_culprit_but_never_to_the_root() {
    for (seed, rank) in [("1", 2), ("2", 3), ("3", 1)] {
        let (code, results) =
            run("threads", 4, &["--seed", seed, "fault-flip", "fault-nan", "fault-op", "fault-panic"]);
        assert_eq!((code, names(&results, Outcome::Pass).len()), (Some(0), 4));
        for case in &results.cases {
            assert_eq!(case.fault.as_ref().unwrap().culprits, [rank], "{}", case.name);
        }
    }
}

/// In the lab a fault is a failure like any other, with the whole diagnosis.
#[test]
fn in_the_lab_a_fault_fails_as_what_it_is() {
    let (code, results) = run("threads", 4, &["--lab", "fault-size", "fault-op", "fault-flip"]);
    assert_eq!((code, names(&results, Outcome::Fail).len(), results.cases.len()), (Some(101), 3, 3));
    let message = |name: &str| {
        let case = results.cases.iter().find(|case| fault(case).to_string() == name).unwrap();
        (case.kind, case.message.as_str())
    };
    let (kind, size) = message("size");
    assert!(
        kind == Some(FailKind::Hang) && size.contains("A.size") && size.contains("\ncall 6 side by side:"),
        "{size}"
    );
    let (kind, op) = message("op");
    assert!(kind == Some(FailKind::Data) && op.contains("\ncalls differ: B.order"), "{op}");
    let (kind, flip) = message("flip");
    assert!(kind == Some(FailKind::Data) && !flip.contains("calls differ"), "{flip}");
}

/// A run without one detector fails for the faults that only it notices, and for no others.
#[test]
fn each_detector_is_needed() {
    let alone = |fault: &str, by| fault.parse::<Kind>().unwrap().fault().expects().by == [by];
    let some = ["flip", "overrun", "clobbered", "nan", "sleep", "panic", "op", "dip"];
    for blind in Detector::ALL {
        let with_it: Vec<&str> = CATALOGUE
            .iter()
            .map(|f| f.name())
            .filter(|name| alone(name, blind) && !OF_PROCESSES.contains(name))
            .collect();
        let chosen: BTreeSet<&str> = with_it.iter().chain(&some).copied().collect();
        let suite: Vec<String> = chosen.iter().map(|name| case_of(name)).collect();
        let mut arguments = vec!["--blind", blind.name(), "--exact"];
        arguments.extend(suite.iter().map(String::as_str));
        let (code, results) = run("threads", 3, &arguments);
        assert_eq!(
            names(&results, Outcome::Fail),
            with_it.iter().map(|n| (*n).to_owned()).collect(),
            "without {blind}"
        );
        assert_eq!((code, names(&results, Outcome::Skip).len()), (Some(101), 0), "without {blind}");
    }
}

/// The suite's case with this fault.
fn case_of(name: &str) -> String {
    let text = String::from_utf8(program().args(["list", "--suite", "faults"]).output().unwrap().stdout).unwrap();
    text.lines().find(|line| line.ends_with(&format!("@fault-{name}"))).unwrap().to_owned()
}

/// The right order is right every time, or the race would prove nothing.
#[test]
fn controls_of_races_pass_a_hundred_times_of_a_hundred() {
    std::thread::scope(|scope| {
        for fault in CATALOGUE.iter().filter(|fault| fault.family() == Family::Race) {
            assert_eq!(fault.method(), Method::Ordered);
            scope.spawn(move || in_order(fault.name()));
        }
    });
}

fn in_order(name: &str) {
    let case: Case = "all_reduce::sum::float::1KiB".parse().unwrap();
    let host = HostBackend::new(&Layout { ranks: 3, ranks_per_thread: 1, ranks_per_gpu: 1 }).unwrap();
    let backend: Arc<dyn Backend> = Arc::new(host);
    let never = AtomicBool::new(false);
    let limit = Duration::from_secs(60);
    let Ok(mut team) = Team::start(&backend, vec![case.clone()], &Making::default(), limit, &never) else {
        panic!("no team")
    };
    let order = Order { kind: name.parse().unwrap(), culprit: 1, ordered: true, stuck_ms: 0, delay_us: 0 };
    for epoch in 1..=100 {
        let request = Request {
            case: case.clone(),
            ranks: 3,
            seed: 0,
            epoch,
            warmup: 0,
            iters: 1,
            check: true,
            tamper: None,
            fault: Some(order),
        };
        let Ended::Reported(reports) =
            team.run(&request, &mut Watch { deadline: limit, interrupt: &never, said: &mut Vec::new })
        else {
            panic!("{name}: no end")
        };
        for report in reports {
            assert_eq!(report.error, None, "{name}");
            for m in &report.placements {
                assert_eq!(m.output.as_ref().map(|v| v.wrong), Some(0), "{name}, run {epoch}, rank {}", report.rank);
            }
        }
    }
}
