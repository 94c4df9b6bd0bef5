//! rounded: values went through bfloat16 on their way, as in a collective that compresses or accumulates in a narrow type.

use super::super::{Expectation, Family, Fault, Injector};
use super::{After, explained, outputless};
use crate::case::{DType, Op, Primitive};
use crate::oracle::forensics;

pub struct Rounded;

impl Fault for Rounded {
    fn name(&self) -> &'static str {
        "rounded"
    }

    fn family(&self) -> Family {
        Family::Data
    }

    fn deed(&self) -> &'static str {
        "has its output rounded to bfloat16"
    }

    fn misfit(&self, primitive: Primitive, op: Option<Op>, dtype: DType) -> Option<&'static str> {
        outputless(primitive)
            .or((dtype != DType::Float || op.is_none()).then_some("it is shown with reductions of floats"))
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(After(|rank, _, area| {
            let narrow = |bytes: &[u8; 4]| half::bf16::from_f32(f32::from_le_bytes(*bytes)).to_f32().to_le_bytes();
            let rounded: Vec<u8> = area.peek(rank)?.as_chunks().0.iter().flat_map(narrow).collect();
            area.poke(rank, &rounded)
        }))
    }

    fn expects(&self) -> Expectation {
        explained("rounded to bfloat16", |fault| matches!(fault, forensics::Fault::Narrowed(DType::Bfloat16)))
    }
}
