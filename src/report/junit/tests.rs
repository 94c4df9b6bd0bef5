use std::fs;
use std::path::PathBuf;

use super::xml::{self, Element};
use super::*;
use crate::report::sample;

struct Place {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("junit.xml");
    Place { _dir: dir, path }
}

/// The one suite of a file that must be well-formed.
fn suite(path: &Path) -> Element {
    let root = xml::parse(&fs::read(path).unwrap()).unwrap();
    assert_eq!((root.name.as_str(), root.children.len()), ("testsuites", 1));
    root.children[0].clone()
}

fn written(events: &[Event]) -> Element {
    let place = place();
    sample::feed(&mut Junit::create(&place.path).unwrap(), events);
    suite(&place.path)
}

#[test]
fn every_case_is_a_test_with_its_outcome() {
    let suite = written(&sample::events(&sample::all()));
    assert_eq!(suite.attribute("name"), "collcheck");
    assert_eq!((suite.attribute("tests"), suite.attribute("failures"), suite.attribute("errors")), ("6", "3", "0"));
    let tests = suite.all("testcase");
    let wrong = tests[1];
    assert_eq!(wrong.attribute("classname"), "collcheck.all_reduce.sum");
    assert_eq!(wrong.attribute("name"), "all_reduce::sum::float::1MiB");
    assert_eq!(wrong.attribute("time"), "0.125");
    let failure = wrong.child("failure").unwrap();
    assert_eq!(failure.attribute("type"), "data");
    assert!(failure.text.contains("first     index 4711\n  expected  1.5 (0x3fc00000)"), "{}", failure.text);
    assert_eq!(tests[4].child("failure").unwrap().attribute("type"), "hang");
    assert_eq!(tests[2].attribute("classname"), "collcheck.broadcast.none");
    let skipped = tests[5].child("skipped").unwrap();
    assert_eq!(skipped.attribute("message"), "needs a power of two of ranks");
    assert!(tests[0].child("failure").is_none());
    assert!(suite.child("system-out").unwrap().text.contains("NVIDIA H200"));
}

#[test]
fn names_hold_no_measured_value_and_texts_do() {
    let suite = written(&sample::events(&sample::all()));
    for test in suite.all("testcase") {
        assert!(!format!("{}{}", test.attribute("classname"), test.attribute("name")).contains("28.19"));
    }
    let out = &suite.all("testcase")[0].child("system-out").unwrap().text;
    assert!(out.contains("in-place: mean 28.19 us, algbw 0.25 GB/s, busbw 0.25 GB/s"), "{out}");
    assert!(out.contains("bandwidth unasserted"));
}

#[test]
fn a_fault_is_told_with_what_noticed_it() {
    let suite = written(&sample::events(&[sample::fault()]));
    let out = &suite.all("testcase")[0].child("system-out").unwrap().text;
    for said in
        ["done: rank 1 passes more elements than the others, 1 times", "noticed by: deadline", "verdict: A.size"]
    {
        assert!(out.contains(said), "{out}");
    }
}

#[test]
fn hostile_strings_stay_well_formed_wherever_they_enter() {
    let mut cases = sample::all();
    for case in &mut cases {
        case.message = sample::HOSTILE.into();
        case.reference.source = sample::HOSTILE.into();
        case.reference.note = sample::HOSTILE.into();
    }
    cases[1].name = sample::HOSTILE.into();
    if let Some(first) = &mut cases[1].placements[0].first_wrong {
        first.expected = sample::HOSTILE.into();
        first.actual = sample::HOSTILE.into();
        first.explanation = sample::HOSTILE.into();
    }
    let mut environment = sample::environment();
    environment.host = sample::HOSTILE.into();
    environment.variables.insert("NCCL_DEBUG".into(), sample::HOSTILE.into());
    let mut events: Vec<Event> = vec![Event::Started {
        at: sample::at(),
        command: vec![sample::HOSTILE.into()],
        seed: 1,
        environment: Box::new(environment),
        cases: cases.len(),
    }];
    events.extend(cases.iter().map(|c| Event::CaseFinished { result: Box::new(c.clone()) }));
    events.push(Event::Aborted { reason: sample::HOSTILE.into() });
    events.push(Event::Finished { at: sample::at(), summary: sample::summary(&cases) });
    let suite = written(&events);
    let text = &suite.all("testcase")[1].child("failure").unwrap().text;
    assert!(
        text.contains("\\x1b[31mred") && text.contains("]]> <a b='c'>&amp; \"quoted\"") && text.contains('🚀'),
        "{text}"
    );
}

#[test]
fn an_end_mark_that_the_limit_cuts_stays_well_formed() {
    for extra in 0..12 {
        let mut case = sample::hang();
        case.message = "x".repeat(MESSAGE_LIMIT - extra) + "]]>]]>]]>";
        written(&sample::events(&[case]));
    }
}

#[test]
fn bytes_that_were_no_text_stay_well_formed() {
    let mut case = sample::hang();
    case.message = String::from_utf8_lossy(b"NCCL WARN \xff\xfe\x80 \xed\xa0\x80 bytes").into_owned();
    let suite = written(&sample::events(&[case]));
    assert!(suite.all("testcase")[0].child("failure").unwrap().text.contains('\u{fffd}'));
}

#[test]
fn a_huge_message_is_bounded() {
    let mut case = sample::hang();
    case.message = "\x1b".repeat(1 << 20);
    let place = place();
    sample::feed(&mut Junit::create(&place.path).unwrap(), &sample::events(&[case]));
    suite(&place.path);
    assert!(fs::metadata(&place.path).unwrap().len() < 2 * TEXT_LIMIT as u64);
}

#[test]
fn a_long_message_does_not_hide_the_wrong_element() {
    let mut case = sample::wrong();
    case.message = "x".repeat(1 << 20);
    let suite = written(&sample::events(&[case]));
    let text = &suite.all("testcase")[0].child("failure").unwrap().text;
    assert!(text.contains("first     index 4711"), "{text}");
}

#[test]
fn thousands_of_long_failures_make_a_file_that_readers_take() {
    let mut case = sample::wrong();
    case.message = "x".repeat(20_000);
    let place = place();
    let mut junit = Junit::create(&place.path).unwrap();
    junit.next_rewrite += Duration::from_secs(600);
    for _ in 0..2_000 {
        junit.take(&Event::CaseFinished { result: Box::new(case.clone()) }).unwrap();
    }
    junit.take(&Event::Finished { at: sample::at(), summary: Summary::default() }).unwrap();
    let size = fs::metadata(&place.path).unwrap().len();
    assert!(size < 30_000_000, "{size} bytes");
    let suite = suite(&place.path);
    assert!(suite.all("testcase")[1_999].child("failure").unwrap().text.starts_with("xxx"));
}

#[test]
fn classname_and_name_are_unique_when_cases_repeat() {
    let suite = written(&sample::events(&[sample::pass(), sample::pass(), sample::pass()]));
    let names: Vec<&str> = suite.all("testcase").iter().map(|t| t.attribute("name")).collect();
    assert_eq!(names, ["all_reduce::sum::float::8B", "all_reduce::sum::float::8B #2", "all_reduce::sum::float::8B #3"]);
}

#[test]
fn before_the_run_ends_the_file_is_complete_and_says_so() {
    let place = place();
    let mut junit = Junit::create(&place.path).unwrap();
    let error =
        |path: &Path| suite(path).all("testcase").last().unwrap().child("error").unwrap().attribute("type").to_owned();
    assert_eq!(error(&place.path), "unended");
    let events = sample::events(&sample::all());
    for event in &events[..events.len() - 1] {
        junit.next_rewrite = Instant::now();
        junit.take(event).unwrap();
        assert_eq!(error(&place.path), "unended");
    }
    assert_eq!(suite(&place.path).all("testcase").len(), 7);
    junit.take(&events[events.len() - 1]).unwrap();
    assert_eq!(suite(&place.path).attribute("errors"), "0");
    assert_eq!(suite(&place.path).all("testcase").len(), 6);
}

#[test]
fn a_run_that_unwinds_keeps_its_cases_and_an_error() {
    let place = place();
    let mut junit = Junit::create(&place.path).unwrap();
    sample::feed(&mut junit, &sample::events(&sample::all())[..5]);
    drop(junit);
    let suite = suite(&place.path);
    assert_eq!((suite.attribute("tests"), suite.attribute("errors")), ("3", "1"));
}

#[test]
fn a_run_that_could_not_start_is_an_error_with_the_reason() {
    let end = Event::Finished { at: sample::at(), summary: Summary::default() };
    let suite = written(&[Event::Aborted { reason: "no GPU found\nlibcuda.so.1 is missing".into() }, end]);
    let tests = suite.all("testcase");
    assert_eq!((tests.len(), tests[0].attribute("name"), tests[0].attribute("classname")), (1, "run", "collcheck"));
    let error = tests[0].child("error").unwrap();
    assert_eq!(error.attribute("type"), "aborted");
    assert_eq!(error.attribute("message"), "no GPU found libcuda.so.1 is missing");
    assert_eq!(error.text, "no GPU found\nlibcuda.so.1 is missing");
}

#[test]
fn times_that_are_none_do_no_harm() {
    let cases: Vec<CaseResult> = [f64::NAN, f64::INFINITY, -1.0, 1e300, 0.000_001]
        .into_iter()
        .map(|s| CaseResult { duration_s: s, ..sample::pass() })
        .collect();
    let suite = written(&sample::events(&cases));
    let times: Vec<&str> = suite.all("testcase").iter().map(|t| t.attribute("time")).collect();
    assert_eq!(times, ["0", "0", "0", "1000000000", "0.000001"]);
}

#[test]
fn an_unwritable_path_is_an_error_before_the_run() {
    let error = Junit::create(Path::new("/nonexistent/junit.xml")).err().unwrap().to_string();
    assert!(error.contains("/nonexistent/junit.xml") && error.contains("does not exist"), "{error}");
}
