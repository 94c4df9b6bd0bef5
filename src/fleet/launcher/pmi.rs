//! Launchers that speak PMI or PMI-2: MPICH's Hydra, Intel MPI, `srun --mpi=pmi2`, Cray's PALS.

use super::claim::{Claim, Launcher};
use super::error::Confusion;
use super::{Options, Variables};

/// PMI_RANK, PMI_SIZE, and the host's part under two names.
pub struct Pmi;

impl Launcher for Pmi {
    fn name(&self) -> &'static str {
        "pmi"
    }

    fn read(&self, variables: &Variables, _: &Options) -> Result<Option<Claim>, Confusion> {
        let launcher = self.name();
        let (rank, world) = match (variables.number("PMI_RANK")?, variables.number("PMI_SIZE")?) {
            (None, None) => return Ok(None),
            (Some(rank), Some(world)) => (rank, world),
            (Some(there), None) => return Err(Confusion::Incomplete { launcher, there, lacks: "PMI_SIZE" }),
            (None, Some(there)) => return Err(Confusion::Incomplete { launcher, there, lacks: "PMI_RANK" }),
        };
        Ok(Some(Claim {
            local_rank: variables.first_number(&["MPI_LOCALRANKID", "PMI_LOCAL_RANK"])?,
            local_world: variables.first_number(&["MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"])?,
            job: variables.first_text(&["PMI_JOBID", "PALS_APID"]).unwrap_or_default().to_owned(),
            ..Claim::ranks(launcher, rank, world)
        }))
    }
}
