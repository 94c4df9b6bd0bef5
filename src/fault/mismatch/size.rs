//! size: class A of hangs. A rank passes a larger count, as from a tensor of another shape.

use super::super::{Expectation, Family, Fault, Injector, STEP, calls};
use super::{Other, either};
use crate::case::{DType, Op, Primitive};
use crate::trace::Class;

pub struct Size;

impl Fault for Size {
    fn name(&self) -> &'static str {
        "size"
    }

    fn family(&self) -> Family {
        Family::Mismatch
    }

    fn deed(&self) -> &'static str {
        "passes more elements than the others in launch 6"
    }

    fn misfit(&self, primitive: Primitive, _op: Option<Op>, _dtype: DType) -> Option<&'static str> {
        (primitive == Primitive::Alltoallv).then_some("its ranks pass counts of their own")
    }

    fn growing(&self) -> bool {
        true
    }

    fn injector(&self) -> Box<dyn Injector> {
        // half a step more: a count that no launch has
        Box::new(Other { step: STEP, change: |case, _| calls::part_of(case, 2 * STEP + 1, 2 * STEP) })
    }

    fn expects(&self) -> Expectation {
        either(&[Class::ASize])
    }
}
