//! nan: a rank brings a NaN with it. It is in every rank's output; what counts is whose it is.

use super::super::{Detector, Expectation, Family, Fault, Injector};
use super::{Written, inputless, placed};
use crate::case::{DType, Op, Primitive};

pub struct NotANumber;

impl Fault for NotANumber {
    fn name(&self) -> &'static str {
        "nan"
    }

    fn family(&self) -> Family {
        Family::Data
    }

    fn deed(&self) -> &'static str {
        "has a NaN in its input"
    }

    fn misfit(&self, primitive: Primitive, op: Option<Op>, dtype: DType) -> Option<&'static str> {
        inputless(primitive)
            .or((dtype.float().is_none() || op.is_none()).then_some("only reductions of floats pass it on"))
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(Written { number: f64::NAN, done: false })
    }

    fn expects(&self) -> Expectation {
        placed(&[Detector::Input])
    }
}
