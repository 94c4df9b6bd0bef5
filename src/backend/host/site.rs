//! What a rank's work is done on, by whichever of its threads.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::algorithms::{self, Algorithm, Collective};
use super::arithmetic::Reduction;
use super::buffer::{Buffer as Bytes, OutOfBounds};
use super::content;
use super::memory::Span;
use super::transport::Links;
use crate::backend::{Buffer, Call, Content, GuardBreach, Placement, RankError, Region, Twist, Verdict};
use crate::case::{DType, Op, Primitive, Workload};
use crate::oracle::{Plan, fingerprint};

/// Bytes that are written or compared at a time: whole elements of any type. They pass through a place of the thread's own,
/// so that no reference is ever to bytes that another thread may be writing.
const PIECE: usize = 16 << 10;

/// A rank's buffers, and what checks of them found. A clone is of the same memory and the same findings.
#[derive(Debug, Clone, Default)]
pub(super) struct Site {
    pub(super) send: Bytes,
    pub(super) recv: Bytes,
    verdict: Arc<Mutex<Verdict>>,
}

/// A region that outlives the call which names it.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    buffer: Buffer,
    start: u64,
    len: u64,
    plan: Plan,
    content: Content,
    base: u64,
}

impl Kept {
    pub(super) fn of(region: &Region<'_>) -> Kept {
        let Region { buffer, start, len, plan, content, base } = *region;
        Kept { buffer, start, len, plan: plan.clone(), content, base }
    }

    pub(super) fn region(&self) -> Region<'_> {
        let Kept { buffer, start, len, ref plan, content, base } = *self;
        Region { buffer, start, len, plan, content, base }
    }
}

/// One rank's call, with all that it takes of the oracle.
#[derive(Debug, Clone, Copy)]
pub(super) struct Errand {
    primitive: Primitive,
    op: Option<Op>,
    workload: Workload,
    placement: Placement,
    scalar: u64,
    base: u64,
    twist: Option<Twist>,
    rank: u32,
}

impl Errand {
    pub(super) fn of(call: &Call<'_>, rank: u32) -> Errand {
        let Call { case, workload, placement, plan, base, twist } = *call;
        let scalar = plan.scalar(rank);
        Errand { primitive: case.primitive, op: case.op, workload, placement, scalar, base, twist, rank }
    }

    fn reduction(&self) -> Option<Reduction> {
        self.op.map(|op| Reduction::new(op, self.workload.dtype, self.workload.ranks, self.scalar))
    }
}

impl Site {
    fn buffer(&self, buffer: Buffer) -> &Bytes {
        match buffer {
            Buffer::Send => &self.send,
            Buffer::Recv => &self.recv,
        }
    }

    fn found(&self) -> MutexGuard<'_, Verdict> {
        self.verdict.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `len` elements from `start` on, counted from byte `base`, if the buffer has them.
    pub(super) fn span(
        &self,
        buffer: Buffer,
        call: &str,
        base: u64,
        start: u64,
        len: u64,
        size: u64,
    ) -> Result<Span<'_>, RankError> {
        let find = || {
            let start = usize::try_from(start.checked_mul(size)?.checked_add(base)?).ok()?;
            self.buffer(buffer).span(start, usize::try_from(len.checked_mul(size)?).ok()?)
        };
        find().ok_or_else(|| out_of_bounds(call))
    }

    /// The region's bytes, if the buffer has them.
    pub(super) fn region(&self, call: &str, region: &Region<'_>) -> Result<Span<'_>, RankError> {
        self.span(region.buffer, call, region.base, region.start, region.len, region.plan.dtype().size())
    }

    /// Writes the region's content, or its complement.
    pub(super) fn write(&self, call: &str, region: &Region<'_>, complement: bool) -> Result<(), RankError> {
        let span = self.region(call, region)?;
        let mut place = [0; PIECE];
        for (at, skip) in pieces(&span, region) {
            let piece = span.part(at, PIECE);
            let bytes = place.get_mut(..piece.len()).unwrap_or_default();
            content::write(bytes, region.plan, content::after(region.content, skip), complement);
            piece.store(bytes);
        }
        Ok(())
    }

    /// Compares the region with its content.
    pub(super) fn check(&self, region: &Region<'_>) -> Result<(), RankError> {
        let span = self.region("check", region)?;
        let mut place = [0; PIECE];
        for (at, skip) in pieces(&span, region) {
            let piece = span.part(at, PIECE);
            let bytes = place.get_mut(..piece.len()).unwrap_or_default();
            piece.load(bytes);
            let content = content::after(region.content, skip);
            content::compare(bytes, region.plan, content, region.start.wrapping_add(skip), &mut self.found());
        }
        Ok(())
    }

    /// The fingerprint of the region.
    pub(super) fn fingerprint(&self, region: &Region<'_>) -> Result<u64, RankError> {
        let span = self.region("fingerprint", region)?;
        let size = region.plan.dtype().size() as usize;
        let (mut place, mut sum) = ([0; PIECE], 0u64);
        for (at, first) in pieces(&span, region) {
            let piece = span.part(at, PIECE);
            let bytes = place.get_mut(..piece.len()).unwrap_or_default();
            piece.load(bytes);
            sum = sum.wrapping_add(fingerprint::sum(bytes, size, first));
        }
        Ok(sum)
    }

    /// What checks have found, which is forgotten.
    pub(super) fn verdict(&self) -> Verdict {
        std::mem::take(&mut *self.found())
    }

    /// The first byte of a guard zone that is not as it was filled.
    pub(super) fn guards(&self) -> Result<Option<GuardBreach>, RankError> {
        for (buffer, recv) in [(&self.send, false), (&self.recv, true)] {
            let breach = buffer.breach().map_err(|OutOfBounds| out_of_bounds("guards"))?;
            if let Some(offset) = breach {
                return Ok(Some(GuardBreach { recv, offset }));
            }
        }
        Ok(None)
    }

    /// Flips bits of one element.
    pub(super) fn tamper(&self, buffer: Buffer, dtype: DType, index: u64, xor: u64) -> Result<(), RankError> {
        let element = self.span(buffer, "tamper", 0, index, 1, dtype.size())?;
        let mut bytes = [0; 8];
        element.load(&mut bytes);
        element.store(&(u64::from_le_bytes(bytes) ^ xor).to_le_bytes());
        Ok(())
    }

    /// Bytes of data or guard zones.
    pub(super) fn window(&self, call: &str, buffer: Buffer, at: i64, len: usize) -> Result<Span<'_>, RankError> {
        self.buffer(buffer).window(at, len).ok_or_else(|| {
            refused(call, format!("{len} bytes from byte {at} on are not all in the buffer and its guard zones"))
        })
    }

    /// Looks at a call's arguments, as far as a rank can by itself.
    pub(super) fn look(&self, ranks: usize, errand: &Errand) -> Result<(), RankError> {
        self.spans(ranks, errand).map(|_| ())
    }

    /// The bytes sent and received.
    fn spans(&self, ranks: usize, errand: &Errand) -> Result<(Span<'_>, Span<'_>), RankError> {
        let Errand { primitive, workload: w, placement, base, twist, rank, .. } = errand;
        let (name, unit) = (primitive.name(), primitive.unit());
        if w.ranks as usize != ranks || w.root >= w.ranks {
            return Err(refused(name, format!("{} ranks and root {} on {ranks} ranks", w.ranks, w.root)));
        }
        if let Some(reason) = unit.refuses(w.ranks) {
            return Err(RankError::Unsupported(reason));
        }
        if let Some(twist) = twist {
            twist.refuses(*primitive, w.ranks)?;
        }
        let (size, shape) = (w.dtype.size(), unit.shape(w));
        Ok(match placement {
            Placement::OutOfPlace => (
                self.span(Buffer::Send, name, *base, 0, shape.send, size)?,
                self.span(Buffer::Recv, name, *base, 0, shape.recv, size)?,
            ),
            Placement::InPlace => {
                let place = unit
                    .in_place(w, *rank)
                    .ok_or_else(|| RankError::Unsupported(format!("{name} has no in-place form")))?;
                let part = |start, len| self.span(Buffer::Recv, name, *base, start, len, size);
                (part(place.send, shape.send)?, part(place.recv, shape.recv)?)
            }
        })
    }

    /// Does this rank's part of one collective.
    pub(super) fn run(
        &self,
        links: &mut Links,
        errand: &Errand,
        forced: Option<Algorithm>,
    ) -> Result<Algorithm, RankError> {
        let (send, recv) = self.spans(links.ranks, errand)?;
        let Errand { primitive, workload, twist, .. } = *errand;
        let reduction = errand.reduction();
        let collective = Collective { primitive, workload, send, recv, reduction: reduction.as_ref(), twist };
        let algorithm = forced.unwrap_or_else(|| Algorithm::choose(primitive, &workload));
        algorithms::run(links, &collective, algorithm)
    }
}

/// Where pieces of a region begin: in bytes, and in elements.
fn pieces(span: &Span<'_>, region: &Region<'_>) -> impl Iterator<Item = (usize, u64)> + use<> {
    let elements = PIECE as u64 / region.plan.dtype().size().max(1);
    (0..span.len()).step_by(PIECE).zip((0..).step_by(elements as usize))
}

pub(super) fn refused(call: &str, message: impl Into<String>) -> RankError {
    RankError::Refused { call: call.into(), code: "invalid argument".into(), message: message.into() }
}

fn out_of_bounds(call: &str) -> RankError {
    refused(call, "the buffers were not prepared for that many bytes")
}
