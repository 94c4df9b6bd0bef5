//! overrun: a rank writes past the end of its receive buffer.

use super::super::area::end;
use super::super::{Detector, Expectation, Family, Fault, Injector};
use super::{After, outputless, placed};
use crate::backend::Buffer;
use crate::case::{DType, Op, Primitive};

pub struct Overrun;

impl Fault for Overrun {
    fn name(&self) -> &'static str {
        "overrun"
    }

    fn family(&self) -> Family {
        Family::Data
    }

    fn deed(&self) -> &'static str {
        "has 16 bytes written past the end of its receive buffer"
    }

    fn misfit(&self, primitive: Primitive, _op: Option<Op>, _dtype: DType) -> Option<&'static str> {
        outputless(primitive)
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(After(|rank, call, _| {
            let end = end(rank, call)?;
            rank.station.poke(0, Buffer::Recv, end, &[0x5a; 16])
        }))
    }

    fn expects(&self) -> Expectation {
        placed(&[Detector::Guard])
    }
}
