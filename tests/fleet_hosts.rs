//! Ranks on several hosts, under each launcher's variables; and hosts that are cut off while they are at work.

mod netns_support;
mod process_support;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use collcheck::report::results::{Results, read_results};
use collcheck::run::result::{CaseResult, FailKind, Outcome};
use collcheck::trace::Class;
use netns_support::Hosts;
use process_support::within;
use tempfile::TempDir;

/// One process of a launcher: the host on which it is started, and with which variables.
struct Start {
    host: usize,
    variables: Vec<(&'static str, String)>,
}

/// A rank's place, where hosts have so many ranks each.
#[derive(Clone, Copy)]
struct Seat {
    rank: u32,
    world: u32,
    host: usize,
    local: u32,
    locals: u32,
}

fn seats(layout: &[u32]) -> Vec<Seat> {
    let world = layout.iter().sum();
    let all =
        layout.iter().enumerate().flat_map(|(host, locals)| (0..*locals).map(move |local| (host, local, *locals)));
    (0..).zip(all).map(|(rank, (host, local, locals))| Seat { rank, world, host, local, locals }).collect()
}

/// As `gpu01`.
const HOSTS: [&str; 3] = ["gpu01", "gpu02", "gpu03"];

fn per_rank(layout: &[u32], variables: impl Fn(Seat) -> Vec<(&'static str, String)>) -> Vec<Start> {
    seats(layout).into_iter().map(|seat| Start { host: seat.host, variables: variables(seat) }).collect()
}

fn torchrun(layout: &[u32]) -> Vec<Start> {
    per_rank(layout, |seat| {
        let hosts = layout.len();
        vec![
            ("RANK", seat.rank.to_string()),
            ("WORLD_SIZE", seat.world.to_string()),
            ("LOCAL_RANK", seat.local.to_string()),
            ("LOCAL_WORLD_SIZE", seat.locals.to_string()),
            ("GROUP_RANK", seat.host.to_string()),
            ("GROUP_WORLD_SIZE", hosts.to_string()),
            ("ROLE_RANK", seat.rank.to_string()),
            ("ROLE_WORLD_SIZE", seat.world.to_string()),
            ("ROLE_NAME", "default".to_owned()),
            ("MASTER_ADDR", "gpu01".to_owned()),
            ("MASTER_PORT", "29500".to_owned()),
            ("TORCHELASTIC_RESTART_COUNT", "0".to_owned()),
            ("TORCHELASTIC_MAX_RESTARTS", "0".to_owned()),
            ("TORCHELASTIC_RUN_ID", "none".to_owned()),
        ]
    })
}

/// `mpirun -x MASTER_ADDR=gpu01`.
fn open_mpi(layout: &[u32]) -> Vec<Start> {
    per_rank(layout, |seat| {
        vec![
            ("OMPI_COMM_WORLD_RANK", seat.rank.to_string()),
            ("OMPI_COMM_WORLD_SIZE", seat.world.to_string()),
            ("OMPI_COMM_WORLD_LOCAL_RANK", seat.local.to_string()),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", seat.locals.to_string()),
            ("OMPI_COMM_WORLD_NODE_RANK", seat.local.to_string()),
            ("OMPI_UNIVERSE_SIZE", seat.world.to_string()),
            ("PMIX_NAMESPACE", "prterun-gpu01-4242@1".to_owned()),
            ("PMIX_RANK", seat.rank.to_string()),
            ("PMIX_HOSTNAME", HOSTS[seat.host].to_owned()),
            ("MASTER_ADDR", "gpu01".to_owned()),
        ]
    })
}

fn slurm(layout: &[u32]) -> Vec<Start> {
    let tasks: Vec<String> = layout.iter().map(u32::to_string).collect();
    let even = layout.iter().all(|tasks| *tasks == layout[0]);
    let tasks = if even { format!("{}(x{})", layout[0], layout.len()) } else { tasks.join(",") };
    per_rank(layout, |seat| {
        vec![
            ("SLURM_PROCID", seat.rank.to_string()),
            ("SLURM_NTASKS", seat.world.to_string()),
            ("SLURM_STEP_NUM_TASKS", seat.world.to_string()),
            ("SLURM_LOCALID", seat.local.to_string()),
            ("SLURM_NODEID", seat.host.to_string()),
            ("SLURM_NNODES", layout.len().to_string()),
            ("SLURM_JOB_ID", "4242".to_owned()),
            ("SLURM_STEP_ID", "0".to_owned()),
            ("SLURM_STEP_NODELIST", format!("gpu[01-0{}]", layout.len())),
            ("SLURM_STEP_TASKS_PER_NODE", tasks.clone()),
            ("SLURMD_NODENAME", HOSTS[seat.host].to_owned()),
        ]
    })
}

/// Hydra says nothing of rank 0's host: COLLCHECK_RENDEZVOUS does.
fn pmi(layout: &[u32]) -> Vec<Start> {
    per_rank(layout, |seat| {
        vec![
            ("PMI_RANK", seat.rank.to_string()),
            ("PMI_SIZE", seat.world.to_string()),
            ("PMI_FD", "9".to_owned()),
            ("MPI_LOCALRANKID", seat.local.to_string()),
            ("MPI_LOCALNRANKS", seat.locals.to_string()),
            ("COLLCHECK_RENDEZVOUS", "gpu01:7000".to_owned()),
        ]
    })
}

fn mvapich(layout: &[u32]) -> Vec<Start> {
    per_rank(layout, |seat| {
        vec![
            ("MV2_COMM_WORLD_RANK", seat.rank.to_string()),
            ("MV2_COMM_WORLD_SIZE", seat.world.to_string()),
            ("MV2_COMM_WORLD_LOCAL_RANK", seat.local.to_string()),
            ("MV2_COMM_WORLD_LOCAL_SIZE", seat.locals.to_string()),
            ("MPISPAWN_ID", "4242".to_owned()),
            ("MASTER_ADDR", "10.77.0.1".to_owned()),
        ]
    })
}

/// One process a pod, which starts the ranks of its node.
fn pytorch_job(layout: &[u32]) -> Vec<Start> {
    let pod = |(host, ranks): (usize, &u32)| Start {
        host,
        variables: vec![
            ("MASTER_ADDR", "gpu01".to_owned()),
            ("MASTER_PORT", "23456".to_owned()),
            ("WORLD_SIZE", layout.len().to_string()),
            ("RANK", host.to_string()),
            ("PET_NNODES", layout.len().to_string()),
            ("PET_NODE_RANK", host.to_string()),
            ("PET_NPROC_PER_NODE", ranks.to_string()),
            ("KUBERNETES_SERVICE_HOST", "10.96.0.1".to_owned()),
        ],
    };
    layout.iter().enumerate().map(pod).collect()
}

/// Kubeflow's Trainer, which sets torchrun's options instead of its variables.
fn trainer(layout: &[u32]) -> Vec<Start> {
    let pod = |(host, ranks): (usize, &u32)| Start {
        host,
        variables: vec![
            ("PET_NNODES", layout.len().to_string()),
            ("PET_NODE_RANK", host.to_string()),
            ("PET_NPROC_PER_NODE", ranks.to_string()),
            ("PET_MASTER_ADDR", "gpu01".to_owned()),
            ("PET_MASTER_PORT", "29400".to_owned()),
        ],
    };
    layout.iter().enumerate().map(pod).collect()
}

fn indexed_job(layout: &[u32]) -> Vec<Start> {
    let pod = |host: usize| Start {
        host,
        variables: vec![
            ("JOB_COMPLETION_INDEX", host.to_string()),
            ("KUBERNETES_SERVICE_HOST", "10.96.0.1".to_owned()),
        ],
    };
    (0..layout.len()).map(pod).collect()
}

/// All processes of a launcher, of which only the first writes reports.
struct Job {
    dir: TempDir,
    children: Vec<(usize, Child)>,
}

impl Job {
    fn start(hosts: &Hosts, starts: Vec<Start>, args: &[&str]) -> Job {
        let mut job = Job { dir: tempfile::tempdir().unwrap(), children: Vec::new() };
        for Start { host, variables } in starts {
            let mut command = hosts.command(host, env!("CARGO_BIN_EXE_collcheck"));
            command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").envs(variables);
            command.args(["run", "--backend", "host", "--host-transport", "tcp"]);
            command.arg("--json").arg(job.report("json")).arg("--junit").arg(job.report("xml")).args(args);
            let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            job.children.push((host, child));
        }
        job
    }

    fn report(&self, kind: &str) -> PathBuf {
        self.dir.path().join("results").with_extension(kind)
    }

    fn text(&self, kind: &str) -> String {
        fs::read_to_string(self.report(kind)).unwrap()
    }

    fn results(&self) -> Results {
        read_results(&self.report("json")).unwrap()
    }

    /// Waits for all of them: where each ran, and what it said.
    fn wait(&mut self) -> Vec<(usize, Output)> {
        let children = std::mem::take(&mut self.children);
        children.into_iter().map(|(host, child)| (host, child.wait_with_output().unwrap())).collect()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for (_, child) in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Of the smoke suite: a case for each way that data takes.
const SMOKE: [&str; 6] = [
    "all_reduce::sum::float::1MiB",
    "all_gather::none::float::5000B@odd",
    "reduce_scatter::sum::float::64KiB",
    "alltoall::none::float::1KiB",
    "broadcast::none::float::8B",
    "sendrecv::none::float::16KiB",
];

/// Runs the cases and expects one run with all ranks of the layout, each on its host, and nothing left on any.
fn one_run(hosts: &Hosts, starts: Vec<Start>, layout: &[u32], args: &[&str]) {
    let args = [&["--suite", "smoke", "-n", "2", "--exact"], &SMOKE[..], args].concat();
    let mut job = Job::start(hosts, starts, &args);
    for (host, output) in job.wait() {
        assert_eq!(output.status.code(), Some(0), "on {}: {}", hosts.name(host), stderr(&output));
    }
    let results = job.results();
    let world: u32 = layout.iter().sum();
    let passed = results.cases.iter().filter(|case| case.outcome == Outcome::Pass && case.ranks == world).count();
    assert_eq!((passed, results.environment.ranks), (SMOKE.len(), world), "{:?}", results.summary);
    let devices: Vec<String> =
        seats(layout).iter().map(|seat| format!("rank {} on {}", seat.rank, hosts.name(seat.host))).collect();
    assert_eq!((results.environment.devices, results.environment.link.as_str()), (devices, "tcp"));
    for host in 0..layout.len() {
        assert_eq!(hosts.processes(host), [0; 0], "left on {}", hosts.name(host));
    }
}

fn on_even_and_uneven_hosts(launcher: impl Fn(&[u32]) -> Vec<Start>, args: &[&str]) {
    let Some(hosts) = Hosts::new(&HOSTS) else { return };
    for layout in [&[2, 2][..], &[1, 2], &[2, 1, 2]] {
        one_run(&hosts, launcher(layout), layout, args);
    }
}

#[test]
fn torchrun_makes_one_run_of_several_hosts() {
    on_even_and_uneven_hosts(torchrun, &[]);
}

#[test]
fn mpirun_makes_one_run_of_several_hosts() {
    on_even_and_uneven_hosts(open_mpi, &[]);
}

#[test]
fn srun_makes_one_run_of_several_hosts() {
    on_even_and_uneven_hosts(slurm, &[]);
}

#[test]
fn hydra_makes_one_run_of_several_hosts() {
    on_even_and_uneven_hosts(pmi, &[]);
}

#[test]
fn mvapich_makes_one_run_of_several_hosts() {
    on_even_and_uneven_hosts(mvapich, &[]);
}

#[test]
fn a_pytorchjob_makes_one_run_of_several_hosts() {
    on_even_and_uneven_hosts(pytorch_job, &[]);
    on_even_and_uneven_hosts(trainer, &[]);
}

#[test]
fn an_indexed_job_makes_one_run_of_several_hosts() {
    let names = ["job-0.pods.default.svc.cluster.local", "job-1.pods.default.svc.cluster.local"];
    let Some(hosts) = Hosts::new(&names) else { return };
    for (layout, ranks) in [(&[2, 2][..], "4"), (&[2, 1], "3")] {
        one_run(&hosts, indexed_job(layout), layout, &["--nodes", "2", "--ranks", ranks]);
    }
}

/// A case that would run for hours, and one that would be next.
const LONG: [&str; 2] = ["all_reduce::sum::float::1MiB", "broadcast::none::float::8B"];

/// Starts two ranks on each of three hosts, and cuts a host off once all are at work.
fn cut_off(hosts: &Hosts, launcher: fn(&[u32]) -> Vec<Start>, host: usize, deadline: &str) -> (Job, Instant) {
    let args = [&["-n", "1000000", "--deadline", deadline, "--exact"], &LONG[..]].concat();
    let starts = launcher(&[2, 2, 2]);
    let processes = starts.len() + 6;
    let job = Job::start(hosts, starts, &args);
    let journal = job.report("json.partial");
    within(Duration::from_secs(60), "workers that run", || {
        (0..3).map(|host| hosts.processes(host).len()).sum::<usize>() == processes
            && fs::read(&journal).is_ok_and(|journal| !journal.is_empty())
    });
    std::thread::sleep(Duration::from_secs(2));
    hosts.cut(host);
    (job, Instant::now())
}

/// The case that was running: its verdict names the host everywhere.
fn blamed(job: &Job, stdout: &[u8], ranks: &[u32], says: &str) -> CaseResult {
    let results = job.results();
    assert_eq!((results.summary.failed, results.summary.skipped), (1, 1), "{:?}", results.summary);
    let case = results.cases[0].clone();
    let verdict = case.verdict.as_ref().unwrap();
    let found = (case.outcome, case.kind, verdict.class, &verdict.culprit_ranks[..]);
    assert_eq!(found, (Outcome::Fail, Some(FailKind::Hang), Class::FFabric, ranks), "{}", case.message);
    assert!(verdict.summary.starts_with(says), "{}", verdict.summary);
    assert_eq!(
        (verdict.communicator.as_deref(), verdict.operation.as_deref()),
        (Some("the communicator"), Some("all_reduce"))
    );
    for (where_, text) in [("JUnit", job.text("xml")), ("terminal", String::from_utf8_lossy(stdout).into_owned())] {
        assert!(text.contains("F.fabric") && text.contains(says), "{where_}: {text}");
    }
    let next = &results.cases[1];
    assert_eq!(next.outcome, Outcome::Skip);
    assert!(next.message.contains(&format!("not run: {says}")), "{}", next.message);
    case
}

fn a_host_is_cut_off(launcher: fn(&[u32]) -> Vec<Start>) {
    let Some(hosts) = Hosts::new(&HOSTS) else { return };
    let (mut job, since) = cut_off(&hosts, launcher, 1, "300");
    let outputs = job.wait();
    assert!(since.elapsed() < Duration::from_secs(30), "{:?}", since.elapsed());
    for (host, output) in &outputs {
        let expected = if *host == 1 { 3 } else { 101 };
        assert_eq!(output.status.code(), Some(expected), "on {}: {}", hosts.name(*host), stderr(output));
        if *host == 1 {
            assert!(stderr(output).contains("no word from rank 0's host for 10 s"), "{}", stderr(output));
        }
    }
    let case = blamed(&job, &outputs[0].1.stdout, &[2, 3], "no word from host gpu02 (ranks 2, 3) for 5 s");
    assert!(case.message.starts_with("ranks 2, 3 went silent: F.fabric: "), "{}", case.message);
    assert!(!case.message.contains("no other host"), "{}", case.message);
    // what the others did is known, of all together or of some that are a call further
    let told = |rank: &str| {
        let who =
            case.message.lines().filter(|line| line.contains(": in the ")).filter_map(|line| line.split(':').next());
        who.filter(|who| who.starts_with("rank")).any(|who| who.split([' ', ',']).any(|word| word == rank))
    };
    assert!(["0", "1", "4", "5"].into_iter().all(told), "{}", case.message);
    for host in 0..3 {
        assert_eq!(hosts.processes(host), [0; 0], "left on {}", hosts.name(host));
    }
}

#[test]
fn a_host_that_is_cut_off_is_named_and_the_run_ends_everywhere() {
    a_host_is_cut_off(torchrun);
}

#[test]
fn so_is_one_whose_ranks_have_one_agent() {
    a_host_is_cut_off(pytorch_job);
}

#[test]
fn a_deadline_before_the_silence_is_noticed_ends_in_the_same_verdict() {
    let Some(hosts) = Hosts::new(&HOSTS) else { return };
    let (mut job, since) = cut_off(&hosts, slurm, 2, "4");
    let outputs = job.wait();
    assert!(since.elapsed() < Duration::from_secs(30), "{:?}", since.elapsed());
    assert_eq!(outputs[0].1.status.code(), Some(101), "{}", stderr(&outputs[0].1));
    let case = blamed(&job, &outputs[0].1.stdout, &[4, 5], "no word from host gpu03 (ranks 4, 5) for 5 s");
    assert!(case.message.starts_with("no end within 4 s: F.fabric: "), "{}", case.message);
}

#[test]
fn where_rank_0_s_own_host_is_cut_off_that_is_said_and_the_others_end() {
    let Some(hosts) = Hosts::new(&HOSTS) else { return };
    let (mut job, since) = cut_off(&hosts, open_mpi, 0, "300");
    let outputs = job.wait();
    assert!(since.elapsed() < Duration::from_secs(30), "{:?}", since.elapsed());
    let codes: Vec<_> = outputs.iter().map(|(_, output)| output.status.code()).collect();
    assert_eq!(codes, [101, 101, 3, 3, 3, 3].map(Some));
    let both = "no word from host gpu02 (ranks 2, 3), host gpu03 (ranks 4, 5) for 5 s";
    let case = blamed(&job, &outputs[0].1.stdout, &[2, 3, 4, 5], both);
    assert!(case.message.contains("it may be gpu01 that is cut off"), "{}", case.message);
    for host in 0..3 {
        assert_eq!(hosts.processes(host), [0; 0], "left on {}", hosts.name(host));
    }
}

#[test]
fn a_short_outage_is_no_silence() {
    let Some(hosts) = Hosts::new(&HOSTS) else { return };
    let (mut job, _) = cut_off(&hosts, torchrun, 1, "12");
    std::thread::sleep(Duration::from_secs(2));
    hosts.mend(1);
    let outputs = job.wait();
    // a million launches are not through before the deadline, and then all answer
    let results = job.results();
    let case = &results.cases[0];
    assert_eq!((case.outcome, case.kind), (Outcome::Fail, Some(FailKind::Hang)), "{}", case.message);
    assert!(!case.message.contains("no word"), "{}", case.message);
    let next = &results.cases[1];
    assert_ne!(next.outcome, Outcome::Skip, "{}", next.message);
    assert!(outputs.iter().all(|(_, output)| output.status.code() == Some(101)));
}
