//! `collcheck run` as one of several processes that a launcher has started.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::ensure;

use super::args::{LaunchArgs, TargetArgs};
use super::execute;
use super::exit::Exit;
use super::interrupt;
use crate::backend::host::Transport;
use crate::backend::{Backend, Unavailable, nccl};
use crate::fleet::launcher::{self, Options, Place, Placement, Surroundings};
use crate::fleet::processes::agent::{self, Adrift, Greeted};
use crate::fleet::processes::card::{self, Card, Wanted};
use crate::fleet::processes::hall::Hall;
use crate::fleet::processes::launched::Launched;
use crate::fleet::processes::post::{Absent, Post};
use crate::run::plan::{BackendChoice, LayoutChoice, Run, Target};

/// Ancestors that are looked at.
const ANCESTORS: usize = 5;

/// This process's place in the run.
pub fn place(args: &LaunchArgs, target: &TargetArgs) -> anyhow::Result<Place> {
    let options = Options {
        launcher: args.launcher,
        rendezvous: args.rendezvous.clone(),
        nodes: args.nodes,
        ranks: target.ranks,
    };
    let around =
        Surroundings { variables: std::env::vars_os().collect(), host: full_host(), ancestors: ancestors(), options };
    let place = launcher::place(&around)?;
    if let Place::Member(placement) = &place {
        ensure!(
            target.ranks_per_thread == 1,
            "--ranks-per-thread {}: under a launcher ({}) each rank has a process",
            target.ranks_per_thread,
            placement.launcher
        );
    }
    Ok(place)
}

/// Any process but the first: it starts workers, says nothing, and ends as the first does.
pub fn follow(placement: &Placement, args: &LaunchArgs, backend: BackendChoice) -> anyhow::Result<Exit> {
    let interrupt = interrupt::flag()?;
    let hall = Hall::new().ok();
    let ended = agent::serve(placement, card(placement, backend, hall.as_ref()), args.arrival, &interrupt);
    match ended {
        Ok(code) => Ok(Exit::of_code(code)),
        Err(Adrift::Interrupted { .. }) => Ok(Exit::Interrupted),
        Err(error @ Adrift::Refused { .. }) => Err(error.into()),
        Err(error) => Err(Unavailable(error.to_string()).into()),
    }
}

/// The first process: it waits for the others, runs the cases and writes the reports.
pub fn lead(placement: &Placement, arrival: Duration, mut run: Run, rerun: Vec<String>) -> anyhow::Result<Exit> {
    // before the port is open: what starts again loses all who are connected
    execute::restart_for_log(&run)?;
    // before other threads start
    nccl::set_variables(run.target.ranks_per_gpu);
    let interrupt = interrupt::flag()?;
    // first of all: a second process of this rank must not touch the reports of the first
    let post = Post::open(placement).map_err(unavailable)?;
    run.plan.layout = LayoutChoice::Processes;
    // a process of its own would be one of one rank, or meet nobody
    run.plan.relaunch = None;
    let backend = |target: &Target| assemble(&post, placement, arrival, target, &interrupt);
    let ended = match execute::on_terminal_with(run, rerun, backend) {
        Err(_) if interrupt.load(Ordering::Relaxed) => {
            eprintln!("error: interrupted");
            Ok(Exit::Interrupted)
        }
        ended => ended,
    };
    post.over(ended.as_ref().map_or_else(Exit::of, |exit| *exit) as u8);
    ended
}

/// Waits for all, asserts that ranks and GPUs are what they should be, and makes the backend of them.
fn assemble(
    post: &Arc<Post>,
    placement: &Placement,
    arrival: Duration,
    target: &Target,
    interrupt: &AtomicBool,
) -> Result<Arc<dyn Backend>, Unavailable> {
    attend_to_own(post, placement, target.backend)?;
    let cards = post.arrive(arrival, interrupt).map_err(unavailable)?;
    let first = cards.first();
    // ranks of this machine, as far as this process sees their GPUs
    let near = cards.iter().filter(|card| first.is_some_and(|first| first.machine == card.machine)).count() as u32;
    let visible = first.map_or(0, |card| card.gpus.len() as u32).saturating_mul(target.ranks_per_gpu.max(1));
    let local = Target { ranks: Some(if visible >= near { near } else { 1 }), ..target.clone() };
    let mut here = execute::backend(&local)?;
    let gpus = here.environment().backend == "nccl";
    let memory = !gpus && target.host_transport.unwrap_or_default() == Transport::Shm;
    let wanted = Wanted { ranks: target.ranks, gpus, memory, per_gpu: target.ranks_per_gpu };
    let seats = card::seat(&cards, &wanted).map_err(Unavailable)?;
    if !gpus {
        let all = Target { ranks: Some(seats.len() as u32), backend: BackendChoice::Host, ..target.clone() };
        here = execute::backend(&all)?;
    }
    post.seat(seats.clone());
    Ok(Arc::new(Launched::new(here, post.clone(), &cards, &seats)))
}

/// The first process has workers too, and an agent for them: a thread that lives as long as the process.
fn attend_to_own(post: &Arc<Post>, placement: &Placement, backend: BackendChoice) -> Result<(), Unavailable> {
    let hall = Hall::new().ok();
    let (address, hello) = (post.nearby(), post.own_hello(card(placement, backend, hall.as_ref())));
    let Greeted::Welcome(stream) = agent::greet(address, &hello) else {
        return Err(Unavailable(format!("rank 0 cannot reach itself at {address}")));
    };
    let work = move || {
        // interrupts are the coordinator's business here
        let _ = agent::work(stream, &AtomicBool::new(false));
        drop(hall);
    };
    let thread = std::thread::Builder::new().name("agent".to_owned()).spawn(work);
    thread.map(|_| ()).map_err(|e| Unavailable(format!("cannot start a thread: {e}")))
}

fn unavailable(error: Absent) -> Unavailable {
    Unavailable(error.to_string())
}

/// This process's card, with its hall, where there is one: without, workers do without a gate.
fn card(placement: &Placement, backend: BackendChoice, hall: Option<&Hall>) -> Card {
    let gpus = if backend == BackendChoice::Host { Vec::new() } else { nccl::visible_gpus() };
    let host = full_host();
    let card = Card::new(placement, host.split('.').next().unwrap_or(&host), gpus);
    Card { gate: hall.map(Hall::site), ..card }
}

/// The host's name, with its domain where /etc/hosts tells, as in pods.
fn full_host() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
    let known = fs::read_to_string("/etc/hosts").unwrap_or_default();
    full_name(&host, &known).unwrap_or(host)
}

fn full_name(host: &str, known: &str) -> Option<String> {
    let lines = known.lines().filter_map(|line| line.split('#').next());
    let mut entries = lines.map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>());
    let names = entries.find(|names| names.contains(&host))?;
    let full = names.into_iter().find(|name| name.strip_prefix(host).is_some_and(|rest| rest.starts_with('.')))?;
    Some(full.to_owned())
}

/// Names of the programs above this process, the nearest first.
fn ancestors() -> Vec<String> {
    let mut names = Vec::new();
    let mut process = PathBuf::from("/proc/self/stat");
    for step in 0..=ANCESTORS {
        let Some((name, parent)) = fs::read_to_string(&process).ok().as_deref().and_then(name_and_parent) else {
            break;
        };
        if step > 0 {
            names.push(name);
        }
        if parent == 0 {
            break;
        }
        process = format!("/proc/{parent}/stat").into();
    }
    names
}

/// Of a stat file: `77 (mpirun) S 12 ...`.
fn name_and_parent(stat: &str) -> Option<(String, u32)> {
    let (head, rest) = stat.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    Some((name.to_owned(), rest.split_whitespace().nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pods_full_name_is_in_its_hosts_file() {
        let hosts = "127.0.0.1 localhost\n10.1.2.3\tjob-1.sub.ns.svc.cluster.local\tjob-1 # pod\n";
        assert_eq!(full_name("job-1", hosts).as_deref(), Some("job-1.sub.ns.svc.cluster.local"));
        assert_eq!((full_name("job-2", hosts), full_name("localhost", hosts)), (None, None));
    }

    #[test]
    fn a_process_is_named_as_the_kernel_names_it() {
        assert_eq!(name_and_parent("77 (a) b) S 12 77"), Some(("a) b".to_owned(), 12)));
        assert_eq!(name_and_parent("77"), None);
        assert!(!ancestors().is_empty());
    }
}
