//! Processes as a launcher starts them on this host: their variables, and one run of several.
#![allow(dead_code)] // each test binary uses its part

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use collcheck::report::results::{Results, read_results};
use tempfile::TempDir;

use crate::cli_support::program;

pub type Variables = Vec<(&'static str, String)>;

/// A number that no other job of this machine has.
pub fn job() -> String {
    static JOBS: AtomicU32 = AtomicU32::new(0);
    format!("{}{:03}", std::process::id(), JOBS.fetch_add(1, Ordering::Relaxed))
}

/// A port that nobody has at the moment.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub fn torchrun(rank: u32, world: u32, port: u16) -> Variables {
    vec![
        ("RANK", rank.to_string()),
        ("WORLD_SIZE", world.to_string()),
        ("LOCAL_RANK", rank.to_string()),
        ("LOCAL_WORLD_SIZE", world.to_string()),
        ("MASTER_ADDR", "localhost".to_owned()),
        // the port itself may be held by torchrun's store
        ("MASTER_PORT", (port - 1000).to_string()),
        ("TORCHELASTIC_RUN_ID", "none".to_owned()),
    ]
}

pub fn open_mpi(rank: u32, world: u32, job: &str) -> Variables {
    vec![
        ("OMPI_COMM_WORLD_RANK", rank.to_string()),
        ("OMPI_COMM_WORLD_SIZE", world.to_string()),
        ("OMPI_COMM_WORLD_LOCAL_RANK", rank.to_string()),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", world.to_string()),
        ("PMIX_NAMESPACE", format!("prterun-host-{job}@1")),
        ("PMIX_RANK", rank.to_string()),
    ]
}

pub fn slurm(rank: u32, world: u32, job: &str) -> Variables {
    vec![
        ("SLURM_PROCID", rank.to_string()),
        ("SLURM_STEP_NUM_TASKS", world.to_string()),
        ("SLURM_NTASKS", world.to_string()),
        ("SLURM_LOCALID", rank.to_string()),
        ("SLURM_NODEID", "0".to_owned()),
        ("SLURM_JOB_ID", job.to_owned()),
        ("SLURM_STEP_ID", "0".to_owned()),
        ("SLURM_STEP_NODELIST", "gpu07".to_owned()),
        ("SLURM_STEP_TASKS_PER_NODE", world.to_string()),
    ]
}

pub fn pmi(rank: u32, world: u32, job: &str) -> Variables {
    vec![("PMI_RANK", rank.to_string()), ("PMI_SIZE", world.to_string()), ("PMI_JOBID", job.to_owned())]
}

/// The processes of one run; each would write results of its own.
pub struct Job {
    pub dir: TempDir,
    pub children: Vec<Child>,
}

impl Job {
    pub fn new() -> Job {
        Job { dir: tempfile::tempdir().unwrap(), children: Vec::new() }
    }

    pub fn json(&self, index: usize) -> PathBuf {
        self.dir.path().join(format!("results-{index}.json"))
    }

    /// Starts one more, with only these variables.
    pub fn start(&mut self, variables: &[(&str, String)], args: &[&str]) -> usize {
        let index = self.children.len();
        let mut command = program();
        command.env_clear().envs(variables.iter().map(|(name, value)| (name, value)));
        command.args(["run", "--backend", "host", "--json"]).arg(self.json(index)).args(args);
        self.children.push(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        index
    }

    pub fn pid(&self, index: usize) -> i32 {
        self.children[index].id() as i32
    }

    /// Waits for all of them, in the order of their start.
    pub fn wait(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.children).into_iter().map(|child| child.wait_with_output().unwrap()).collect()
    }

    pub fn results(&self, index: usize) -> Results {
        read_results(&self.json(index)).unwrap()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub const SMALL: [&str; 2] = ["all_reduce::sum::float::1KiB", "broadcast::none::int8::8B"];

pub fn small() -> Vec<&'static str> {
    ["-n", "2", "--exact"].into_iter().chain(SMALL).collect()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The only line on standard error.
pub fn line(output: &Output) -> String {
    let text = stderr(output);
    assert_eq!(text.lines().count(), 1, "{text}");
    text.trim_end().to_owned()
}

pub trait Codes {
    fn map_codes(&self) -> Vec<Option<i32>>;
}

impl Codes for Vec<Output> {
    fn map_codes(&self) -> Vec<Option<i32>> {
        self.iter().map(|output| output.status.code()).collect()
    }
}
