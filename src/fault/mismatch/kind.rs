//! type: class B of hangs. A rank calls another collective.

use super::super::{Expectation, Family, Fault, Injector, STEP};
use super::{Other, either, only};
use crate::case::{Case, DType, Op, Primitive};
use crate::trace::Class;

pub struct Type;

impl Fault for Type {
    fn name(&self) -> &'static str {
        "type"
    }

    fn family(&self) -> Family {
        Family::Mismatch
    }

    fn deed(&self) -> &'static str {
        "calls reduce in launch 6, where the others call all_reduce"
    }

    fn misfit(&self, primitive: Primitive, _op: Option<Op>, _dtype: DType) -> Option<&'static str> {
        only(Primitive::AllReduce, primitive, "only for all_reduce another call is known that takes the same buffers")
    }

    fn growing(&self) -> bool {
        true
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(Other { step: STEP, change: |case, _| Case { primitive: Primitive::Reduce, ..case.clone() } })
    }

    fn expects(&self) -> Expectation {
        either(&[Class::BOrder])
    }
}
