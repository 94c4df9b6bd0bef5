//! inf: a rank brings an infinity with it, as after an overflow in what comes before the call.

use super::super::{Detector, Expectation, Family, Fault, Injector};
use super::{Written, inputless, placed};
use crate::case::{DType, Op, Primitive};

pub struct Infinite;

impl Fault for Infinite {
    fn name(&self) -> &'static str {
        "inf"
    }

    fn family(&self) -> Family {
        Family::Data
    }

    fn deed(&self) -> &'static str {
        "has an infinity in its input"
    }

    fn misfit(&self, primitive: Primitive, op: Option<Op>, dtype: DType) -> Option<&'static str> {
        inputless(primitive)
            .or((dtype.float().is_none() || op.is_none()).then_some("only reductions of floats pass it on"))
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(Written { number: f64::INFINITY, done: false })
    }

    fn expects(&self) -> Expectation {
        placed(&[Detector::Input])
    }
}
