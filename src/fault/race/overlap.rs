//! overlap: two communicators write one buffer at a time, each on a stream of its own.

use super::super::{Called, Detector, Expectation, Family, Fault, Injector, Method, Rank, Who, calls};
use super::{LAG_US, beside};
use crate::backend::{Call, RankError};
use crate::case::{Case, DType, Op, Primitive};
use crate::oracle::forensics;

pub struct Overlap;

impl Fault for Overlap {
    fn name(&self) -> &'static str {
        "overlap"
    }

    fn family(&self) -> Family {
        Family::Race
    }

    fn deed(&self) -> &'static str {
        "has its output written by calls of two communicators at a time"
    }

    fn misfit(&self, primitive: Primitive, _op: Option<Op>, _dtype: DType) -> Option<&'static str> {
        (primitive != Primitive::AllReduce).then_some("the other call, a broadcast, has the buffers of an all_reduce")
    }

    fn method(&self) -> Method {
        Method::Ordered
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(Race)
    }

    fn expects(&self) -> Expectation {
        Expectation {
            by: &[Detector::Value],
            called: Called::Values("an input, not reduced", |fault| {
                matches!(fault, forensics::Fault::InputOf(_) | forensics::Fault::OwnInput)
            }),
            who: Who::Nobody,
        }
    }
}

struct Race;

impl Injector for Race {
    fn launch(&mut self, rank: &mut Rank<'_>, all: &[Call<'_>]) -> Result<(), RankError> {
        if rank.step > 1 {
            return rank.station.launch(all);
        }
        let cases = calls::recast(all, |case| Case { primitive: Primitive::Broadcast, op: None, ..case.clone() });
        let other = calls::with(all, &cases);
        let broadcast = |rank: &mut Rank<'_>| {
            rank.station.delay(0, LAG_US)?;
            rank.station.twin(true)?;
            let launched = rank.station.launch(&other);
            rank.station.twin(false)?;
            launched
        };
        if rank.order.ordered {
            broadcast(rank)?;
        } else {
            rank.armed();
            beside(rank, broadcast)?;
        }
        rank.station.launch(all)?;
        rank.station.wait()
    }
}
