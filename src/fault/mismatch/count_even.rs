//! count-even: as `count`, but all calls are alike. The later ones stand in for the one left out, until at the end there is
//! one too few: who left one out shows, when does not.

use super::super::{Expectation, Family, Fault, Injector, STEP};
use super::{Skip, hangs};
use crate::trace::Class;

pub struct CountEven;

impl Fault for CountEven {
    fn name(&self) -> &'static str {
        "count-even"
    }

    fn family(&self) -> Family {
        Family::Mismatch
    }

    fn deed(&self) -> &'static str {
        "leaves launch 6 out, among launches that are all alike"
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(Skip { step: STEP })
    }

    fn expects(&self) -> Expectation {
        hangs(&[Class::BCount])
    }
}
