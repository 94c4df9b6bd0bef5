//! doubled: a rank's contribution counts twice, as after a packet that is sent again.

use super::super::{Expectation, Family, Fault, Injector};
use super::{Sent, explained, inputless, not_a_sum};
use crate::case::{DType, Op, Primitive};
use crate::oracle::forensics;

pub struct Doubled;

impl Fault for Doubled {
    fn name(&self) -> &'static str {
        "doubled"
    }

    fn family(&self) -> Family {
        Family::Data
    }

    fn deed(&self) -> &'static str {
        "contributes twice its input"
    }

    fn misfit(&self, primitive: Primitive, op: Option<Op>, dtype: DType) -> Option<&'static str> {
        let wide = matches!(dtype, DType::Float | DType::Int32 | DType::Uint32);
        not_a_sum(op).or(inputless(primitive)).or((!wide).then_some("it is shown with elements of 32 bits"))
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(Sent(|own, dtype| {
            let twice = |bytes: &[u8; 4]| match dtype {
                DType::Float => (2.0 * f32::from_le_bytes(*bytes)).to_le_bytes(),
                _ => u32::from_le_bytes(*bytes).wrapping_mul(2).to_le_bytes(),
            };
            own.as_chunks().0.iter().flat_map(twice).collect()
        }))
    }

    fn expects(&self) -> Expectation {
        explained("a contribution counts twice", |fault| matches!(fault, forensics::Fault::Doubled(_)))
    }
}
