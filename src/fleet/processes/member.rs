//! The worker process.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, Read};
use std::net::TcpStream;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::Orders;
use super::wire::{self, Down, Hello, MOST, PROTOCOL, Up};
use crate::backend::host::HostBackend;
use crate::backend::nccl::process::Candidate;
use crate::backend::{Recipe, Station, Unavailable};
use crate::fleet::log::{Doing, Log};
use crate::fleet::recorder::Recorder;
use crate::fleet::worker::{self, Meeting};

/// How long a message to the coordinator may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs cases until the coordinator closes the connection.
pub fn main() -> anyhow::Result<()> {
    // Also where this process is stopped and would not notice the end of its input.
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot tie this process to its coordinator")?;
    let mut line = String::new();
    io::stdin().lock().take(64 << 10).read_line(&mut line).context("no orders on the standard input")?;
    let orders: Orders = serde_json::from_str(&line)
        .context("no orders on the standard input: `collcheck run --layout processes` starts workers")?;
    std::thread::Builder::new().name("coordinator".to_owned()).spawn(die_with_coordinator)?;

    let mut stream = TcpStream::connect(orders.address).context("the coordinator does not listen")?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let hello = Hello {
        protocol: PROTOCOL,
        collcheck: env!("CARGO_PKG_VERSION").to_owned(),
        token: orders.token.clone(),
        rank: orders.rank,
    };
    wire::send(&mut stream, &hello)?;
    match wire::receive(&mut stream, MOST)? {
        Down::Welcome => {}
        Down::Refused(why) => bail!("the coordinator refused rank {}: {why}", orders.rank),
        _ => bail!("the coordinator spoke out of turn"),
    }
    match station(&orders, &mut stream) {
        Ok((station, log)) => {
            wire::send(&mut stream, &Up::Ready)?;
            serve(station, &log, stream)
        }
        Err(error) => Ok(wire::send(&mut stream, &Up::Failed(format!("{error:#}")))?),
    }
}

/// The coordinator holds the other end of the standard input as long as it lives.
fn die_with_coordinator() {
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    std::process::exit(0);
}

fn station(orders: &Orders, stream: &mut TcpStream) -> anyhow::Result<(Box<dyn Station>, Log)> {
    let Down::Cases(cases) = wire::receive(stream, MOST)? else { bail!("the coordinator spoke out of turn") };
    let log = Log::shared(&inherited(orders.logs)?, orders.rank).context("the log cannot be mapped")?;
    let station: Box<dyn Station> = match &orders.recipe {
        Recipe::Host { .. } => Box::new(HostBackend::join(&inherited(orders.channels)?, orders.ranks, orders.rank)?),
        Recipe::Nccl { library, ranks_per_gpu } => {
            let candidate = Candidate::new(library, orders.rank, orders.ranks, *ranks_per_gpu, &cases);
            let candidate = candidate.map_err(Unavailable)?;
            if orders.rank == 0 {
                wire::send(stream, &Up::Identity(candidate.identity()?))?;
            }
            let Down::Identity(identity) = wire::receive(stream, MOST)? else {
                bail!("the coordinator spoke out of turn")
            };
            candidate.join(&identity)?
        }
    };
    let mut recorder = Recorder::new(station, std::slice::from_ref(&log))?;
    recorder.enter()?;
    Ok((Box::new(recorder), log))
}

/// Memory that the coordinator has passed on.
fn inherited(descriptor: i32) -> anyhow::Result<File> {
    let path = format!("/proc/self/fd/{descriptor}");
    OpenOptions::new().read(true).write(true).open(&path).with_context(|| format!("{path} was not inherited"))
}

fn serve(mut station: Box<dyn Station>, log: &Log, mut stream: TcpStream) -> anyhow::Result<()> {
    let meeting = Far { stream: Mutex::new(stream.try_clone()?), log: log.clone() };
    loop {
        let request = match wire::receive(&mut stream, MOST) {
            Ok(Down::Case(request)) => request,
            Ok(_) => bail!("the coordinator spoke out of turn"),
            // it has closed the connection: this worker is done
            Err(_) => return Ok(()),
        };
        log.begin(request.epoch, &request.case.name());
        let reports = worker::run(station.as_mut(), &meeting, &request);
        log.at(Doing::Reported);
        wire::send(&mut stream, &Up::Reports(reports))?;
    }
}

/// A meeting through the coordinator.
struct Far {
    stream: Mutex<TcpStream>,
    log: Log,
}

impl Meeting for Far {
    fn all_well(&self, well: bool) -> bool {
        self.log.at(Doing::Meeting);
        let mut stream = self.stream.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let met = wire::send(&mut *stream, &Up::Meet(well)).map(|()| wire::receive(&mut *stream, MOST));
        self.log.at(Doing::Beginning);
        match met {
            Ok(Ok(Down::Met(all))) => all,
            // The coordinator is gone or has given this worker up: there is nobody to tell anything.
            _ => std::process::exit(1),
        }
    }

    fn armed(&self) {
        self.log.armed();
    }
}
