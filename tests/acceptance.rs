//! `cargo test --test acceptance -- FILTER`: the cases of `collcheck run` as trials of `cargo test`.
//!
//! Arguments are libtest's. What they do not have comes from the environment twins of `collcheck run`, as
//! COLLCHECK_BACKEND=nccl or COLLCHECK_SUITE=acceptance.

use std::process::ExitCode;

use collcheck::cli;
use libtest_mimic::Arguments;

fn main() -> ExitCode {
    cli::run_as_tests(Arguments::from_args()).into()
}
