//! What a case costs between coordinator and ranks, beside the collective: `cargo bench --bench control [-- RANKS...]`.
//!
//! A coordinator as under a launcher, with nodes of eight ranks, talks to simulated agents and workers over the loopback
//! device. These speak the protocol of real ones and need no time for their work: they answer as soon as they have heard. All
//! of them share one thread. A case is a request to each node and one message with the reports of its ranks, with meetings in
//! between: one rank of each node says that all of the node are well, and is told that all are. A plain case has four, when
//! both placements are timed, and five where the second one takes larger buffers. What happens on a node is not in here: its
//! agent passes the request on, and its ranks meet among themselves.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use collcheck::backend::{
    Backend, Environment, Making, Opening, Placement, Recipe, Station, Unavailable, Verdict, descriptors,
};
use collcheck::case::{Case, DType};
use collcheck::fleet::launcher::{self, Address, Unit};
use collcheck::fleet::occasion::{Launch, Occasion};
use collcheck::fleet::processes::card::{self, Card, Wanted};
use collcheck::fleet::processes::errand::Task;
use collcheck::fleet::processes::wire::{self, Down, Hello, MOST, Up, Who};
use collcheck::fleet::processes::wires::{Heard, Wires};
use collcheck::fleet::processes::{Crew, Post};
use collcheck::fleet::protocol::{Measured, Report, Request};
use collcheck::fleet::team::{Ended, NoTeam, Watch, Workers};
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

const RANKS: [u32; 4] = [8, 64, 1024, 4096];
const MEETINGS: [u32; 2] = [0, 4];
const RANKS_PER_NODE: u32 = 8;
const CASE: &str = "all_reduce::sum::float::1KiB";
const ITERS: u32 = 20;

/// How long one row is measured, and at least how many cases.
const WHILE: Duration = Duration::from_secs(2);
const CASES: usize = 10;

/// For everything that ends by itself.
const LIMIT: Duration = Duration::from_secs(120);

fn main() -> anyhow::Result<()> {
    let asked: Vec<u32> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let asked = if asked.is_empty() { RANKS.to_vec() } else { asked };
    println!("microseconds; growth is 1 where a case costs as much more as there are more ranks");
    println!(
        "{:>6} {:>9} {:>10} {:>10} {:>10} {:>12} {:>8}",
        "ranks", "meetings", "median", "fastest", "per rank", "coordinator", "growth"
    );
    for meetings in MEETINGS {
        let mut before: Option<(f64, f64)> = None;
        for &ranks in &asked {
            let Cost { times, own_us } = measure(ranks, meetings).with_context(|| format!("{ranks} ranks"))?;
            let (us, fastest) = (times[times.len() / 2], times[0]);
            let each = us / f64::from(ranks);
            let growth = before.map_or(String::new(), |(n, t)| format!("{:.2}", (us / t) / (f64::from(ranks) / n)));
            println!("{ranks:>6} {meetings:>9} {us:>10.0} {fastest:>10.0} {each:>10.1} {own_us:>12.0} {growth:>8}");
            before = Some((f64::from(ranks), us));
        }
    }
    Ok(())
}

struct Cost {
    /// Microseconds of each case, ascending.
    times: Vec<f64>,
    /// Microseconds a case for which the coordinator's thread had a processor: what is left where nobody else wants one.
    own_us: f64,
}

fn measure(ranks: u32, meetings: u32) -> anyhow::Result<Cost> {
    let nodes = ranks.div_ceil(RANKS_PER_NODE);
    // the simulated ends are in this process too
    descriptors::allow(4 * u64::from(ranks) + 4 * u64::from(nodes));
    let place = launcher::Placement {
        launcher: "bench",
        unit: Unit::Node,
        index: 0,
        of: nodes,
        local_rank: None,
        local_world: None,
        hosts: Vec::new(),
        rendezvous: Address { host: "127.0.0.1".to_owned(), ports: vec![0], local: true },
        token: "bench".to_owned(),
    };
    let post = Post::open(&place)?;
    let never = AtomicBool::new(false);
    let fleet = Fleet::start(&post, &place, ranks, meetings)?;
    let simulated = std::thread::Builder::new().name("simulated".to_owned()).spawn(move || fleet.run())?;
    let cards = post.arrive(LIMIT, &never)?;
    let wanted = Wanted { ranks: Some(ranks), gpus: false, memory: false, per_gpu: 1 };
    let seats = card::seat(&cards, &wanted).map_err(Unavailable)?;
    post.seat(seats);

    let backend: Arc<dyn Backend> = Arc::new(Simulated { ranks, post: post.clone() });
    let case: Case = CASE.parse()?;
    let mut crew = match Crew::start(&backend, vec![case.clone()], &Making::default(), LIMIT, &never) {
        Ok(crew) => crew,
        Err(NoTeam::Late(findings)) => bail!("{}", findings.message),
        Err(error) => bail!("{error:?}"),
    };
    let mut times = Vec::new();
    let (mut epoch, began, before) = (0, Instant::now(), processor_us()?);
    while times.len() < CASES || began.elapsed() < WHILE {
        epoch += 1;
        let request = Request {
            case: case.clone(),
            ranks,
            seed: 1,
            epoch,
            warmup: 5,
            iters: ITERS,
            check: true,
            tamper: None,
            fault: None,
        };
        let mut said = Vec::new;
        let mut watch = Watch { deadline: LIMIT, interrupt: &never, said: &mut said };
        let start = Instant::now();
        let ended = crew.run(&request, &mut watch);
        times.push(start.elapsed().as_secs_f64() * 1e6);
        let Ended::Reported(reports) = ended else { bail!("case {epoch}: {ended:?}") };
        ensure!(reports.len() == ranks as usize, "{} reports", reports.len());
        ensure!((0..).zip(&reports).all(|(rank, report)| report.rank == rank), "reports out of order");
    }
    let own_us = (processor_us()? - before) / times.len() as f64;
    drop(crew);
    post.over(0);
    simulated.join().map_err(|_| anyhow::anyhow!("the simulated ranks panicked"))??;
    times.remove(0); // has the memory to get for what follows
    times.sort_by(f64::total_cmp);
    Ok(Cost { times, own_us })
}

/// Processor time of the calling thread so far.
fn processor_us() -> anyhow::Result<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let ns: u64 = text.split_whitespace().next().context("an empty schedstat")?.parse()?;
    Ok(ns as f64 / 1e3)
}

/// A backend whose ranks are wherever agents say.
struct Simulated {
    ranks: u32,
    post: Arc<Post>,
}

impl Backend for Simulated {
    fn environment(&self) -> Environment {
        Environment { backend: "host".to_owned(), ranks: self.ranks, ranks_per_gpu: 1, ..Environment::default() }
    }

    fn memory_per_rank(&self) -> Option<u64> {
        None
    }

    fn open(&self, _: &[Case], _: &Making) -> Result<Vec<Box<dyn Station>>, Opening> {
        Err(Unavailable("there are no stations".to_owned()).into())
    }

    fn recipe(&self, _: &Making) -> Result<Recipe, Opening> {
        Ok(Recipe::HostTcp { ip: [127, 0, 0, 1].into() })
    }

    fn agents(&self) -> Option<Arc<Post>> {
        Some(self.post.clone())
    }
}

/// What agents and workers are told, without what these would need to do their work.
#[derive(serde::Deserialize)]
enum Word {
    Start(Box<Task>),
    Tell { what: Told },
    Dismiss,
    Testify(IgnoredAny),
    Over(IgnoredAny),
    Welcome,
    Met(bool),
}

#[derive(serde::Deserialize)]
enum Told {
    Cases(IgnoredAny),
    Case { request: Asked },
}

#[derive(serde::Deserialize)]
struct Asked {
    epoch: u64,
}

/// All agents and workers.
struct Fleet {
    address: SocketAddr,
    /// Workers by their ranks, and agents behind them.
    wires: Wires<Word>,
    /// By node: the present case, and meetings still to be held in it.
    left: Vec<(u64, u32)>,
    ranks: u32,
    meetings: u32,
}

impl Fleet {
    fn start(post: &Post, place: &launcher::Placement, ranks: u32, meetings: u32) -> anyhow::Result<Fleet> {
        let address = post.nearby();
        let mut wires = Wires::new(MOST)?;
        for index in 0..place.of {
            let card = Card {
                unit: Unit::Node,
                index,
                of: place.of,
                local_rank: None,
                workers: Some(RANKS_PER_NODE.min(ranks - index * RANKS_PER_NODE)),
                host: format!("node{index}"),
                machine: format!("node{index}"),
                memory: format!("node{index}"),
                network: format!("node{index}"),
                gate: None,
                gpus: Vec::new(),
            };
            let hello = if index == 0 { post.own_hello(card) } else { Hello::new(&place.token, &Who::Agent(card)) };
            let mut stream = connect(address)?;
            wire::send(&mut stream, &hello)?;
            ensure!(matches!(wire::receive(&mut stream, MOST)?, Down::Welcome), "agent {index} is not welcome");
            wires.add(ranks + index, stream)?;
        }
        Ok(Fleet { address, wires, left: vec![(0, 0); place.of as usize], ranks, meetings })
    }

    /// Answers until the run is over.
    fn run(mut self) -> anyhow::Result<()> {
        let ready = wire::frame(&Up::Ready { gate: true })?;
        let reports: Vec<Box<RawValue>> =
            (0..self.ranks).map(|rank| RawValue::from_string(written(rank)?)).collect::<Result<_, _>>()?;
        while let Some((number, heard)) = self.wires.hear(LIMIT) {
            let index = number.checked_sub(self.ranks).unwrap_or(number / RANKS_PER_NODE);
            let mut own = index * RANKS_PER_NODE..self.ranks.min((index + 1) * RANKS_PER_NODE);
            let (case, left) = &mut self.left[index as usize];
            match heard {
                Heard::Said(Word::Start(task)) => {
                    for (rank, _) in task.own {
                        let mut stream = connect(self.address)?;
                        wire::send(&mut stream, &Hello::new(&task.token, &Who::Worker { rank, process: rank }))?;
                        self.wires.add(rank, stream)?;
                    }
                    continue;
                }
                Heard::Said(Word::Tell { what: Told::Cases(_) }) => {
                    own.for_each(|rank| self.wires.tell(rank, &ready));
                    continue;
                }
                Heard::Said(Word::Tell { what: Told::Case { request } }) => {
                    (*case, *left) = (request.epoch, self.meetings)
                }
                Heard::Said(Word::Met(true)) => *left -= 1,
                Heard::Said(Word::Over(_)) => return Ok(()),
                Heard::Said(Word::Welcome | Word::Met(false) | Word::Dismiss | Word::Testify(_)) | Heard::Lost(_) => {
                    continue;
                }
            }
            let (all, together) = (own.start as usize..own.end as usize, own.len() as u32);
            if let Some(speaker) = own.next() {
                let frame = match *left {
                    0 => wire::reports(*case, &reports[all])?,
                    _ => wire::frame(&Up::Meet { together, well: true })?,
                };
                self.wires.tell(speaker, &frame);
            }
        }
        bail!("the simulated ranks heard nothing for {LIMIT:?}")
    }
}

fn connect(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// As a rank's of both placements, timed and checked.
fn written(rank: u32) -> serde_json::Result<String> {
    let measured = |placement| Measured {
        placement,
        mean_us: 12.345_678,
        iteration_us: (0..ITERS).map(|i| 12.25 + i as f32 / 7.0).collect(),
        given: Some(Verdict::default()),
        output: Some(Verdict::default()),
        input: (placement == Placement::OutOfPlace).then(Verdict::default),
        guard: None,
        bits: None,
        occasion: Occasion { launch: Launch::Timed, call: None, dtype: DType::Float, epoch: Some(1) },
    };
    let placements = [Placement::OutOfPlace, Placement::InPlace].map(measured).to_vec();
    let mut report = Report { rank, placements, error: None };
    report.shorten();
    serde_json::to_string(&report)
}
