//! Where a rank's inputs and outputs lie, for faults that touch them.

use super::armed::Rank;
use crate::backend::{Buffer, Call, Content, RankError, Region};
use crate::fleet::staging::{Piece, Staging, What};
use crate::oracle::Plan;

/// Some elements of a buffer, as bytes.
#[derive(Debug, Clone, Copy)]
pub struct Area {
    buffer: Buffer,
    /// First byte.
    at: i64,
    /// Bytes of an element.
    pub grain: usize,
    /// Elements.
    pub len: u64,
    /// What they are to hold.
    pub content: Content,
}

fn lacking(what: &str) -> RankError {
    RankError::Unsupported(format!("this fault needs a rank with {what}, and it has none"))
}

fn area(call: &Call<'_>, piece: &Piece) -> Option<Area> {
    let What::Data(content) = piece.what else { return None };
    let grain = call.workload.dtype.size();
    let at = i64::try_from(piece.start.checked_mul(grain)?.checked_add(call.base)?).ok()?;
    Some(Area { buffer: piece.buffer, at, grain: grain as usize, len: piece.len, content })
}

fn staging(rank: &Rank<'_>, call: &Call<'_>) -> Option<Staging> {
    Staging::new(call.case, call.workload.ranks, rank.me, call.placement)
}

/// What the rank gets.
pub fn output(rank: &Rank<'_>, call: &Call<'_>) -> Result<Area, RankError> {
    let pieces = staging(rank, call).map(|staging| staging.output).unwrap_or_default();
    let areas = pieces.iter().filter_map(|piece| area(call, piece));
    areas.max_by_key(|area| area.len).ok_or_else(|| lacking("an output"))
}

/// What the rank gives.
pub fn input(rank: &Rank<'_>, call: &Call<'_>) -> Result<Area, RankError> {
    let pieces = staging(rank, call).map(|staging| staging.before).unwrap_or_default();
    pieces.iter().find_map(|piece| area(call, piece)).ok_or_else(|| lacking("an input"))
}

/// The first byte behind the rank's receive buffer.
pub fn end(rank: &Rank<'_>, call: &Call<'_>) -> Result<i64, RankError> {
    let bytes = staging(rank, call).map(|staging| staging.recv_bytes);
    bytes.and_then(|bytes| i64::try_from(bytes).ok()).ok_or_else(|| lacking("a receive buffer"))
}

impl Area {
    /// The part of it from element `from` on, of `len` elements at most.
    pub fn part(&self, from: u64, len: u64) -> Area {
        let from = from.min(self.len);
        let content = match self.content {
            Content::Input { rank, element } => Content::Input { rank, element: element + from },
            Content::Reduced { element } => Content::Reduced { element: element + from },
        };
        let at = self.at + (from * self.grain as u64) as i64;
        Area { at, len: len.min(self.len - from), content, ..*self }
    }

    /// Its bytes.
    pub fn peek(&self, rank: &mut Rank<'_>) -> Result<Vec<u8>, RankError> {
        let mut bytes = vec![0; self.len as usize * self.grain];
        rank.station.peek(0, self.buffer, self.at, &mut bytes)?;
        Ok(bytes)
    }

    /// Puts bytes in its place.
    pub fn poke(&self, rank: &mut Rank<'_>, bytes: &[u8]) -> Result<(), RankError> {
        rank.station.poke(0, self.buffer, self.at, bytes)
    }

    /// The bytes that it holds by this plan.
    pub fn by(&self, plan: &Plan) -> Vec<u8> {
        let value = |k: u64| match self.content {
            Content::Input { rank, element } => plan.input(rank, element + k),
            Content::Reduced { element } => plan.reduced(element + k),
        };
        (0..self.len).flat_map(|k| value(k).to_le_bytes().into_iter().take(self.grain)).collect()
    }

    /// The region that a station fills or checks.
    pub fn region<'a>(&self, plan: &'a Plan) -> Region<'a> {
        let start = self.at as u64 / self.grain.max(1) as u64;
        Region { buffer: self.buffer, start, len: self.len, plan, content: self.content, base: 0 }
    }
}

/// The plan of the run before.
pub fn before(call: &Call<'_>) -> Result<Plan, RankError> {
    call.plan.before(1).ok_or_else(|| RankError::Unsupported("there is no run before the first".to_owned()))
}
