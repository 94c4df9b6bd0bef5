//! Cases with a forced path: processes of their own, and what the command line makes of them.

mod cli_support;

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cli_support::{refused, run};
use collcheck::backend::host::HostBackend;
use collcheck::backend::{Backend, Environment, Layout, Making, Opening, Station};
use collcheck::case::Case;
use collcheck::reference::References;
use collcheck::run::engine;
use collcheck::run::event::{Consumer, Event};
use collcheck::run::path::Relaunch;
use collcheck::run::plan::{LayoutChoice, RunPlan};
use collcheck::run::result::{CaseResult, FailKind, Outcome};
use libtest_mimic::Arguments;

/// The host backend under NCCL's name: so the parent sends forced paths to children, which are real ones.
struct Named(HostBackend);

impl Backend for Named {
    fn environment(&self) -> Environment {
        Environment { backend: "nccl".to_owned(), ..self.0.environment() }
    }

    fn memory_per_rank(&self) -> Option<u64> {
        self.0.memory_per_rank()
    }

    fn open(&self, cases: &[Case], making: &Making) -> Result<Vec<Box<dyn Station>>, Opening> {
        self.0.open(cases, making)
    }
}

#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<CaseResult>>>);

impl Consumer for Kept {
    fn take(&mut self, event: &Event) -> anyhow::Result<()> {
        if let Event::CaseFinished { result } = event {
            self.0.lock().unwrap().push((**result).clone());
        }
        Ok(())
    }
}

const FORCED: [&str; 2] = ["all_reduce::sum::float::8B@ring+ll", "all_reduce::sum::int8::1KiB@ring+ll"];

/// Runs a plain case between two forced ones; the results in the order in which they came.
fn results(program: &str, arguments: &[&str]) -> Vec<CaseResult> {
    let cases = [FORCED[0], "all_reduce::sum::float::8B", FORCED[1]];
    let plan = RunPlan {
        cases: cases.map(|name| name.parse().unwrap()).to_vec(),
        iters: 1,
        warmup: 0,
        check: true,
        seed: 0,
        repeat: 1,
        soak: None,
        layout: LayoutChoice::Threads,
        deadline: None,
        fail_fast: false,
        tamper: None,
        lab: false,
        blind: None,
        references: Vec::new(),
        require_reference: false,
        path: false,
        relaunch: Some(Relaunch {
            program: PathBuf::from(program),
            arguments: arguments.iter().map(|a| (*a).to_owned()).collect(),
        }),
    };
    let layout = Layout { ranks: 2, ranks_per_thread: 1, ranks_per_gpu: 1 };
    let backend = Arc::new(Named(HostBackend::new(&layout).unwrap()));
    let kept = Kept::default();
    let quiet = Arguments { test_threads: Some(1), logfile: Some("/dev/null".to_owned()), ..Arguments::default() };
    engine::run(
        Vec::new(),
        plan,
        backend,
        References::default(),
        vec![Box::new(kept.clone())],
        &quiet,
        Default::default(),
    );
    let results = kept.0.lock().unwrap();
    results.clone()
}

const PROGRAM: &str = env!("CARGO_BIN_EXE_collcheck");

#[test]
fn a_child_runs_the_cases_of_a_path_and_its_results_are_the_runs() {
    let results = results(PROGRAM, &["run", "--backend", "host", "--ranks", "2", "--format", "json", "--exact"]);
    let names: Vec<&str> = results.iter().map(|r| r.name.as_str()).collect();
    assert_eq!(names, ["all_reduce::sum::float::8B", FORCED[0], FORCED[1]]);
    assert_eq!(results[0].outcome, Outcome::Pass);
    for forced in &results[1..] {
        // only the child knows that it is on the host backend
        assert_eq!(forced.outcome, Outcome::Skip);
        assert_eq!(forced.message, "paths can be forced on NCCL, not on the host backend");
    }
}

#[test]
fn a_child_that_does_not_get_to_its_cases_fails_them_with_what_it_said() {
    let results = results(PROGRAM, &["run", "--no-such-option"]);
    assert_eq!(results[0].outcome, Outcome::Pass);
    assert_eq!((results[1].outcome, results[1].kind), (Outcome::Fail, Some(FailKind::Crash)));
    assert!(results[1].message.contains("--no-such-option"), "{}", results[1].message);
    assert_eq!(results[2].outcome, Outcome::Fail);
    assert!(results[2].message.starts_with("not run: "), "{}", results[2].message);
}

#[test]
fn a_program_that_is_gone_fails_the_cases_that_need_it() {
    let results = results("/no/such/program", &[]);
    assert_eq!(results.iter().filter(|r| r.kind == Some(FailKind::Crash)).count(), 2);
    assert!(results[1].message.contains("cannot be started"), "{}", results[1].message);
}

#[test]
fn on_the_host_backend_forced_paths_are_skipped_with_the_reason() {
    let ended = run(&["run", "--backend", "host", "--exact", FORCED[0]], &[]);
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stdout.contains("not on the host backend"), "{}", ended.stdout);
}

#[test]
fn the_paths_suite_has_each_path_where_nccl_has_it() {
    let ended = run(&["list", "--suite", "paths"], &[]);
    let names = ended.lines();
    let has = |name: &str| names.contains(&name);
    assert!(has("all_reduce::sum::float::8B@tree+ll128") && has("reduce_scatter::sum::int8::16MiB@pat+simple"));
    assert!(has("all_reduce::sum::bfloat16::1MiB@sym-agxll_r") && has("all_gather::none::float::8B@sym-ll"));
    assert!(names.iter().all(|name| name.contains('@')), "every case of it has a path");
    assert!(!names.iter().any(|name| name.starts_with("broadcast") && name.contains("tree")));
    assert!(!names.iter().any(|name| name.starts_with("all_gather") && name.contains("agxll")));
}

#[test]
fn a_path_that_nccl_has_not_is_no_case() {
    for (name, says) in [
        ("broadcast::none::float::8B@tree", "NCCL has no such path for it"),
        ("alltoall::none::float::8B@ring", "sends and receives"),
        ("all_reduce::sum::float::8B@ring+tree", "ring and tree cannot be had in one case"),
        ("all_reduce::sum::float::8B@nvls+ll", "nvls and ll cannot be had in one case"),
        ("all_reduce::sum::float::8B@sym-x", "unknown variant \"sym-x\""),
    ] {
        let line = refused(&["list", "--exact", name], &[]);
        assert!(line.contains(says), "{line}");
    }
}

#[test]
fn a_log_that_says_nothing_of_paths_is_told() {
    // no GPU is needed for the warning, nor for the refusal after it
    let ended = run(&["run", "--path", "--backend", "nccl", "--nccl", PROGRAM], &[("NCCL_DEBUG", "WARN")]);
    assert!(ended.stderr.starts_with("warning: paths stay unknown: NCCL_DEBUG is WARN"), "{}", ended.stderr);
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
}

#[test]
#[cfg(target_os = "linux")]
fn a_run_with_paths_starts_again_in_its_place_with_a_log_of_its_own() {
    let arguments = ["run", "--path", "--ranks", "2", "-n", "1000000", "--exact", "all_reduce::sum::float::16MiB"];
    let mut command = cli_support::program();
    command.args(arguments).env_remove("NCCL_DEBUG").stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = command.spawn().unwrap();
    // the same process, hence other variables only by a second start
    let environment = format!("/proc/{}/environ", process.id());
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut found = String::new();
    while !found.contains("collcheck-path-") && Instant::now() < deadline {
        found = String::from_utf8_lossy(&std::fs::read(&environment).unwrap_or_default()).into_owned();
        std::thread::sleep(Duration::from_millis(5));
    }
    process.kill().unwrap();
    process.wait().unwrap();
    for variable in ["NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=TUNING", "NCCL_DEBUG_FILE=/"] {
        assert!(found.contains(variable), "{variable} is missing");
    }
}

#[test]
fn a_run_that_starts_again_keeps_its_arguments_and_its_exit_code() {
    let ended = run(&["run", "--path", "--backend", "nccl", "--nccl", PROGRAM], &[]);
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    let host = run(&["run", "--path", "--backend", "host", "--exact", "all_reduce::sum::float::8B"], &[]);
    assert_eq!(host.code, Some(0), "{}", host.stderr);
}
