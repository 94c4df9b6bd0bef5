//! Slurm's srun.
//!
//! A batch script has most of a task's variables too, so that only a step counts: what srun has started.

use super::claim::{Claim, Launcher, Said, together};
use super::error::Confusion;
use super::nodelist;
use super::{Options, Variables};

/// SLURM_PROCID and the step's variables.
pub struct Slurm;

/// The batch script's and other steps that no srun has made have numbers from here on.
const SPECIAL_STEPS: u32 = 0xffff_fff0;

impl Launcher for Slurm {
    fn name(&self) -> &'static str {
        "slurm"
    }

    fn read(&self, variables: &Variables, _: &Options) -> Result<Option<Claim>, Confusion> {
        let launcher = self.name();
        if !in_step(variables) {
            return Ok(None);
        }
        let rank = variables.number("SLURM_PROCID")?;
        let world = variables.first_number(&["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"])?;
        let names = ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS"];
        let Some((rank, world)) = together(launcher, [rank, world], names)? else { return Ok(None) };
        let tasks = tasks(variables);
        Ok(Some(Claim {
            local_rank: variables.number("SLURM_LOCALID")?,
            local_world: local_world(variables, &tasks, world)?,
            job: job(variables),
            hosts: hosts(variables, &tasks, world.value),
            ..Claim::ranks(launcher, rank, world)
        }))
    }
}

/// What is to be said of a process that runs in a job of several nodes and is no part of a step.
pub fn outside_step(variables: &Variables) -> Option<String> {
    let nodes = variables.text("SLURM_JOB_NUM_NODES")?.parse::<u32>().ok()?;
    let alone = nodes > 1 && !in_step(variables);
    alone.then(|| format!("only this host of the job's {nodes} is tested: `srun collcheck run` runs on all"))
}

fn in_step(variables: &Variables) -> bool {
    let step = || variables.first_text(&["SLURM_STEP_ID", "SLURM_STEPID"])?.parse::<u32>().ok();
    variables.has("SLURM_STEP_NUM_TASKS") || step().is_some_and(|step| step < SPECIAL_STEPS)
}

fn job(variables: &Variables) -> String {
    let job = variables.first_text(&["SLURM_JOB_ID", "SLURM_JOBID"]);
    let step = variables.first_text(&["SLURM_STEP_ID", "SLURM_STEPID"]);
    job.into_iter().chain(step).collect::<Vec<_>>().join(".")
}

/// Tasks of each node; empty where they are not told or not understood.
fn tasks(variables: &Variables) -> Vec<u32> {
    let text = variables.first_text(&["SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"]);
    text.and_then(nodelist::repeated).unwrap_or_default()
}

fn local_world(variables: &Variables, tasks: &[u32], world: Said) -> Result<Option<Said>, Confusion> {
    // of the job, where the step's own number is not told
    if tasks.iter().map(|n| u64::from(*n)).sum::<u64>() != u64::from(world.value) {
        return Ok(None);
    }
    let node = variables.number("SLURM_NODEID")?;
    let here = match (node, tasks) {
        (_, [one]) => Some(*one),
        (Some(node), _) => tasks.get(node.value as usize).copied(),
        _ => None,
    };
    Ok(here.map(|value| Said { name: "SLURM_STEP_TASKS_PER_NODE", value }))
}

/// The host of each task: blocks of them fill one node after the other, unless another distribution was asked for.
fn hosts(variables: &Variables, tasks: &[u32], world: u32) -> Vec<String> {
    let list = variables.first_text(&["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"]);
    let nodes = list.and_then(nodelist::expand).unwrap_or_default();
    let blocks = variables.text("SLURM_DISTRIBUTION").is_none_or(|how| how.starts_with("block"));
    let hosts: Vec<String> = nodes
        .iter()
        .zip(tasks)
        .flat_map(|(node, tasks)| std::iter::repeat_n(node.clone(), *tasks as usize))
        .take(world as usize)
        .collect();
    if blocks && nodes.len() == tasks.len() && hosts.len() == world as usize {
        hosts
    } else {
        // task 0 is on the first node in any case
        nodes.into_iter().take(1).collect()
    }
}
