//! Which launcher counts, and what is a contradiction.

use super::claim::{Claim, Launcher, Unit};
use super::error::Confusion;
use super::indexed_job::IndexedJob;
use super::mvapich::Mvapich;
use super::open_mpi::OpenMpi;
use super::pmi::Pmi;
use super::pmix::Pmix;
use super::pytorch_job::PytorchJob;
use super::slurm::{self, Slurm};
use super::torchrun::Torchrun;
use super::{Choice, Place, Placement, Surroundings, Variables, rendezvous};

/// In the order of precedence: who starts ranks itself comes before who may only have started that one. PMIx, which most
/// others set as well and which says least, is last.
const LAUNCHERS: [&dyn Launcher; 8] = [&Torchrun, &OpenMpi, &Pmi, &Mvapich, &Slurm, &PytorchJob, &IndexedJob, &Pmix];

/// Programs that start ranks, by their names in /proc, which are cut off at 15 characters.
const PROGRAMS: [&str; 12] = [
    "mpirun",
    "mpiexec",
    "orterun",
    "orted",
    "prterun",
    "prte",
    "prted",
    "prun",
    "mpiexec.hydra",
    "hydra_pmi_proxy",
    "mpirun_rsh",
    "mpispawn",
];

/// Variables that only a launcher sets, and that do not say which rank this is.
const TRACES: [&str; 9] = [
    "TORCHELASTIC_RUN_ID",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "PMIX_NAMESPACE",
    "PMI_FD",
    "HYDI_CONTROL_FD",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "PET_NNODES",
];

/// All names, in the order of precedence.
pub fn names() -> impl Iterator<Item = &'static str> {
    LAUNCHERS.iter().map(|launcher| launcher.name())
}

/// This process's place.
pub fn place(around: &Surroundings) -> Result<Place, Confusion> {
    let claims = match around.options.launcher {
        Choice::Alone => return Ok(Place::Alone(None)),
        Choice::Auto => claims(around)?,
        Choice::Named(name) => {
            let named = LAUNCHERS.iter().find(|launcher| launcher.name() == name);
            let claim = named.map_or(Ok(None), |launcher| launcher.read(&around.variables, &around.options))?;
            vec![claim.ok_or(Confusion::NotStartedBy(name))?]
        }
    };
    let Some((first, others)) = claims.split_first() else {
        unheard(around)?;
        return Ok(Place::Alone(slurm::outside_step(&around.variables)));
    };
    claims.iter().try_for_each(Claim::check)?;
    others.iter().try_for_each(|other| agree(first, other))?;
    // one process is free to drive all GPUs that it sees, as without a launcher
    if first.of.value == 1 {
        return Ok(Place::Alone(None));
    }
    ranks_agree(first, around.options.ranks)?;
    Ok(Place::Member(Box::new(Placement {
        launcher: first.launcher,
        unit: first.unit,
        index: first.index.value,
        of: first.of.value,
        local_rank: first.local_rank.map(|said| said.value),
        local_world: first.local_world.map(|said| said.value),
        hosts: first.hosts.clone(),
        rendezvous: rendezvous::address(around, first)?,
        token: token(&around.variables, first),
    })))
}

/// What all of them say, in the order of precedence.
fn claims(around: &Surroundings) -> Result<Vec<Claim>, Confusion> {
    let mut claims = Vec::new();
    let mut incomplete = None;
    for launcher in LAUNCHERS {
        if !claims.is_empty() && launcher.name() == Pmix.name() {
            continue;
        }
        match launcher.read(&around.variables, &around.options) {
            Ok(claim) => claims.extend(claim),
            Err(error) if error.incomplete() => incomplete = incomplete.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    match incomplete {
        Some(error) if claims.is_empty() => Err(error),
        _ => Ok(claims),
    }
}

/// That the second says the same, or has started the first on each node.
fn agree(first: &Claim, second: &Claim) -> Result<(), Confusion> {
    let same =
        first.unit == second.unit && (first.index.value, first.of.value) == (second.index.value, second.of.value);
    let (of, of_second) = (first.of.value, second.of.value);
    let around_it = first.unit == Unit::Rank
        && second.per_node()
        && (of_second < of || (of_second == of && second.unit == Unit::Node));
    if same || around_it {
        return Ok(());
    }
    Err(Confusion::Disagree(Box::new(first.clone()), Box::new(second.clone())))
}

fn ranks_agree(claim: &Claim, asked: Option<u32>) -> Result<(), Confusion> {
    let Some(asked) = asked else { return Ok(()) };
    match claim.unit {
        Unit::Rank if asked != claim.of.value => {
            Err(Confusion::OtherRanks { asked, launcher: claim.launcher, there: claim.of })
        }
        Unit::Node if asked < claim.of.value => Err(Confusion::FewerRanksThanNodes { asked, nodes: claim.of }),
        _ => Ok(()),
    }
}

/// That no launcher has started this process whose variables were lost on the way.
fn unheard(around: &Surroundings) -> Result<(), Confusion> {
    let program = around.ancestors.iter().find(|name| PROGRAMS.contains(&name.as_str()));
    let slurm = around.ancestors.iter().find(|name| *name == "slurmstepd" && !around.variables.has("SLURM_JOB_ID"));
    let variable = || TRACES.iter().find(|name| around.variables.has(name));
    let launcher = program.or(slurm).cloned().or_else(|| Some(format!("who sets {}", variable()?)));
    launcher.map_or(Ok(()), |launcher| Err(Confusion::Unheard { launcher }))
}

/// A secret, if one was given; else what all processes of the job know and no other job has.
fn token(variables: &Variables, claim: &Claim) -> String {
    let derived = || format!("{} {} {}", claim.launcher, claim.job, claim.of.value);
    variables.text("COLLCHECK_TOKEN").map_or_else(derived, str::to_owned)
}
