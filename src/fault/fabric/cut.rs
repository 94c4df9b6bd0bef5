//! cut: a cable is pulled. Nothing passes between two ranks any more, and neither is told: both go on believing in it.

use super::super::{Called, Connections, Detector, Expectation, Family, Fault, Injector, Needs, Who};
use super::{Broken, all_wait, needs};
use crate::backend::Harm;
use crate::case::{DType, Op, Primitive};
use crate::trace::Class;

pub struct Cut;

impl Fault for Cut {
    fn name(&self) -> &'static str {
        "cut"
    }

    fn family(&self) -> Family {
        Family::Fabric
    }

    fn deed(&self) -> &'static str {
        "drops all that passes between it and the rank before it, from launch 6 on"
    }

    fn misfit(&self, primitive: Primitive, _op: Option<Op>, _dtype: DType) -> Option<&'static str> {
        all_wait(primitive)
    }

    fn needs(&self) -> Needs {
        needs(Connections::Any)
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(Broken(Harm::Cut))
    }

    fn expects(&self) -> Expectation {
        // where the network says something before the deadline, that counts as well
        let by = &[Detector::Deadline, Detector::Error];
        Expectation { by, called: Called::Class(&[Class::FFabric]), who: Who::Ends }
    }
}
