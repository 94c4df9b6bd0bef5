//! early-read: a rank's output is read before the call is done, as without a wait or on another stream.

use super::super::area::output;
use super::super::{Called, Detector, Expectation, Family, Fault, Injector, Method, Rank, Who};
use super::{LAG_US, beside};
use crate::backend::{Call, RankError};
use crate::case::{DType, Op, Primitive};
use crate::oracle::forensics;

pub struct EarlyRead;

impl Fault for EarlyRead {
    fn name(&self) -> &'static str {
        "early-read"
    }

    fn family(&self) -> Family {
        Family::Race
    }

    fn deed(&self) -> &'static str {
        "has its output read before the call is done"
    }

    fn misfit(&self, primitive: Primitive, _op: Option<Op>, _dtype: DType) -> Option<&'static str> {
        matches!(primitive, Primitive::Reduce | Primitive::Gather).then_some("only the root has an output")
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
            called: Called::Values("never written", |fault| matches!(fault, forensics::Fault::Unwritten)),
            who: Who::Culprit,
        }
    }
}

struct Race;

impl Injector for Race {
    fn launch(&mut self, rank: &mut Rank<'_>, calls: &[Call<'_>]) -> Result<(), RankError> {
        let Some(call) = calls.first().filter(|_| rank.step == 1) else { return rank.station.launch(calls) };
        if !rank.culprit() {
            // without this rank the call cannot be done
            rank.station.delay(0, LAG_US)?;
            return rank.station.launch(calls);
        }
        let area = output(rank, call)?;
        if rank.order.ordered {
            rank.station.launch(calls)?;
        } else {
            rank.armed();
            beside(rank, |rank| rank.station.launch(calls))?;
        }
        // what this check finds is added to what the one that comes in time finds
        rank.station.check(0, &area.region(call.plan))?;
        rank.station.wait()
    }
}
