//! lost: a rank's contribution does not arrive: it counts as nothing.

use super::super::{Expectation, Family, Fault, Injector};
use super::{Sent, explained, inputless, not_a_sum};
use crate::case::{DType, Op, Primitive};
use crate::oracle::forensics;

pub struct Lost;

impl Fault for Lost {
    fn name(&self) -> &'static str {
        "lost"
    }

    fn family(&self) -> Family {
        Family::Data
    }

    fn deed(&self) -> &'static str {
        "contributes zeros in place of its input"
    }

    fn misfit(&self, primitive: Primitive, op: Option<Op>, _dtype: DType) -> Option<&'static str> {
        inputless(primitive).or(not_a_sum(op))
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(Sent(|own, _| vec![0; own.len()]))
    }

    fn expects(&self) -> Expectation {
        explained("a contribution is missing", |fault| matches!(fault, forensics::Fault::Missing(_)))
    }
}
