//! One rank on one thread, and on a second where it is asked to work aside.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::algorithms::Algorithm;
use super::board::Board;
use super::buffer::Buffer as Bytes;
use super::machine;
use super::port::Port;
use super::side::{self, Side};
use super::site::{Errand, Kept, Site, refused};
use super::tcp::Damage;
use super::transport::{Flow, Links};
use super::wait::Abort;
use crate::backend::{
    Aborter, Buffer, Call, GuardBreach, Harm, Memory, Need, RankError, Region, Registration, Station, Verdict,
};
use crate::case::DType;

pub use crate::case::primitive::Direction;

/// A rank of the host backend, with its buffers. It has one lane.
///
/// A launch runs on the calling thread, and returns when the rank has done its part: everything asked for is done when
/// the call returns, and nothing is queued. Only what goes aside is: a thread of the station's own does it meanwhile.
#[derive(Debug)]
pub struct HostStation {
    rank: [u32; 1],
    damage: Option<Damage>,
    port: Arc<Port>,
    /// The second communicator, once there is one.
    twin: Option<Arc<Port>>,
    spare: Spare,
    on_twin: bool,
    /// Nothing where ranks share no memory.
    board: Option<Board>,
    site: Site,
    /// The thread beside this one, once there is one.
    side: Option<Side>,
    aside: bool,
    marks: Vec<Instant>,
    forced: Option<Algorithm>,
    ran: Option<Algorithm>,
}

/// How a rank comes by the links of a second communicator of the same ranks, under the first one's abort flag; nothing where
/// there is no memory for them. It is asked once.
pub(super) struct Spare(Box<dyn Fn() -> Option<Links> + Send>);

impl Spare {
    pub(super) fn new(make: impl Fn() -> Option<Links> + Send + 'static) -> Spare {
        Spare(Box::new(make))
    }
}

impl fmt::Debug for Spare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spare")
    }
}

/// One send or receive between this rank and another, of bytes of one of its buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// To the peer, or from it.
    pub direction: Direction,
    /// The other rank.
    pub peer: u32,
    /// Whose bytes.
    pub buffer: Buffer,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

impl HostStation {
    pub(super) fn new(links: Links, spare: Spare, board: Option<Board>, forced: Option<Algorithm>) -> HostStation {
        HostStation {
            rank: [links.rank as u32],
            damage: links.damage(),
            port: Port::new(links),
            twin: None,
            spare,
            on_twin: false,
            board,
            site: Site::default(),
            side: None,
            aside: false,
            marks: Vec::new(),
            forced,
            ran: None,
        }
    }

    /// The communicator's abort flag, which is its twin's as well.
    pub fn abort(&self) -> Abort {
        self.port.abort().clone()
    }

    /// For damage to this rank's connections; nothing in shared memory, which has none.
    pub fn damage(&self) -> Option<Damage> {
        self.damage.clone()
    }

    /// The algorithm of the last launch that ended well, those aside not counted.
    pub fn ran(&self) -> Option<Algorithm> {
        self.ran
    }

    /// Carries out a group of sends and receives, all in flight together, as between group start and end in NCCL.
    ///
    /// A send is done when its bytes are in the channel to its peer. So one that nobody receives ends as well if it is
    /// small enough, and else waits until the communicator is aborted.
    pub fn exchange(&mut self, transfers: &[Transfer]) -> Result<(), RankError> {
        let flow = |transfer: &Transfer| {
            let Transfer { direction, peer, buffer, offset, bytes } = *transfer;
            let span = self.site.span(buffer, "exchange", 0, offset, bytes, 1)?;
            Ok(match direction {
                Direction::Send => Flow::send(peer as usize, span),
                Direction::Recv => Flow::recv(peer as usize, span),
            })
        };
        let mut flows = transfers.iter().map(flow).collect::<Result<Vec<_>, RankError>>()?;
        self.port.book().take(|links| links.exchange(&mut flows))
    }

    fn lane(&self, call: &str, lane: usize) -> Result<(), RankError> {
        if lane == 0 { Ok(()) } else { Err(refused(call, format!("there is no lane {lane}"))) }
    }

    /// Queues work for the thread beside this one.
    fn beside(&mut self, work: impl FnOnce(&Site) -> Result<(), RankError> + Send + 'static) -> Result<(), RankError> {
        let site = self.site.clone();
        match &self.side {
            Some(side) => side.push(Box::new(move || work(&site))),
            None => work(&site),
        }
    }

    /// Waits for what was queued aside.
    fn rejoin(&self) -> Result<(), RankError> {
        self.side.as_ref().map_or(Ok(()), Side::wait)
    }

    fn write(
        &mut self,
        call: &'static str,
        lane: usize,
        region: &Region<'_>,
        complement: bool,
    ) -> Result<(), RankError> {
        self.lane(call, lane)?;
        if !self.aside {
            return self.site.write(call, region, complement);
        }
        // refused at once, as it would be on a GPU
        self.site.region(call, region)?;
        let kept = Kept::of(region);
        self.beside(move |site| site.write(call, &kept.region(), complement))
    }

    /// Does this rank's part of one collective, or has it done.
    fn run(&mut self, call: &Call<'_>) -> Result<(), RankError> {
        let errand = Errand::of(call, self.rank[0]);
        let port = if self.on_twin { self.twin.as_ref().unwrap_or(&self.port) } else { &self.port };
        port.abort().check()?;
        let (forced, turn) = (self.forced, port.book());
        if !self.aside {
            self.ran = Some(turn.take(|links| self.site.run(links, &errand, forced))?);
            return Ok(());
        }
        self.site.look(port.ranks(), &errand)?;
        self.beside(move |site| turn.take(|links| site.run(links, &errand, forced)).map(|_| ()))
    }
}

/// Why such buffers cannot be had here.
fn refuse(need: &Need) -> Result<(), RankError> {
    let unsupported = |what: &str| Err(RankError::Unsupported(format!("the host backend has no {what}")));
    match (need.memory, need.registration) {
        (Memory::Device, Registration::None) => Ok(()),
        (Memory::Nccl, Registration::None) => unsupported("memory of NCCL's"),
        (_, Registration::Local) => unsupported("registration of buffers"),
        (_, Registration::Window | Registration::SharedWindows) => unsupported("windows"),
    }
}

fn no_graphs() -> RankError {
    RankError::Unsupported("the host backend has no graphs".to_owned())
}

impl Station for HostStation {
    fn ranks(&self) -> &[u32] {
        &self.rank
    }

    fn enter(&mut self) -> Result<(), RankError> {
        self.port.abort().check()
    }

    fn prepare(&mut self, need: &Need) -> Result<(), RankError> {
        refuse(need)?;
        // buffers may move
        self.rejoin()?;
        let [rank] = self.rank;
        // Ranks prepare at the same time, so that each may count on its share only.
        let available = machine::available_memory().unwrap_or(u64::MAX) / self.port.ranks() as u64;
        let memory = |needed: u64| RankError::Memory { rank, needed, available };
        let total = need.send_bytes.saturating_add(need.recv_bytes);
        let size = |bytes: u64| usize::try_from(bytes).map_err(|_| memory(total));
        let (send, recv, offset) = (size(need.send_bytes)?, size(need.recv_bytes)?, size(need.offset)?);
        let missing = |buffer: &Bytes, bytes| buffer.missing(bytes, offset) as u64;
        let needed = missing(&self.site.send, send).saturating_add(missing(&self.site.recv, recv));
        if needed > available || !self.site.send.prepare(send, offset) || !self.site.recv.prepare(recv, offset) {
            return Err(memory(total));
        }
        Ok(())
    }

    fn fill(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        self.write("fill", lane, region, false)
    }

    fn poison(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        self.write("poison", lane, region, true)
    }

    fn check(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        self.lane("check", lane)?;
        if !self.aside {
            return self.site.check(region);
        }
        self.site.region("check", region)?;
        let kept = Kept::of(region);
        self.beside(move |site| site.check(&kept.region()))
    }

    fn verdict(&mut self, lane: usize, _dtype: DType) -> Result<Verdict, RankError> {
        self.lane("verdict", lane)?;
        self.rejoin()?;
        Ok(self.site.verdict())
    }

    fn guards(&mut self, lane: usize) -> Result<Option<GuardBreach>, RankError> {
        self.lane("guards", lane)?;
        self.rejoin()?;
        self.site.guards()
    }

    fn fingerprint(&mut self, lane: usize, region: &Region<'_>) -> Result<u64, RankError> {
        self.lane("fingerprint", lane)?;
        self.rejoin()?;
        self.site.fingerprint(region)
    }

    fn tamper(&mut self, lane: usize, buffer: Buffer, dtype: DType, index: u64, xor: u64) -> Result<(), RankError> {
        self.lane("tamper", lane)?;
        if !self.aside {
            return self.site.tamper(buffer, dtype, index, xor);
        }
        self.beside(move |site| site.tamper(buffer, dtype, index, xor))
    }

    fn peek(&mut self, lane: usize, buffer: Buffer, at: i64, into: &mut [u8]) -> Result<(), RankError> {
        self.lane("peek", lane)?;
        if self.aside {
            self.rejoin()?;
        }
        self.site.window("peek", buffer, at, into.len())?.load(into);
        Ok(())
    }

    fn poke(&mut self, lane: usize, buffer: Buffer, at: i64, bytes: &[u8]) -> Result<(), RankError> {
        self.lane("poke", lane)?;
        let window = self.site.window("poke", buffer, at, bytes.len())?;
        if !self.aside {
            window.store(bytes);
            return Ok(());
        }
        let bytes = bytes.to_vec();
        self.beside(move |site| {
            site.window("poke", buffer, at, bytes.len())?.store(&bytes);
            Ok(())
        })
    }

    fn aside(&mut self, aside: bool) -> Result<(), RankError> {
        if aside && self.side.is_none() {
            self.side = Some(Side::new(self.rank[0], self.port.abort())?);
        }
        self.aside = aside;
        Ok(())
    }

    fn twin(&mut self, twin: bool) -> Result<(), RankError> {
        if twin && self.twin.is_none() {
            let none =
                || RankError::Unsupported("there is no memory for the channels of a second communicator".to_owned());
            self.twin = Some(Port::new((self.spare.0)().ok_or_else(none)?));
        }
        self.on_twin = twin;
        Ok(())
    }

    fn harm(&mut self, peer: u32, harm: Harm) -> Result<usize, RankError> {
        let none = || RankError::Unsupported("ranks that share memory have no connections".to_owned());
        let damage = self.damage.as_ref().ok_or_else(none)?;
        let damaged = match harm {
            Harm::Cut => damage.cut(peer),
            Harm::Reset => damage.reset(peer),
            Harm::Delay(us) => damage.delay(peer, us.into()),
            Harm::Throttle(bytes_per_s) => damage.throttle(peer, bytes_per_s),
        };
        match damaged {
            Ok(damaged) => Ok(damaged.connections.len()),
            // a kernel without socket filters, or without this rank
            Err(error) => Err(RankError::Unsupported(error.to_string())),
        }
    }

    fn form(&mut self, ranks: u32, within: Duration) -> Result<(), RankError> {
        let none = || {
            RankError::Unsupported("ranks that share no memory have nowhere to meet for one more communicator".into())
        };
        let abort = self.abort();
        self.board.as_mut().ok_or_else(none)?.form(ranks, within, &abort)
    }

    /// One after the other: NCCL promises no more of the calls of a group than that all of them are done.
    fn launch(&mut self, calls: &[Call<'_>]) -> Result<(), RankError> {
        calls.iter().try_for_each(|call| self.run(call))
    }

    fn fill_early(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        // nothing is queued, so that nothing can begin before this has ended
        self.fill(lane, region)
    }

    fn delay(&mut self, lane: usize, us: u32) -> Result<(), RankError> {
        self.lane("delay", lane)?;
        let abort = self.abort();
        if self.aside { self.beside(move |_| side::sleep(us, &abort)) } else { side::sleep(us, &abort) }
    }

    fn begin_capture(&mut self) -> Result<(), RankError> {
        Err(no_graphs())
    }

    fn end_capture(&mut self) -> Result<(), RankError> {
        Err(no_graphs())
    }

    fn replay(&mut self) -> Result<(), RankError> {
        Err(no_graphs())
    }

    fn mark(&mut self) -> Result<(), RankError> {
        self.marks.push(Instant::now());
        Ok(())
    }

    fn intervals(&mut self) -> Result<Vec<Vec<f32>>, RankError> {
        let marks = std::mem::take(&mut self.marks);
        let pairs = marks.iter().zip(marks.iter().skip(1));
        Ok(vec![pairs.map(|(from, to)| to.duration_since(*from).as_secs_f64() * 1e6).map(|us| us as f32).collect()])
    }

    /// What was not asked for aside is done: for the rest this only tells of an abort.
    fn wait(&mut self) -> Result<(), RankError> {
        self.rejoin()?;
        self.port.abort().check()
    }

    fn synchronous(&self) -> bool {
        true
    }

    fn aborter(&self) -> Aborter {
        let abort = self.abort();
        Box::new(move || abort.raise())
    }
}
