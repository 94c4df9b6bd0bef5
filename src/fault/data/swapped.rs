//! swapped: two blocks of a rank's output have changed places, as by a wrong offset.

use super::super::{Expectation, Family, Fault, Injector};
use super::{After, explained, outputless};
use crate::case::{DType, Op, Primitive};
use crate::oracle::forensics;

pub struct Swapped;

impl Fault for Swapped {
    fn name(&self) -> &'static str {
        "swapped"
    }

    fn family(&self) -> Family {
        Family::Data
    }

    fn deed(&self) -> &'static str {
        "has two blocks of its output in each other's place"
    }

    fn misfit(&self, primitive: Primitive, _op: Option<Op>, _dtype: DType) -> Option<&'static str> {
        outputless(primitive)
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(After(|rank, _, area| {
            // few enough that those wrong elements that a check keeps are of both
            let block = (area.len / 4).min(64);
            let (one, other) = (area.part(0, block), area.part(2 * block, block));
            let (first, second) = (one.peek(rank)?, other.peek(rank)?);
            one.poke(rank, &second)?;
            other.poke(rank, &first)
        }))
    }

    fn expects(&self) -> Expectation {
        explained("blocks have changed places", |fault| matches!(fault, forensics::Fault::Swapped(_)))
    }
}
