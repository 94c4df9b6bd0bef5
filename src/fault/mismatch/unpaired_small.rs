//! unpaired-small: as `unpaired`, of a message that fits into a buffer on the way. Nothing hangs and nothing is wrong at
//! first; what was not received is taken by the next receive, in the next use of the communicator.

use super::super::{Called, Detector, Expectation, Family, Fault, Injector, Method, Who};
use super::{Twisted, only};
use crate::backend::Twist;
use crate::case::{DType, Op, Primitive};
use crate::trace::Class;

pub struct UnpairedSmall;

/// Launches that all have the same data, so that one message more or less does not show.
const AMONG_EQUALS: u32 = super::super::STEP;

impl Fault for UnpairedSmall {
    fn name(&self) -> &'static str {
        "unpaired-small"
    }

    fn family(&self) -> Family {
        Family::Mismatch
    }

    fn deed(&self) -> &'static str {
        "posts no receive in launch 6, for a small message"
    }

    fn misfit(&self, primitive: Primitive, _op: Option<Op>, _dtype: DType) -> Option<&'static str> {
        only(Primitive::Sendrecv, primitive, "only sendrecv is one send and one receive")
    }

    fn method(&self) -> Method {
        Method::NextUse
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(Twisted { step: AMONG_EQUALS, twist: |_| Twist::NoRecv })
    }

    fn expects(&self) -> Expectation {
        Expectation { by: &[Detector::Alignment], called: Called::Class(&[Class::CUnpaired]), who: Who::Culprit }
    }
}
