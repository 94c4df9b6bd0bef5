//! Every way of launching a case passes where nothing is wrong, and sees what goes wrong where it looks.
//!
//! Faults are planted at one launch of one placement: 0 is the plain launch that every placement opens with; what a drill
//! launches is counted from 1.

mod faulty;

use collcheck::backend::host::HostBackend;
use collcheck::backend::{Backend, Layout, Making, Placement, RankError};
use collcheck::case::{Case, DType, Op, Primitive, Variant};
use collcheck::fleet::protocol::{Report, Request, Tamper};
use collcheck::fleet::team::{Ended, Team, Watch, Workers};
use collcheck::run::assemble::assemble;
use collcheck::run::result::{CaseResult, FailKind, Outcome};
use collcheck::suite::canonical;
use faulty::{Fault, FaultyBackend, Plant};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// All ways of launching, by their variants.
const WAYS: [&str; 15] = [
    "",
    "@sync",
    "@agg",
    "@aggmixed",
    "@graph",
    "@graph+sync",
    "@graph+agg",
    "@graph+aggmixed",
    "@pipeline",
    "@pipeline+uneven",
    "@pipeline+early",
    "@pipeline+overwrite",
    "@pipeline+uneven+early+overwrite",
    "@graph+pipeline",
    "@graph+pipeline+uneven+early+overwrite",
];

fn host(ranks: u32) -> HostBackend {
    HostBackend::new(&Layout { ranks, ranks_per_thread: 1, ranks_per_gpu: 1 }).unwrap()
}

fn faulty(ranks: u32, plant: Option<Plant>) -> FaultyBackend {
    FaultyBackend { inner: host(ranks), plant, graphs: true }
}

fn case(name: &str) -> Case {
    canonical(name.parse().unwrap()).unwrap()
}

fn request(case: &Case, ranks: u32, epoch: u64) -> Request {
    let case = case.clone();
    Request { case, ranks, seed: 5, epoch, warmup: 0, iters: 0, check: true, tamper: None, fault: None }
}

fn assembled(request: &Request, reports: &[Report]) -> CaseResult {
    assemble(&request.case, request.ranks, reports, &|_, _| None)
}

/// Far more than any case here takes.
const LIMIT: Duration = Duration::from_secs(300);

fn team(backend: impl Backend + 'static, making: &Making) -> Team {
    let backend: Arc<dyn Backend> = Arc::new(backend);
    Team::start(&backend, Vec::new(), making, LIMIT, &AtomicBool::new(false)).unwrap()
}

fn reports(team: &mut Team, request: &Request) -> Vec<Report> {
    let interrupt = AtomicBool::new(false);
    match team.run(request, &mut Watch { deadline: LIMIT, interrupt: &interrupt, said: &mut Vec::new }) {
        Ended::Reported(reports) => reports,
        other => panic!("{}: {other:?}", request.case),
    }
}

/// Runs one case on a fresh team.
fn run(backend: impl Backend + 'static, request: &Request) -> CaseResult {
    let mut team = team(backend, &Making::of(&request.case));
    assembled(request, &reports(&mut team, request))
}

/// Runs one case with a fault.
fn with_fault(name: &str, fault: Fault, launch: usize, placement: Placement) -> CaseResult {
    let plant = Some(Plant { fault, launch, placement });
    run(faulty(3, plant), &request(&case(name), 3, 1))
}

#[track_caller]
fn expect_data_failure(result: &CaseResult, says: &str) {
    assert_eq!((result.outcome, result.kind), (Outcome::Fail, Some(FailKind::Data)), "{}", result.name);
    assert!(result.message.contains(says), "{}: {:?} should say {says:?}", result.name, result.message);
}

/// The launch at which a way of launching is hit in these tests, and what is then said of it.
fn target(way: &str) -> (usize, &'static str) {
    match (way.contains("pipeline"), way.contains("graph")) {
        (true, true) => (1 + 4, "round 5 of 32 of the pipeline, replayed 3 times as a graph"),
        (true, false) => (1 + 4, "round 5 of 32 of the pipeline"),
        (false, true) => (2, "replay 2 of 4 of the graph"),
        (false, false) => (0, ""),
    }
}

#[test]
fn every_way_passes_on_every_primitive() {
    for ranks in [1, 3, 4] {
        let backend = faulty(ranks, None);
        let mut team = team(backend, &Making::default());
        let mut epoch = 0;
        for primitive in Primitive::ALL {
            let op = if primitive.unit().reduces() { "sum" } else { "none" };
            for way in WAYS {
                if primitive.unit().refuses(ranks).is_some() {
                    continue;
                }
                let case = case(&format!("{primitive}::{op}::half::1000B{way}"));
                epoch += 1;
                let request = Request { iters: 2, warmup: 1, ..request(&case, ranks, epoch) };
                let result = assembled(&request, &reports(&mut team, &request));
                assert_eq!(result.outcome, Outcome::Pass, "{case} on {ranks}: {}", result.message);
                let in_place = case.primitive.unit().in_place(&case.workload(ranks), 0).is_some();
                assert_eq!(result.placements.len(), 1 + usize::from(in_place), "{case}");
                for placement in &result.placements {
                    assert_eq!(placement.wrong, Some(0), "{case}");
                    assert!(placement.mean_us > 0.0 && placement.time_us.is_some(), "{case}");
                }
            }
        }
    }
}

#[test]
fn every_op_and_dtype_passes_in_groups_and_pipelines() {
    let backend = faulty(3, None);
    let mut team = team(backend, &Making::default());
    let mut epoch = 0;
    for op in Op::ALL {
        for dtype in DType::ALL {
            for way in ["@agg", "@aggmixed+unaligned1", "@graph", "@pipeline+overwrite", "@graph+pipeline+unaligned3"] {
                epoch += 1;
                let request = request(&case(&format!("all_reduce::{op}::{dtype}::328B{way}")), 3, epoch);
                let result = assembled(&request, &reports(&mut team, &request));
                assert_eq!(result.outcome, Outcome::Pass, "{}: {}", result.name, result.message);
            }
        }
    }
}

#[test]
fn a_collective_that_does_nothing_is_seen_with_its_launch() {
    for way in WAYS {
        let (launch, says) = target(way);
        for (primitive, op, placement) in [
            ("all_reduce", "sum", Placement::OutOfPlace),
            ("all_reduce", "max", Placement::InPlace),
            ("all_gather", "none", Placement::InPlace),
            ("alltoall", "none", Placement::OutOfPlace),
        ] {
            let result = with_fault(&format!("{primitive}::{op}::float::600B{way}"), Fault::Lost(0), launch, placement);
            expect_data_failure(&result, says);
            let place = if placement == Placement::InPlace { "in-place" } else { "out-of-place" };
            assert!(result.message.starts_with(place), "{}: {}", result.name, result.message);
        }
    }
}

#[test]
fn one_wrong_bit_is_seen_with_its_launch() {
    for way in WAYS {
        let (launch, says) = target(way);
        let name = format!("reduce_scatter::sum::int32::600B{way}");
        let result = with_fault(&name, Fault::Corrupt, launch, Placement::OutOfPlace);
        expect_data_failure(&result, says);
        assert_eq!(result.placements[0].wrong, Some(1), "{name}");
        let first = result.placements[0].first_wrong.as_ref().unwrap();
        assert_eq!((first.rank, first.index), (0, 0), "{name}");
    }
}

#[test]
fn a_collective_that_runs_twice_is_seen_in_place() {
    for way in WAYS {
        let (launch, says) = target(way);
        let result =
            with_fault(&format!("all_reduce::sum::int64::600B{way}"), Fault::Twice, launch, Placement::InPlace);
        expect_data_failure(&result, says);
    }
}

#[test]
fn a_collective_that_overtakes_its_producer_is_seen_where_nobody_waits_in_between() {
    for way in WAYS {
        let (launch, says) = target(way);
        let result =
            with_fault(&format!("all_gather::none::uint8::600B{way}"), Fault::Race, launch, Placement::OutOfPlace);
        if way.contains("graph") || way.contains("pipeline") {
            expect_data_failure(&result, says);
        } else {
            // the blind spot of waiting: this is why pipelines exist
            assert_eq!(result.outcome, Outcome::Pass, "{}: {}", result.name, result.message);
        }
    }
}

#[test]
fn output_that_is_written_after_its_collective_has_ended_is_seen_by_overwriting() {
    for way in ["@pipeline+overwrite", "@pipeline+overwrite+uneven", "@graph+pipeline+overwrite"] {
        for dtype in ["int8", "double"] {
            let name = format!("all_reduce::sum::{dtype}::600B{way}");
            let result = with_fault(&name, Fault::Late, 3, Placement::OutOfPlace);
            expect_data_failure(&result, "written to again after round 3 of 32 of the pipeline was checked");
        }
    }
}

#[test]
fn each_call_of_a_group_is_checked_and_named() {
    for (way, calls) in [("@agg", 4), ("@aggmixed", 3)] {
        for number in 0..calls {
            let name = format!("broadcast::none::int8::600B{way}");
            let result = with_fault(&name, Fault::Lost(number), 0, Placement::OutOfPlace);
            let dtype = if way == "@agg" { DType::Int8 } else { DType::ALL[number] };
            expect_data_failure(&result, &format!("call {} of {calls} of the group ({dtype})", number + 1));
        }
    }
    let result = with_fault("all_reduce::sum::half::600B@graph+agg", Fault::Lost(2), 3, Placement::InPlace);
    expect_data_failure(&result, "in-place, replay 3 of 4 of the graph, call 3 of 4 of the group (half): ");
}

#[test]
fn a_fault_in_a_later_replay_of_a_pipeline_is_seen() {
    let name = "all_reduce::sum::half::600B@graph+pipeline";
    let result = with_fault(name, Fault::Lost(0), 1 + 2 * 32 + 11, Placement::InPlace);
    expect_data_failure(&result, "in-place, round 12 of 32 of the pipeline, replayed 3 times as a graph: ");
}

#[test]
fn the_last_of_a_drill_is_as_good_as_any() {
    for (way, launch, says) in [("@graph", 4, "replay 4 of 4"), ("@pipeline", 32, "round 32 of 32")] {
        let name = format!("alltoall::none::float::600B{way}");
        expect_data_failure(&with_fault(&name, Fault::Lost(0), launch, Placement::OutOfPlace), says);
    }
}

#[test]
fn what_must_be_left_alone_is_looked_at_in_every_way() {
    for way in WAYS {
        // the producer of the next round hides it, so that only the last round of all can show it
        let (launch, says) = match target(way) {
            _ if way.contains("graph+pipeline") => (3 * 32, "within 32 rounds of the pipeline"),
            _ if way.contains("pipeline") => (32, "within 32 rounds of the pipeline"),
            other => other,
        };
        let name = format!("all_gather::none::float::600B{way}");
        let result = with_fault(&name, Fault::Scribble, launch, Placement::OutOfPlace);
        expect_data_failure(&result, says);
        assert!(result.message.contains("must leave alone changed on rank 0"), "{}", result.message);
    }
}

#[test]
fn guard_zones_are_looked_at_in_every_way() {
    for way in WAYS {
        let (large, small) =
            (case("all_reduce::sum::uint8::1MiB"), case(&format!("all_reduce::sum::uint8::512B{way}")));
        let (launch, says) = target(way);
        // the buffers keep their size from the first case, so that there is memory to write to behind the second
        let calls = match way {
            _ if way.contains("aggmixed") => 3,
            _ if way.contains("agg") => 4,
            _ => 1,
        };
        let plant = Plant { fault: Fault::Beyond(calls * 512), launch: launch + 1, placement: Placement::OutOfPlace };
        let backend = faulty(2, Some(plant));
        let mut team = team(backend, &Making::default());
        reports(&mut team, &request(&large, 2, 1));
        let request = request(&small, 2, 2);
        let result = assembled(&request, &reports(&mut team, &request));
        let says = if way.contains("pipeline") { "within 32 rounds of the pipeline" } else { says };
        expect_data_failure(&result, says);
        assert!(result.message.contains("rank 0 wrote outside its receive buffer, past its end"), "{}", result.message);
    }
}

#[test]
fn damage_that_is_asked_for_is_noticed_in_every_way() {
    for way in WAYS {
        let says = match (way.contains("pipeline"), way.contains("graph")) {
            (true, false) => "round 17 of 32",
            (true, true) => "within 32 rounds",
            (false, true) => "replay 4 of 4",
            (false, false) => "out-of-place",
        };
        let case = case(&format!("all_reduce::sum::float::600B{way}"));
        let request = Request { tamper: Some(Tamper { rank: 1, index: 3, bit: 2 }), ..request(&case, 3, 1) };
        let result = run(faulty(3, None), &request);
        expect_data_failure(&result, says);
        let first = result.placements[0].first_wrong.as_ref().unwrap();
        assert_eq!((first.rank, first.index), (1, 3), "{}", result.name);
    }
}

#[test]
fn what_a_backend_does_not_have_is_skipped_with_the_reason() {
    for way in ["@graph", "@graph+pipeline", "@graph+agg", "@ncclmem", "@reg", "@window", "@windows"] {
        let request = request(&case(&format!("all_reduce::sum::float::64B{way}")), 2, 1);
        let result = run(host(2), &request);
        assert_eq!(result.outcome, Outcome::Skip, "{}", result.name);
        assert!(result.message.contains("the host backend has no "), "{}: {}", result.name, result.message);
    }
}

#[test]
fn wrong_data_are_not_skipped_with_what_cannot_be_done() {
    // damage to the first launch, and a graph that cannot be had
    let plant = Some(Plant { fault: Fault::Corrupt, launch: 0, placement: Placement::OutOfPlace });
    let backend = FaultyBackend { graphs: false, ..faulty(2, plant) };
    let result = run(backend, &request(&case("all_reduce::sum::float::64B@graph"), 2, 1));
    expect_data_failure(&result, "out-of-place: 1 wrong element");
    assert!(result.message.contains("no graphs"), "{}", result.message);
}

#[test]
fn without_checks_graphs_are_still_timed_and_pipelines_are_plain_launches() {
    for way in ["@graph", "@pipeline", "@agg"] {
        let case = case(&format!("all_reduce::sum::float::64B{way}"));
        let request = Request { check: false, iters: 3, ..request(&case, 2, 1) };
        let result = run(faulty(2, None), &request);
        assert_eq!(result.outcome, Outcome::Pass, "{}", result.message);
        assert!(result.placements.iter().all(|p| p.wrong.is_none() && p.mean_us > 0.0));
    }
}

#[test]
fn a_refused_launch_ends_the_case_on_all_ranks() {
    // a root that does not exist
    let case = Case { variants: vec![Variant::Root(9), Variant::Pipeline], ..case("broadcast::none::float::64B") };
    let request = request(&case, 2, 1);
    let mut team = team(host(2), &Making::default());
    let reports = reports(&mut team, &request);
    assert!(reports.iter().all(|r| matches!(r.error, Some(RankError::Refused { .. } | RankError::Aborted))));
}
