//! Open MPI's mpirun, and PRRTE's prterun with Open MPI's personality.

use super::claim::{Claim, Launcher};
use super::error::Confusion;
use super::{Options, Variables};

/// OMPI_COMM_WORLD_*.
pub struct OpenMpi;

/// The job's id in version 5 (PMIx) and 4.
const JOB: [&str; 3] = ["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"];

impl Launcher for OpenMpi {
    fn name(&self) -> &'static str {
        "openmpi"
    }

    fn read(&self, variables: &Variables, _: &Options) -> Result<Option<Claim>, Confusion> {
        let launcher = self.name();
        let rank = variables.number("OMPI_COMM_WORLD_RANK")?;
        let world = variables.number("OMPI_COMM_WORLD_SIZE")?;
        let (rank, world) = match (rank, world) {
            (None, None) => return Ok(None),
            (Some(rank), Some(world)) => (rank, world),
            (Some(there), None) => {
                return Err(Confusion::Incomplete { launcher, there, lacks: "OMPI_COMM_WORLD_SIZE" });
            }
            (None, Some(there)) => {
                return Err(Confusion::Incomplete { launcher, there, lacks: "OMPI_COMM_WORLD_RANK" });
            }
        };
        Ok(Some(Claim {
            local_rank: variables.number("OMPI_COMM_WORLD_LOCAL_RANK")?,
            local_world: variables.number("OMPI_COMM_WORLD_LOCAL_SIZE")?,
            job: variables.first_text(&JOB).unwrap_or_default().to_owned(),
            ..Claim::ranks(launcher, rank, world)
        }))
    }
}
