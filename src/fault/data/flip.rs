//! flip: one bit of one element of a rank's output is the other way round, as by memory or a link without a check sum.

use super::super::{Expectation, Family, Fault, Injector};
use super::{After, explained, outputless};
use crate::case::{DType, Op, Primitive};
use crate::oracle::forensics;

pub struct Flip;

impl Fault for Flip {
    fn name(&self) -> &'static str {
        "flip"
    }

    fn family(&self) -> Family {
        Family::Data
    }

    fn deed(&self) -> &'static str {
        "has one bit of its output flipped"
    }

    fn misfit(&self, primitive: Primitive, _op: Option<Op>, _dtype: DType) -> Option<&'static str> {
        outputless(primitive)
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(After(|rank, _, area| {
            let element = area.part(area.len / 2, 1);
            let mut bytes = element.peek(rank)?;
            if let Some(byte) = bytes.first_mut() {
                *byte ^= 1 << 2;
            }
            element.poke(rank, &bytes)
        }))
    }

    fn expects(&self) -> Expectation {
        explained("one bit flipped", |fault| matches!(fault, forensics::Fault::BitFlipped(_)))
    }
}
