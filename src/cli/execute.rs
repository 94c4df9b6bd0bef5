//! From a [`Run`] to its end: backend, references and reports are made, and the engine is started.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use libtest_mimic::Arguments;

use super::exit::Exit;
use super::interrupt;
use crate::backend::host::HostBackend;
use crate::backend::nccl::{self, NcclBackend, Unusable};
use crate::backend::{Backend, Layout, Unavailable};
use crate::reference::References;
use crate::report::{self, CannotWrite, csv::Csv, json::Json, junit::Junit, table::Table};
use crate::run::engine::{self, Ended};
use crate::run::event::Consumer;
use crate::run::path;
use crate::run::plan::{BackendChoice, Destination, Outputs, Run, RunPlan, Target};

/// Ranks of the host backend where none are asked for.
const HOST_RANKS: u32 = 4;

/// Runs cases and shows them on the terminal.
pub fn on_terminal(run: Run, rerun: Vec<String>) -> anyhow::Result<Exit> {
    restart_for_log(&run)?;
    on_terminal_with(run, rerun, backend)
}

/// The same, on another backend, after [`restart_for_log`].
pub fn on_terminal_with(
    run: Run,
    rerun: Vec<String>,
    backend: impl FnOnce(&Target) -> Result<Arc<dyn Backend>, Unavailable>,
) -> anyhow::Result<Exit> {
    // libtest-mimic runs the trials; what people see comes from the events.
    let quiet = Arguments { test_threads: Some(1), logfile: Some(null_device()), ..Arguments::default() };
    let on_stdout = run.outputs.table != Some(Destination::Stdout);
    let shown = on_stdout.then(|| report::stdout(run.outputs.format, rerun));
    drive(run, shown, &quiet, backend)
}

/// Runs cases with libtest-mimic's own output.
pub fn as_tests(run: Run, arguments: Arguments) -> anyhow::Result<Exit> {
    let only_list = arguments.list;
    restart_for_log(&run)?;
    let exit = drive(run, None, &Arguments { test_threads: Some(1), ..arguments }, backend)?;
    // a list has run nothing, and that is no fault
    Ok(if only_list { Exit::Passed } else { exit })
}

/// Starts the process again if NCCL must write a log that it does not, and warns if it cannot be read.
///
/// NCCL reads its variables when it is loaded, so this comes first.
pub fn restart_for_log(run: &Run) -> anyhow::Result<()> {
    match path::needs_log(run) {
        Ok(true) => return Err(path::restart_with_log()),
        Ok(false) => {}
        Err(why) => eprintln!("warning: {why}"),
    }
    Ok(())
}

fn drive(
    run: Run,
    shown: Option<Box<dyn Consumer>>,
    harness: &Arguments,
    backend: impl FnOnce(&Target) -> Result<Arc<dyn Backend>, Unavailable>,
) -> anyhow::Result<Exit> {
    // Everything that can be wrong about files is said before anything runs.
    let references = references(&run.plan.references)?;
    let (test, settings) = table_header(&run.plan);
    let mut consumers = files(&run.outputs, &test, &settings)?;
    consumers.extend(shown);
    let backend = match backend(&run.target) {
        Ok(backend) => backend,
        Err(error) => {
            engine::refuse(run.command, &error.to_string(), consumers);
            return Err(error.into());
        }
    };
    let interrupt = interrupt::flag()?;
    let ended = engine::run(run.command, run.plan, backend, references, consumers, harness, interrupt);
    Ok(exit(&ended))
}

fn exit(ended: &Ended) -> Exit {
    for lost in &ended.lost_reports {
        eprintln!("error: a report is incomplete: {lost}");
    }
    let summary = &ended.summary;
    if ended.interrupted {
        eprintln!("error: interrupted");
        Exit::Interrupted
    } else if summary.failed > 0 {
        Exit::Failed
    } else if let Some(reason) = &ended.aborted {
        eprintln!("error: {reason}");
        Exit::Unable
    } else if summary.passed == 0 {
        if summary.skipped > 0 {
            eprintln!("error: no case could be run here; the reasons stand beside the skipped cases");
        }
        Exit::Unable
    } else if ended.lost_reports.is_empty() {
        Exit::Passed
    } else {
        Exit::Usage
    }
}

/// What nccl-tests' table is headed by: the binary there that runs these cases, and how.
fn table_header(plan: &RunPlan) -> (String, String) {
    let mut primitives: Vec<&str> = plan.cases.iter().map(|case| case.primitive.name()).collect();
    primitives.dedup();
    let test = if let [one] = primitives[..] { format!("{one}_perf") } else { "collcheck".to_owned() };
    (test, format!("warmup iters: {} iters: {} validation: {}", plan.warmup, plan.iters, u8::from(plan.check)))
}

fn references(files: &[std::path::PathBuf]) -> anyhow::Result<References> {
    let mut references = References::embedded()?;
    for file in files {
        references.load(file)?;
    }
    Ok(references)
}

fn files(outputs: &Outputs, test: &str, settings: &str) -> anyhow::Result<Vec<Box<dyn Consumer>>> {
    let mut consumers: Vec<Box<dyn Consumer>> = Vec::new();
    let mut add = |consumer: Box<dyn Consumer>| consumers.push(consumer);
    if let Some(path) = &outputs.junit {
        add(Box::new(Junit::create(path)?));
    }
    if let Some(path) = &outputs.json {
        add(Box::new(Json::create(path)?));
    }
    if let Some(path) = &outputs.csv {
        add(Box::new(Csv::create(path)?));
    }
    if let Some(destination) = &outputs.table {
        let out: Box<dyn Write + Send> = match destination {
            Destination::File(path) => {
                Box::new(File::create(path).map_err(|reason| CannotWrite { path: path.clone(), reason })?)
            }
            Destination::Stdout => Box::new(std::io::stdout()),
        };
        add(Box::new(Table::new(out, test, settings)));
    }
    Ok(consumers)
}

/// The backend asked for, in this process.
pub fn backend(target: &Target) -> Result<Arc<dyn Backend>, Unavailable> {
    match target.backend {
        BackendChoice::Host => host(target),
        BackendChoice::Nccl => Ok(on_gpus(target)?),
        BackendChoice::Auto => match on_gpus(target) {
            Ok(backend) => {
                if target.host_transport.is_some() {
                    eprintln!("--host-transport has no effect: running on the nccl backend");
                }
                Ok(backend)
            }
            // What was asked for by name, or can be run in part, must not be replaced in silence by something else.
            Err(Unusable::Unavailable(why)) if target.nccl.is_none() && target.ranks_per_gpu == 1 => {
                eprintln!("running on the host backend: {why}");
                host(target)
            }
            Err(error) => Err(error.into()),
        },
    }
}

fn host(target: &Target) -> Result<Arc<dyn Backend>, Unavailable> {
    let layout = Layout {
        ranks: target.ranks.unwrap_or(HOST_RANKS),
        ranks_per_thread: target.ranks_per_thread,
        ranks_per_gpu: 1,
    };
    Ok(Arc::new(HostBackend::new(&layout)?.over(target.host_transport.unwrap_or_default())))
}

fn on_gpus(target: &Target) -> Result<Arc<dyn Backend>, Unusable> {
    let options = nccl::Options {
        nccl: target.nccl.clone(),
        ranks: target.ranks,
        ranks_per_gpu: target.ranks_per_gpu,
        ranks_per_thread: target.ranks_per_thread,
    };
    // before the driver has threads; under a launcher it was done before others had
    nccl::set_variables(target.ranks_per_gpu);
    Ok(Arc::new(NcclBackend::new(options)?))
}

fn null_device() -> String {
    Path::new(if cfg!(windows) { "NUL" } else { "/dev/null" }).display().to_string()
}
