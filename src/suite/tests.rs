//! What the format, the expansion and the selection promise.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::*;
use crate::case::Bytes;

const PLAIN: &str = "name = 'mine'\n[[cases]]\nprimitives = ['all_reduce', 'all_gather']\nops = ['max', 'sum']\n\
                     dtypes = ['fp32', 'half']\nsizes = ['1K', 8]\nvariants = [[], ['odd']]\n";

fn plain() -> Suite {
    Suite::parse("mine.toml", PLAIN).expect("a good suite")
}

fn names(suite: &Suite, selection: &Selection) -> Vec<String> {
    selection.apply(suite).expect("a good selection").iter().map(Case::name).collect()
}

fn filters(filters: &[&str]) -> Selection {
    Selection { filters: filters.iter().map(|f| (*f).to_owned()).collect(), ..Selection::default() }
}

fn refusal(selection: &Selection) -> String {
    selection.apply(&plain()).expect_err("a bad selection").to_string()
}

#[test]
fn cases_come_in_case_order_without_what_does_not_exist() {
    assert_eq!(
        names(&plain(), &Selection::default()),
        [
            "all_reduce::sum::half::8B",
            "all_reduce::sum::half::1KiB",
            "all_reduce::sum::float::8B",
            "all_reduce::sum::float::1KiB",
            "all_reduce::max::half::8B",
            "all_reduce::max::half::1KiB",
            "all_reduce::max::float::8B",
            "all_reduce::max::float::1KiB",
            "all_gather::none::half::8B",
            "all_gather::none::half::8B@odd",
            "all_gather::none::half::1KiB",
            "all_gather::none::half::1KiB@odd",
            "all_gather::none::float::8B",
            "all_gather::none::float::8B@odd",
            "all_gather::none::float::1KiB",
            "all_gather::none::float::1KiB@odd",
        ]
    );
}

#[test]
fn a_case_of_two_blocks_is_there_once() {
    let twice = format!("{PLAIN}{}", PLAIN.trim_start_matches("name = 'mine'\n"));
    let suite = Suite::parse("twice.toml", &twice).expect("a good suite");
    assert_eq!(suite.cases(&SizeOverride::default()), plain().cases(&SizeOverride::default()));
}

#[test]
fn the_acceptance_suite_is_the_whole_matrix_and_is_there_at_once() {
    let start = Instant::now();
    let suite = Suite::find("acceptance").expect("embedded");
    let cases = suite.cases(&SizeOverride::default()).expect("not too many");
    assert!(start.elapsed() < Duration::from_secs(2));
    assert_eq!(cases.len(), (3 * 6 + 8) * 12 * 28);
    let names: HashSet<String> = cases.iter().map(Case::name).collect();
    assert_eq!(names.len(), cases.len());
    for case in cases {
        assert_eq!(case.name().parse::<Case>().ok(), Some(case));
    }
}

#[test]
fn the_smoke_suite_has_every_primitive_op_and_dtype_with_roots_and_odd_counts() {
    let cases = Suite::find("smoke").expect("embedded").cases(&SizeOverride::default()).expect("not too many");
    let matrix: HashSet<_> = cases.iter().map(|c| (c.primitive, c.op, c.dtype)).collect();
    assert_eq!(matrix.len(), (3 * 6 + 8) * 12);
    let variants: HashSet<_> = cases.iter().flat_map(|c| c.variants.clone()).collect();
    assert_eq!(variants, HashSet::from([Variant::Root(1), Variant::Odd]));
    assert!(cases.iter().all(|c| c.size <= Bytes(1 << 20)));
}

#[test]
fn the_stress_suite_has_every_way_of_launching_on_every_primitive_and_ends_in_reasonable_time() {
    use crate::case::Variant::*;
    let cases = Suite::find("stress").expect("embedded").cases(&SizeOverride::default()).expect("not too many");
    assert!((500..2100).contains(&cases.len()), "{}", cases.len());
    for primitive in Primitive::ALL {
        let has = |variants: &[Variant]| {
            cases.iter().any(|c| c.primitive == primitive && variants.iter().all(|v| c.variants.contains(v)))
        };
        for way in [&[Graph][..], &[Agg], &[AggMixed], &[Sync], &[Pipeline], &[Pipeline, Graph], &[Agg, Graph]] {
            assert!(has(way), "{primitive} {way:?}");
        }
        for with in [Uneven, Early, Overwrite, Unaligned(1), NcclMemory, Registered, Window, Windows] {
            assert!(has(&[Pipeline, with]), "{primitive} {with}");
        }
        assert!(!primitive.rounds_counts() || has(&[Pipeline, Odd]), "{primitive}");
        assert!(!primitive.unit().rooted() || [1, 2, 3, 7].into_iter().all(|root| has(&[Root(root)])), "{primitive}");
    }
    let pipelines: Vec<&Case> = cases.iter().filter(|c| c.variants == [Pipeline]).collect();
    let reductions: HashSet<_> = pipelines.iter().map(|c| (c.primitive, c.op)).collect();
    assert_eq!(reductions.len(), 3 * 6 + 8);
    let dtypes: HashSet<_> = pipelines.iter().map(|c| (c.primitive, c.dtype)).collect();
    assert_eq!(dtypes.len(), 11 * 12);
    let special: HashSet<_> =
        cases.iter().filter(|c| c.variants == [Special]).map(|c| (c.primitive, c.op, c.dtype)).collect();
    assert_eq!(special.len(), 3 * 6 * 6, "all reductions of all floats");
    assert_eq!(cases.iter().filter(|c| c.variants == [OddScalars] && c.size == Bytes(1000)).count(), 3 * 4);
}

#[test]
fn what_is_wrong_is_said_with_its_place_and_what_was_expected() {
    for (line, column, text, says) in [
        (1, 1, "", "missing field `name`"),
        (1, 8, "name = smoke", "expected"),
        (2, 1, "name = 'x'\nnmae = 'y'\n", "expected one of `name`, `description`, `defaults`, `cases`"),
        (1, 8, "name = 3", "expected a string"),
        (2, 9, "name = 'x'\ncases = []", "expected at least one [[cases]]"),
    ] {
        let error = Suite::parse("bad.toml", text).expect_err(text).to_string();
        assert!(error.contains(says), "{text:?}: {error}");
        assert!(error.starts_with(&format!("bad.toml:{line}:{column}: ")), "{text:?}: {error}");
    }
}

#[test]
fn a_wrong_value_in_a_block_is_said_with_its_place() {
    // the line is the fourth of the file
    for (line, column, says) in [
        ("primitives = ['all_reduce', 'allreduce']", 29, "unknown primitive \"allreduce\"; known are all_reduce"),
        ("primitives = 'everything'", 14, "unknown primitive \"everything\""),
        ("primitives = []", 14, "expected at least one name"),
        ("primitives = 5", 14, "expected \"all\", the name of one primitive or a list"),
        ("ops = ['sum', 7]", 15, "expected the name of one op or \"all\""),
        ("ops = ['add']", 8, "unknown op \"add\"; known are sum"),
        ("dtypes = ['float7']", 11, "known are int8"),
        ("dtype = ['float']", 1, "unknown field `dtype`, expected one of `primitives`"),
        ("variants = [['sideways']]", 13, "known are rootN"),
        ("variants = [['root1', 'root2']]", 13, "root1 and root2 cannot be had in one case"),
        ("variants = []", 12, "expected at least one set"),
        ("variants = ['odd']", 13, "expected a sequence"),
        ("primitives = 'all_reduce'\nvariants = [[], ['odd']]", 17, "apply to no primitive"),
    ] {
        let text = format!("name = 'x'\n\n[[cases]]\n{line}\nsizes = [8]\n");
        let error = Suite::parse("bad.toml", &text).expect_err(line).to_string();
        let at = if line.contains('\n') { 5 } else { 4 };
        assert!(error.contains(says), "{line}: {error}");
        assert!(error.starts_with(&format!("bad.toml:{at}:{column}: ")), "{line}: {error}");
    }
}

#[test]
fn wrong_sizes_are_said_with_their_place() {
    for (sizes, column, says) in [
        ("[8, '1Q']", 13, "its unit is unknown"),
        ("[0]", 10, "it is zero"),
        ("[-8]", 10, "it is negative"),
        ("[]", 9, "expected at least one size"),
        ("8", 9, "expected sizes, as"),
        ("[1.5]", 10, "expected a size, as"),
        ("{ min = 64, max = 8 }", 9, "min 64B is above max 8B"),
        ("{ min = 8, max = 64, factor = 1 }", 9, "factor 1, expected a whole number from 2 on"),
        ("{ min = 8, max = 64, factor = 0 }", 9, "factor 0"),
        ("{ min = 8 }", 9, "missing field `max`"),
        ("{ min = 8, max = 64, step = 8 }", 30, "unknown field `step`, expected one of `min`, `max`, `factor`"),
        ("{ min = 8, max = '99999999999G' }", 26, "it is too large"),
    ] {
        let text = format!("name = 'x'\n[[cases]]\nsizes = {sizes}\n");
        let error = Suite::parse("bad.toml", &text).expect_err(sizes).to_string();
        assert!(error.contains(says), "{sizes}: {error}");
        assert!(error.starts_with(&format!("bad.toml:3:{column}: ")), "{sizes}: {error}");
    }
}

#[test]
fn defaults_are_checked_and_kept() {
    let suite =
        |defaults: &str| Suite::parse("d.toml", &format!("name = 'x'\n[defaults]\n{defaults}\n[[cases]]\nsizes = [8]"));
    let settings = suite("iters = 3\ncheck = false\npath = true").expect("good defaults").settings;
    assert_eq!(settings, Settings { iters: 3, warmup: 1, check: false, path: true });
    assert!(suite("iters = 0").expect_err("no launches").to_string().starts_with("d.toml:3:9: iters is 0"));
    assert!(suite("iters = -1").is_err());
    assert!(
        suite("loops = 1").expect_err("unknown").to_string().contains("expected one of `iters`, `warmup`, `check`")
    );
}

#[test]
fn a_suite_that_would_fill_the_memory_is_refused() {
    let list = (1..2000).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let suite = Suite::parse("big.toml", &format!("name = 'big'\n[[cases]]\nsizes = [{list}]")).expect("well-formed");
    let error = suite.cases(&SizeOverride::default()).expect_err("too many").to_string();
    assert!(error.contains("expected at most 1000000"), "{error}");
}

#[test]
fn filters_are_or_ed_substrings_and_skip_takes_away() {
    let suite = plain();
    let selection = Selection { skip: vec!["8B".into()], ..filters(&["sum::half", "float::1KiB@odd"]) };
    assert_eq!(names(&suite, &selection), ["all_reduce::sum::half::1KiB", "all_gather::none::float::1KiB@odd"]);
}

#[test]
fn a_full_name_selects_its_case_whether_or_not_the_suite_has_it() {
    let suite = plain();
    let broadcast = "broadcast::none::float::3MiB@root3";
    assert_eq!(names(&suite, &filters(&[broadcast])), [broadcast]);
    assert_eq!(names(&suite, &filters(&["all_gather::none::f32::1M"])), ["all_gather::none::float::1MiB"]);
    // as a substring it also matches names that go on
    let short = "all_gather::none::float::8B";
    assert_eq!(names(&suite, &filters(&[short])), [short.to_owned(), format!("{short}@odd")]);
    let exact = Selection { exact: true, ..filters(&[short]) };
    assert_eq!(names(&suite, &exact), [short]);
}

#[test]
fn exact_knows_no_substrings() {
    let exact = |name| Selection { exact: true, ..filters(&[name]) };
    assert!(refusal(&exact("all_reduce")).contains("no case"));
    let skip = Selection { exact: true, skip: vec!["all_reduce".into()], ..Selection::default() };
    assert_eq!(names(&plain(), &skip).len(), 16);
}

#[test]
fn an_unmatched_filter_is_an_error_even_beside_one_that_matches() {
    assert_eq!(
        refusal(&filters(&["all_reduce", "allgather"])),
        "no case of suite \"mine\" matches \"allgather\"; did you mean \"all_gather\"?"
    );
}

#[test]
fn a_wrong_full_name_says_which_part_is_wrong() {
    for (filter, says) in [
        ("all_reduce::sum::floaat::8B", "unknown dtype \"floaat\""),
        ("all_reduce::none::float::8B", "takes an op"),
        ("all_gather::sum::float::8B", "takes no op"),
        ("all_reduce::sum::float::8Q", "unit"),
        ("all_reduce::sum::float::8B@root3", "root3 does not apply to all_reduce::sum::float: it has no root"),
        ("all_reduce::sum::float::8B@odd", "does not round its counts"),
    ] {
        let error = refusal(&filters(&[filter]));
        assert!(error.contains(says) && error.contains(filter), "{error}");
    }
}

#[test]
fn restrictions_hold_for_named_cases_too() {
    let selection = Selection { dtypes: vec![DType::Int8], ..filters(&["all_reduce::sum::float::8B"]) };
    assert_eq!(refusal(&selection), "\"all_reduce::sum::float::8B\" is excluded by --dtype int8");
    let sizes = SizeOverride { min: Some(Bytes(64)), ..SizeOverride::default() };
    let selection = Selection { sizes, ..filters(&["all_reduce::sum::float::8B"]) };
    assert!(refusal(&selection).contains("excluded by --min-bytes 64B"));
}

#[test]
fn restrictions_that_leave_nothing_are_an_error_that_states_them() {
    let selection = Selection { ops: vec![Some(Op::Avg)], dtypes: vec![DType::Half], ..Selection::default() };
    assert_eq!(refusal(&selection), "suite \"mine\" has no case with --op avg --dtype half");
    let selection =
        Selection { primitives: vec![Primitive::AllGather], ops: vec![Some(Op::Sum)], ..Selection::default() };
    assert!(refusal(&selection).contains("all_gather has no op"), "{}", refusal(&selection));
    let selection = Selection { ops: vec![None], ..Selection::default() };
    assert!(names(&plain(), &selection).iter().all(|name| name.starts_with("all_gather")));
}

#[test]
fn impossible_sizes_are_an_error() {
    let sizes = |min: Option<u64>, max: Option<u64>| {
        let sizes = SizeOverride { min: min.map(Bytes), max: max.map(Bytes), factor: None };
        Selection { sizes, ..Selection::default() }
    };
    assert_eq!(refusal(&sizes(Some(1 << 20), Some(8))), "--min-bytes 1MiB is above --max-bytes 8B");
    assert!(refusal(&sizes(Some(1 << 20), None)).contains("from 8B to 1KiB, none of them at least 1MiB"));
    assert!(refusal(&sizes(None, Some(4))).contains("none of them at most 4B"));
}

#[test]
fn skipping_everything_is_an_error() {
    let selection = Selection { skip: vec!["::".into()], ..Selection::default() };
    assert_eq!(refusal(&selection), "nothing is left to run: --skip :: leaves out all 16 cases");
}
