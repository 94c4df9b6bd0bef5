//! Figures outside of their range are measured again: a stall is not taken for a slow machine, nor a slow machine for a stall.

mod fleet_support;

use std::time::Duration;

use collcheck::reference::References;
use collcheck::run::result::{Assertion, FailKind, Outcome};
use fleet_support::{Fault, Faulty, Misdeed, Run, plan, run_with};

const CASE: &str = "all_reduce::sum::float::4KiB";
const DEADLINE: Duration = Duration::from_secs(20);

/// Bounds of the time of 4 KiB, in microseconds.
fn within(lower: f64, upper: f64) -> References {
    let mut references = References::none();
    let text = format!(
        r#"{{"schema": "collcheck.golden/1",
            "environment": {{"backend": "host", "gpu": ["*"], "gpus_per_node": 2, "nodes": 1, "link": "any", "nvls": "any", "nccl": "any"}},
            "entries": [{{"primitive": "all_reduce", "op": "sum", "provenance": "measured", "source": "this test",
                "points": [{{"bytes": 4096, "metric": "time_us", "lower": {lower}, "upper": {upper}}}]}}]}}"#
    );
    references.add("test", &text).unwrap();
    references
}

/// Two ranks, one of which sleeps in a launch; launches are counted over its life.
fn stalled(launch: Option<u32>, references: References) -> Run {
    let fault = launch.map(|launch| Fault { rank: 1, launch, misdeed: Misdeed::Sleep(Duration::from_millis(900)) });
    run_with(Faulty::new(2, fault), plan(&[CASE], DEADLINE), references)
}

/// The first launch by the clock: behind the first, the warm-up and the one that the clock starts behind.
const TIMED: u32 = 4;

/// Above what a case takes on a busy machine, and below a stall of 900 ms in three launches.
const BOUND_US: f64 = 200_000.0;

#[test]
fn a_stall_in_one_measurement_is_told_and_does_not_fail_the_case() {
    let run = stalled(Some(TIMED), within(0.001, BOUND_US));
    let result = &run.results[0];
    assert_eq!((result.outcome, result.reference.status), (Outcome::Pass, Assertion::Asserted), "{}", result.message);
    assert!(result.placements.iter().all(|p| p.mean_us < BOUND_US), "{:?}", result.placements);
    let note = &result.reference.note;
    assert!(note.starts_with("measured 3 times: ") && note.ends_with("the median counts"), "{note:?}");
    assert_eq!((run.results.len(), run.ended.summary.cases), (1, 1));
}

#[test]
fn what_is_slow_each_time_fails_and_says_how_often_it_was_measured() {
    let run = stalled(None, within(0.001, 0.002));
    let result = &run.results[0];
    assert_eq!((result.outcome, result.kind), (Outcome::Fail, Some(FailKind::Slow)));
    assert!(result.message.contains("\nmeasured 3 times: "), "{}", result.message);
}

#[test]
fn what_is_within_its_range_is_measured_once() {
    let run = stalled(None, within(0.001, BOUND_US));
    assert_eq!((run.results[0].outcome, run.results[0].reference.note.as_str()), (Outcome::Pass, ""));
}

#[test]
fn a_case_that_fails_when_it_is_measured_again_fails_as_that() {
    // 4 launches of each placement by then
    let fault = Fault { rank: 1, launch: 3 * TIMED + 8, misdeed: Misdeed::Refuse };
    let run = run_with(Faulty::new(2, Some(fault)), plan(&[CASE], Duration::from_secs(2)), within(0.001, 0.002));
    let result = &run.results[0];
    assert_eq!((result.outcome, result.kind), (Outcome::Fail, Some(FailKind::Error)), "{}", result.message);
}

#[test]
fn a_machine_that_is_slow_everywhere_is_not_measured_three_times_everywhere() {
    let cases = [CASE; 10];
    let run = run_with(Faulty::new(2, None), plan(&cases, DEADLINE), within(0.001, 0.002));
    let again: Vec<bool> = run.results.iter().map(|result| result.message.contains("measured 3 times")).collect();
    assert!(run.results.iter().all(|result| result.kind == Some(FailKind::Slow)));
    assert_eq!(again, [[true; 8].as_slice(), &[false; 2]].concat());
}
