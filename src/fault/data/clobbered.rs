//! clobbered: a call leaves something else in the send buffer than what was there.

use super::super::area::input;
use super::super::{Detector, Expectation, Family, Fault, Injector};
use super::{After, inputless, outputless, placed};
use crate::case::{DType, Op, Primitive};

pub struct Clobbered;

impl Fault for Clobbered {
    fn name(&self) -> &'static str {
        "clobbered"
    }

    fn family(&self) -> Family {
        Family::Data
    }

    fn deed(&self) -> &'static str {
        "has its send buffer changed by the call"
    }

    fn misfit(&self, primitive: Primitive, _op: Option<Op>, _dtype: DType) -> Option<&'static str> {
        inputless(primitive).or(outputless(primitive))
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(After(|rank, call, _| {
            let input = input(rank, call)?;
            let element = input.part(input.len / 2, 1);
            let changed: Vec<u8> = element.peek(rank)?.into_iter().map(|byte| !byte).collect();
            element.poke(rank, &changed)
        }))
    }

    fn expects(&self) -> Expectation {
        placed(&[Detector::Survivor])
    }
}
