//! peer: class C of hangs. A rank sends to the wrong rank. The message is small, so that the send ends; the rank that it was
//! for waits.

use super::super::{Expectation, Family, Fault, Injector, Needs};
use super::{Twisted, hangs, only};
use crate::backend::Twist;
use crate::case::{DType, Op, Primitive};
use crate::trace::Class;

pub struct Peer;

impl Fault for Peer {
    fn name(&self) -> &'static str {
        "peer"
    }

    fn family(&self) -> Family {
        Family::Mismatch
    }

    fn deed(&self) -> &'static str {
        "sends to the rank after the next in the first launch"
    }

    fn misfit(&self, primitive: Primitive, _op: Option<Op>, _dtype: DType) -> Option<&'static str> {
        only(Primitive::Sendrecv, primitive, "only sendrecv is one send and one receive")
    }

    fn needs(&self) -> Needs {
        // of two, the rank after the next is the rank itself
        Needs { ranks: 3, ..Needs::default() }
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(Twisted { step: 1, twist: |rank| Twist::SendTo((rank.me + 2) % rank.request.ranks.max(1)) })
    }

    fn expects(&self) -> Expectation {
        hangs(&[Class::CUnpaired])
    }
}
