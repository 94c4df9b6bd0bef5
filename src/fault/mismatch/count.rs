//! count: class B of hangs. A rank leaves a call out, as by a branch that only it takes.

use super::super::{Expectation, Family, Fault, Injector, STEP};
use super::{Skip, either};
use crate::trace::Class;

pub struct Count;

impl Fault for Count {
    fn name(&self) -> &'static str {
        "count"
    }

    fn family(&self) -> Family {
        Family::Mismatch
    }

    fn deed(&self) -> &'static str {
        "leaves launch 6 out, and goes on with the next"
    }

    fn growing(&self) -> bool {
        true
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(Skip { step: STEP })
    }

    fn expects(&self) -> Expectation {
        either(&[Class::BCount])
    }
}
