//! Launchers that speak PMI or PMI-2: MPICH's Hydra, Intel MPI, `srun --mpi=pmi2`, Cray's PALS.

use super::claim::{Claim, Launcher, together};
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
        let names = ["PMI_RANK", "PMI_SIZE"];
        let numbers = [variables.number(names[0])?, variables.number(names[1])?];
        let Some((rank, world)) = together(launcher, numbers, names)? else { return Ok(None) };
        Ok(Some(Claim {
            local_rank: variables.first_number(&["MPI_LOCALRANKID", "PMI_LOCAL_RANK"])?,
            local_world: variables.first_number(&["MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"])?,
            job: variables.first_text(&["PMI_JOBID", "PALS_APID"]).unwrap_or_default().to_owned(),
            ..Claim::ranks(launcher, rank, world)
        }))
    }
}
