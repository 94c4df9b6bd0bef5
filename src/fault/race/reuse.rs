//! reuse: a rank's send buffer is written for the next call while the last one has not read it.

use super::super::area::{before, input};
use super::super::{Expectation, Family, Fault, Injector, Method, Rank};
use super::{LAG_US, STALE, beside, no_reduction};
use crate::backend::{Call, RankError};
use crate::case::{DType, Op, Primitive};

pub struct Reuse;

impl Fault for Reuse {
    fn name(&self) -> &'static str {
        "reuse"
    }

    fn family(&self) -> Family {
        Family::Race
    }

    fn deed(&self) -> &'static str {
        "has its send buffer used again while the call is in flight"
    }

    fn misfit(&self, primitive: Primitive, op: Option<Op>, dtype: DType) -> Option<&'static str> {
        no_reduction(primitive, op, dtype)
    }

    fn method(&self) -> Method {
        Method::Ordered
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(Race)
    }

    fn expects(&self) -> Expectation {
        STALE
    }
}

struct Race;

impl Injector for Race {
    fn launch(&mut self, rank: &mut Rank<'_>, calls: &[Call<'_>]) -> Result<(), RankError> {
        let Some(call) = calls.first().filter(|_| rank.acts_in(1)) else { return rank.station.launch(calls) };
        let (area, other) = (input(rank, call)?, before(call)?);
        let late = |rank: &mut Rank<'_>| {
            rank.station.delay(0, LAG_US)?;
            rank.station.launch(calls)
        };
        if rank.order.ordered {
            late(rank)?;
        } else {
            rank.armed();
            beside(rank, late)?;
        }
        rank.station.fill(0, &area.region(&other))?;
        rank.station.wait()?;
        // what comes after finds the buffer as it was
        rank.station.fill(0, &area.region(call.plan))
    }
}
