//! Golden files made of results: the rule on five real launches, what is refused, and the command.

mod cli_support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use cli_support::{Ended, refused, run};
use collcheck::backend::Environment;
use collcheck::case::Case;
use collcheck::measure::bandwidth;
use collcheck::reference::bless::{Launch, Refusal, Rule, bless};
use collcheck::reference::{Choice, GoldenFile, Judged, Metric, Observed, Provenance, References, Subject};
use collcheck::report::results::{Results, read_results};
use collcheck::run::assemble::frame;
use collcheck::run::result::{Assertion, CaseResult, FailKind, Outcome, PlacementResult, SCHEMA, Summary};

const FIGURES: &str = include_str!("data/bless/2xh200.csv");
/// The column of the launch with five iterations.
const FIVE_ITERATIONS: usize = 5;

fn environment() -> Environment {
    Environment {
        backend: "nccl".into(),
        ranks: 2,
        nodes: 1,
        ranks_per_gpu: 1,
        device: "NVIDIA H200".into(),
        link: "nvlink".into(),
        nccl_version: "2.28.9".into(),
        driver: "580.159.04".into(),
        host: "vm".into(),
        variables: BTreeMap::from([("NCCL_NVLS_ENABLE".into(), "0".into())]),
        ..Environment::default()
    }
}

fn placement(case: &Case, in_place: bool, mean_us: f64) -> PlacementResult {
    let unit = case.primitive.unit();
    let bytes = unit.algbw_bytes(&case.workload(2));
    PlacementResult {
        in_place,
        mean_us,
        time_us: None,
        algbw_gbs: bandwidth::algbw_gbs(bytes, mean_us),
        busbw_gbs: bandwidth::busbw_gbs(bytes, unit.busbw_factor(2), mean_us),
        wrong: Some(0),
        first_wrong: None,
        agree: None,
        repeats: None,
    }
}

fn launch(started: usize, cases: Vec<CaseResult>) -> Launch {
    let results = Results {
        schema: SCHEMA.into(),
        collcheck: "0.1.0".into(),
        started: format!("2026-11-30T10:4{started}:00.5+00:00"),
        finished: Some(format!("2026-11-30T10:4{started}:05.5+00:00")),
        command: ["/tmp/collcheck", "run", "--suite", "acceptance", "--json", "/tmp/o1.json"].map(str::to_owned).into(),
        seed: 0,
        environment: environment(),
        aborted: None,
        cases,
        summary: Summary::default(),
    };
    Launch { name: format!("o{started}.json"), results }
}

/// The launch in this column of the table, from 0.
fn measured(column: usize) -> Launch {
    let mut cases: Vec<CaseResult> = Vec::new();
    for line in FIGURES.lines().skip(1) {
        let mut fields = line.split(',');
        let (name, in_place) = (fields.next().unwrap(), fields.next().unwrap() == "1");
        let case: Case = name.parse().unwrap();
        let placement = placement(&case, in_place, fields.nth(column).unwrap().parse().unwrap());
        match cases.last_mut().filter(|last| last.name == name) {
            Some(last) => last.placements.push(placement),
            None => cases.push(CaseResult { placements: vec![placement], ..frame(&case, 2) }),
        }
    }
    launch(column, cases)
}

fn five() -> Vec<Launch> {
    (0..5).map(measured).collect()
}

/// Launches of one case at some times.
fn of_one(case: &str, times: &[f64]) -> Vec<Launch> {
    let case: Case = case.parse().unwrap();
    let result = |us: &f64| CaseResult { placements: vec![placement(&case, false, *us)], ..frame(&case, 2) };
    times.iter().enumerate().map(|(i, us)| launch(i, vec![result(us)])).collect()
}

fn references(launches: &[Launch]) -> References {
    let blessed = bless(launches, Rule::default(), None).unwrap();
    assert!(blessed.left_out.is_empty(), "{:?}", blessed.left_out);
    let mut references = References::none();
    references.add("mine.json", &blessed.file.to_json().unwrap()).unwrap();
    references
}

fn judge(references: &References, environment: &Environment, result: &CaseResult) -> Judged {
    references.judge(&Subject {
        environment,
        observed: Observed::default(),
        case: &result.name.parse().unwrap(),
        ranks: result.ranks,
        bytes: result.bytes,
        placements: &result.placements,
        path: None,
    })
}

/// Judges each case of a launch, all of which must be asserted, and returns what is said against it.
fn alarms(references: &References, launch: &Launch) -> Vec<String> {
    let judged = launch.results.cases.iter().filter_map(|case| {
        let judged = judge(references, &launch.results.environment, case);
        assert_eq!(judged.judgement.status, Assertion::Asserted, "{}: {}", case.name, judged.judgement.note);
        judged.failure.map(|(_, message)| message)
    });
    judged.collect()
}

#[test]
fn every_figure_of_every_launch_is_inside_its_own_file() {
    let references = references(&five());
    for launch in five() {
        assert_eq!(launch.results.cases.len(), 308);
        assert_eq!(alarms(&references, &launch), [""; 0]);
    }
}

#[test]
fn four_launches_accept_the_fifth() {
    for left_out in 0..5 {
        let mut others = five();
        let fifth = others.remove(left_out);
        assert_eq!(alarms(&references(&others), &fifth), [""; 0], "without launch {}", left_out + 1);
    }
}

#[test]
fn three_launches_accept_the_others() {
    for (a, b) in (0..5).flat_map(|a| (a + 1..5).map(move |b| (a, b))) {
        let three: Vec<Launch> = (0..5).filter(|i| ![a, b].contains(i)).map(measured).collect();
        let references = references(&three);
        for other in [a, b] {
            assert_eq!(alarms(&references, &measured(other)), [""; 0], "without {a} and {b}");
        }
    }
}

#[test]
fn a_launch_with_fewer_iterations_is_accepted() {
    assert_eq!(alarms(&references(&five()), &measured(FIVE_ITERATIONS)), [""; 0]);
}

#[test]
fn half_the_busbw_is_slow_and_twice_is_too_fast_wherever_latency_is_not_all() {
    let references = references(&five());
    let environment = environment();
    for case in measured(2).results.cases.iter().filter(|case| case.bytes >= 8 << 20) {
        for (factor, kind) in [(2.0, FailKind::Slow), (0.5, FailKind::TooFast)] {
            let mut changed = case.clone();
            let last = changed.placements.last_mut().unwrap();
            *last = placement(&case.name.parse().unwrap(), last.in_place, last.mean_us * factor);
            let judged = judge(&references, &environment, &changed);
            assert_eq!(judged.failure.map(|f| f.0), Some(kind), "{} x {factor}", case.name);
        }
    }
}

#[test]
fn bandwidth_is_told_within_a_seventh_at_a_quarter_of_a_gibibyte_and_more() {
    let file = bless(&five(), Rule::default(), None).unwrap().file;
    for entry in &file.entries {
        for point in entry.points.iter().filter(|p| p.bytes >= 1 << 28 && p.value.is_some()) {
            let (value, lower, upper) = (point.value.unwrap(), point.lower.unwrap(), point.upper.unwrap());
            let wide = (1.0 - lower / value).max(upper / value - 1.0);
            assert!(wide < 1.0 / 7.0, "{} at {}: {lower} to {upper}", entry.primitive, point.bytes);
        }
    }
}

#[test]
fn reductions_are_keyed_by_op_and_dtype_and_bytes_are_bytes() {
    let references = references(&five());
    let status = |name: &str, us| {
        let case: Case = name.parse().unwrap();
        let result = CaseResult { placements: vec![placement(&case, false, us)], ..frame(&case, 2) };
        judge(&references, &environment(), &result).judgement.status
    };
    assert_eq!(status("all_reduce::sum::float::64MiB", 249.0), Assertion::Asserted);
    assert_eq!(status("all_reduce::sum::half::64MiB", 249.0), Assertion::Unasserted);
    assert_eq!(status("all_reduce::max::float::64MiB", 249.0), Assertion::Unasserted);
    assert_eq!(status("all_gather::none::int8::64MiB", 200.0), Assertion::Asserted);
    assert_eq!(status("all_gather::none::int8::2GiB", 200.0), Assertion::Unasserted, "nothing larger was measured");
    assert_eq!(status("all_gather::none::int8::96MiB", 300.0), Assertion::Asserted, "between two sizes");
    assert_eq!(
        status("all_reduce::sum::float::1536KiB", 20.0),
        Assertion::Unasserted,
        "NCCL changes its protocol there: 14 us at 1 MiB, 28 us at 2 MiB"
    );
}

#[test]
fn the_key_and_the_source_are_those_of_the_results() {
    let file = bless(&five(), Rule::default(), None).unwrap().file;
    let key = &file.environment;
    assert_eq!((key.gpu.as_slice(), key.gpus_per_node, key.nodes), (&["NVIDIA H200".to_owned()][..], 2, 1));
    assert_eq!((&key.nvls, key.nccl.to_string().as_str()), (&Choice::only(false), "2.28"));
    assert_eq!(file.entries.len(), 11);
    for entry in &file.entries {
        assert_eq!((entry.provenance, &entry.algorithm), (Provenance::Measured, &Choice::Any));
        assert_eq!(
            entry.source,
            "collcheck 0.1.0, 2026-11-30, 5 launches of `collcheck run --suite acceptance`, on vm"
        );
    }
    assert_eq!(
        file.description,
        "5 launches: 2 ranks on NVIDIA H200, NCCL 2.28.9, driver 580.159.04, NCCL_NVLS_ENABLE=0"
    );
}

/// A file made under `NCCL_ALGO` must hold for the runs that it was made of.
#[test]
fn a_forced_algorithm_becomes_part_of_the_key() {
    let mut launches = five();
    for launch in &mut launches {
        launch.results.environment.variables = BTreeMap::from([("NCCL_ALGO".into(), "Ring".into())]);
    }
    let references = references(&launches);
    assert_eq!(alarms(&references, &launches[0]), [""; 0]);
    let free = Environment { variables: BTreeMap::new(), ..environment() };
    let judged = judge(&references, &free, &launches[0].results.cases[0]);
    assert_eq!(judged.judgement.status, Assertion::Unasserted, "{judged:?}");
}

#[test]
fn another_root_counts_and_other_variants_do_not() {
    let mut launches = of_one("broadcast::none::float::64MiB", &[200.0, 200.0, 200.0]);
    for launch in &mut launches {
        for (name, us) in
            [("broadcast::none::float::64MiB@root1", 220.0), ("broadcast::none::float::64MiB@graph", 900.0)]
        {
            let case: Case = name.parse().unwrap();
            launch.results.cases.push(CaseResult { placements: vec![placement(&case, false, us)], ..frame(&case, 2) });
        }
    }
    let file = bless(&launches, Rule::default(), None).unwrap().file;
    let busbw = |us: f64| (1 << 26) as f64 / us / 1e3;
    let lower = file.entries[0].points[0].lower.unwrap();
    assert!(lower < busbw(220.0) && lower > busbw(240.0), "{lower}");
}

#[test]
fn a_case_that_few_launches_timed_is_left_out_by_name() {
    let mut launches = five();
    let gone = "alltoall::none::float::1GiB";
    launches.iter_mut().skip(2).for_each(|l| l.results.cases.retain(|case| case.name != gone));
    let blessed = bless(&launches, Rule::default(), None).unwrap();
    assert_eq!(blessed.left_out.into_iter().collect::<Vec<_>>(), [gone]);
    let entry = blessed.file.entries.iter().find(|e| e.primitive.name() == "alltoall").unwrap();
    assert_eq!(entry.points.last().unwrap().bytes, 1 << 29);
}

/// Changes the third of five launches, and returns why they are refused.
fn refusal(change: impl FnOnce(&mut Launch)) -> Refusal {
    let mut launches = of_one("all_reduce::sum::float::1MiB", &[14.0, 13.9, 13.8, 13.7, 13.6]);
    change(&mut launches[2]);
    bless(&launches, Rule::default(), None).unwrap_err()
}

#[test]
fn launches_of_different_environments_are_refused() {
    type Change = fn(&mut Environment);
    let changes: [(Change, &str); 8] = [
        (|e| e.nccl_version = "2.28.3".into(), r#"NCCL "2.28.9" and "2.28.3""#),
        (|e| e.driver = "570.1".into(), "driver"),
        (|e| e.device = "NVIDIA H100".into(), "NVIDIA H100"),
        (|e| e.link = "pcie".into(), "link"),
        (|e| e.nodes = 2, "nodes"),
        (|e| e.backend = "host".into(), "backend"),
        (|e| drop(e.variables.insert("NCCL_ALGO".into(), "Tree".into())), "NCCL_ALGO=Tree in one only"),
        (|e| e.variables.clear(), "NCCL_NVLS_ENABLE=0 in one only"),
    ];
    for (change, says) in changes {
        let refusal = refusal(|l| change(&mut l.results.environment));
        let text = refusal.to_string();
        assert!(matches!(refusal, Refusal::Unlike { .. }) && text.contains(says), "{text}");
        assert!(text.contains("o0.json and o2.json"), "{text}");
    }
    let mut launches = of_one("all_reduce::sum::float::1MiB", &[14.0, 13.9, 13.8]);
    launches[1].results.environment.variables.insert("NCCL_DEBUG".into(), "WARN".into());
    launches[1].results.environment.host = "another".into();
    assert!(bless(&launches, Rule::default(), None).is_ok(), "what is logged, and on which host, does not matter");
}

#[test]
fn what_failed_is_no_standard_but_what_was_slow_may_be_the_new_one() {
    for kind in [FailKind::Data, FailKind::Hang, FailKind::Crash, FailKind::Error] {
        let refusal = refusal(|l| {
            let case = &mut l.results.cases[0];
            (case.outcome, case.kind) = (Outcome::Fail, Some(kind));
        });
        let says = format!("o2.json: all_reduce::sum::float::1MiB failed ({})", kind.name());
        assert!(refusal.to_string().starts_with(&says), "{refusal}");
    }
    let mut launches = of_one("all_reduce::sum::float::1MiB", &[14.0, 13.9, 13.8]);
    (launches[0].results.cases[0].outcome, launches[0].results.cases[0].kind) = (Outcome::Fail, Some(FailKind::Slow));
    assert!(bless(&launches, Rule::default(), None).is_ok());
}

#[test]
fn one_launch_twice_is_refused_and_so_are_too_few() {
    let mut launches = five();
    launches[3] = Launch { name: "copy.json".into(), ..launches[1].clone() };
    let text = bless(&launches, Rule::default(), None).unwrap_err().to_string();
    assert!(text.contains("o1.json and copy.json are the same launch"), "{text}");
    let two = &five()[..2];
    assert_eq!(bless(two, Rule::default(), None).unwrap_err(), Refusal::TooFew { given: 2, needed: 3 });
    assert!(bless(two, Rule { min_launches: 2, ..Rule::default() }, None).is_ok());
    assert!(matches!(bless(&[], Rule::default(), None), Err(Refusal::TooFew { given: 0, .. })));
}

#[test]
fn runs_that_are_not_one_whole_checked_launch_are_refused() {
    let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
    for (command, option) in [
        (&["c", "run", "--repeat", "5"][..], "--repeat"),
        (&["c", "run", "--repeat=2"], "--repeat"),
        (&["c", "--soak", "1h"], "--soak"),
    ] {
        let refusal = refusal(|l| l.results.command = words(command));
        assert!(matches!(refusal, Refusal::NotOneLaunch { option: o, .. } if o == option), "{refusal}");
    }
    assert!(refusal(|l| l.results.aborted = Some("interrupted".into())).to_string().contains("interrupted"));
    assert!(matches!(refusal(|l| l.results.finished = None), Refusal::Unfinished { .. }));
    assert!(refusal(|l| l.results.cases[0].placements[0].wrong = None).to_string().contains("--no-check"));
}

#[test]
fn ranks_that_share_a_gpu_and_untimed_cases_give_no_ranges() {
    let mut shared = five();
    shared.iter_mut().for_each(|l| l.results.environment.ranks_per_gpu = 2);
    assert!(bless(&shared, Rule::default(), None).unwrap_err().to_string().contains("ranks share a GPU"));
    let untimed = of_one("all_reduce::sum::float::1MiB", &[f64::NAN, 0.0, f64::INFINITY]);
    assert_eq!(bless(&untimed, Rule::default(), None).unwrap_err(), Refusal::Nothing { needed: 3 });
    let mut skipped = five();
    skipped.iter_mut().for_each(|l| l.results.cases.iter_mut().for_each(|c| c.placements.clear()));
    assert_eq!(bless(&skipped, Rule::default(), None).unwrap_err(), Refusal::Nothing { needed: 3 });
}

/// Rounded as they are in the table, the figures make the file that is in the binary; it has those of bandwidth only.
#[test]
fn the_embedded_file_is_the_one_that_the_launches_make() {
    let references = References::embedded().unwrap();
    let (_, embedded) = references.files().find(|(name, _)| *name == "2xh200-measured.json").unwrap();
    let made = bless(&five(), Rule::default(), None).unwrap().file;
    assert_eq!(made.environment, embedded.environment);
    let near = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => (a / b - 1.0).abs() < 2e-3,
        (a, b) => a == b,
    };
    assert_eq!(made.entries.len(), embedded.entries.len());
    for (a, b) in made.entries.iter().zip(&embedded.entries) {
        let wide: Vec<_> = a.points.iter().filter(|point| point.metric == Metric::BusbwGbs).collect();
        assert_eq!((a.primitive, &a.op, &a.dtype, wide.len()), (b.primitive, &b.op, &b.dtype, b.points.len()));
        for (p, q) in wide.into_iter().zip(&b.points) {
            assert_eq!((p.bytes, p.metric), (q.bytes, q.metric), "{}", a.primitive);
            assert!(near(p.lower, q.lower) && near(p.value, q.value) && near(p.upper, q.upper), "{p:?} {q:?}");
        }
    }
}

fn recorded(launch: usize) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/bless/launch{launch}.json"))
}

fn command(options: &[&str]) -> Ended {
    let files = [1, 2, 3].map(|i| recorded(i).display().to_string());
    let words: Vec<&str> =
        ["bless"].into_iter().chain(files.iter().map(String::as_str)).chain(options.iter().copied()).collect();
    run(&words, &[])
}

#[test]
fn the_command_writes_a_file_that_judges_the_next_launch() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("golden.json");
    let output = path.display().to_string();
    let ended = command(&["-o", &output, "--description", "rack 7"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{}", ended.stderr);
    assert!(ended.stderr.contains("all_reduce sum float: time at 8B to "), "{}", ended.stderr);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("\n        {\"bytes\": 8, \"metric\": \"time_us\", \"value\": "), "a line a point: {text}");
    assert_eq!(GoldenFile::parse("golden.json", &text).unwrap().description, "rack 7");

    let mut references = References::embedded().unwrap();
    references.load(&path).unwrap();
    let launch = Launch { name: "1".into(), results: read_results(&recorded(1)).unwrap() };
    assert_eq!(alarms(&references, &launch), [""; 0]);
    let mut slow = launch.results.cases.iter().find(|c| c.name == "all_reduce::sum::float::256MiB").unwrap().clone();
    slow.placements[1].mean_us *= 2.0;
    slow.placements[1].busbw_gbs /= 2.0;
    let (kind, message) = judge(&references, &launch.results.environment, &slow).failure.unwrap();
    assert_eq!(kind, FailKind::Slow);
    assert!(message.contains("in place") && message.contains("golden.json"), "{message}");
}

#[test]
fn without_a_file_to_write_it_goes_to_standard_output() {
    let ended = command(&[]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(GoldenFile::parse("stdout", &ended.stdout).unwrap().entries.len(), 2);
}

#[test]
fn an_existing_file_is_replaced_only_by_force() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("golden.json");
    fs::write(&path, "mine").unwrap();
    let output = path.display().to_string();
    let ended = command(&["-o", &output]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("is there already; --force replaces it"), "{}", ended.stderr);
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    assert_eq!(command(&["-o", &output, "--force"]).code, Some(0));
    assert_ne!(fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn a_refused_command_ends_with_2_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("golden.json").display().to_string();
    let [one, two] = [1, 2].map(|i| recorded(i).display().to_string());
    let broken = folder.path().join("broken.json");
    fs::write(&broken, "{}").unwrap();
    let broken = broken.display().to_string();
    for (files, says) in [
        (vec![one.as_str(), &two], "too few launches to tell how far launches differ: 2, expected at least 3"),
        (vec![&one, &two, &one], "are the same launch"),
        (vec![&one, &two, "/nowhere.json"], "cannot read /nowhere.json"),
        (vec![&one, &two, &broken], "expected schema \"collcheck.results/1\""),
    ] {
        let said = refused(&[&["bless"], files.as_slice(), &["-o", &output]].concat(), &[]);
        assert!(said.contains(says), "{said}");
        assert!(!Path::new(&output).exists());
    }
    for (option, value, says) in [
        ("--min-launches", "1", "a whole number from 2 to 1000"),
        ("--tolerance", "5%", "a share between 0 and 1"),
        ("-o", "-", "expected a file"),
        ("-o", "/nowhere/golden.json", "does not exist"),
    ] {
        let said = refused(&["bless", &one, option, value], &[]);
        assert!(said.contains(says), "{said}");
    }
    assert!(refused(&["bless", &one], &[("COLLCHECK_MIN_LAUNCHES", "x")]).contains("COLLCHECK_MIN_LAUNCHES"));
    assert!(refused(&["bless"], &[]).contains("RESULTS"));
}
