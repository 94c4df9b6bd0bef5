//! latency: every call takes so much longer, whatever its size, as by a proxy on the wrong socket.

use super::super::{End, Expectation, Family, Fault, Injector, Method};
use super::{HeldUp, expects};

pub struct Latency;

impl Fault for Latency {
    fn name(&self) -> &'static str {
        "latency"
    }

    fn family(&self) -> Family {
        Family::Slow
    }

    fn deed(&self) -> &'static str {
        "is held up for the same time at every size"
    }

    fn method(&self) -> Method {
        Method::Curve
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(HeldUp)
    }

    fn expects(&self) -> Expectation {
        expects(End::Small)
    }
}
