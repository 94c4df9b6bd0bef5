//! op: a rank asks for another reduction. Nothing hangs: results are wrong, and only the calls tell why.

use super::super::{Called, Detector, Expectation, Family, Fault, Injector, Who};
use super::{Repeated, another};
use crate::case::{Case, DType, Op, Primitive};
use crate::trace::Class;

pub struct OpOff;

impl Fault for OpOff {
    fn name(&self) -> &'static str {
        "op"
    }

    fn family(&self) -> Family {
        Family::Mismatch
    }

    fn deed(&self) -> &'static str {
        "asks for another reduction in the last of five calls in a row"
    }

    fn misfit(&self, primitive: Primitive, _op: Option<Op>, _dtype: DType) -> Option<&'static str> {
        (!primitive.unit().reduces()).then_some("it has no op")
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(Repeated { change: |case| Case { op: another(case.op), ..case.clone() } })
    }

    fn expects(&self) -> Expectation {
        Expectation { by: &[Detector::Alignment], called: Called::Class(&[Class::BOrder]), who: Who::Culprit }
    }
}
