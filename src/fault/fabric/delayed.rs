//! delayed: what a rank sends takes longer on its way, as on a detour: the more messages, the more it loses.

use super::super::{Called, Connections, Detector, End, Expectation, Family, Fault, Injector, Method, Needs, Who};
use super::{Slowed, needs, one_way};
use crate::backend::Harm;
use crate::case::{DType, Op, Primitive};

pub struct Delayed;

impl Fault for Delayed {
    fn name(&self) -> &'static str {
        "delayed"
    }

    fn family(&self) -> Family {
        Family::Fabric
    }

    fn deed(&self) -> &'static str {
        "has what it sends to the next rank held back for the same time at every size"
    }

    fn misfit(&self, primitive: Primitive, _op: Option<Op>, _dtype: DType) -> Option<&'static str> {
        one_way(primitive)
    }

    fn needs(&self) -> Needs {
        needs(Connections::Own)
    }

    fn method(&self) -> Method {
        Method::Curve
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(Slowed { harm: |delay_us, _| Harm::Delay(delay_us), lifted: Harm::Delay(0) })
    }

    fn expects(&self) -> Expectation {
        Expectation { by: &[Detector::Performance], called: Called::Curve(End::Small), who: Who::Nobody }
    }
}
