//! throttled: what a rank sends passes at a lower rate, as over a link that came up slow: the larger, the more it loses.

use super::super::{Called, Connections, Detector, End, Expectation, Family, Fault, Injector, Method, Needs, Who};
use super::{Slowed, needs, one_way};
use crate::backend::Harm;
use crate::case::{DType, Op, Primitive};

pub struct Throttled;

impl Fault for Throttled {
    fn name(&self) -> &'static str {
        "throttled"
    }

    fn family(&self) -> Family {
        Family::Fabric
    }

    fn deed(&self) -> &'static str {
        "sends to the next rank at a limited rate"
    }

    fn misfit(&self, primitive: Primitive, _op: Option<Op>, _dtype: DType) -> Option<&'static str> {
        one_way(primitive)
    }

    fn needs(&self) -> Needs {
        needs(Connections::Any)
    }

    fn method(&self) -> Method {
        Method::Curve
    }

    fn injector(&self) -> Box<dyn Injector> {
        // so many bytes are to take so long
        let harm = |delay_us: u32, bytes: u64| {
            let rate = bytes as f64 * 1e6 / f64::from(delay_us.max(1));
            Harm::Throttle((rate as u64).max(1))
        };
        Box::new(Slowed { harm, lifted: Harm::Throttle(0) })
    }

    fn expects(&self) -> Expectation {
        Expectation { by: &[Detector::Performance], called: Called::Curve(End::Large), who: Who::Nobody }
    }
}
