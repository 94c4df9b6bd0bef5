//! Placeholder until the engine stands.

fn main() {}
