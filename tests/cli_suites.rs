//! Suites and selections as the command line shows them.

mod cli_support;

use cli_support::{program, refused, run};
use collcheck::case::Case;
use collcheck::suite::Suite;
use std::collections::HashSet;
use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn the_acceptance_suite_lists_at_once_and_every_name_reads_back() {
    let start = Instant::now();
    let list = run(&["list", "--suite", "acceptance"], &[]);
    let took = start.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!((list.code, list.stderr.as_str()), (Some(0), ""));
    let names = list.lines();
    assert!(names.len() >= 8000, "{}", names.len());
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
    for name in names {
        assert_eq!(name.parse::<Case>().map(|case| case.name()).as_deref(), Ok(name));
    }
}

#[test]
fn the_smoke_suite_is_the_default_and_has_variants() {
    let list = run(&["list"], &[]);
    assert!(list.lines().len() >= 300);
    assert_eq!(list.stdout, run(&["list", "--suite", "smoke"], &[]).stdout);
    assert_eq!(list.stdout, run(&["run", "--list"], &[]).stdout);
    assert!(list.lines().iter().any(|name| name.ends_with("@root1")));
    assert!(list.lines().iter().any(|name| name.ends_with("@odd")));
}

#[test]
fn a_reader_that_stops_early_is_no_error() {
    let mut child = program()
        .args(["list", "--suite", "acceptance"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // more than a pipe holds is still to come
    let mut some = [0; 64];
    child.stdout.take().expect("a pipe").read_exact(&mut some).expect("some names");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}

#[test]
fn a_full_output_device_is_an_error() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
    let output = program().arg("list").stdout(full).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write the list"));
}

#[test]
fn options_restrict_and_sizes_replace_those_of_the_suite() {
    let list =
        ["list", "--dtype", "bf16", "--op", "sum,none", "--primitive", "all_reduce,all_gather", "-b", "8", "-e", "2K"];
    let list = run(&[&list[..], &["-f", "16", "--skip", "odd"]].concat(), &[]);
    assert_eq!(
        list.lines(),
        [
            "all_reduce::sum::bfloat16::8B",
            "all_reduce::sum::bfloat16::128B",
            "all_reduce::sum::bfloat16::2KiB",
            "all_gather::none::bfloat16::8B",
            "all_gather::none::bfloat16::128B",
            "all_gather::none::bfloat16::2KiB",
        ]
    );
    let everything = run(&["list", "--dtype", "all", "--op", "all,sum", "--primitive", "all"], &[]);
    assert_eq!(everything.stdout, run(&["list"], &[]).stdout);
}

#[test]
fn an_unmatched_filter_suggests_what_may_be_meant() {
    for (filter, meant) in [
        ("allreduce", "did you mean \"all_reduce\"?"),
        ("all_reduce::sum::flaot", "did you mean \"all_reduce::sum::float\"?"),
        ("bf16", "did you mean \"bfloat16\"?"),
        ("all_gather::sum", "`collcheck list` prints the names"),
    ] {
        for command in ["list", "run"] {
            let said = refused(&[command, "all_reduce::sum", filter], &[]);
            assert!(said.contains(&format!("{filter:?}")) && said.contains(meant), "{said}");
        }
    }
}

#[test]
fn any_full_name_runs_again_whatever_the_suite() {
    let name = "broadcast::none::float::3MiB@root3";
    for args in [&["list", name][..], &["list", "--exact", name], &["run", "--list", name]] {
        assert_eq!(run(args, &[]).lines(), [name], "{args:?}");
    }
    assert_eq!(
        run(&["list", "gather::none::f32::1024@root0"], &[]).lines().first(),
        Some(&"gather::none::float::1KiB")
    );
    assert!(refused(&["list", "all_reduce::sum::float::8B@root3"], &[]).contains("root3 does not apply to all_reduce"));
}

#[test]
fn a_broken_suite_file_is_refused_with_its_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mine.toml");
    let path = file.to_str().expect("a plain path");
    let head = "name = 'mine'\n\n[[cases]]\n";
    for (text, place, says) in [
        (format!("{head}sizes = [8\n"), ":4:11: ", "expected `]`"),
        (format!("{head}sizes = [8]\ndtype = 'float'\n"), ":5:1: ", "unknown field `dtype`, expected one of"),
        (format!("{head}sizes = ['8', '1Q']\n"), ":4:15: ", "its unit is unknown"),
        (format!("{head}sizes = [8]\ndtypes = ['float7']\n"), ":5:11: ", "known are int8"),
        (format!("{head}sizes = {{ min = 64, max = 8 }}\n"), ":4:9: ", "expected min <= max"),
        (format!("{head}primitives = ['reduce']\n"), ":3:1: ", "missing field `sizes`"),
        ("name = 'm\u{fc}ller' x\n".into(), ":1:17: ", "expected"),
    ] {
        std::fs::write(&file, &text).expect("writable");
        let said = refused(&["list", "--suite", path], &[]);
        assert!(said.starts_with(&format!("error: {path}{place}")), "{text}: {said}");
        assert!(said.contains(says), "{text}: {said}");
    }
}

#[test]
fn a_suite_that_is_no_text_file_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mine.toml");
    std::fs::write(&file, [0xff, 0xfe, 0x00]).expect("writable");
    for path in [file.to_str().expect("a plain path"), folder.path().to_str().expect("a plain path"), "./nowhere.toml"]
    {
        let said = refused(&["list", "--suite", path], &[]);
        assert!(said.contains("cannot read suite") && said.contains(path), "{said}");
    }
}

#[test]
fn the_suite_in_the_documentation_is_a_suite() {
    let text = std::fs::read_to_string("suites/README.md").expect("the documentation");
    let block = text.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let suite = Suite::parse("README.md", block).expect("a good suite");
    assert_eq!((suite.name.as_str(), suite.settings.iters), ("mine", 20));
}

#[test]
fn no_suite_file_makes_it_panic() {
    let text = include_bytes!("../suites/smoke.toml");
    let spice = b"[]{}='\"\n,.#\\\x00\xff\xc3 8x-";
    let mut state = 1u64;
    let mut dice = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    let mut refused = 0;
    for _ in 0..2000 {
        let mut bytes = text.to_vec();
        for _ in 0..=dice(3) {
            let at = dice(bytes.len());
            match dice(3) {
                0 => bytes[at] = spice[dice(spice.len())],
                1 => bytes.insert(at, spice[dice(spice.len())]),
                _ => drop(bytes.drain(at..(at + 1 + dice(20)).min(bytes.len()))),
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        match Suite::parse("spiced.toml", &text) {
            Ok(suite) => drop(suite.cases(&Default::default())),
            Err(error) => {
                refused += 1;
                assert!(error.to_string().starts_with("spiced.toml:"), "{error}");
            }
        }
    }
    assert!(refused > 500, "only {refused} of 2000 damaged files were refused");
}
