//! truncated: the end of a rank's output was never written, as where a count is cut off.

use super::super::area::output;
use super::super::{Expectation, Family, Fault, Injector, Rank};
use super::{explained, outputless};
use crate::backend::{Call, RankError};
use crate::case::{DType, Op, Primitive};
use crate::oracle::forensics;

pub struct Truncated;

impl Fault for Truncated {
    fn name(&self) -> &'static str {
        "truncated"
    }

    fn family(&self) -> Family {
        Family::Data
    }

    fn deed(&self) -> &'static str {
        "has the last quarter of its output not written"
    }

    fn misfit(&self, primitive: Primitive, _op: Option<Op>, _dtype: DType) -> Option<&'static str> {
        outputless(primitive)
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(Cut)
    }

    fn expects(&self) -> Expectation {
        explained("never written", |fault| matches!(fault, forensics::Fault::Unwritten))
    }
}

/// What was there before the first launch is there again after it.
struct Cut;

impl Injector for Cut {
    fn launch(&mut self, rank: &mut Rank<'_>, calls: &[Call<'_>]) -> Result<(), RankError> {
        let Some(call) = calls.first().filter(|_| rank.acts_in(1)) else { return rank.station.launch(calls) };
        let area = output(rank, call)?;
        let tail = area.part(area.len - area.len / 4, area.len);
        let before = tail.peek(rank)?;
        rank.station.launch(calls)?;
        rank.station.wait()?;
        rank.armed();
        tail.poke(rank, &before)
    }
}
