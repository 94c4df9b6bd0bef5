//! `collcheck run`: from arguments to a [`Run`], which holds everything that the engine needs.

use anyhow::{bail, ensure};
use clap::ValueEnum;
use std::ffi::OsString;
use std::path::Path;

use super::args::{MeasureArgs, OutputArgs, RunArgs, SelectionArgs, TargetArgs};
use super::execute;
use super::exit::Exit;
use super::values::Choice;
use super::{launch, list, values};
use crate::case::Case;
use crate::fleet::launcher::Place;
use crate::report::Format;
use crate::run::path::Relaunch;
use crate::run::plan::{BackendChoice, Destination, LayoutChoice, Outputs, Run, RunPlan, Target};
use crate::suite::{Selection, Settings, SizeOverride, Suite};

/// Runs the command. Everything that can be wrong about its arguments is said before anything starts.
pub fn main(args: RunArgs, command: &[OsString]) -> anyhow::Result<Exit> {
    let place = launch::place(&args.launch, &args.target)?;
    let (only_list, arrival) = (args.list, args.launch.arrival);
    // of several processes one speaks, and only there do files and folders matter
    if let Place::Member(placement) = &place
        && placement.index > 0
    {
        let backend = args.target.backend;
        return if only_list { Ok(Exit::Passed) } else { launch::follow(placement, &args.launch, backend) };
    }
    let mut run = prepare(args, command)?;
    if only_list {
        return list::print(&run.plan.cases);
    }
    let rerun = rerun(command.first(), &run);
    match place {
        Place::Member(placement) => launch::lead(&placement, arrival, run, rerun),
        Place::Alone(note) => {
            if let Some(note) = note {
                eprintln!("note: {note}");
            }
            run.plan.relaunch = relaunch(&rerun, &run);
            execute::on_terminal(run, rerun)
        }
    }
}

/// What runs cases in the same way again, whatever suite, options and variables this run got its ways from.
fn rerun(program: Option<&OsString>, run: &Run) -> Vec<String> {
    let Target { backend, ranks, ranks_per_gpu, ranks_per_thread, host_transport, nccl } = &run.target;
    let mut words =
        vec![program.map_or("collcheck".to_owned(), |p| p.to_string_lossy().into_owned()), "run".to_owned()];
    let mut option = |name: &str, value: String| words.extend([name.to_owned(), value]);
    if let Some(value) = backend.to_possible_value() {
        option("--backend", value.get_name().to_owned());
    }
    if let Some(ranks) = ranks {
        option("--ranks", ranks.to_string());
    }
    for (name, count) in [("--ranks-per-gpu", ranks_per_gpu), ("--ranks-per-thread", ranks_per_thread)] {
        if *count > 1 {
            option(name, count.to_string());
        }
    }
    if let Some(value) = host_transport.and_then(|transport| transport.to_possible_value()) {
        option("--host-transport", value.get_name().to_owned());
    }
    if let Some(file) = nccl {
        option("--nccl", file.display().to_string());
    }
    if run.plan.layout == LayoutChoice::Processes {
        option("--layout", "processes".to_owned());
    }
    option("-n", run.plan.iters.to_string());
    option("-w", run.plan.warmup.to_string());
    let mut last = Vec::new();
    if let Some(deadline) = run.plan.deadline {
        option("--deadline", deadline.as_secs_f64().to_string());
    }
    if run.plan.path {
        last.push("--path".to_owned());
    }
    if run.plan.lab {
        last.push("--lab".to_owned());
    }
    for file in &run.plan.references {
        option("--reference", file.display().to_string());
    }
    if let Some(t) = run.plan.tamper {
        option("--tamper", format!("{}:{}:{}", t.rank, t.index, t.bit));
    }
    if let Some(detector) = run.plan.blind {
        option("--blind", detector.to_string());
    }
    words.extend(last);
    words
}

/// What runs cases in the same way in a process of their own, which writes events; their names follow.
fn relaunch(rerun: &[String], run: &Run) -> Option<Relaunch> {
    let mut arguments: Vec<String> = rerun.iter().skip(1).cloned().collect();
    let mut add = |words: &[&str]| arguments.extend(words.iter().map(|word| (*word).to_owned()));
    add(&["--seed", &run.plan.seed.to_string()]);
    if !run.plan.check {
        add(&["--no-check"]);
    }
    add(&["--format", "json", "--exact"]);
    Some(Relaunch { program: std::env::current_exe().ok()?, arguments })
}

/// Turns arguments into plain data.
pub fn prepare(args: RunArgs, command: &[OsString]) -> anyhow::Result<Run> {
    let (suite, cases) = select(args.selection)?;
    let layout = args.target.layout;
    Ok(Run {
        command: command.iter().map(|arg| arg.to_string_lossy().into_owned()).collect(),
        plan: plan(args.measure, layout, suite.settings, cases)?,
        target: target(args.target)?,
        outputs: outputs(args.outputs)?,
    })
}

/// The suite asked for, and the selected cases.
pub fn select(args: SelectionArgs) -> anyhow::Result<(Suite, Vec<Case>)> {
    let suite = Suite::find(&args.suite)?;
    let selection = Selection {
        filters: args.filters,
        exact: args.exact,
        skip: args.skip,
        primitives: Choice::list(&args.primitive),
        ops: Choice::list(&args.op).into_iter().map(|values::OpChoice(op)| op).collect(),
        dtypes: Choice::list(&args.dtype),
        sizes: SizeOverride { min: args.min_bytes, max: args.max_bytes, factor: args.step_factor },
    };
    let cases = selection.apply(&suite)?;
    Ok((suite, cases))
}

fn plan(args: MeasureArgs, layout: LayoutChoice, suite: Settings, cases: Vec<Case>) -> anyhow::Result<RunPlan> {
    let check = suite.check && !args.no_check;
    ensure!(check || args.tamper.is_none(), "--tamper needs checks, and they are off");
    for file in &args.reference {
        ensure!(file.is_file(), "--reference {}: there is no such file", file.display());
    }
    Ok(RunPlan {
        cases,
        iters: args.iters.unwrap_or(suite.iters),
        warmup: args.warmup.unwrap_or(suite.warmup),
        check,
        seed: args.seed.resolve(),
        repeat: args.repeat,
        soak: args.soak,
        layout,
        deadline: args.deadline,
        fail_fast: args.fail_fast,
        tamper: args.tamper,
        lab: args.lab,
        blind: args.blind,
        references: args.reference,
        require_reference: args.require_reference,
        path: args.path || suite.path,
        relaunch: None,
    })
}

fn target(args: TargetArgs) -> anyhow::Result<Target> {
    ensure!(
        args.layout == LayoutChoice::Threads || args.ranks_per_thread == 1,
        "--layout processes has one rank in each, --ranks-per-thread {} cannot be had",
        args.ranks_per_thread
    );
    if let Some(file) = args.nccl.as_ref().filter(|_| args.backend != BackendChoice::Host) {
        ensure!(file.is_file(), "--nccl {}: there is no such file", file.display());
    }
    ensure!(
        args.host_transport.is_none() || args.backend != BackendChoice::Nccl,
        "--host-transport is for the host backend, and this is --backend nccl, which chooses its transports itself"
    );
    Ok(Target {
        backend: args.backend,
        ranks: args.ranks,
        ranks_per_gpu: args.ranks_per_gpu,
        ranks_per_thread: args.ranks_per_thread,
        host_transport: args.host_transport,
        nccl: args.nccl,
    })
}

/// Where results go; an hour of results must not be lost to a misspelt folder.
fn outputs(args: OutputArgs) -> anyhow::Result<Outputs> {
    let table = match &args.table {
        Some(Destination::File(file)) => Some(file),
        Some(Destination::Stdout) | None => None,
    };
    let files = [
        ("--junit", args.junit.as_ref()),
        ("--json", args.json.as_ref()),
        ("--csv", args.csv.as_ref()),
        ("--table", table),
    ];
    let files: Vec<(&str, &Path)> = files.into_iter().filter_map(|(o, file)| Some((o, file?.as_path()))).collect();
    for (i, (option, file)) in files.iter().enumerate() {
        ensure!(!file.is_dir(), "{option} {} is a folder, expected a file", file.display());
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        ensure!(folder.is_dir(), "{option} {}: there is no folder {}", file.display(), folder.display());
        if let Some((other, _)) = files.iter().take(i).find(|(_, earlier)| earlier == file) {
            bail!("{other} and {option} both write {}", file.display());
        }
    }
    if args.table == Some(Destination::Stdout) && args.format == Format::Json {
        bail!("--format json and --table - both write to standard output");
    }
    Ok(Outputs { format: args.format, junit: args.junit, json: args.json, csv: args.csv, table: args.table })
}
