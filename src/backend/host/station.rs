//! One rank on one thread.

use std::time::{Duration, Instant};

use super::algorithms::{self, Algorithm, Collective};
use super::arithmetic::Reduction;
use super::buffer::{Buffer as Bytes, OutOfBounds};
use super::content;
use super::machine;
use super::memory::Span;
use super::transport::{Flow, Links};
use super::wait::Abort;
use crate::backend::{
    Aborter, Buffer, Call, GuardBreach, Memory, Need, Placement, RankError, Region, Registration, Station, Verdict,
};
use crate::case::DType;

/// A rank of the host backend, with its buffers. It has one lane.
///
/// A launch runs on the calling thread, and returns when the rank has done its part: everything asked for is done when
/// the call returns, and nothing is queued.
#[derive(Debug)]
pub struct HostStation {
    rank: [u32; 1],
    links: Links,
    send: Bytes,
    recv: Bytes,
    verdict: Verdict,
    marks: Vec<Instant>,
    forced: Option<Algorithm>,
    ran: Option<Algorithm>,
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

/// Which way a [`Transfer`] goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the peer.
    Send,
    /// From the peer.
    Recv,
}

fn refused(call: &str, message: impl Into<String>) -> RankError {
    RankError::Refused { call: call.into(), code: "invalid argument".into(), message: message.into() }
}

fn out_of_bounds(call: &str) -> RankError {
    refused(call, "the buffers were not prepared for that many bytes")
}

impl HostStation {
    pub(super) fn new(links: Links, forced: Option<Algorithm>) -> HostStation {
        HostStation {
            rank: [links.rank as u32],
            links,
            send: Bytes::default(),
            recv: Bytes::default(),
            verdict: Verdict::default(),
            marks: Vec::new(),
            forced,
            ran: None,
        }
    }

    /// The communicator's abort flag.
    pub fn abort(&self) -> Abort {
        self.links.waiter.abort().clone()
    }

    /// The algorithm of the last launch that ended well.
    pub fn ran(&self) -> Option<Algorithm> {
        self.ran
    }

    /// Carries out a group of sends and receives, all in flight together, as between group start and end in NCCL.
    ///
    /// A send is done when its bytes are in the channel to its peer. So one that nobody receives ends as well if it is
    /// small enough, and else waits until the communicator is aborted.
    pub fn exchange(&mut self, transfers: &[Transfer]) -> Result<(), RankError> {
        let (send, recv) = (&self.send, &self.recv);
        let flow = |transfer: &Transfer| {
            let buffer = match transfer.buffer {
                Buffer::Send => send,
                Buffer::Recv => recv,
            };
            let span = span(buffer, "exchange", 0, transfer.offset, transfer.bytes, 1)?;
            let peer = transfer.peer as usize;
            Ok(match transfer.direction {
                Direction::Send => Flow::send(peer, span),
                Direction::Recv => Flow::recv(peer, span),
            })
        };
        let mut flows = transfers.iter().map(flow).collect::<Result<Vec<_>, RankError>>()?;
        self.links.exchange(&mut flows)
    }

    fn lane(&self, call: &str, lane: usize) -> Result<(), RankError> {
        if lane == 0 { Ok(()) } else { Err(refused(call, format!("there is no lane {lane}"))) }
    }

    fn buffer(&self, buffer: Buffer) -> &Bytes {
        match buffer {
            Buffer::Send => &self.send,
            Buffer::Recv => &self.recv,
        }
    }

    fn region(&self, call: &str, lane: usize, region: &Region<'_>) -> Result<Span<'_>, RankError> {
        self.lane(call, lane)?;
        span(self.buffer(region.buffer), call, region.base, region.start, region.len, region.plan.dtype().size())
    }

    fn write(&mut self, call: &str, lane: usize, region: &Region<'_>, complement: bool) -> Result<(), RankError> {
        let span = self.region(call, lane, region)?;
        // SAFETY: the rank's own buffer, and the only reference to it in this statement.
        content::write(unsafe { span.bytes_mut() }, region.plan, region.content, complement);
        Ok(())
    }

    /// Does this rank's part of one collective.
    fn run(&mut self, call: &Call<'_>) -> Result<(), RankError> {
        let Call { case, workload: w, placement, plan, base, .. } = call;
        let name = case.primitive.name();
        let unit = case.primitive.unit();
        self.links.waiter.abort().check()?;
        let [rank] = self.rank;
        if w.ranks as usize != self.links.ranks || w.root >= w.ranks {
            let ranks = self.links.ranks;
            return Err(refused(name, format!("{} ranks and root {} on {ranks} ranks", w.ranks, w.root)));
        }
        if let Some(reason) = unit.refuses(w.ranks) {
            return Err(RankError::Unsupported(reason));
        }
        let size = w.dtype.size();
        let shape = unit.shape(w);
        let (send, recv) = match placement {
            Placement::OutOfPlace => (
                span(&self.send, name, *base, 0, shape.send, size)?,
                span(&self.recv, name, *base, 0, shape.recv, size)?,
            ),
            Placement::InPlace => {
                let place = unit
                    .in_place(w, rank)
                    .ok_or_else(|| RankError::Unsupported(format!("{name} has no in-place form")))?;
                let part = |start, len| span(&self.recv, name, *base, start, len, size);
                (part(place.send, shape.send)?, part(place.recv, shape.recv)?)
            }
        };
        let reduction = case.op.map(|op| Reduction::new(op, w.dtype, w.ranks, plan.scalar(rank)));
        let collective =
            Collective { primitive: case.primitive, workload: *w, send, recv, reduction: reduction.as_ref() };
        let algorithm = self.forced.unwrap_or_else(|| Algorithm::choose(case.primitive, w));
        self.ran = Some(algorithms::run(&mut self.links, &collective, algorithm)?);
        Ok(())
    }
}

/// `len` elements from `start` on, counted from byte `base`, if the buffer has them.
fn span<'a>(buffer: &'a Bytes, call: &str, base: u64, start: u64, len: u64, size: u64) -> Result<Span<'a>, RankError> {
    let find = || {
        let start = usize::try_from(start.checked_mul(size)?.checked_add(base)?).ok()?;
        buffer.span(start, usize::try_from(len.checked_mul(size)?).ok()?)
    };
    find().ok_or_else(|| out_of_bounds(call))
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
        self.links.waiter.abort().check()
    }

    fn prepare(&mut self, need: &Need) -> Result<(), RankError> {
        refuse(need)?;
        let [rank] = self.rank;
        // Ranks prepare at the same time, so that each may count on its share only.
        let available = machine::available_memory().unwrap_or(u64::MAX) / self.links.ranks as u64;
        let memory = |needed: u64| RankError::Memory { rank, needed, available };
        let total = need.send_bytes.saturating_add(need.recv_bytes);
        let size = |bytes: u64| usize::try_from(bytes).map_err(|_| memory(total));
        let (send, recv, offset) = (size(need.send_bytes)?, size(need.recv_bytes)?, size(need.offset)?);
        let missing = |buffer: &Bytes, bytes| buffer.missing(bytes, offset) as u64;
        let needed = missing(&self.send, send).saturating_add(missing(&self.recv, recv));
        if needed > available || !self.send.prepare(send, offset) || !self.recv.prepare(recv, offset) {
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
        let mut verdict = std::mem::take(&mut self.verdict);
        let result = self.region("check", lane, region).map(|span| {
            // SAFETY: the rank's own buffer, to which nothing is written in this statement.
            content::compare(unsafe { span.bytes() }, region.plan, region.content, region.start, &mut verdict);
        });
        self.verdict = verdict;
        result
    }

    fn verdict(&mut self, lane: usize, _dtype: DType) -> Result<Verdict, RankError> {
        self.lane("verdict", lane)?;
        Ok(std::mem::take(&mut self.verdict))
    }

    fn guards(&mut self, lane: usize) -> Result<Option<GuardBreach>, RankError> {
        self.lane("guards", lane)?;
        for (buffer, recv) in [(&self.send, false), (&self.recv, true)] {
            let breach = buffer.breach().map_err(|OutOfBounds| out_of_bounds("guards"))?;
            if let Some(offset) = breach {
                return Ok(Some(GuardBreach { recv, offset }));
            }
        }
        Ok(None)
    }

    fn tamper(&mut self, lane: usize, buffer: Buffer, dtype: DType, index: u64, xor: u64) -> Result<(), RankError> {
        self.lane("tamper", lane)?;
        let element = span(self.buffer(buffer), "tamper", 0, index, 1, dtype.size())?;
        let mut bytes = [0; 8];
        element.load(&mut bytes);
        element.store(&(u64::from_le_bytes(bytes) ^ xor).to_le_bytes());
        Ok(())
    }

    fn peek(&mut self, _lane: usize, _buffer: Buffer, _at: i64, _into: &mut [u8]) -> Result<(), RankError> {
        Err(RankError::Unsupported("peek".to_owned()))
    }

    fn poke(&mut self, _lane: usize, _buffer: Buffer, _at: i64, _bytes: &[u8]) -> Result<(), RankError> {
        Err(RankError::Unsupported("poke".to_owned()))
    }

    fn aside(&mut self, _aside: bool) -> Result<(), RankError> {
        Err(RankError::Unsupported("aside".to_owned()))
    }

    fn twin(&mut self, _twin: bool) -> Result<(), RankError> {
        Err(RankError::Unsupported("twin".to_owned()))
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
        std::thread::sleep(Duration::from_micros(us.into()));
        Ok(())
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

    /// Nothing is ever queued: this only tells of an abort.
    fn wait(&mut self) -> Result<(), RankError> {
        self.links.waiter.abort().check()
    }

    fn synchronous(&self) -> bool {
        true
    }

    fn aborter(&self) -> Aborter {
        let abort = self.abort();
        Box::new(move || abort.raise())
    }
}
