//! order: class B of hangs. A rank makes two calls in the other order. They are of one size, so that they end, with results
//! that are half the one and half the other.

use super::super::{Called, Detector, Expectation, Family, Fault, Injector, Rank, Who, calls};
use super::{BEFORE, another};
use crate::backend::{Call, RankError};
use crate::case::{Case, DType, Op, Primitive};
use crate::trace::Class;

pub struct OutOfOrder;

impl Fault for OutOfOrder {
    fn name(&self) -> &'static str {
        "order"
    }

    fn family(&self) -> Family {
        Family::Mismatch
    }

    fn deed(&self) -> &'static str {
        "makes two calls of different ops in the other order, in the last of five such pairs"
    }

    fn misfit(&self, primitive: Primitive, _op: Option<Op>, _dtype: DType) -> Option<&'static str> {
        (!primitive.unit().reduces()).then_some("it has no op to tell two calls apart by")
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(Pairs)
    }

    fn expects(&self) -> Expectation {
        Expectation { by: &[Detector::Alignment], called: Called::Class(&[Class::BOrder]), who: Who::Culprit }
    }
}

/// In the first launch, rounds of another op and then the case's own: the output is right only if the latter is last.
struct Pairs;

impl Injector for Pairs {
    fn launch(&mut self, rank: &mut Rank<'_>, all: &[Call<'_>]) -> Result<(), RankError> {
        if rank.step > 1 {
            return rank.station.launch(all);
        }
        let cases = calls::recast(all, |case| Case { op: another(case.op), ..case.clone() });
        let other = calls::with(all, &cases);
        for _ in 0..BEFORE {
            rank.station.launch(&other)?;
            rank.station.launch(all)?;
        }
        if rank.culprit() {
            rank.armed();
            rank.station.launch(all)?;
            rank.station.launch(&other)
        } else {
            rank.station.launch(&other)?;
            rank.station.launch(all)
        }
    }
}
