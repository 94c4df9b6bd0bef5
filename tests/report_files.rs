//! Report files as CI meets them: read by another parser, and left behind by runs that were killed.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use chrono::Local;
use collcheck::backend::Environment;
use collcheck::case::Case;
use collcheck::report::csv::Csv;
use collcheck::report::json::Json;
use collcheck::report::junit::Junit;
use collcheck::report::results::read_results;
use collcheck::run::event::{Consumer, Event};
use collcheck::run::result::{CaseResult, FailKind, Judgement, Outcome, Summary};

const HOSTILE: &str =
    "\x1b[31mred\x1b[0m \0 \x07 \x0b ]]> <a b='c'>&amp; \"quoted\"\r\nnext \u{fffe}\u{ffff} 🚀 \u{9b}2J";

fn result(name: &str, outcome: Outcome, message: &str) -> CaseResult {
    let case: Case = name.parse().unwrap();
    CaseResult {
        name: case.name(),
        primitive: case.primitive,
        op: case.op,
        dtype: case.dtype,
        bytes: case.size.0,
        count: case.size.0 / case.dtype.size(),
        ranks: 2,
        root: -1,
        variants: case.variants,
        outcome,
        kind: (outcome == Outcome::Fail).then_some(FailKind::Crash),
        placements: Vec::new(),
        reference: Judgement::default(),
        path: None,
        message: message.to_owned(),
        verdict: None,
        fault: None,
        duration_s: 0.25,
    }
}

fn started(host: &str) -> Event {
    let environment = Environment { host: host.to_owned(), ..Environment::default() };
    let command = vec!["collcheck".to_owned(), host.to_owned()];
    Event::Started { at: Local::now(), command, seed: 7, environment: Box::new(environment), cases: 4 }
}

fn finished(result: CaseResult) -> Event {
    Event::CaseFinished { result: Box::new(result) }
}

/// Whether Python is there; it must be where `COLLCHECK_REQUIRE_PYTHON` is 1.
fn python() -> bool {
    let found = Command::new("python3").arg("--version").output().is_ok_and(|o| o.status.success());
    let required = std::env::var("COLLCHECK_REQUIRE_PYTHON").is_ok_and(|v| v == "1");
    assert!(found || !required, "COLLCHECK_REQUIRE_PYTHON=1 and there is no python3");
    if !found {
        eprintln!("skipped: there is no python3");
    }
    found
}

/// What a Python program prints of a file.
fn ask_python(program: &str, path: &Path) -> String {
    let out = Command::new("python3").arg("-c").arg(program).arg(path).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

const COUNT_TESTS: &str = "
import sys, xml.dom.minidom
d = xml.dom.minidom.parse(sys.argv[1])
s = d.getElementsByTagName('testsuite')[0]
print(s.getAttribute('tests'), s.getAttribute('failures'), s.getAttribute('errors'),
      len(d.getElementsByTagName('testcase')), len(d.getElementsByTagName('skipped')))";

#[test]
fn a_strict_parser_reads_junit_whatever_a_library_printed() {
    if !python() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("junit.xml");
    let mut junit = Junit::create(&path).unwrap();
    assert_eq!(ask_python(COUNT_TESTS, &path), "1 0 1 1 0\n");
    let lossy = String::from_utf8_lossy(b"\xff\xfe\x80 \xed\xa0\x80").into_owned();
    let huge = "]]>\x1b".repeat(1 << 18);
    for event in [
        started(HOSTILE),
        finished(result("all_reduce::sum::float::8B", Outcome::Fail, HOSTILE)),
        finished(result("all_reduce::sum::float::16B", Outcome::Fail, &lossy)),
        finished(result("all_reduce::sum::float::32B", Outcome::Fail, &huge)),
        finished(result("all_reduce::sum::float::64B", Outcome::Skip, HOSTILE)),
        Event::Aborted { reason: HOSTILE.to_owned() },
        Event::Finished { at: Local::now(), summary: Summary::default() },
    ] {
        junit.take(&event).unwrap();
    }
    assert_eq!(ask_python(COUNT_TESTS, &path), "5 3 1 5 1\n");
    assert!(std::fs::metadata(&path).unwrap().len() < 100_000);
}

#[test]
fn another_csv_reader_finds_the_fields_as_they_were() {
    if !python() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.csv");
    let message = "a \"quoted\", text\r\nover lines";
    let mut csv = Csv::create(&path).unwrap();
    csv.take(&finished(result("all_reduce::sum::float::8B", Outcome::Fail, message))).unwrap();
    let program = "
import csv, sys
rows = list(csv.DictReader(open(sys.argv[1], newline='')))
print(len(rows), rows[0]['kind'], repr(rows[0]['message']))";
    assert_eq!(ask_python(program, &path), "1 crash 'a \"quoted\", text\\r\\nover lines'\n");
}

/// Where the child of the next test writes.
const CHILD_DIR: &str = "COLLCHECK_TEST_CHILD_DIR";

/// Runs only as the child of [`a_killed_run_keeps_what_it_had`]: writes reports, says so, and waits to be killed.
#[test]
fn child_that_is_killed() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let dir = Path::new(&dir);
    let mut consumers: Vec<Box<dyn Consumer>> = vec![
        Box::new(Json::create(&dir.join("r.json")).unwrap()),
        Box::new(Junit::create(&dir.join("junit.xml")).unwrap()),
        Box::new(Csv::create(&dir.join("r.csv")).unwrap()),
    ];
    for event in [
        started("vm"),
        finished(result("all_reduce::sum::float::8B", Outcome::Pass, "")),
        finished(result("all_reduce::sum::float::16B", Outcome::Fail, "rank 1 died")),
    ] {
        for consumer in &mut consumers {
            consumer.take(&event).unwrap();
        }
    }
    std::fs::write(dir.join("ready"), "").unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

fn wait_until(what: &str, child: &mut Child, mut done: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if done() {
            return;
        }
        if let Some(status) = child.try_wait().unwrap() {
            let mut text = String::new();
            let _ = child.stdout.take().map(|mut o| o.read_to_string(&mut text));
            panic!("child ended with {status} before {what}: {text}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    panic!("no {what}");
}

#[test]
fn a_killed_run_keeps_what_it_had() {
    let dir = tempfile::tempdir().unwrap();
    // of an earlier run, and green
    std::fs::write(dir.path().join("junit.xml"), "<testsuites/>").unwrap();
    std::fs::write(dir.path().join("r.json"), "{}").unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_is_killed", "--nocapture"])
        .env(CHILD_DIR, dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("ready", &mut child, || dir.path().join("ready").exists());
    child.kill().unwrap();
    child.wait().unwrap();

    let results = read_results(&dir.path().join("r.json")).unwrap();
    assert_eq!((results.cases.len(), results.finished.as_deref(), results.seed), (2, None, 7));
    assert_eq!(results.cases[1].message, "rank 1 died");
    assert_eq!(results.summary.failed, 1);
    let csv = std::fs::read_to_string(dir.path().join("r.csv")).unwrap();
    assert!(csv.lines().count() == 3 && csv.ends_with('\n'), "{csv}");
    // The file of the earlier run is gone, and what is there says that the run did not end.
    let junit = std::fs::read_to_string(dir.path().join("junit.xml")).unwrap();
    assert!(junit.contains("<error type=\"unended\"") && junit.ends_with("</testsuites>"), "{junit}");
}

#[test]
fn an_unwritable_path_is_told_with_path_and_reason_before_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    for path in [dir.path().join("missing/r"), dir.path().to_owned(), file.join("r")] {
        let errors = [
            Json::create(&path).err().map(|e| e.to_string()),
            Junit::create(&path).err().map(|e| e.to_string()),
            Csv::create(&path).err().map(|e| e.to_string()),
        ];
        for error in errors {
            let error = error.unwrap();
            let reason = error.strip_prefix(&format!("cannot write {}: ", path.display()));
            assert!(reason.is_some_and(|r| !r.is_empty()), "{error}");
        }
    }
}
