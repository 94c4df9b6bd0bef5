//! From a [`Run`] to its end: backend, references and reports are made, and the engine is started.

use std::path::Path;
use std::sync::Arc;

use libtest_mimic::Arguments;

use super::exit::Exit;
use crate::backend::host::HostBackend;
use crate::backend::nccl::{self, NcclBackend};
use crate::backend::{Backend, Layout, Unavailable};
use crate::reference::References;
use crate::report::{self, csv::Csv, json::Json, junit::Junit, table::Table};
use crate::run::engine::{self, Ended};
use crate::run::event::Consumer;
use crate::run::plan::{BackendChoice, Destination, Outputs, Run, Target};

/// Ranks of the host backend where none are asked for.
const HOST_RANKS: u32 = 4;

/// Runs cases and shows them on the terminal.
pub fn execute(run: Run, rerun: Vec<String>) -> anyhow::Result<Exit> {
    // libtest-mimic runs the trials; what people see comes from the events.
    let quiet = Arguments { test_threads: Some(1), logfile: Some(null_device()), ..Arguments::default() };
    let on_stdout = run.outputs.table != Some(Destination::Stdout);
    let shown = on_stdout.then(|| report::stdout(run.outputs.format, rerun));
    drive(run, shown, &quiet)
}

/// Runs cases with libtest-mimic's own output.
pub fn execute_as_test(run: Run, arguments: Arguments) -> anyhow::Result<Exit> {
    drive(run, None, &Arguments { test_threads: Some(1), ..arguments })
}

fn drive(run: Run, shown: Option<Box<dyn Consumer>>, harness: &Arguments) -> anyhow::Result<Exit> {
    // Everything that can be wrong about files is said before anything runs.
    let references = references(&run.plan.references)?;
    let mut consumers = files(&run.outputs)?;
    consumers.extend(shown);
    let backend = match backend(&run.target) {
        Ok(backend) => backend,
        Err(error) => {
            engine::refuse(run.command, &error.to_string(), consumers);
            return Err(error.into());
        }
    };
    let ended = engine::run(run.command, run.plan, backend, references, consumers, harness);
    Ok(exit(&ended))
}

fn exit(ended: &Ended) -> Exit {
    for lost in &ended.lost_reports {
        eprintln!("error: a report is incomplete: {lost}");
    }
    let summary = &ended.summary;
    if summary.failed > 0 {
        Exit::Failed
    } else if let Some(reason) = &ended.aborted {
        eprintln!("error: {reason}");
        Exit::Unable
    } else if summary.passed == 0 {
        eprintln!("error: no case could be run here; the reasons stand beside the skipped cases");
        Exit::Unable
    } else if ended.lost_reports.is_empty() {
        Exit::Passed
    } else {
        Exit::Usage
    }
}

fn references(files: &[std::path::PathBuf]) -> anyhow::Result<References> {
    let mut references = References::embedded()?;
    for file in files {
        references.load(file)?;
    }
    Ok(references)
}

fn files(outputs: &Outputs) -> anyhow::Result<Vec<Box<dyn Consumer>>> {
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
    match &outputs.table {
        Some(Destination::File(path)) => add(Box::new(Table::create(path)?)),
        Some(Destination::Stdout) => add(Box::new(Table::stdout())),
        None => {}
    }
    Ok(consumers)
}

fn backend(target: &Target) -> Result<Arc<dyn Backend>, Unavailable> {
    match target.backend {
        BackendChoice::Host => host(target),
        BackendChoice::Nccl => on_gpus(target),
        BackendChoice::Auto => match on_gpus(target) {
            Ok(backend) => Ok(backend),
            // What was asked for by name must not be replaced in silence by something else.
            Err(error) if target.nccl.is_some() || target.ranks_per_gpu > 1 => Err(error),
            Err(error) => {
                eprintln!("running on the host backend: {error}");
                host(target)
            }
        },
    }
}

fn host(target: &Target) -> Result<Arc<dyn Backend>, Unavailable> {
    let layout = Layout {
        ranks: target.ranks.unwrap_or(HOST_RANKS),
        ranks_per_thread: target.ranks_per_thread,
        ranks_per_gpu: 1,
    };
    Ok(Arc::new(HostBackend::new(&layout)?))
}

fn on_gpus(target: &Target) -> Result<Arc<dyn Backend>, Unavailable> {
    let options = nccl::Options {
        nccl: target.nccl.clone(),
        ranks: target.ranks,
        ranks_per_gpu: target.ranks_per_gpu,
        ranks_per_thread: target.ranks_per_thread,
    };
    Ok(Arc::new(NcclBackend::new(&options)?))
}

fn null_device() -> String {
    Path::new(if cfg!(windows) { "NUL" } else { "/dev/null" }).display().to_string()
}
