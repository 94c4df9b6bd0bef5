//! no-dependency: a rank's producer runs on another stream than its call, and nothing makes the call wait for it.

use super::super::area::{before, input};
use super::super::{Expectation, Family, Fault, Injector, Method, Rank};
use super::{LAG_US, STALE, beside, no_reduction};
use crate::backend::{Call, RankError};
use crate::case::{DType, Op, Primitive};

pub struct NoDependency;

impl Fault for NoDependency {
    fn name(&self) -> &'static str {
        "no-dependency"
    }

    fn family(&self) -> Family {
        Family::Race
    }

    fn deed(&self) -> &'static str {
        "has its input written on another stream, which the call does not wait for"
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
        let (area, old) = (input(rank, call)?, before(call)?);
        rank.station.fill(0, &area.region(&old))?;
        rank.station.wait()?;
        let produce = |rank: &mut Rank<'_>| {
            rank.station.delay(0, LAG_US)?;
            rank.station.fill(0, &area.region(call.plan))
        };
        if rank.order.ordered {
            produce(rank)?;
        } else {
            rank.armed();
            beside(rank, produce)?;
        }
        rank.station.launch(calls)?;
        rank.station.wait()
    }
}
