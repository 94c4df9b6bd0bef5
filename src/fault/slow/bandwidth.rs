//! bandwidth: a link is throttled, as by a lane that is lost: the larger a message, the more it loses.

use super::super::{End, Expectation, Family, Fault, Injector, Method};
use super::{HeldUp, expects};

pub struct Bandwidth;

impl Fault for Bandwidth {
    fn name(&self) -> &'static str {
        "bandwidth"
    }

    fn family(&self) -> Family {
        Family::Slow
    }

    fn deed(&self) -> &'static str {
        "is held up in proportion to the message"
    }

    fn method(&self) -> Method {
        Method::Curve
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(HeldUp)
    }

    fn expects(&self) -> Expectation {
        expects(End::Large)
    }
}
