//! Ctrl-C and SIGTERM: the run ends in order, with the results that it has.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::exit::Exit;

/// A flag that either signal sets. The second signal ends the process at once.
pub fn flag() -> anyhow::Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // the order matters: who comes first sees the flag as it was before
        flag::register_conditional_shutdown(signal, Exit::Interrupted as i32, interrupted.clone())
            .and_then(|_| flag::register(signal, interrupted.clone()))
            .context("cannot listen for signals")?;
    }
    Ok(interrupted)
}
