//! collcheck: parse, run, exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    collcheck::cli::main(std::env::args_os()).leave()
}
