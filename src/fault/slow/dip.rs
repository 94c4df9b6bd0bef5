//! dip: the middle of the curve sags, as where an algorithm or a protocol is chosen in the wrong place.

use super::super::{End, Expectation, Family, Fault, Injector, Method};
use super::{HeldUp, expects};

pub struct Dip;

impl Fault for Dip {
    fn name(&self) -> &'static str {
        "dip"
    }

    fn family(&self) -> Family {
        Family::Slow
    }

    fn deed(&self) -> &'static str {
        "is held up at the middle size only"
    }

    fn method(&self) -> Method {
        Method::Curve
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(HeldUp)
    }

    fn expects(&self) -> Expectation {
        expects(End::Middle)
    }
}
