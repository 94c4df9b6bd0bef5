//! Kubeflow's PyTorchJob and Trainer v2: one process a pod, which stands for all ranks of its node.

use super::claim::{Claim, Launcher, Said, Unit, together};
use super::error::Confusion;
use super::{Options, Variables};

/// PET_NODE_RANK and PET_NNODES, else RANK and WORLD_SIZE of a pod; PET_NPROC_PER_NODE.
pub struct PytorchJob;

/// Whether RANK and WORLD_SIZE, without LOCAL_RANK, count pods.
pub fn in_pod(variables: &Variables) -> bool {
    ["PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE", "KUBERNETES_SERVICE_HOST"].iter().any(|v| variables.has(v))
}

impl Launcher for PytorchJob {
    fn name(&self) -> &'static str {
        "pytorchjob"
    }

    fn read(&self, variables: &Variables, _: &Options) -> Result<Option<Claim>, Confusion> {
        let launcher = self.name();
        let node = variables.first_number(&["PET_NODE_RANK", "RANK"])?;
        // an elastic job's range, as 1:4, is no number of nodes
        let fixed = variables.text("PET_NNODES").is_some_and(|nodes| !nodes.contains(':'));
        let nodes = variables.first_number(if fixed { &["PET_NNODES", "WORLD_SIZE"] } else { &["WORLD_SIZE"] })?;
        // torchrun, started in the pod, has given the same names to ranks
        if !in_pod(variables) || (variables.has("LOCAL_RANK") && !variables.has("PET_NODE_RANK")) {
            return Ok(None);
        }
        let names = ["PET_NODE_RANK", "PET_NNODES"];
        let Some((index, of)) = together(launcher, [node, nodes], names)? else { return Ok(None) };
        Ok(Some(Claim {
            unit: Unit::Node,
            local_world: workers(variables)?,
            job: variables.text("PET_RDZV_ID").unwrap_or_default().to_owned(),
            ..Claim::ranks(launcher, index, of)
        }))
    }
}

/// Ranks of this node; `None` where as many are meant as there are GPUs.
fn workers(variables: &Variables) -> Result<Option<Said>, Confusion> {
    match variables.text("PET_NPROC_PER_NODE") {
        Some("auto" | "gpu" | "cpu") => Ok(None),
        _ => variables.number("PET_NPROC_PER_NODE"),
    }
}
