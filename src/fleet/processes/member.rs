//! The worker process.

use std::fs::{File, OpenOptions};
use std::io;
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};

use super::Orders;
use super::far::Far;
use super::gate::Gate;
use super::wire::{self, Down, Hello, MOST, NoMessage, ToAll, Up, Who};
use crate::backend::host::{HostBackend, Joining, Listener};
use crate::backend::nccl::process::Candidate;
use crate::backend::{Opening, Recipe, Station, Watcher};
use crate::fleet::log::Log;
use crate::fleet::recorder::Recorder;
use crate::fleet::worker::{self, Meeting};

/// How long a message to the coordinator may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes of the longest orders.
const MOST_ORDERS: u32 = 64 << 10;

/// How often it is looked whether something has failed behind the station's calls.
const LOOKOUT: Duration = Duration::from_millis(250);

/// Runs cases until whoever has started this process has enough of it.
pub fn main() -> anyhow::Result<()> {
    // Also where this process is stopped and would not notice the end of its input.
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot tie this process to its coordinator")?;
    let orders: Orders = wire::receive(&mut io::stdin().lock(), MOST_ORDERS)
        .context("no orders on the standard input: `collcheck run --layout processes` starts workers")?;
    let (hear, told) = channel();
    let gate = Arc::new(OnceLock::new());
    let to_open = gate.clone();
    std::thread::Builder::new().name("orders".to_owned()).spawn(move || listen(&hear, &to_open))?;

    let mut stream = TcpStream::connect(orders.address).context("the coordinator does not listen")?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    wire::send(
        &mut stream,
        &Hello::new(&orders.token, &Who::Worker { rank: orders.rank, process: std::process::id() }),
    )?;
    match wire::receive(&mut stream, MOST)? {
        Down::Welcome => {}
        Down::Refused(why) | Down::Stranger(why) => bail!("the coordinator refused rank {}: {why}", orders.rank),
        _ => bail!("the coordinator spoke out of turn"),
    }
    match station(&orders, &mut stream, &told, &gate) {
        Ok(post) => {
            wire::send(&mut stream, &Up::Ready { gate: post.meeting.has_gate() })?;
            serve(post, &told)
        }
        Err(error) => {
            let why = match error.downcast::<Opening>() {
                Ok(Opening::Unsupported(why)) => Up::Unsupported(why),
                Ok(unavailable) => Up::Failed(unavailable.to_string()),
                Err(error) => Up::Failed(format!("{error:#}")),
            };
            Ok(wire::send(&mut stream, &why)?)
        }
    }
}

/// Hears what all workers are told. Whoever has started this process holds the other end as long as it lives: this one ends
/// with it, whatever it is doing.
fn listen(hear: &Sender<ToAll>, gate: &OnceLock<Arc<Gate>>) {
    let mut stdin = io::stdin().lock();
    loop {
        match wire::receive(&mut stdin, MOST) {
            Ok(ToAll::Release) => gate.get().into_iter().for_each(|gate| gate.open()),
            Ok(word) => {
                if hear.send(word).is_err() {
                    std::process::exit(0);
                }
            }
            Err(NoMessage::Io(_)) => std::process::exit(0),
            Err(garbage) => {
                eprintln!("a worker cannot go on: on its standard input came {garbage}");
                std::process::exit(1);
            }
        }
    }
}

fn station(
    orders: &Orders,
    stream: &mut TcpStream,
    told: &Receiver<ToAll>,
    shown: &OnceLock<Arc<Gate>>,
) -> anyhow::Result<Post> {
    const OUT_OF_TURN: &str = "the coordinator spoke out of turn";
    let ToAll::Cases(cases) = told.recv()? else { bail!(OUT_OF_TURN) };
    let memory = lent(&orders.logs)?;
    let log = Log::shared(&memory, orders.slot).context("the log cannot be mapped")?;
    // who cannot get there says so once it is ready
    let gate = orders.gate.as_ref().and_then(Gate::at).map(Arc::new);
    if let Some(gate) = &gate {
        let _ = shown.set(Arc::clone(gate));
    }
    let far = Arc::new(Far::new(gate, orders.ranks, stream.try_clone()?, log.clone()));
    let station: Box<dyn Station> = match &orders.recipe {
        Recipe::Host { .. } => Box::new(HostBackend::join(&lent(&orders.channels)?, orders.ranks, orders.rank)?),
        Recipe::HostTcp { ip } => {
            let listener = Listener::bind(*ip).with_context(|| format!("cannot listen on {ip}"))?;
            wire::send(stream, &Up::Listening(listener.address()))?;
            let ToAll::Book(book) = told.recv()? else { bail!(OUT_OF_TURN) };
            Box::new(HostBackend::connect(Joining { listener, book }, orders.rank)?)
        }
        Recipe::Nccl { library, making, .. } => {
            let candidate = Candidate::new(library, orders.gpu, orders.rank, orders.ranks, &cases)?;
            if orders.rank == 0 {
                wire::send(stream, &Up::Identity(candidate.identity()?))?;
            }
            let ToAll::Identity(identity) = told.recv()? else { bail!(OUT_OF_TURN) };
            let meeting = Arc::clone(&far);
            candidate.join(&identity, making, Box::new(move |yes| meeting.all_well(yes)))?
        }
    };
    let mut recorder = Recorder::new(station, std::slice::from_ref(&log))?;
    recorder.enter()?;
    let lookout = Lookout::start(recorder.watcher(), log.clone())?;
    Ok(Post { _lookout: lookout, station: Box::new(recorder), meeting: far })
}

/// Memory that whoever started this process, or the coordinator, has passed on.
fn lent(path: &Path) -> anyhow::Result<File> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    file.with_context(|| {
        format!("{} cannot be opened: ranks of other users or containers share no memory", path.display())
    })
}

/// What a worker works with. The lookout ends first: it looks at the station's communicator.
struct Post {
    _lookout: Lookout,
    station: Box<dyn Station>,
    meeting: Arc<Far>,
}

/// A thread that notes what fails behind the station's calls, where the coordinator reads it.
struct Lookout {
    /// Gone when it is to end.
    until: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Lookout {
    fn start(watcher: Watcher, log: Log) -> io::Result<Lookout> {
        let (until, over) = channel::<()>();
        let look = move || {
            while over.recv_timeout(LOOKOUT) == Err(RecvTimeoutError::Timeout) {
                if let Some((_, trouble)) = watcher().first() {
                    return log.trouble(trouble);
                }
            }
        };
        let thread = std::thread::Builder::new().name("lookout".to_owned()).spawn(look)?;
        Ok(Lookout { until: Some(until), thread: Some(thread) })
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        self.until = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(mut post: Post, told: &Receiver<ToAll>) -> anyhow::Result<()> {
    let (station, meeting) = (post.station.as_mut(), &*post.meeting);
    loop {
        let ToAll::Case { request, alone } = told.recv()? else { bail!("the coordinator spoke out of turn") };
        meeting.begin(&request, alone);
        // A panic has said what it had to say. Unwinding would take the station down, which waits for the library, and
        // others would hear of this rank's end only then.
        let run = AssertUnwindSafe(|| worker::run(station, meeting, &request));
        let Ok(reports) = catch_unwind(run) else { end_at_once() };
        meeting.report(reports)?;
    }
}

/// Nothing is taken down, and no dump of the memory is left: the panic has been told.
fn end_at_once() -> ! {
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: None });
    std::process::abort()
}
