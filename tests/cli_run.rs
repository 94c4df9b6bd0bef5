//! `collcheck run` from the outside, on the host backend: exit codes, reports, and bad input.

mod cli_support;

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};

use cli_support::program as collcheck;

fn host(args: &[&str]) -> (Option<i32>, String, String) {
    let output =
        collcheck().args(["run", "--backend", "host", "--ranks", "2", "-n", "1", "-w", "0"]).args(args).output();
    let output = output.expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_flipped_bit_is_reported_with_its_rank_and_index_for_every_dtype() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("r.json");
    let (code, _, stderr) = host(&[
        "--suite",
        "acceptance",
        "--primitive",
        "all_reduce,all_gather",
        "--op",
        "sum,none",
        "-b",
        "4K",
        "-e",
        "4K",
        "--tamper",
        "1:100:3",
        "--json",
        json.to_str().unwrap(),
    ]);
    assert_eq!(code, Some(101), "{stderr}");
    let results: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let cases = results["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 24);
    for case in cases {
        assert_eq!((&case["outcome"], &case["kind"]), (&"fail".into(), &"data".into()), "{case}");
        let message = case["message"].as_str().unwrap();
        assert!(message.lines().all(|line| line.ends_with("place: 1 wrong element on rank 1")), "{message}");
        for placement in case["placements"].as_array().unwrap() {
            assert_eq!(placement["wrong"], 1, "{case}");
            assert_eq!(placement["first_wrong"]["rank"], 1, "{case}");
            assert_eq!(placement["first_wrong"]["index"], 100, "{case}");
            // each fact once: the element's number and values have fields of their own
            let explanation = placement["first_wrong"]["explanation"].as_str().unwrap();
            assert!(!explanation.is_empty() && !explanation.contains("element"), "{case}");
            assert_eq!(placement["first_wrong"].get("ranges"), None, "{case}");
        }
    }
}

/// A rank that rounds in its own way passes for right by itself, and not beside the others.
#[test]
fn ranks_that_hold_different_bits_within_the_tolerance_fail_and_the_odd_one_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("r.json");
    let run = |more: &[&str]| {
        let mut command = collcheck();
        command.args(["run", "--backend", "host", "--ranks", "3", "-n", "1", "-w", "0", "--json"]).arg(&json);
        let names = ["all_reduce::avg::float::64KiB", "all_reduce::sum::float::64KiB"];
        let code = command.args(more).arg("--exact").args(names).output().unwrap().status.code();
        let results: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
        let of = |name: &str| results["cases"].as_array().unwrap().iter().find(|case| case["name"] == name).cloned();
        let [avg, sum] = names.map(|name| of(name).unwrap());
        let message = avg["message"].as_str().unwrap().to_owned();
        (code, message, avg["placements"][0].clone(), sum["placements"][0].clone())
    };
    let (code, _, avg, sum) = run(&[]);
    assert_eq!(code, Some(0));
    assert_eq!((&avg["agree"], &avg["repeats"]), (&true.into(), &true.into()));
    assert_eq!((&sum["agree"], &sum["repeats"]), (&true.into(), &true.into()));
    // the last bit of one element, in the first launch alone
    let (code, message, avg, _) = run(&["--tamper", "1:777:0"]);
    assert_eq!(code, Some(101));
    assert!(message.lines().all(|line| line.ends_with("ranks 0, 2 against rank 1")), "{message}");
    assert_eq!((&avg["agree"], &avg["repeats"], &avg["wrong"]), (&false.into(), &false.into(), &0.into()));
}

#[test]
fn what_does_not_fit_in_memory_is_skipped_and_the_rest_runs() {
    let (code, stdout, stderr) = host(&["all_reduce::sum::float::8B", "all_reduce::sum::float::64TiB"]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(stdout.contains("does not fit in memory") && stdout.contains("1 passed; 0 failed; 1 skipped"), "{stdout}");
}

/// More than 2^31 and 2^32 elements: for GPUs that hold them.
#[test]
fn what_is_made_for_a_gpus_memory_is_skipped_on_the_host_with_what_it_needs() {
    let (code, stdout, stderr) = host(&["--suite", "stress", "4294967299B", "all_reduce::sum::float::8B@sync"]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(stdout.contains("needs 8.000 GiB on each rank") && stdout.contains(" GiB are free for it"), "{stdout}");
    assert!(stdout.contains("all_gather::none::int8::4294967299B@odd ... skipped"), "{stdout}");
}

#[test]
fn a_run_in_which_nothing_could_run_does_not_pass() {
    let (code, _, stderr) = host(&["all_reduce::sum::float::64TiB"]);
    assert_eq!(code, Some(3), "{stderr}");
}

#[test]
fn a_machine_without_gpus_is_told_what_was_looked_for() {
    let output =
        collcheck().args(["run", "--backend", "nccl", "--ranks", "99"]).env("CUDA_VISIBLE_DEVICES", "").output();
    let output = output.expect("the binary runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("error: ") && !stderr.contains("panicked"), "{stderr}");
}

#[test]
fn an_unwritable_report_is_said_before_anything_runs() {
    for option in ["--junit", "--json", "--csv", "--table"] {
        let (code, stdout, stderr) = host(&["all_reduce::sum::float::8B", option, "/proc/no/such/place"]);
        assert_eq!(code, Some(2), "{option}: {stderr}");
        assert!(stderr.contains("/proc/no/such") && !stdout.contains("test all_reduce"), "{option}: {stdout}{stderr}");
    }
}

#[test]
fn a_refused_run_leaves_a_junit_file_that_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let junit = dir.path().join("r.xml");
    let mut command = collcheck();
    command.args(["run", "--backend", "host", "--ranks", "60000", "--junit"]).arg(&junit);
    assert_eq!(command.output().unwrap().status.code(), Some(3));
    let text = fs::read_to_string(&junit).unwrap();
    assert!(text.contains("<error") && text.contains("</testsuites>"), "{text}");
}

#[test]
fn a_reader_that_goes_away_does_not_end_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("r.json");
    let mut child = collcheck()
        .args(["run", "--backend", "host", "--ranks", "2", "all_gather", "--json"])
        .arg(&json)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut first = [0u8; 16];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap(); // and is dropped here
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let results: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert!(results["summary"]["passed"].as_u64().unwrap() > 20, "{}", results["summary"]);
}

#[test]
fn a_soak_repeats_with_new_seeds_until_its_time_is_over() {
    let (code, stdout, stderr) = host(&["all_reduce::sum::float::8B", "--soak", "1s", "--seed", "7"]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(stderr.contains("seed 7 is done") && stderr.contains("seed 8 is done"), "{stderr}");
    assert!(stdout.contains("1 passed"), "{stdout}");
}

#[test]
fn a_soak_ends_with_the_seed_of_the_first_failure() {
    let (code, stdout, stderr) =
        host(&["all_reduce::sum::float::8B", "--soak", "1h", "--seed", "7", "--tamper", "0:0:0"]);
    assert_eq!(code, Some(101), "{stdout}{stderr}");
    assert!(stdout.contains("--seed 7 makes the same inputs again"), "{stdout}");
}

#[test]
fn several_launches_give_each_case_one_result() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("r.json");
    let (code, ..) = host(&["all_reduce::sum::float", "--repeat", "3", "--json", json.to_str().unwrap()]);
    assert_eq!(code, Some(0));
    let results: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let names: Vec<&str> = results["cases"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    let distinct: std::collections::HashSet<_> = names.iter().collect();
    assert!(!names.is_empty() && distinct.len() == names.len(), "{names:?}");
}

#[test]
fn cargo_test_runs_the_same_cases_as_trials() {
    // the harness of tests/acceptance.rs goes through the same function as this binary does
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(cargo)
        .args(["test", "--quiet", "--test", "acceptance", "--", "--list", "all_reduce::sum::float::8B"])
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && stdout.contains("all_reduce::sum::float::8B: test"), "{stdout}");
}
