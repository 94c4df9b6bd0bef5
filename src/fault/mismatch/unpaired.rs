//! unpaired: class C of hangs. A rank does not receive what the previous one sends it, and that is too much for any buffer
//! in between.

use super::super::{Expectation, Family, Fault, Injector};
use super::{Twisted, either, only};
use crate::backend::Twist;
use crate::case::{DType, Op, Primitive};
use crate::trace::Class;

pub struct Unpaired;

impl Fault for Unpaired {
    fn name(&self) -> &'static str {
        "unpaired"
    }

    fn family(&self) -> Family {
        Family::Mismatch
    }

    fn deed(&self) -> &'static str {
        "posts no receive in the first launch"
    }

    fn misfit(&self, primitive: Primitive, _op: Option<Op>, _dtype: DType) -> Option<&'static str> {
        only(Primitive::Sendrecv, primitive, "only sendrecv is one send and one receive")
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(Twisted { step: 1, twist: |_| Twist::NoRecv })
    }

    fn expects(&self) -> Expectation {
        // a library that has room for it all the same lets it end, and the rank without what it should have
        either(&[Class::CUnpaired])
    }
}
