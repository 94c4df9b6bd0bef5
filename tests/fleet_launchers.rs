//! Ranks as processes that a launcher has started: each variable set makes one run.

mod cli_support;
mod launch_support;
mod process_support;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use collcheck::run::result::{FailKind, Outcome};
use launch_support::{
    Codes, Job, SMALL, Variables, free_port, job, line, open_mpi, pmi, slurm, small, stderr, torchrun,
};
use process_support::{children, running, send, within};
use rustix::process::Signal;

fn pod(node: u32, nodes: u32, ranks: &str, port: u16) -> Variables {
    vec![
        ("PET_NODE_RANK", node.to_string()),
        ("PET_NNODES", nodes.to_string()),
        ("PET_NPROC_PER_NODE", ranks.to_owned()),
        ("MASTER_ADDR", "localhost".to_owned()),
        ("MASTER_PORT", (port - 1000).to_string()),
    ]
}

fn indexed(node: u32, port: u16) -> Variables {
    vec![("JOB_COMPLETION_INDEX", node.to_string()), ("NCCL_COMM_ID", format!("127.0.0.1:{port}"))]
}

/// Runs small cases in as many processes as there are sets of variables, and expects one run of so many ranks.
fn one_run(sets: &[Variables], ranks: u32, args: &[&str]) {
    let mut job = Job::new();
    let args: Vec<&str> = small().into_iter().chain(args.iter().copied()).collect();
    // rank 0 comes last: the others wait for it
    let order: Vec<usize> = (0..sets.len()).rev().map(|set| job.start(&sets[set], &args)).collect();
    let first = order[order.len() - 1];
    let outputs = job.wait();
    for (index, output) in outputs.iter().enumerate() {
        assert_eq!(output.status.code(), Some(0), "{:?}: {}", sets[0], stderr(output));
        if index != first {
            assert_eq!((stderr(output).as_str(), output.stdout.len()), ("", 0));
            assert!(!job.json(index).exists(), "only rank 0 writes reports");
        }
    }
    assert!(!outputs[first].stdout.is_empty());
    let results = job.results(first);
    assert_eq!(results.summary.passed, SMALL.len() as u64);
    assert!(results.cases.iter().all(|case| case.ranks == ranks), "{:?}", results.cases);
}

#[test]
fn torchrun_makes_one_run() {
    let port = free_port();
    // its store
    let _store = TcpListener::bind(("127.0.0.1", port - 1000));
    one_run(&[0, 1, 2, 3].map(|rank| torchrun(rank, 4, port)), 4, &[]);
}

#[test]
fn mpirun_makes_one_run() {
    let job = job();
    one_run(&[0, 1, 2].map(|rank| open_mpi(rank, 3, &job)), 3, &[]);
}

#[test]
fn srun_makes_one_run() {
    let job = job();
    one_run(&[0, 1].map(|rank| slurm(rank, 2, &job)), 2, &["--ranks", "2"]);
}

#[test]
fn hydra_makes_one_run_also_where_it_says_nothing_of_the_host() {
    let job = job();
    one_run(&[0, 1].map(|rank| pmi(rank, 2, &job)), 2, &[]);
}

#[test]
fn pods_start_the_ranks_of_their_nodes() {
    let port = free_port();
    one_run(&[pod(0, 2, "1", port), pod(1, 2, "2", port)], 3, &[]);
    let port = free_port();
    one_run(&[0, 1].map(|node| indexed(node, port)), 3, &["--nodes", "2", "--ranks", "3"]);
}

/// The address by which this host is known on its network, if there is one.
fn own_address() -> String {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    // sends nothing
    match socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr()) {
        Ok(address) => address.ip().to_string(),
        Err(_) => "127.0.0.1".to_owned(),
    }
}

/// Runs a small case in two containers' worth of processes, which do not see each other's memory; `None` where this user
/// may not make any.
fn apart(args: &[&str]) -> Option<(Vec<Output>, Job)> {
    let container = ["--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"];
    if !Command::new("unshare").args(container).arg("true").status().is_ok_and(|status| status.success()) {
        eprintln!("not run: no process namespace can be made here");
        return None;
    }
    let (port, mut job) = (free_port(), Job::new());
    for rank in [0, 1] {
        let mut variables = torchrun(rank, 2, port);
        variables.push(("MASTER_ADDR", own_address()));
        let mut command = Command::new("unshare");
        command.args(container).arg(env!("CARGO_BIN_EXE_collcheck")).env_clear().envs(variables);
        command.args(["run", "--backend", "host", "--json"]).arg(job.json(rank as usize)).args(small()).args(args);
        job.children.push(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    }
    let outputs = job.wait();
    Some((outputs, job))
}

#[test]
fn ranks_of_several_containers_need_connections_and_say_so() {
    let Some((outputs, _)) = apart(&[]) else { return };
    assert!(stderr(&outputs[0]).contains("--host-transport tcp"), "{}", stderr(&outputs[0]));
    assert_eq!(outputs.map_codes(), [Some(3), Some(3)]);
    let Some((outputs, job)) = apart(&["--host-transport", "tcp"]) else { return };
    assert_eq!(outputs.map_codes(), [Some(0), Some(0)], "{}", stderr(&outputs[0]));
    let results = job.results(0);
    assert_eq!((results.summary.passed, results.environment.link.as_str()), (SMALL.len() as u64, "tcp"));
}

#[test]
fn permuted_devices_are_skipped_as_launchers_deal_them_out() {
    let (name, mut job) = (job(), Job::new());
    for rank in [0, 1] {
        job.start(&open_mpi(rank, 2, &name), &["--exact", SMALL[0], "all_reduce::sum::float::64KiB@permuted+pipeline"]);
    }
    assert_eq!(job.wait().map_codes(), [Some(0), Some(0)]);
    let outcomes: Vec<_> = job.results(0).cases.iter().map(|case| (case.outcome, case.message.clone())).collect();
    assert!(outcomes.iter().any(|(outcome, _)| *outcome == Outcome::Pass), "{outcomes:?}");
    assert!(
        outcomes.iter().any(|(outcome, why)| *outcome == Outcome::Skip && why.contains("under a launcher")),
        "{outcomes:?}"
    );
}

#[test]
fn all_processes_end_with_the_code_of_the_run() {
    let (name, mut job) = (job(), Job::new());
    for rank in [0, 1] {
        job.start(&open_mpi(rank, 2, &name), &["--exact", SMALL[0], "--tamper", "1:0:3"]);
    }
    let codes: Vec<_> = job.wait().iter().map(|output| output.status.code()).collect();
    assert_eq!(codes, [Some(101), Some(101)]);
}

#[test]
fn rank_0_ends_with_its_last_report() {
    let (name, mut job) = (job(), Job::new());
    for rank in [1, 0] {
        job.start(&open_mpi(rank, 2, &name), &small());
    }
    assert_eq!(job.wait().map_codes(), [Some(0), Some(0)]);
    let ended = chrono::Local::now();
    let finished = chrono::DateTime::parse_from_rfc3339(&job.results(1).finished.unwrap()).unwrap();
    let since = ended.signed_duration_since(finished);
    assert!(since < chrono::TimeDelta::seconds(4), "{since}");
}

#[test]
fn ranks_that_never_arrive_are_named() {
    let (name, mut job) = (job(), Job::new());
    for rank in [0, 2] {
        job.start(&slurm(rank, 4, &name), &["--exact", SMALL[0], "--arrival", "2"]);
    }
    let outputs = job.wait();
    let said = line(&outputs[0]);
    for expected in ["rank 1 (host gpu07), rank 3 (host gpu07) of 4", "did not arrive within 2 s", "rank 2 on "] {
        assert!(said.contains(expected), "{said}");
    }
    assert_eq!((outputs[0].status.code(), outputs[1].status.code()), (Some(3), Some(3)));
    assert_eq!(stderr(&outputs[1]), "");
    assert!(fs::read_to_string(job.json(0)).unwrap().contains("did not arrive"));
}

#[test]
fn without_rank_0_the_others_say_where_they_looked() {
    let (name, mut job) = (job(), Job::new());
    job.start(&open_mpi(1, 2, &name), &["--arrival", "1"]);
    let output = job.wait().remove(0);
    let said = line(&output);
    assert!(said.contains("rank 1 of 2: rank 0 does not listen at 127.0.0.1") && said.contains("within 1 s"), "{said}");
    assert_eq!(output.status.code(), Some(3));
}

/// Starts two ranks with a case that runs for minutes and one that does not; returns once the first is under way.
fn long(deadline: &str) -> (Job, Vec<i32>) {
    let (name, mut job) = (job(), Job::new());
    let cases = ["--exact", "all_reduce::sum::float::1MiB", SMALL[1], "-n", "100000", "--deadline", deadline];
    for rank in [0, 1] {
        job.start(&open_mpi(rank, 2, &name), &cases);
    }
    let workers = |job: &Job| -> Vec<i32> {
        let all = [0, 1].into_iter().flat_map(|index| children(job.pid(index)));
        all.map(|child| child.pid).collect()
    };
    let journal = job.json(0).with_extension("json.partial");
    within(Duration::from_secs(60), "workers that run", || {
        workers(&job).len() == 2 && fs::read(&journal).is_ok_and(|journal| !journal.is_empty())
    });
    std::thread::sleep(Duration::from_secs(2));
    let workers = workers(&job);
    (job, workers)
}

#[test]
fn a_killed_worker_is_a_crash_of_its_rank_and_the_next_case_runs() {
    let (mut job, workers) = long("15");
    send(workers[1], Signal::KILL);
    let codes: Vec<_> = job.wait().iter().map(|output| output.status.code()).collect();
    let results = job.results(0);
    let case = &results.cases[0];
    assert_eq!((case.outcome, case.kind), (Outcome::Fail, Some(FailKind::Crash)), "{}", case.message);
    assert!(case.message.contains("SIGKILL") && case.message.contains("at fault: rank 1"), "{}", case.message);
    // its record came over from its agent
    assert!(case.message.contains("all_reduce") && !case.message.contains("no record"), "{}", case.message);
    assert_ne!(results.cases[1].kind, Some(FailKind::Crash), "{}", results.cases[1].message);
    assert_eq!(codes, [Some(101), Some(101)]);
    assert!(!workers.iter().any(|pid| running(*pid)));
}

#[test]
fn a_killed_agent_ends_the_run_and_leaves_nothing_behind() {
    let (mut job, workers) = long("60");
    send(job.pid(1), Signal::KILL);
    let outputs = job.wait();
    assert_eq!(outputs[0].status.code(), Some(101), "{}", stderr(&outputs[0]));
    let results = job.results(0);
    assert_eq!(results.cases[0].kind, Some(FailKind::Crash), "{}", results.cases[0].message);
    assert!(results.cases[1].message.contains("the process of rank 1 of 2 on "), "{}", results.cases[1].message);
    assert!(!workers.iter().any(|pid| running(*pid)));
}

#[test]
fn a_stopped_agent_is_named_at_the_deadline() {
    let (mut job, workers) = long("6");
    send(job.pid(1), Signal::STOP);
    let journal = job.json(0).with_extension("json.partial");
    within(Duration::from_secs(60), "the first case's end", || {
        fs::read_to_string(&journal).is_ok_and(|journal| journal.contains("\"outcome\""))
    });
    // the next communicator waits for the agent
    send(job.pid(0), Signal::INT);
    within(Duration::from_secs(30), "the coordinator's end", || job.children[0].try_wait().unwrap().is_some());
    send(job.pid(1), Signal::KILL);
    job.wait();
    let case = &job.results(0).cases[0];
    assert_eq!((case.outcome, case.kind), (Outcome::Fail, Some(FailKind::Hang)), "{}", case.message);
    assert!(case.message.contains("the process that has started it does not answer"), "{}", case.message);
    within(Duration::from_secs(5), "an end of all workers", || !workers.iter().any(|pid| running(*pid)));
}

#[test]
fn with_its_coordinator_everything_ends() {
    let (mut job, workers) = long("60");
    send(job.pid(0), Signal::KILL);
    let outputs = job.wait();
    assert_eq!(outputs[1].status.code(), Some(3));
    assert!(line(&outputs[1]).contains("rank 1 of 2: rank 0's process is gone"));
    within(Duration::from_secs(5), "an end of all workers", || !workers.iter().any(|pid| running(*pid)));
}

#[test]
fn an_interrupt_to_all_ends_with_130_and_keeps_the_results() {
    let (mut job, workers) = long("60");
    (0..2).for_each(|index| send(job.pid(index), Signal::INT));
    let codes: Vec<_> = job.wait().iter().map(|output| output.status.code()).collect();
    assert_eq!(codes, [Some(130), Some(130)]);
    assert_eq!(job.results(0).cases.len(), 2);
    assert!(!workers.iter().any(|pid| running(*pid)));
}

#[test]
fn a_rank_that_is_started_twice_is_refused_and_the_run_goes_on() {
    let (name, mut job) = (job(), Job::new());
    job.start(&open_mpi(0, 3, &name), &small());
    job.start(&open_mpi(1, 3, &name), &small());
    job.start(&open_mpi(1, 3, &name), &small());
    // whichever of the two comes last
    within(Duration::from_secs(60), "an end of one", || {
        job.children[1..].iter_mut().any(|child| child.try_wait().unwrap().is_some())
    });
    let twice = usize::from(job.children[1].try_wait().unwrap().is_none()) + 1;
    let output = job.children.remove(twice).wait_with_output().unwrap();
    assert!(line(&output).contains("rank 1 of 3: rank 0 refused this process: rank 1 is here already"));
    assert_eq!(output.status.code(), Some(2));
    job.start(&open_mpi(2, 3, &name), &small());
    assert_eq!(job.wait().map_codes(), [Some(0); 3]);
}

fn alone(variables: &[(&str, String)], args: &[&str]) -> Output {
    let mut job = Job::new();
    job.start(variables, &[&small()[..], args].concat());
    job.wait().remove(0)
}

#[test]
fn contradictions_are_one_line_and_no_run() {
    let name = job();
    let both = [open_mpi(1, 2, &name), slurm(0, 4, &name)].concat();
    let half = vec![("OMPI_COMM_WORLD_RANK", "0".to_owned())];
    for (variables, args, expected) in [
        (both, &[][..], "openmpi (OMPI_COMM_WORLD_RANK=1, OMPI_COMM_WORLD_SIZE=2) and slurm (SLURM_PROCID=0, "),
        (half, &[], "OMPI_COMM_WORLD_RANK=0, but OMPI_COMM_WORLD_SIZE is not set"),
        (open_mpi(2, 2, &name), &[], "OMPI_COMM_WORLD_RANK=2 is not below OMPI_COMM_WORLD_SIZE=2"),
        (open_mpi(0, 2, &name), &["--ranks", "4"], "--ranks 4, but openmpi has started OMPI_COMM_WORLD_SIZE=2"),
        (vec![("TORCHELASTIC_RUN_ID", "x".to_owned())], &[], "its variables did not arrive"),
    ] {
        let output = alone(&variables, args);
        let said = line(&output);
        assert!(said.starts_with("error: ") && said.contains(expected), "{said}");
        assert_eq!(output.status.code(), Some(2));
    }
    let output = alone(&open_mpi(1, 2, &name), &["--launcher", "none"]);
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}

/// A launcher is known by its name, so that a shell of that name is one.
#[test]
fn a_launcher_whose_variables_are_lost_on_the_way_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let mpirun = dir.path().join("mpirun");
    fs::copy("/bin/sh", &mpirun).unwrap();
    let run = |program: &Path, args: &str| -> Output {
        let collcheck = env!("CARGO_BIN_EXE_collcheck");
        let script = format!("env -i {collcheck} run --backend host --exact {} {args}; exit $?", SMALL[0]);
        Command::new(program).arg("-c").arg(script).env_clear().env("PATH", "/usr/bin:/bin").output().unwrap()
    };
    let output = run(&mpirun, "");
    assert!(line(&output).contains("mpirun has started this process, but its variables did not arrive"));
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(run(&mpirun, "--launcher none").status.code(), Some(0));
}
