//! How results are judged by reference ranges: which entry applies, and what follows.

use collcheck::backend::Environment;
use collcheck::case::Case;
use collcheck::reference::{EnvironmentKey, Judged, Nics, Observed, References, Subject, missing_reference};
use collcheck::run::result::{Assertion, FailKind, Path, PlacementResult};

fn environment(device: &str, ranks: u32, nodes: u32, link: &str) -> Environment {
    Environment {
        backend: "nccl".into(),
        ranks,
        nodes,
        ranks_per_gpu: 1,
        device: device.into(),
        link: link.into(),
        nccl_version: "2.28.9".into(),
        ..Environment::default()
    }
}

fn with(mut environment: Environment, variable: &str, value: &str) -> Environment {
    environment.variables.insert(variable.into(), value.into());
    environment
}

fn placement(in_place: bool, mean_us: f64, busbw_gbs: f64) -> PlacementResult {
    PlacementResult {
        in_place,
        mean_us,
        time_us: None,
        algbw_gbs: busbw_gbs,
        busbw_gbs,
        wrong: Some(0),
        first_wrong: None,
        agree: None,
        repeats: None,
    }
}

/// A case with its figures, judged; each test changes what it is about.
struct Trial<'a> {
    references: &'a References,
    environment: Environment,
    observed: Observed,
    case: &'a str,
    path: Option<&'a str>,
    mean_us: f64,
}

impl<'a> Trial<'a> {
    fn new(references: &'a References, environment: Environment, case: &'a str) -> Self {
        Trial { references, environment, observed: Observed::default(), case, path: None, mean_us: 100.0 }
    }

    fn nics(mut self, per_node: u32, gbits: u32) -> Self {
        self.observed.nics = Some(Nics { per_node, gbits });
        self
    }

    fn ran(mut self, algo: &'a str) -> Self {
        self.path = Some(algo);
        self
    }

    fn took(mut self, mean_us: f64) -> Self {
        self.mean_us = mean_us;
        self
    }

    fn placements(&self, placements: &[PlacementResult]) -> Judged {
        let case: Case = self.case.parse().unwrap();
        let path = self.path.map(|algo| Path { algo: algo.into(), proto: "SIMPLE".into(), channels: 8 });
        self.references.judge(&Subject {
            environment: &self.environment,
            observed: self.observed,
            case: &case,
            ranks: self.environment.ranks,
            bytes: case.size.0,
            placements,
            path: path.as_ref(),
        })
    }

    fn busbw(&self, gbs: f64) -> Judged {
        self.placements(&[placement(false, self.mean_us, gbs)])
    }
}

fn embedded() -> References {
    References::embedded().expect("the embedded files are read")
}

fn golden(provenance: &str, rest: &str) -> String {
    format!(
        r#"{{"schema": "collcheck.golden/1",
            "environment": {{"gpu": ["NVIDIA H200"], "gpus_per_node": 2, "nodes": 1, "link": "nvlink", "nvls": "any", "nccl": "2.28"}},
            "entries": [{{"primitive": "all_reduce", "provenance": "{provenance}", "source": "bench", {rest}}}]}}"#
    )
}

fn one_file(provenance: &str, rest: &str) -> References {
    let mut references = References::none();
    references.add("mine.json", &golden(provenance, rest)).unwrap();
    references
}

const RANGE: &str = r#""points": [{"bytes": 8, "metric": "time_us", "lower": 10, "upper": 20},
    {"bytes": 1048576, "metric": "busbw_gbs", "lower": 40, "upper": 50},
    {"bytes": 4194304, "metric": "busbw_gbs", "lower": 160, "upper": 200, "plateau": true}]"#;

fn h200x2() -> Environment {
    environment("NVIDIA H200", 2, 1, "nvlink")
}

#[test]
fn each_single_node_row_of_typical_ranges_is_found() {
    let references = embedded();
    let rows = [
        ("NVIDIA H100 80GB HBM3", "nvlink", [(10.0, 20.0), (40.0, 80.0), (250.0, 400.0), (350.0, 480.0)]),
        ("NVIDIA A100-SXM4-80GB", "nvlink", [(12.0, 25.0), (30.0, 60.0), (150.0, 230.0), (220.0, 280.0)]),
        ("NVIDIA A40", "pcie", [(20.0, 40.0), (5.0, 10.0), (10.0, 20.0), (10.0, 25.0)]),
    ];
    for (device, link, [time, one, many, plateau]) in rows {
        let environment = environment(device, 8, 1, link);
        // No narrower entry holds for a max of int8.
        for (size, (lower, upper)) in [("1MiB", one), ("64MiB", many), ("1GiB", plateau), ("32GiB", plateau)] {
            let case = format!("all_reduce::max::int8::{size}");
            let judged = Trial::new(&references, environment.clone(), &case).busbw(lower).judgement;
            assert_eq!(judged.status, Assertion::Published, "{device} {size}: {}", judged.note);
            assert_eq!((judged.lower_gbs, judged.upper_gbs), (Some(lower), Some(upper)), "{device} {size}");
            assert!(judged.source.contains("typical range, not measured"), "{}", judged.source);
        }
        let at = |us| Trial::new(&references, environment.clone(), "all_reduce::sum::float::8B").took(us).busbw(0.001);
        for (us, status) in [
            (time.0, Assertion::Published),
            (time.1, Assertion::Published),
            // who drives the ranks makes so much of a difference, and not more
            (time.0 / 2.4, Assertion::Published),
            (time.0 / 2.6, Assertion::Warned),
            (time.1 * 1.1, Assertion::Warned),
        ] {
            assert_eq!(at(us).judgement.status, status, "{device} {us}: {:?}", at(us));
        }
    }
}

#[test]
fn each_two_node_row_of_typical_ranges_is_found_and_its_busbw_is_disputed() {
    let references = embedded();
    let rows = [
        (8, 400, (25.0, 45.0), "2x8xh100-8x400g.json", [(15.0, 25.0), (35.0, 45.0), (40.0, 48.0)]),
        (8, 200, (25.0, 45.0), "2x8xh100-8x200g.json", [(10.0, 18.0), (18.0, 23.0), (20.0, 24.0)]),
        (1, 400, (30.0, 50.0), "2x8-one-ndr.json", [(3.0, 5.0), (5.0, 6.0), (5.0, 6.2)]),
    ];
    for (cards, gbits, time, file, ranges) in rows {
        let environment = environment("NVIDIA H100 80GB HBM3", 16, 2, "nvlink");
        let trial = |case, us| {
            let trial = Trial::new(&references, environment.clone(), case).nics(cards, gbits).ran("RING").took(us);
            trial.busbw(45.0).judgement
        };
        assert_eq!(trial("all_reduce::sum::float::8B", time.0).status, Assertion::Published);
        assert_eq!(trial("all_reduce::sum::float::8B", time.1 + 0.1).status, Assertion::Warned);
        let large = trial("all_reduce::sum::float::1GiB", 1.0);
        assert_eq!(large.status, Assertion::Unasserted);
        assert!(large.note.contains(file) && large.note.contains("disputed"), "{}", large.note);
        let (_, golden) = references.files().find(|(name, _)| *name == file).unwrap();
        let entry = golden.entries.iter().find(|e| e.disputed.is_some()).unwrap();
        let stated: Vec<_> = entry.points.iter().map(|p| (p.lower.unwrap(), p.upper.unwrap())).collect();
        assert_eq!(stated, ranges, "{file}");
    }
}

#[test]
fn nvls_on_and_off_have_their_own_plateau() {
    let references = embedded();
    let h200 = environment("NVIDIA H200", 8, 1, "nvlink");
    let judge = |environment: &Environment, case, gbs| {
        Trial::new(&references, environment.clone(), case).busbw(gbs).judgement.status
    };
    let sum = "all_reduce::sum::bfloat16::16GiB";
    assert_eq!(judge(&h200, sum, 480.0), Assertion::Published);
    assert_eq!(judge(&h200, sum, 367.0), Assertion::Warned, "NVLS was lost");
    let off = with(h200.clone(), "NCCL_NVLS_ENABLE", "0");
    assert_eq!(judge(&off, sum, 367.0), Assertion::Published);
    assert_eq!(judge(&off, sum, 480.0), Assertion::Warned);
    let ring = with(h200.clone(), "NCCL_ALGO", "Ring");
    assert_eq!(judge(&ring, sum, 367.0), Assertion::Published);
    // The switch cannot multiply: a product runs on a ring, and no figure is known for it.
    assert_eq!(judge(&h200, "all_reduce::prod::float::16GiB", 367.0), Assertion::Unasserted);
}

#[test]
fn the_algorithm_is_part_of_the_key() {
    let references = embedded();
    let h100 = environment("NVIDIA H100 80GB HBM3", 16, 2, "nvlink");
    let case = "all_reduce::sum::float::8GiB";
    let trial = || Trial::new(&references, h100.clone(), case).nics(8, 400);
    assert_eq!(trial().ran("TREE").busbw(470.0).judgement.status, Assertion::Published);
    assert_eq!(trial().ran("RING").busbw(470.0).judgement.status, Assertion::Warned);
    assert_eq!(trial().ran("RING").busbw(376.0).judgement.status, Assertion::Published);
    let unknown = trial().busbw(376.0).judgement;
    assert_eq!(unknown.status, Assertion::Unasserted);
    assert!(unknown.note.contains("the algorithm"), "{}", unknown.note);
    let forced = Trial::new(&references, with(h100.clone(), "NCCL_ALGO", "Tree"), case).nics(8, 400);
    assert_eq!(forced.busbw(470.0).judgement.status, Assertion::Published);
}

#[test]
fn unknown_network_cards_leave_two_nodes_unasserted() {
    let references = embedded();
    let h100 = environment("NVIDIA H100 80GB HBM3", 16, 2, "nvlink");
    let judged = Trial::new(&references, h100, "all_reduce::sum::float::8B").took(30.0).busbw(0.001).judgement;
    assert_eq!(judged.status, Assertion::Unasserted);
    assert!(judged.note.contains("the network cards"), "{}", judged.note);
}

#[test]
fn only_a_measured_range_fails_a_case() {
    for (provenance, rest) in
        [("published", RANGE), ("gate", r#""points": [{"bytes": 1048576, "metric": "busbw_gbs", "lower": 40}]"#)]
    {
        let references = one_file(provenance, rest);
        let trial = Trial::new(&references, h200x2(), "all_reduce::sum::float::1MiB");
        let judged = trial.busbw(1.0);
        assert_eq!((judged.judgement.status, judged.failure), (Assertion::Warned, None));
        assert!(judged.judgement.note.contains("busbw 1 GB/s"), "{}", judged.judgement.note);
        assert_eq!(trial.busbw(45.0).judgement.status, Assertion::Published);
    }
    let references = one_file("measured", RANGE);
    let judged = Trial::new(&references, h200x2(), "all_reduce::sum::float::1MiB").busbw(1.0);
    assert_eq!(judged.judgement.status, Assertion::Asserted);
    assert_eq!(judged.failure.unwrap().0, FailKind::Slow);
}

#[test]
fn some_embedded_files_are_measured_and_go_before_published_ones_where_they_hold() {
    let references = embedded();
    for (name, file) in references.files() {
        let measured = file.entries.iter().filter(|e| e.provenance.to_string() == "measured").count();
        assert_eq!(measured, if name.ends_with("-measured.json") { file.entries.len() } else { 0 }, "{name}");
    }
    let off = with(h200x2(), "NCCL_NVLS_ENABLE", "0");
    let other_nccl = Environment { nccl_version: "2.30.7".into(), ..off.clone() };
    for (environment, case, status) in [
        (off.clone(), "all_reduce::sum::float::512MiB", Assertion::Asserted),
        (off.clone(), "broadcast::none::int8::512MiB", Assertion::Asserted),
        (off.clone(), "all_reduce::sum::half::512MiB", Assertion::Warned),
        (off.clone(), "all_reduce::sum::float::8GiB", Assertion::Warned),
        (h200x2(), "all_reduce::sum::float::512MiB", Assertion::Warned),
        (other_nccl, "all_reduce::sum::float::512MiB", Assertion::Warned),
    ] {
        let judged = Trial::new(&references, environment, case).busbw(200.0);
        assert_eq!(judged.judgement.status, status, "{case}: {judged:?}");
        assert_eq!(judged.failure.is_some(), status == Assertion::Asserted, "{case}");
    }
}

#[test]
fn bounds_are_inside_and_a_failure_states_figure_bounds_and_source() {
    let references = one_file("measured", RANGE);
    let trial = Trial::new(&references, h200x2(), "all_reduce::sum::float::1MiB");
    for (gbs, kind) in [(40.0, None), (50.0, None), (39.999, Some(FailKind::Slow)), (50.001, Some(FailKind::TooFast))] {
        let judged = trial.busbw(gbs);
        assert_eq!(judged.judgement.status, Assertion::Asserted);
        assert_eq!(judged.failure.map(|f| f.0), kind, "{gbs}");
    }
    let (_, message) = trial.busbw(31.5).failure.unwrap();
    for part in ["31.5 GB/s", "below 40 to 50 GB/s", "1MiB", "out of place", "bench", "mine.json"] {
        assert!(message.contains(part), "{part:?} in {message:?}");
    }
}

#[test]
fn where_a_reference_bounds_the_time_the_time_is_judged() {
    let references = one_file("measured", RANGE);
    for (us, kind) in [(10.0, None), (20.0, None), (20.01, Some(FailKind::Slow)), (9.99, Some(FailKind::TooFast))] {
        let judged = Trial::new(&references, h200x2(), "all_reduce::sum::float::8B").took(us).busbw(0.0005);
        assert_eq!(judged.judgement.status, Assertion::Asserted);
        assert_eq!((judged.judgement.lower_gbs, judged.judgement.upper_gbs), (None, None));
        assert!(judged.judgement.source.contains("time 10 to 20 us"), "{}", judged.judgement.source);
        assert_eq!(judged.failure.map(|f| f.0), kind, "{us}");
    }
}

#[test]
fn each_placement_must_be_inside() {
    let references = one_file("measured", RANGE);
    let trial = Trial::new(&references, h200x2(), "all_reduce::sum::float::1MiB");
    let judged = trial.placements(&[placement(false, 40.0, 45.0), placement(true, 60.0, 30.0)]);
    let (kind, message) = judged.failure.unwrap();
    assert_eq!(kind, FailKind::Slow);
    assert!(message.contains("(in place)"), "{message}");
}

/// 2 MiB is half way from 1 to 4 MiB in log(bytes): sqrt(40 * 160) = 80, sqrt(50 * 200) = 100.
#[test]
fn between_sizes_the_range_is_interpolated_in_log_space() {
    let references = one_file("measured", RANGE);
    let judged = Trial::new(&references, h200x2(), "all_reduce::sum::float::2MiB").busbw(90.0).judgement;
    let near = |bound: Option<f64>, hand: f64| bound.is_some_and(|b| (b - hand).abs() < 1e-9);
    assert!(near(judged.lower_gbs, 80.0) && near(judged.upper_gbs, 100.0), "{judged:?}");
    let plateau = Trial::new(&references, h200x2(), "all_reduce::sum::float::1GiB").busbw(160.0).judgement;
    assert_eq!(plateau.lower_gbs, Some(160.0));
}

#[test]
fn what_is_unasserted_says_why() {
    let references = one_file("measured", RANGE);
    let shared = Environment { ranks_per_gpu: 2, ..h200x2() };
    let cases = [
        (h200x2(), "all_reduce::sum::float::64KiB", "no reference at 64KiB"),
        (h200x2(), "all_gather::none::float::1MiB", "no reference for all_gather on 2 ranks"),
        (h200x2(), "all_reduce::sum::float::1MiB@odd", "not for odd"),
        (environment("NVIDIA H200", 4, 1, "nvlink"), "all_reduce::sum::float::1MiB", "on 4 ranks"),
        (environment("NVIDIA H200", 2, 2, "nvlink"), "all_reduce::sum::float::1MiB", "no reference"),
        (environment("NVIDIA H100 NVL", 2, 1, "nvlink"), "all_reduce::sum::float::1MiB", "H100 NVL"),
        (environment("NVIDIA H200", 2, 1, "pcie"), "all_reduce::sum::float::1MiB", "no reference"),
        (environment("NVIDIA H200", 2, 1, ""), "all_reduce::sum::float::1MiB", "the link between GPUs"),
        (environment("NVIDIA H200", 2, 1, "same-gpu"), "all_reduce::sum::float::1MiB", "ranks share a GPU"),
        (shared, "all_reduce::sum::float::1MiB", "ranks share a GPU"),
        (environment("NVIDIA H200", 1, 1, "nvlink"), "all_reduce::sum::float::1MiB", "one rank"),
        (Environment { nccl_version: "2.27.7".into(), ..h200x2() }, "all_reduce::sum::float::1MiB", "no reference"),
        (Environment { nccl_version: String::new(), ..h200x2() }, "all_reduce::sum::float::1MiB", "NCCL version"),
        (Environment { backend: "host".into(), ..h200x2() }, "all_reduce::sum::float::1MiB", "files made for it"),
    ];
    for (environment, case, why) in cases {
        let judged = Trial::new(&references, environment, case).busbw(1.0);
        assert_eq!((judged.judgement.status, &judged.failure), (Assertion::Unasserted, &None), "{case}: {judged:?}");
        assert!(judged.judgement.note.contains(why), "{why:?} in {:?}", judged.judgement.note);
        assert!(missing_reference(&judged.judgement).unwrap().contains(why));
    }
    let trial = Trial::new(&references, h200x2(), "all_reduce::sum::float::1MiB");
    assert_eq!(trial.placements(&[]).judgement.note, "nothing was measured");
    for (us, gbs) in [(f64::NAN, 45.0), (0.0, 45.0), (10.0, f64::INFINITY)] {
        assert_eq!(trial.placements(&[placement(false, us, gbs)]).judgement.note, "no time was measured");
    }
}

#[test]
fn a_required_reference_is_a_measured_one() {
    let measured = one_file("measured", RANGE);
    let published = one_file("published", RANGE);
    let judge = |references: &References| {
        Trial::new(references, h200x2(), "all_reduce::sum::float::1MiB").busbw(45.0).judgement
    };
    assert_eq!(missing_reference(&judge(&measured)), None);
    assert!(missing_reference(&judge(&published)).unwrap().contains("bench"));
}

#[test]
fn the_users_file_goes_first_then_measured_then_the_narrower_key() {
    let mut references = embedded();
    let source = |references: &References| {
        Trial::new(references, h200x2(), "all_reduce::sum::float::1MiB").busbw(45.0).judgement.source
    };
    assert!(source(&references).contains("nccl-tests"));
    let entry = |text: &str, provenance: &str, dtype: &str| {
        golden(provenance, &format!(r#""dtype": {dtype}, {RANGE}"#)).replace("bench", text)
    };
    references.add("a.json", &entry("first", "published", r#""any""#)).unwrap();
    assert!(source(&references).contains("first"));
    references.add("b.json", &entry("second", "published", r#""any""#)).unwrap();
    assert!(source(&references).contains("second"), "the later file goes first");
    let both = format!(
        r#"{{"schema": "collcheck.golden/1",
            "environment": {{"gpu": ["*H200*"], "gpus_per_node": 2, "nodes": 1, "link": "nvlink", "nvls": "any", "nccl": "any"}},
            "entries": [
            {{"primitive": "all_reduce", "dtype": ["float", "double"], "provenance": "published", "source": "narrow", {RANGE}}},
            {{"primitive": "all_reduce", "provenance": "published", "source": "wide", {RANGE}}},
            {{"primitive": "all_reduce", "dtype": "half", "provenance": "published", "source": "narrow half", {RANGE}}},
            {{"primitive": "all_reduce", "dtype": ["half", "int8"], "op": "sum", "provenance": "measured", "source": "sure", {RANGE}}}]}}"#
    );
    references.add("c.json", &both).unwrap();
    let of = |dtype: &str| {
        let case = format!("all_reduce::sum::{dtype}::1MiB");
        Trial::new(&references, h200x2(), &case).busbw(45.0).judgement.source
    };
    assert!(of("float").starts_with("narrow ["), "{}", of("float"));
    assert!(of("int32").starts_with("wide ["), "{}", of("int32"));
    assert!(of("half").starts_with("sure ["), "measured goes before narrower: {}", of("half"));
}

#[test]
fn a_host_reference_holds_on_the_host_backend_only() {
    let text = golden("measured", RANGE)
        .replace(r#"{"gpu": ["NVIDIA H200"]"#, r#"{"backend": "host", "gpu": ["*"]"#)
        .replace("nvlink", "host")
        .replace(r#""2.28""#, r#""any""#);
    let mut references = References::none();
    references.add("host.json", &text).unwrap();
    let host = Environment { backend: "host".into(), nccl_version: String::new(), ..environment("Xeon", 2, 1, "host") };
    let case = "all_reduce::sum::float::1MiB";
    assert_eq!(Trial::new(&references, host, case).busbw(45.0).judgement.status, Assertion::Asserted);
    assert_eq!(Trial::new(&references, h200x2(), case).busbw(45.0).judgement.status, Assertion::Unasserted);
}

#[test]
fn a_key_made_of_an_environment_fits_it_and_no_other() {
    let here = with(h200x2(), "NCCL_NVLS_ENABLE", "0");
    let mut file = collcheck::reference::GoldenFile::parse("x", &golden("measured", RANGE)).unwrap();
    file.environment = EnvironmentKey::of(&here, Observed::default()).unwrap();
    let mut references = References::none();
    references.add("blessed.json", &file.to_json().unwrap()).unwrap();
    let case = "all_reduce::sum::float::1MiB";
    let status = |e: Environment| Trial::new(&references, e, case).busbw(45.0).judgement.status;
    assert_eq!(status(here.clone()), Assertion::Asserted);
    assert_eq!(status(h200x2()), Assertion::Unasserted, "NVLS was off when the ranges were measured");
    assert_eq!(status(Environment { nccl_version: "2.29.2".into(), ..here.clone() }), Assertion::Unasserted);
    assert_eq!(status(Environment { device: "NVIDIA H200 NVL".into(), ..here.clone() }), Assertion::Unasserted);
    assert!(EnvironmentKey::of(&Environment { ranks_per_gpu: 2, ..here.clone() }, Observed::default()).is_err());
    assert!(EnvironmentKey::of(&Environment { ranks: 3, nodes: 2, ..here }, Observed::default()).is_err());
}

#[test]
fn published_figures_are_found_at_their_sizes() {
    let references = embedded();
    for (device, ranks, nodes, cards, case, gbs) in [
        ("NVIDIA A100-SXM4-80GB", 8, 1, None, "all_reduce::sum::float::8GiB", 234.6),
        ("NVIDIA H100 80GB HBM3", 8, 1, None, "all_reduce::sum::float::16GiB", 480.0),
        ("NVIDIA H100 80GB HBM3", 8, 1, None, "all_gather::none::float::16GiB", 370.0),
        ("NVIDIA H200", 8, 1, None, "all_reduce::sum::float::128MiB", 402.0),
        ("NVIDIA H200", 8, 1, None, "all_gather::none::float::16GiB", 361.0),
        ("NVIDIA H200", 8, 1, None, "reduce_scatter::sum::float::16GiB", 363.0),
        ("NVIDIA H200", 4, 1, None, "all_reduce::sum::float::8GiB", 363.0),
        ("NVIDIA H200", 7, 1, None, "all_reduce::sum::float::8GiB", 460.0),
        ("NVIDIA B200", 8, 1, None, "all_reduce::sum::float::1GiB", 723.0),
        ("NVIDIA B200", 32, 4, Some((8, 400)), "all_reduce::sum::float::1GiB", 362.0),
        ("NVIDIA GB200", 72, 18, None, "all_reduce::sum::float::4GiB", 839.0),
        ("NVIDIA H100 80GB HBM3", 32, 4, Some((8, 400)), "all_reduce::sum::float::8GiB", 378.0),
        ("NVIDIA H100 80GB HBM3", 16, 2, Some((8, 200)), "all_gather::none::float::1GiB", 182.0),
        ("NVIDIA H200", 16, 2, Some((8, 400)), "all_gather::none::float::64MiB", 220.0),
        ("NVIDIA H100 NVL", 2, 1, None, "all_reduce::sum::float::16GiB", 210.0),
        ("NVIDIA A100 80GB PCIe", 2, 1, None, "all_reduce::sum::float::16GiB", 195.0),
        ("Tesla V100-SXM2-32GB", 8, 1, None, "all_reduce::sum::float::8GiB", 111.0),
        ("NVIDIA H200", 2, 1, None, "all_reduce::sum::float::1GiB", 324.0),
        ("NVIDIA H200", 2, 1, None, "sendrecv::none::float::512MiB", 356.0),
    ] {
        let mut trial = Trial::new(&references, environment(device, ranks, nodes, "nvlink"), case);
        if let Some((per_node, gbits)) = cards {
            trial = trial.nics(per_node, gbits);
        }
        let judged = trial.busbw(gbs).judgement;
        assert_eq!(judged.status, Assertion::Published, "{device} x{ranks} {case}: {judged:?}");
        let slow = trial.busbw(gbs / 2.0).judgement;
        assert_eq!(slow.status, Assertion::Warned, "{device} x{ranks} {case}: half of it is too slow");
    }
    let sharp = environment("NVIDIA H100 80GB HBM3", 64, 8, "nvlink");
    let trial = Trial::new(&references, sharp, "all_reduce::sum::float::512MiB").nics(8, 400).ran("NVLS");
    assert_eq!(trial.busbw(356.0).judgement.status, Assertion::Published);
    let pcie = environment("NVIDIA A100 80GB PCIe", 8, 1, "pcie");
    let trial = Trial::new(&references, pcie, "all_reduce::sum::float::1GiB");
    assert_eq!(trial.busbw(8.0).judgement.status, Assertion::Warned, "P2P is lost");
    let pairs = environment("NVIDIA A100 80GB PCIe", 4, 1, "pcie");
    assert_eq!(
        Trial::new(&references, pairs, "all_reduce::sum::float::8GiB").busbw(24.0).judgement.status,
        Assertion::Warned
    );
    assert!(references.files().count() >= 28, "every file of golden/");
}
