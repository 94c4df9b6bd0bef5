//! torchrun, and whoever sets its variables: DeepSpeed, Accelerate, a shell script with ssh.

use super::claim::{Claim, Launcher, Said};
use super::error::Confusion;
use super::pytorch_job;
use super::{Options, Variables};

/// RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE.
pub struct Torchrun;

impl Launcher for Torchrun {
    fn name(&self) -> &'static str {
        "torchrun"
    }

    fn read(&self, variables: &Variables, _: &Options) -> Result<Option<Claim>, Confusion> {
        let launcher = self.name();
        let rank = variables.number("RANK")?;
        let world = variables.number("WORLD_SIZE")?;
        let local_rank = variables.number("LOCAL_RANK")?;
        // without it the two count pods
        if local_rank.is_none() && pytorch_job::in_pod(variables) {
            return Ok(None);
        }
        let missing = |there: Said, lacks| Err(Confusion::Incomplete { launcher, there, lacks });
        match (rank, world, local_rank) {
            (Some(rank), Some(world), Some(local)) => Ok(Some(Claim {
                local_rank: Some(local),
                local_world: variables.number("LOCAL_WORLD_SIZE")?,
                job: job(variables),
                ..Claim::ranks(launcher, rank, world)
            })),
            (Some(rank), None, _) => missing(rank, "WORLD_SIZE"),
            (Some(rank), Some(_), None) => missing(rank, "LOCAL_RANK"),
            (None, Some(world), _) => missing(world, "RANK"),
            (None, None, Some(local)) => missing(local, "RANK"),
            (None, None, None) => Ok(None),
        }
    }
}

/// The run's id, which is `none` unless it was given, and the port of its store.
fn job(variables: &Variables) -> String {
    let parts = ["TORCHELASTIC_RUN_ID", "MASTER_PORT"];
    parts.into_iter().filter_map(|name| variables.text(name)).collect::<Vec<_>>().join("/")
}
