//! dtype: class A of hangs. A rank passes the same count of another element type, as after a cast that only it makes.

use super::super::{Expectation, Family, Fault, Injector, STEP};
use super::{Other, either};
use crate::case::{Bytes, Case, DType};
use crate::trace::Class;

pub struct DTypeOff;

/// Another type, of half the width where there is one: the same count then has fewer bytes, and stays within buffers.
fn another(dtype: DType) -> DType {
    match dtype.size() {
        8 => DType::Float,
        4 => DType::Half,
        2 if dtype == DType::Half => DType::Bfloat16,
        2 => DType::Half,
        _ if dtype == DType::Int8 => DType::Uint8,
        _ => DType::Int8,
    }
}

impl Fault for DTypeOff {
    fn name(&self) -> &'static str {
        "dtype"
    }

    fn family(&self) -> Family {
        Family::Mismatch
    }

    fn deed(&self) -> &'static str {
        "passes another element type in launch 6"
    }

    fn growing(&self) -> bool {
        true
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(Other {
            step: STEP,
            change: |case, _| {
                let dtype = another(case.dtype);
                let elements = case.size.0 / case.dtype.size();
                Case { dtype, size: Bytes(elements * dtype.size()), ..case.clone() }
            },
        })
    }

    fn expects(&self) -> Expectation {
        either(&[Class::ADtype])
    }
}
