//! Runs the built program in an environment without twins of its options.
#![allow(dead_code)] // each test binary uses its part

use std::ffi::OsStr;
use std::process::{Command, Stdio};

/// How a command ended.
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    pub fn lines(&self) -> Vec<&str> {
        self.stdout.lines().collect()
    }
}

/// The program, with no option set by the environment of whoever runs the tests.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_collcheck"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("COLLCHECK_") {
            command.env_remove(name);
        }
    }
    command.env("RUST_BACKTRACE", "0").stdin(Stdio::null());
    command
}

pub fn run<S: AsRef<OsStr>>(args: &[S], environment: &[(&str, &str)]) -> Ended {
    let output = program().args(args).envs(environment.iter().copied()).output().expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ended { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
}

/// Asserts that a command line is refused on one line with exit code 2, and returns the line.
pub fn refused(args: &[&str], environment: &[(&str, &str)]) -> String {
    let ended = run(args, environment);
    assert_eq!(ended.code, Some(2), "{args:?} {environment:?}: {}", ended.stderr);
    assert_eq!(ended.stderr.lines().count(), 1, "{args:?}: {}", ended.stderr);
    assert!(ended.stderr.starts_with("error: ") && ended.stdout.is_empty(), "{args:?}: {}", ended.stderr);
    ended.stderr.trim_end().to_owned()
}
