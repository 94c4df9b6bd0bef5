//! Results for tests of reports.

use std::collections::BTreeMap;

use chrono::{DateTime, Local};

use crate::backend::Environment;
use crate::case::Case;
use crate::run::event::{Consumer, Event};
use crate::run::result::*;

/// Strings that break careless writers of XML, CSV and terminals.
pub const HOSTILE: &str = "\x1b[31mred\x1b[0m \0 \x07 \x0b ]]> <a b='c'>&amp; \"quoted\", comma\r\nnext \u{fffe}\u{ffff} \u{fffd} 🚀 \u{9b}2J";

pub fn case(name: &str) -> CaseResult {
    let case: Case = name.parse().unwrap();
    let w = case.workload(2);
    CaseResult {
        name: case.name(),
        primitive: case.primitive,
        op: case.op,
        dtype: case.dtype,
        bytes: case.size.0,
        count: case.primitive.unit().shape(&w).count,
        ranks: 2,
        root: if case.primitive.unit().rooted() { i64::from(case.root()) } else { -1 },
        variants: case.variants,
        outcome: Outcome::Pass,
        kind: None,
        placements: vec![placement(false, 27.29, 0.5), placement(true, 28.19, 0.25)],
        reference: Judgement::default(),
        path: None,
        message: String::new(),
        verdict: None,
        fault: None,
        duration_s: 0.125,
    }
}

pub fn placement(in_place: bool, mean_us: f64, busbw_gbs: f64) -> PlacementResult {
    let time = TimeStats { median: 27.0, p50: 27.0, p90: 29.0, p99: 30.5, min: 25.0, max: 31.0, cv: 0.04, n: 20 };
    PlacementResult {
        in_place,
        mean_us,
        time_us: Some(time),
        algbw_gbs: busbw_gbs,
        busbw_gbs,
        wrong: Some(0),
        first_wrong: None,
        agree: None,
        repeats: None,
    }
}

pub fn pass() -> CaseResult {
    case("all_reduce::sum::float::8B")
}

pub fn wrong() -> CaseResult {
    let mut case = case("all_reduce::sum::float::1MiB");
    case.outcome = Outcome::Fail;
    case.kind = Some(FailKind::Data);
    case.placements[0].wrong = Some(3);
    case.placements[0].first_wrong = Some(FirstWrong {
        rank: 1,
        index: 4711,
        expected: "1.5 (0x3fc00000)".into(),
        actual: "3 (0x40400000)".into(),
        ranges: "elements 4711 to 4713".into(),
        explanation: "rank 0's contribution counts twice (all 3)".into(),
    });
    case.message = "out-of-place: 3 wrong elements on rank 1".into();
    case.path = Some(Path { algo: "RING".into(), proto: "SIMPLE".into(), channels: 24 });
    case
}

pub fn slow() -> CaseResult {
    let mut case = case("broadcast::none::bfloat16::1GiB@root1");
    case.outcome = Outcome::Fail;
    case.kind = Some(FailKind::Slow);
    case.placements = vec![placement(false, 8947.8, 120.0), placement(true, 9023.0, 119.0)];
    case.reference = Judgement {
        status: Assertion::Asserted,
        lower_gbs: Some(300.0),
        upper_gbs: Some(350.0),
        source: "golden/h200.json".into(),
        note: String::new(),
    };
    case
}

pub fn warned() -> CaseResult {
    let mut case = slow();
    case.name = "broadcast::none::bfloat16::512MiB".into();
    case.outcome = Outcome::Pass;
    case.kind = None;
    case.reference.status = Assertion::Warned;
    case
}

pub fn hang() -> CaseResult {
    let mut case = case("alltoall::none::int8::64KiB");
    case.outcome = Outcome::Fail;
    case.kind = Some(FailKind::Hang);
    case.placements.clear();
    case.message = "no end after 30 s; rank 1 never called\nncclAlltoAll".into();
    case
}

pub fn fault() -> CaseResult {
    let mut case = case("all_reduce::sum::float::64KiB@fault-size");
    case.placements.clear();
    case.fault = Some(FaultRecord {
        name: "size".parse().unwrap(),
        family: crate::fault::Family::Mismatch,
        armed: vec![Deed { rank: 1, times: 1, what: "passes more elements than the others".into() }],
        noticed_by: vec![crate::fault::Detector::Deadline],
        class: "A.size".into(),
        culprits: vec![1],
        explanation: "rank 1 passes 6656 elements".into(),
        seconds: 1.52,
    });
    case
}

pub fn skip() -> CaseResult {
    let mut case = case("hypercube::none::float::1KiB");
    case.outcome = Outcome::Skip;
    case.placements.clear();
    case.message = "needs a power of two of ranks".into();
    case.duration_s = 0.0;
    case
}

/// One of each outcome.
pub fn all() -> Vec<CaseResult> {
    vec![pass(), wrong(), slow(), warned(), hang(), skip()]
}

pub fn environment() -> Environment {
    Environment {
        backend: "nccl".into(),
        ranks: 2,
        nodes: 1,
        ranks_per_gpu: 1,
        device: "NVIDIA H200".into(),
        devices: vec!["0 0000:00:06".into(), "1 0000:00:07".into()],
        link: "nvlink".into(),
        nccl_version: "2.28.9".into(),
        nccl_path: "/usr/lib/libnccl.so.2".into(),
        cuda_driver: "13.0".into(),
        driver: "580.159.04".into(),
        host: "vm".into(),
        os: "Linux 6.8".into(),
        variables: BTreeMap::from([("NCCL_ALGO".to_owned(), "Ring".to_owned())]),
    }
}

pub fn at() -> DateTime<Local> {
    DateTime::from_timestamp(1_750_000_000, 0).unwrap().with_timezone(&Local)
}

pub fn started(cases: usize) -> Event {
    let command = ["collcheck", "run", "--suite", "smoke"].map(str::to_owned).to_vec();
    Event::Started { at: at(), command, seed: 42, environment: Box::new(environment()), cases }
}

pub fn summary(cases: &[CaseResult]) -> Summary {
    let mut summary = Summary { duration_s: 12.5, ..Summary::default() };
    cases.iter().for_each(|case| summary.add(case));
    summary
}

/// A whole run's events.
pub fn events(cases: &[CaseResult]) -> Vec<Event> {
    let mut events = vec![started(cases.len())];
    for case in cases {
        events.push(Event::CaseStarted { case: case.name.parse().unwrap() });
        events.push(Event::CaseFinished { result: Box::new(case.clone()) });
    }
    events.push(Event::Finished { at: at(), summary: summary(cases) });
    events
}

/// Feeds them.
pub fn feed(consumer: &mut dyn Consumer, events: &[Event]) {
    for event in events {
        consumer.take(event).unwrap();
    }
}

/// A writer that can still be read when a consumer owns it.
#[derive(Clone, Default)]
pub struct Shared(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl Shared {
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl std::io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
