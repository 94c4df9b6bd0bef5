//! reset: the connections between two ranks are reset, as by a firewall or a network card that starts anew. Both are told.

use super::super::{Called, Connections, Detector, Expectation, Family, Fault, Injector, Needs, Who};
use super::{Broken, all_wait, needs};
use crate::backend::Harm;
use crate::case::{DType, Op, Primitive};
use crate::trace::Class;

pub struct Reset;

impl Fault for Reset {
    fn name(&self) -> &'static str {
        "reset"
    }

    fn family(&self) -> Family {
        Family::Fabric
    }

    fn deed(&self) -> &'static str {
        "resets its connections with the rank before it, before launch 6"
    }

    fn misfit(&self, primitive: Primitive, _op: Option<Op>, _dtype: DType) -> Option<&'static str> {
        all_wait(primitive)
    }

    fn needs(&self) -> Needs {
        needs(Connections::Any)
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(Broken(Harm::Reset))
    }

    fn expects(&self) -> Expectation {
        Expectation { by: &[Detector::Error], called: Called::Class(&[Class::FFabric]), who: Who::Ends }
    }
}
