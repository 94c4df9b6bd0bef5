//! collcheck: parse, run, exit code.

fn main() {}
