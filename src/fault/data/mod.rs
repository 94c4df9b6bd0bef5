//! Wrong values: each fault leaves the first launch's buffers, out of place, as a broken transport, kernel or memory would.

pub(super) mod clobbered;
pub(super) mod doubled;
pub(super) mod flip;
pub(super) mod inf;
pub(super) mod lost;
pub(super) mod nan;
pub(super) mod overrun;
pub(super) mod rounded;
pub(super) mod stale;
pub(super) mod swapped;
pub(super) mod truncated;

use super::area::{Area, input, output};
use super::armed::{Injector, Rank};
use super::{Called, Detector, Expectation, Who};
use crate::backend::{Call, Content, RankError, Region};
use crate::case::{DType, Op, Primitive};
use crate::oracle::forensics;

/// Wrong values that the oracle explains.
const fn explained(words: &'static str, rule: fn(&forensics::Fault) -> bool) -> Expectation {
    Expectation { by: &[Detector::Value], called: Called::Values(words, rule), who: Who::Culprit }
}

/// Something that the place says all of.
const fn placed(by: &'static [Detector]) -> Expectation {
    Expectation { by, called: Called::Place, who: Who::Culprit }
}

fn outputless(primitive: Primitive) -> Option<&'static str> {
    matches!(primitive, Primitive::Reduce | Primitive::Gather).then_some("only the root has an output")
}

fn inputless(primitive: Primitive) -> Option<&'static str> {
    matches!(primitive, Primitive::Broadcast | Primitive::Scatter).then_some("only the root has an input")
}

fn not_a_sum(op: Option<Op>) -> Option<&'static str> {
    (op != Some(Op::Sum)).then_some("only in a sum nothing is zero, and twice as much is two times")
}

/// Something done to the culprit's output once the first launch is done.
struct After(fn(&mut Rank<'_>, &Call<'_>, &Area) -> Result<(), RankError>);

impl Injector for After {
    fn launch(&mut self, rank: &mut Rank<'_>, calls: &[Call<'_>]) -> Result<(), RankError> {
        rank.station.launch(calls)?;
        let Some(call) = calls.first().filter(|_| rank.acts_in(1)) else { return Ok(()) };
        rank.station.wait()?;
        let area = output(rank, call)?;
        rank.armed();
        (self.0)(rank, call, &area)
    }
}

/// In the first launch the culprit sends something else, and has its own input back afterwards.
struct Sent(fn(&[u8], DType) -> Vec<u8>);

impl Injector for Sent {
    fn launch(&mut self, rank: &mut Rank<'_>, calls: &[Call<'_>]) -> Result<(), RankError> {
        let Some(call) = calls.first().filter(|_| rank.acts_in(1)) else { return rank.station.launch(calls) };
        let area = input(rank, call)?;
        let own = area.peek(rank)?;
        rank.armed();
        area.poke(rank, &(self.0)(&own, call.workload.dtype))?;
        rank.station.launch(calls)?;
        rank.station.wait()?;
        area.poke(rank, &own)
    }
}

/// One element of the culprit's first input is this number, of a float's type, right after it was written.
struct Written {
    number: f64,
    done: bool,
}

impl Injector for Written {
    fn filled(&mut self, rank: &mut Rank<'_>, region: &Region<'_>) -> Result<(), RankError> {
        let own = matches!(region.content, Content::Input { rank: whose, .. } if whose == rank.me);
        let dtype = region.plan.dtype();
        let Some(format) = dtype.float().filter(|_| rank.culprit() && own && !self.done) else { return Ok(()) };
        self.done = true;
        let grain = dtype.size() as usize;
        let at = (region.base + (region.start + region.len / 2) * dtype.size()) as i64;
        let bits = format.encode(self.number, 8 * grain as u32).to_le_bytes();
        rank.armed();
        rank.station.poke(0, region.buffer, at, bits.get(..grain).unwrap_or(&bits))
    }
}
