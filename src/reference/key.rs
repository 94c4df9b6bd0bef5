//! The environment that a golden file holds for.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::checked::Check;
use super::choice::Choice;
use super::facts::{Observed, nvls_not_disabled};
use super::version::{NcclRange, major_minor};
use crate::backend::Environment;

/// Network cards of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nics {
    /// How many take part.
    pub per_node: u32,
    /// The rate of each in Gb/s, as 400 for NDR.
    pub gbits: u32,
}

impl fmt::Display for Nics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {} Gb/s a node", self.per_node, self.gbits)
    }
}

/// What an environment must be for a golden file to hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvironmentKey {
    /// `nccl` or `host`.
    #[serde(default = "nccl")]
    pub backend: String,
    /// Patterns of the device name, of which one must fit: `*` for any characters, `?` for one, letter case ignored.
    pub gpu: Vec<String>,
    /// Ranks on each node.
    pub gpus_per_node: u32,
    /// Hosts.
    pub nodes: u32,
    /// How the GPUs of a node are linked: `nvlink`, `pcie`, or `host` on the host backend.
    pub link: Choice<String>,
    /// The network cards of one node; absent where they do not matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nics: Option<Nics>,
    /// Whether the library may use NVLS.
    pub nvls: Choice<bool>,
    /// NCCL versions.
    pub nccl: NcclRange,
}

fn nccl() -> String {
    "nccl".to_owned()
}

const LINKS: [&str; 3] = ["nvlink", "pcie", "host"];

impl Check for EnvironmentKey {
    const WHAT: &'static str = "an object with gpu, gpus_per_node, nodes, link, nvls and nccl";

    fn check(&self) -> Result<(), String> {
        if !["nccl", "host"].contains(&self.backend.as_str()) {
            return Err(format!("unknown backend {:?}; expected nccl or host", self.backend));
        }
        if self.gpu.is_empty() || self.gpu.iter().any(|p| p.trim().is_empty()) {
            return Err("gpu needs at least one pattern, and none of them empty; expected as [\"NVIDIA H200\"]".into());
        }
        if self.gpus_per_node == 0 || self.nodes == 0 {
            return Err("gpus_per_node and nodes are counts; expected at least 1".into());
        }
        if let Choice::Of(links) = &self.link
            && let Some(bad) = links.iter().find(|l| !LINKS.contains(&l.as_str()))
        {
            // Ranks that share a GPU have no link: their bandwidth is never judged.
            return Err(format!("unknown link {bad:?}; expected any or one of {}", LINKS.join(", ")));
        }
        if self.nics.is_some_and(|n| n.per_node == 0 || n.gbits == 0) {
            return Err("nics has a zero; expected as {\"per_node\": 8, \"gbits\": 400}".into());
        }
        Ok(())
    }
}

/// Why no key can be made of an environment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoKey {
    /// Bandwidth means nothing there.
    #[error("ranks share a GPU, so that bandwidth says nothing of the machine")]
    SharedGpu,
    /// Ranks are spread unevenly.
    #[error("{ranks} ranks do not divide by {nodes} nodes")]
    Uneven {
        /// Ranks of the communicator.
        ranks: u32,
        /// Hosts.
        nodes: u32,
    },
}

impl EnvironmentKey {
    /// Ranks of the communicator that it holds for.
    pub fn ranks(&self) -> u64 {
        u64::from(self.gpus_per_node) * u64::from(self.nodes)
    }

    /// The key of an environment that ranges were measured in: what is known is made part of it.
    pub fn of(environment: &Environment, observed: Observed) -> Result<Self, NoKey> {
        if shares_gpu(environment) {
            return Err(NoKey::SharedGpu);
        }
        let (ranks, nodes) = (environment.ranks, environment.nodes.max(1));
        if ranks == 0 || ranks % nodes != 0 {
            return Err(NoKey::Uneven { ranks, nodes });
        }
        let link = &environment.link;
        let on_host = environment.backend == "host";
        Ok(EnvironmentKey {
            backend: environment.backend.clone(),
            gpu: vec![if environment.device.is_empty() { "*".to_owned() } else { environment.device.clone() }],
            gpus_per_node: ranks / nodes,
            nodes,
            link: if LINKS.contains(&link.as_str()) { Choice::only(link.clone()) } else { Choice::Any },
            nics: observed.nics,
            nvls: if on_host {
                Choice::Any
            } else {
                Choice::only(observed.nvls.unwrap_or_else(|| nvls_not_disabled(environment)))
            },
            nccl: major_minor(&environment.nccl_version).map_or(NcclRange::Any, |v| NcclRange::Between(v, v)),
        })
    }
}

/// Whether ranks compete for a GPU.
pub(super) fn shares_gpu(environment: &Environment) -> bool {
    environment.link == "same-gpu" || environment.ranks_per_gpu > 1
}
