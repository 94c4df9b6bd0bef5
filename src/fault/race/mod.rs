//! Two that touch the same memory at the same time, and nothing orders them.
//!
//! Each really races, in the first launch: one of the two goes to streams beside the lanes' ([`Station::aside`]), and is late
//! by [`LAG_US`], so that it loses. The control does the same work with the same lag, in the right order on one stream.
//!
//! [`Station::aside`]: crate::backend::Station::aside

pub(super) mod early_read;
pub(super) mod late_input;
pub(super) mod no_dependency;
pub(super) mod overlap;
pub(super) mod reuse;

use super::armed::Rank;
use super::{Called, Detector, Expectation, Family, Fault, Injector, Method, Who};
use crate::backend::RankError;
use crate::case::{DType, Op, Primitive};
use crate::oracle::forensics;

/// How late the late one is: far more than a small call takes, on a machine that has other things to do as well.
const LAG_US: u32 = 30_000;

/// A race whose loser is the culprit's input: it contributes what it had in the run before.
pub(super) struct Stale {
    name: &'static str,
    deed: &'static str,
    injector: fn() -> Box<dyn Injector>,
}

impl Fault for Stale {
    fn name(&self) -> &'static str {
        self.name
    }

    fn family(&self) -> Family {
        Family::Race
    }

    fn deed(&self) -> &'static str {
        self.deed
    }

    fn misfit(&self, primitive: Primitive, _op: Option<Op>, _dtype: DType) -> Option<&'static str> {
        (!primitive.unit().reduces()).then_some("whose contribution is wrong is told of reductions")
    }

    fn method(&self) -> Method {
        Method::Ordered
    }

    fn injector(&self) -> Box<dyn Injector> {
        (self.injector)()
    }

    fn expects(&self) -> Expectation {
        Expectation {
            by: &[Detector::Value],
            called: Called::Values("a contribution of the run before", |fault| {
                matches!(fault, forensics::Fault::StaleContribution { .. })
            }),
            who: Who::Culprit,
        }
    }
}

/// Queues something beside the lane's stream.
fn beside(rank: &mut Rank<'_>, queue: impl FnOnce(&mut Rank<'_>) -> Result<(), RankError>) -> Result<(), RankError> {
    rank.station.aside(true)?;
    let queued = queue(rank);
    rank.station.aside(false)?;
    queued
}
