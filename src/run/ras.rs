//! NCCL's own view of a job that does not come back: its RAS subsystem, asked at the deadline.

use std::time::Duration;

use crate::backend::Environment;
use crate::backend::nccl::Version;
use crate::evidence::ras;
use crate::fleet::inquest::Said;

/// How long an answer may take: it is evidence beside the records, and the next case waits for it.
const LIMIT: Duration = Duration::from_secs(3);

/// Entries of a report that are told.
const ENTRIES: usize = 3;

/// Where to ask, if anywhere.
#[derive(Debug, Clone, Default)]
pub struct Ras {
    address: Option<String>,
}

impl Ras {
    /// On NCCL 2.24 and newer, where the processes of this run answer: see `backend::nccl`, which gives them the address.
    pub fn of(environment: &Environment) -> Ras {
        let answers = environment.backend == "nccl"
            && environment.nccl_version.parse().is_ok_and(|version: Version| version >= Version::RAS)
            && std::env::var("NCCL_RAS_ENABLE").map_or(true, |value| value.trim() != "0");
        Ras { address: std::env::var("NCCL_RAS_ADDR").ok().filter(|_| answers) }
    }

    /// What RAS complains of. Nothing where it does not answer: whoever would may be the one who is stuck.
    pub fn complaints(&self) -> Vec<Said> {
        let report = self.address.as_deref().and_then(|address| ras::ask(address, LIMIT).ok()).unwrap_or_default();
        let told = ras::complaints(&report).into_iter().take(ENTRIES);
        told.map(|text| Said { rank: None, text: format!("RAS {text}") }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_backend_and_old_libraries_are_not_asked() {
        let of = |backend: &str, version: &str| {
            let (backend, nccl_version) = (backend.to_owned(), version.to_owned());
            Ras::of(&Environment { backend, nccl_version, ..Environment::default() })
        };
        assert!(of("host", "").complaints().is_empty());
        assert!(of("nccl", "2.19.3").address.is_none());
    }
}
