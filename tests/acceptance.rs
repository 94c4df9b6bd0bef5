//! `cargo test --test acceptance -- FILTER`: the cases of `collcheck run` as trials of `cargo test`.
//!
//! Arguments are libtest's. What they do not have comes from the environment twins of `collcheck run`, as
//! COLLCHECK_BACKEND=nccl or COLLCHECK_SUITE=acceptance.

use std::process::ExitCode;

use collcheck::cli;
use libtest_mimic::Arguments;

fn main() -> ExitCode {
    // with --layout processes this program starts itself again for each rank
    if std::env::args_os().nth(1).is_some_and(|arg| arg == "worker") {
        return cli::main(std::env::args_os()).into();
    }
    cli::run_as_tests(Arguments::from_args()).into()
}
