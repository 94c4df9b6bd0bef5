//! MVAPICH's mpirun_rsh.

use super::claim::{Claim, Launcher, together};
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
        let names = ["MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"];
        let numbers = [variables.number(names[0])?, variables.number(names[1])?];
        let Some((rank, world)) = together(launcher, numbers, names)? else { return Ok(None) };
        Ok(Some(Claim {
            local_rank: variables.number("MV2_COMM_WORLD_LOCAL_RANK")?,
            local_world: variables.number("MV2_COMM_WORLD_LOCAL_SIZE")?,
            job: variables.text("MPISPAWN_ID").unwrap_or_default().to_owned(),
            ..Claim::ranks(launcher, rank, world)
        }))
    }
}
