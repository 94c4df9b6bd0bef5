//! Bad usage is refused with exit code 2 and one line that says what is accepted; nothing panics.

mod cli_support;

use cli_support::{program, refused, run};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// Options whose bad value is not on the list below would go untested.
fn bad_value(long: &str) -> &'static str {
    match long {
        "suite" => "nope",
        "skip" => "::",
        "primitive" => "allreduce",
        "op" => "add",
        "dtype" => "float7",
        "min-bytes" | "max-bytes" => "1Q",
        "step-factor" => "1",
        "backend" | "format" => "gpu",
        "layout" => "fibres",
        "ranks" | "ranks-per-gpu" | "ranks-per-thread" | "iters" | "repeat" => "0",
        "warmup" | "seed" => "x",
        "junit" | "json" | "csv" => "-",
        "table" | "nccl" | "reference" => "/nowhere/file",
        "tamper" => "1:2",
        "soak" => "soon",
        "deadline" => "0",
        "blind" => "nobody",
        other => panic!("no bad value is known for --{other}"),
    }
}

#[test]
fn every_option_refuses_nonsense_alike_from_the_command_line_and_from_its_twin() {
    let mut options = 0;
    for sub in collcheck::cli::command().get_subcommands().filter(|sub| ["run", "list"].contains(&sub.get_name())) {
        for arg in sub.get_arguments() {
            let Some(long) = arg.get_long().filter(|long| *long != "help") else { continue };
            options += 1;
            let twin = format!("COLLCHECK_{}", long.to_uppercase().replace('-', "_"));
            let from = format!("(from {twin} in the environment)");
            if !arg.get_action().takes_values() {
                let said = refused(&[sub.get_name()], &[(&twin, "maybe")]);
                assert!(said.contains("expected 1, true") && said.contains(&from), "--{long}: {said}");
                continue;
            }
            let value = bad_value(long);
            let given = refused(&[sub.get_name(), &format!("--{long}"), value], &[]);
            let twinned = refused(&[sub.get_name()], &[(&twin, value)]);
            assert_eq!(twinned.replace(&format!(" {from}"), ""), given, "--{long}");
        }
    }
    assert!(options > 30, "only {options} options were seen");
}

#[test]
fn unknown_names_are_answered_by_the_known_ones() {
    for (args, says) in [
        (["list", "--dtype", "float7"], "known are int8, uint8, int32, uint32, int64, uint64, half, float, double"),
        (["list", "--op", "add"], "known are sum, prod, min, max, avg, mulsum, none"),
        (["list", "--primitive", "allreduce"], "known are all_reduce, all_gather"),
        (["list", "--suite", "smok"], "known are smoke, acceptance, stress"),
        (["run", "--backend", "gpu"], "[possible values: auto, host, nccl]"),
        (["run", "--format", "xml"], "[possible values: pretty, terse, json]"),
        (["run", "--layout", "fibres"], "[possible values: threads, processes]"),
        (["run", "--ranks", "four"], "expected a whole number from 1 to 65536"),
        (["run", "--deadline", "2m"], "expected seconds, from 0.001 to 86400"),
        (["run", "--iters", "-1"], "expected a whole number from 1 to 1000000"),
        (
            ["run", "--seed", "18446744073709551616"],
            "expected a whole number from 0 to 18446744073709551615, or random",
        ),
        (["run", "--tamper", "1:2:3:4"], "expected RANK:INDEX:BIT"),
        (["run", "--json", "-"], "only --table writes to -"),
        (["run", "--json", "/nowhere/x.json"], "there is no folder /nowhere"),
        (["run", "--junit", "/"], "is a folder, expected a file"),
    ] {
        let said = refused(&args, &[]);
        assert!(said.contains(says), "{args:?}: {said}");
    }
}

#[test]
fn malformed_sizes_are_refused_with_the_reason() {
    for (size, why) in [
        ("1Q", "its unit is unknown"),
        ("0", "it is zero"),
        ("-8", "it is negative"),
        ("99999999999999999999", "too large"),
        ("17179869184G", "too large"),
        ("", "does not start with a number"),
        ("1.5M", "its unit is unknown"),
    ] {
        for option in ["-b", "-e", "--min-bytes", "--max-bytes"] {
            let said = refused(&["list", option, size], &[]);
            assert!(said.contains(why) && said.contains("64K"), "{option} {size}: {said}");
        }
    }
}

#[test]
fn impossible_ranges_are_refused() {
    assert!(refused(&["list", "-b", "1M", "-e", "8"], &[]).contains("--min-bytes 1MiB is above --max-bytes 8B"));
    assert!(refused(&["list", "-b", "1T"], &[]).contains("give both --min-bytes and --max-bytes"));
    for factor in ["0", "1", "-2", "1.5", "two"] {
        assert!(refused(&["list", "-f", factor], &[]).contains("expected a whole number from 2 on"));
    }
}

#[test]
fn reports_that_would_overwrite_each_other_are_refused() {
    assert!(refused(&["run", "--json", "a", "--csv", "a"], &[]).contains("--json and --csv both write a"));
    assert!(refused(&["run", "--table", "-", "--format", "json"], &[]).contains("both write to standard output"));
    assert!(refused(&["run", "--no-check", "--tamper", "0:0:0"], &[]).contains("--tamper needs checks"));
}

#[test]
fn a_twin_does_what_its_option_does_and_the_command_line_wins() {
    let by_option = run(&["list", "--dtype", "half,bf16", "-e", "64", "--skip", "odd", "--op", "sum"], &[]);
    let twins = [("COLLCHECK_DTYPE", "half,bf16"), ("COLLCHECK_MAX_BYTES", "64"), ("COLLCHECK_SKIP", "odd")];
    let by_twin = run(&["list", "--op", "sum"], &[&twins[..], &[("COLLCHECK_OP", "max")]].concat());
    assert_eq!((by_option.code, by_twin.code), (Some(0), Some(0)), "{}{}", by_option.stderr, by_twin.stderr);
    assert_eq!(by_option.stdout, by_twin.stdout);

    let flagged = run(&["run", "all_gather::none::int8::8B"], &[("COLLCHECK_LIST", "yes"), ("COLLCHECK_EXACT", "1")]);
    assert_eq!((flagged.code, flagged.stdout.as_str()), (Some(0), "all_gather::none::int8::8B\n"));
}

#[test]
fn an_empty_twin_counts_as_none() {
    let all: Vec<String> = collcheck::cli::command()
        .get_subcommands()
        .flat_map(|sub| sub.get_arguments().filter_map(|arg| arg.get_env()?.to_str().map(str::to_owned)))
        .collect();
    let mut empty: Vec<(&str, &str)> = all.iter().map(|name| (name.as_str(), "")).collect();
    empty.push(("COLLCHECK_LIST", "1"));
    assert_eq!(run(&["run"], &empty).stdout, run(&["list"], &[]).stdout);
}

#[test]
fn help_lists_every_option_with_examples_and_exit_codes() {
    for sub in collcheck::cli::command().get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let help = run(&[sub.get_name(), "--help"], &[]);
        assert_eq!(help.code, Some(0));
        for arg in sub.get_arguments().filter(|arg| !arg.is_hide_set()) {
            if let Some(long) = arg.get_long() {
                assert!(help.stdout.contains(&format!("--{long}")), "{} --{long}", sub.get_name());
            }
        }
        for part in ["Examples:\n", "Exit codes:\n", "COLLCHECK_<NAME>"] {
            assert!(help.stdout.contains(part), "{}: {part}", sub.get_name());
        }
        assert!(!help.stdout.contains("tamper"), "a switch for tests is no offer");
    }
    for suite in collcheck::suite::Suite::embedded() {
        assert!(run(&["run", "-h"], &[]).stdout.contains(suite), "{suite}");
    }
}

#[test]
fn no_command_prints_the_help_and_is_bad_usage() {
    let bare = run::<&str>(&[], &[]);
    assert_eq!(bare.code, Some(2));
    assert!(bare.stderr.contains("Usage: collcheck <COMMAND>") && bare.stdout.is_empty());
    assert_eq!(run(&["--version"], &[]).stdout, format!("collcheck {}\n", env!("CARGO_PKG_VERSION")));
    assert!(refused(&["frobnicate"], &[]).contains("frobnicate"));
}

#[test]
fn a_random_seed_and_the_bounds_of_fixed_ones_are_accepted() {
    for seed in ["random", "0", "18446744073709551615"] {
        assert_eq!(run(&["run", "--list", "--seed", seed], &[]).code, Some(0), "{seed}");
    }
}

/// xorshift64*: fixed, so that a failure repeats.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }
}

#[test]
fn no_arguments_make_it_panic() {
    let mut words: Vec<OsString> = [
        "run",
        "list",
        "help",
        "--",
        "-",
        "",
        "-h",
        "-V",
        "-b",
        "-e",
        "-f",
        "-n",
        "-w",
        "-bq",
        "-n5",
        "all",
        "none",
        "sum",
        "bf16",
        "all_reduce",
        "all_reduce::sum::float::8B",
        "reduce::sum::float::3MiB@root3",
        "a::b::c::d@e+f",
        "::::::",
        "@@",
        "broadcast::none::int8::8B@root4294967296",
        "broadcast::none::int8::8B@root1+root2",
        "8",
        "0",
        "-1",
        "1Q",
        "64K",
        "1T",
        "9999999999999999999999",
        "smoke",
        "acceptance",
        "./nope.toml",
        "/",
        "Cargo.toml",
        "1:2:3",
        "random",
        "host",
        "\u{1f980}",
        ",",
        ",,",
        "=",
        "--suite=",
        "--dtype=,",
        "--ranks=1",
        "\u{0}".trim_matches('\u{0}'),
        "%s%n",
    ]
    .map(OsString::from)
    .into();
    words.push(OsString::from_vec(vec![0xff, 0xfe, b'x']));
    words.push("x".repeat(10_000).into());
    words.push("::".repeat(1000).into());
    let options = collcheck::cli::command();
    let options = options.get_subcommands().flat_map(|sub| sub.get_arguments().filter_map(|arg| arg.get_long()));
    words.extend(options.map(|long| OsString::from(format!("--{long}"))));

    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut ended_well = 0;
    for _ in 0..300 {
        let mut args: Vec<OsString> = vec![["run", "list"][dice.below(2)].into()];
        args.extend((0..dice.below(7)).map(|_| words[dice.below(words.len())].clone()));
        // nothing is started: only names are printed
        let output = program().args(&args).env("COLLCHECK_LIST", "1").output().expect("the program starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 2)), "{args:?}: {} {stderr}", output.status);
        assert!(!stderr.contains("panicked"), "{args:?}: {stderr}");
        ended_well += usize::from(output.status.success());
    }
    assert!(ended_well > 10, "only {ended_well} command lines were accepted: the words are too wild to get far");
}
