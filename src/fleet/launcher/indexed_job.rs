//! Kubernetes' indexed Job, and JobSet: one process a pod, which stands for all ranks of its node.

use super::claim::{Claim, Launcher, Said, Unit};
use super::error::Confusion;
use super::{Options, Variables};

/// JOB_COMPLETION_INDEX; the number of nodes is that of `--nodes`.
pub struct IndexedJob;

impl Launcher for IndexedJob {
    fn name(&self) -> &'static str {
        "kubernetes"
    }

    fn read(&self, variables: &Variables, options: &Options) -> Result<Option<Claim>, Confusion> {
        let launcher = self.name();
        let Some(there) = variables.number("JOB_COMPLETION_INDEX")? else { return Ok(None) };
        let Some(nodes) = options.nodes else {
            return Err(Confusion::Incomplete { launcher, there, lacks: "the number of pods (--nodes)" });
        };
        let job = variables.first_text(&["JOBSET_NAME", "JOB_NAME"]).unwrap_or_default();
        Ok(Some(Claim {
            unit: Unit::Node,
            job: job.to_owned(),
            ..Claim::ranks(launcher, there, Said { name: "--nodes", value: nodes })
        }))
    }
}

/// The host name of the job's first pod, from that of any other: `collcheck-3.hosts` is `collcheck-0.hosts`.
///
/// A pod's host name is the job's name and its index. The full name is had where the Job has a headless service and its pods
/// `subdomain`; without these no pod finds another.
pub fn first_pod(host: &str, index: u32) -> Option<String> {
    let (name, domain) = host.split_once('.')?;
    let job = name.strip_suffix(&index.to_string())?.strip_suffix('-')?;
    (!job.is_empty() && !domain.is_empty()).then(|| format!("{job}-0.{domain}"))
}
