//! Open MPI's mpirun, and PRRTE's prterun with Open MPI's personality.

use super::claim::{Claim, Launcher, together};
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
        let names = ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"];
        let numbers = [variables.number(names[0])?, variables.number(names[1])?];
        let Some((rank, world)) = together(launcher, numbers, names)? else { return Ok(None) };
        Ok(Some(Claim {
            local_rank: variables.number("OMPI_COMM_WORLD_LOCAL_RANK")?,
            local_world: variables.number("OMPI_COMM_WORLD_LOCAL_SIZE")?,
            job: variables.first_text(&JOB).unwrap_or_default().to_owned(),
            ..Claim::ranks(launcher, rank, world)
        }))
    }
}
