//! `collcheck list` and `collcheck run --list`: names, one a line, and nothing else.

use anyhow::Context;
use std::io::{self, BufWriter, ErrorKind, Write};

use super::exit::Exit;
use crate::case::Case;

/// Prints the names. A reader that has seen enough, as `head`, is no error.
pub fn print(cases: &[Case]) -> anyhow::Result<Exit> {
    match write(cases, io::stdout().lock()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(e).context("cannot write the list"),
        _ => Ok(Exit::Passed),
    }
}

fn write(cases: &[Case], out: impl Write) -> io::Result<()> {
    // standard output flushes at every line otherwise
    let mut out = BufWriter::new(out);
    for case in cases {
        writeln!(out, "{case}")?;
    }
    out.flush()
}
