//! Golden files: what is read, and how a broken one is refused.

use std::path::Path;

use collcheck::reference::{GoldenFile, LoadError, References};

/// A file that is right; each test breaks one line of it.
const GOOD: &str = r#"{
  "schema": "collcheck.golden/1",
  "environment": {
    "gpu": ["NVIDIA H200"],
    "gpus_per_node": 2,
    "nodes": 1,
    "link": "nvlink",
    "nvls": "any",
    "nccl": "2.27-2.30"
  },
  "entries": [
    {
      "primitive": "all_reduce",
      "op": ["sum", "max"],
      "provenance": "measured",
      "source": "collcheck 0.1.0",
      "points": [
        {"bytes": 8, "metric": "time_us", "lower": 10, "upper": 20},
        {"bytes": 1024, "metric": "busbw_gbs", "value": 45, "lower": 40, "upper": 50},
        {"bytes": 4096, "metric": "busbw_gbs", "lower": 160, "upper": 200, "plateau": true}
      ]
    }
  ]
}
"#;

#[test]
fn a_good_file_reads_back_as_written() {
    let file = GoldenFile::parse("good", GOOD).unwrap();
    let again = GoldenFile::parse("again", &file.to_json().unwrap()).unwrap();
    assert_eq!(file, again);
}

#[test]
fn every_embedded_file_reads_back_as_written() {
    let references = References::embedded().unwrap();
    for (name, file) in references.files() {
        assert_eq!(&GoldenFile::parse(name, &file.to_json().unwrap()).unwrap(), file, "{name}");
    }
}

#[test]
fn a_broken_file_is_refused_with_its_line_and_what_was_expected() {
    // What is replaced by what, the line that is blamed, and what the message must say.
    let table: &[(&str, &str, usize, &[&str])] = &[
        ("collcheck.golden/1", "collcheck.golden/2", 2, &["collcheck.golden/2", "expected", "collcheck.golden/1"]),
        ("\"schema\": \"collcheck.golden/1\",", "", 24, &["schema"]),
        ("\"gpu\": [\"NVIDIA H200\"]", "\"gpu\": []", 10, &["at least one pattern"]),
        ("\"gpu\":", "\"gpus\":", 4, &["unknown field `gpus`", "expected"]),
        ("\"gpus_per_node\": 2", "\"gpus_per_node\": 0", 10, &["gpus_per_node", "at least 1"]),
        ("\"nodes\": 1", "\"nodes\": -1", 6, &["-1", "u32"]),
        ("\"nvlink\"", "\"same-gpu\"", 10, &["same-gpu", "nvlink, pcie, host"]),
        ("\"nvlink\"", "7", 7, &["7", "a list of values"]),
        ("\"2.27-2.30\"", "\"2.30-2.27\"", 9, &["2.30-2.27", "2.27+"]),
        ("\"nccl\": \"2.27-2.30\"", "\"nccl\": \"any\", \"backend\": \"rccl\"", 10, &["rccl", "nccl or host"]),
        ("\"all_reduce\"", "\"allreduce\"", 13, &["allreduce", "reduce_scatter"]),
        ("\"all_reduce\"", "\"all_gather\"", 22, &["all_gather does not reduce", "any"]),
        ("[\"sum\", \"max\"]", "[\"sum\", \"xor\"]", 14, &["xor", "mulsum"]),
        ("\"measured\"", "\"guessed\"", 15, &["guessed", "published"]),
        ("\"collcheck 0.1.0\"", "\" \"", 22, &["source is empty"]),
        ("\"lower\": 10, \"upper\": 20", "\"lower\": 30, \"upper\": 20", 18, &["lower 30 is above upper 20 at 8B"]),
        ("\"value\": 45", "\"value\": 39", 19, &["lower 40 is above value 39 at 1KiB"]),
        ("\"value\": 45", "\"value\": 51", 19, &["value 51 is above upper 50 at 1KiB"]),
        ("\"lower\": 160", "\"lower\": -1", 20, &["lower -1 at 4KiB", "positive"]),
        ("\"lower\": 160", "\"lowr\": 160", 20, &["unknown field `lowr`", "lower"]),
        ("\"lower\": 160, \"upper\": 200, ", "", 20, &["nothing is said at 4KiB"]),
        ("\"lower\": 160, \"upper\": 200", "\"value\": 180", 22, &["no bounds at 4KiB", "tolerance"]),
        (
            "\"lower\": 160, \"upper\": 200",
            "\"value\": 180, \"tolerance\": 1.5",
            20,
            &["tolerance 1.5", "between 0 and 1"],
        ),
        ("\"bytes\": 4096", "\"bytes\": 1024", 22, &["1KiB comes after 1KiB", "rising order"]),
        ("\"bytes\": 4096", "\"bytes\": 512", 22, &["512B comes after 1KiB", "rising order"]),
        ("\"bytes\": 8,", "\"bytes\": 0,", 18, &["bytes is 0"]),
        ("\"upper\": 50}", "\"upper\": 50, \"plateau\": true}", 22, &["1KiB is a plateau, but 4KiB follows"]),
        ("\"busbw_gbs\", \"value\"", "\"busbw\", \"value\"", 19, &["unknown variant `busbw`", "busbw_gbs"]),
        ("\"measured\"", "\"gate\"", 22, &["a gate at 1KiB", "lower only"]),
        ("\"bytes\": 4096,", "\"bytes\": 4096", 20, &["expected `,`"]),
    ];
    for (from, to, line, says) in table {
        assert!(GOOD.contains(from), "{from}");
        let broken = GOOD.replacen(from, to, 1);
        let error = GoldenFile::parse("my.json", &broken).unwrap_err();
        let message = error.to_string();
        let LoadError::Broken { line: found, .. } = &error else { panic!("{message}") };
        assert_eq!(found, line, "{to}: {message}");
        assert!(message.starts_with(&format!("my.json:{line}:")), "{message}");
        for part in *says {
            assert!(message.contains(part), "{to}: {part:?} in {message:?}");
        }
        assert!(!message.contains(" at line "), "the position is told once: {message}");
    }
}

#[test]
fn entries_and_points_must_not_be_empty() {
    for (text, says) in [("", "EOF"), ("[]", "an object with schema"), ("{}", "schema")] {
        let message = GoldenFile::parse("x", text).unwrap_err().to_string();
        assert!(message.contains(says), "{message}");
    }
    let start = GOOD.find("\"entries\": [").unwrap() + "\"entries\": [".len();
    let none = format!("{}]}}", &GOOD[..start]);
    assert!(GoldenFile::parse("x", &none).unwrap_err().to_string().contains("entries is empty"));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let mut references = References::none();
    let error = references.load(Path::new("/nowhere/golden.json")).unwrap_err();
    assert!(matches!(error, LoadError::Unreadable { .. }));
    assert!(error.to_string().starts_with("/nowhere/golden.json: "), "{error}");
}

#[test]
fn a_file_of_the_users_is_read_from_disk() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.json");
    std::fs::write(&path, GOOD).unwrap();
    let mut references = References::none();
    references.load(&path).unwrap();
    let names: Vec<String> = references.files().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(names, [path.display().to_string()]);
}
