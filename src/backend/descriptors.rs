//! How many files and connections this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What a process has open besides what is counted.
const OTHERS: u64 = 512;

/// Lets this process have so many descriptors besides its others, as far as the system allows it.
pub fn allow(descriptors: u64) {
    let needed = descriptors.saturating_add(OTHERS);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(needed, |maximum| maximum.min(needed));
    if current.is_some_and(|current| current < wanted) {
        // where it stays, a connection that is one too many says so
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
}
