//! stale: a block of a rank's output is that of the run before, as from a buffer that was not written anew.

use super::super::area::before;
use super::super::{Expectation, Family, Fault, Injector};
use super::{After, explained, outputless};
use crate::case::{DType, Op, Primitive};
use crate::oracle::forensics;

pub struct Stale;

impl Fault for Stale {
    fn name(&self) -> &'static str {
        "stale"
    }

    fn family(&self) -> Family {
        Family::Data
    }

    fn deed(&self) -> &'static str {
        "has a block of the run before in its output"
    }

    fn misfit(&self, primitive: Primitive, _op: Option<Op>, _dtype: DType) -> Option<&'static str> {
        outputless(primitive)
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(After(|rank, call, area| {
            let block = area.part(area.len / 4, area.len / 4);
            let old = block.by(&before(call)?);
            block.poke(rank, &old)
        }))
    }

    fn expects(&self) -> Expectation {
        explained("the result of the run before", |fault| matches!(fault, forensics::Fault::Stale(1)))
    }
}
