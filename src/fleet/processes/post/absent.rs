//! Why a run under a launcher does not begin.

use std::io;
use std::net::SocketAddr;

use crate::trace::text;

/// Why there is no coordinator, or not all of its processes. Each on one line.
#[derive(Debug, thiserror::Error)]
pub enum Absent {
    /// The port is in use by this very job.
    #[error(
        "another rank 0 of this job listens at {0} already: each rank is started once; \
         runs at the same time need a COLLCHECK_TOKEN and a --rendezvous each"
    )]
    SecondCoordinator(SocketAddr),
    /// The port is in use by something else.
    #[error("rank 0 cannot listen at {host}, port {ports}: {why}; give another by --rendezvous HOST:PORT")]
    NoPort {
        /// The host.
        host: String,
        /// The ports that were tried.
        ports: String,
        /// What the last one answered.
        why: io::Error,
    },
    /// Not all have come.
    #[error("{missing} did not arrive within {seconds:.0} s; here: {here}")]
    Missing {
        /// Who, and where known on which host.
        missing: String,
        /// How long they had.
        seconds: f64,
        /// Who has come, and from where.
        here: String,
    },
    /// The run was interrupted before all were here.
    #[error("interrupted")]
    Interrupted,
}

/// A few of many.
pub(super) fn listed(all: &[String]) -> String {
    const MOST: usize = 16;
    let some: Vec<&str> = all.iter().take(MOST).map(String::as_str).collect();
    let more = all.len().saturating_sub(MOST);
    let list = if more > 0 { format!("{} and {more} more", some.join(", ")) } else { some.join(", ") };
    if list.is_empty() { "nobody".to_owned() } else { text::line(&list) }
}
