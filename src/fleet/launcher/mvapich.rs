//! MVAPICH's mpirun_rsh.

use super::claim::{Claim, Launcher};
use super::error::Confusion;
use super::{Options, Variables};

/// MV2_COMM_WORLD_*.
pub struct Mvapich;

impl Launcher for Mvapich {
    fn name(&self) -> &'static str {
        "mvapich"
    }

    fn read(&self, variables: &Variables, _: &Options) -> Result<Option<Claim>, Confusion> {
        let launcher = self.name();
        let rank = variables.number("MV2_COMM_WORLD_RANK")?;
        let world = variables.number("MV2_COMM_WORLD_SIZE")?;
        let (rank, world) = match (rank, world) {
            (None, None) => return Ok(None),
            (Some(rank), Some(world)) => (rank, world),
            (Some(there), None) => return Err(Confusion::Incomplete { launcher, there, lacks: "MV2_COMM_WORLD_SIZE" }),
            (None, Some(there)) => return Err(Confusion::Incomplete { launcher, there, lacks: "MV2_COMM_WORLD_RANK" }),
        };
        Ok(Some(Claim {
            local_rank: variables.number("MV2_COMM_WORLD_LOCAL_RANK")?,
            local_world: variables.number("MV2_COMM_WORLD_LOCAL_SIZE")?,
            job: variables.text("MPISPAWN_ID").unwrap_or_default().to_owned(),
            ..Claim::ranks(launcher, rank, world)
        }))
    }
}
