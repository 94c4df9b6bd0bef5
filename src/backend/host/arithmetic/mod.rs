//! Reductions of elements: 6 ops x 12 dtypes over bytes of any alignment.
//!
//! What NCCL does, so that the oracle meets the same arithmetic on either backend:
//!
//! * integers wrap;
//! * half and bfloat16 are widened to f32, combined, and rounded to nearest even, which is the correctly rounded result;
//! * 8-bit floats are combined exactly and rounded once to nearest even (NCCL goes through half), without saturation;
//! * min and max of floats are `fminf` and `fmaxf` (src/device/reduce_kernel.h): of a number and a NaN the number wins;
//! * avg of integers divides the wrapped sum, towards zero; avg of floats multiplies every input by 1/n, rounded to the
//!   dtype, before it is added; where 1/n is no good number of an 8-bit float, the product is made with 1/n in f32;
//! * mulsum multiplies every input by its rank's scalar before it is added.

mod element;
mod float8;
mod half16;
mod kernel;

use crate::case::{DType, Op};
use kernel::{Divide, Kernel, Loops};

/// One reduction as one rank carries it out.
#[derive(Debug, Clone)]
pub(super) struct Reduction {
    kernel: Kernel,
    scale: Scale,
    /// What the reduction of all ranks is divided by, and the loop that does it.
    divide: Option<(Divide, u64)>,
}

/// What inputs are multiplied by first.
#[derive(Debug, Clone)]
enum Scale {
    /// Nothing.
    Not,
    /// A scalar, as bits of the dtype.
    By(Loops, u64),
    /// A scalar, as its products with all codes of an 8-bit float.
    Products(Box<[u8; 256]>),
}

impl Reduction {
    /// `scalar` is the rank's mulsum scalar as bits of the dtype; other ops ignore it.
    pub(super) fn new(op: Op, dtype: DType, ranks: u32, scalar: u64) -> Reduction {
        let ranks = ranks.max(1);
        let kernel = Kernel::new(op, dtype);
        let mut divide = None;
        let scale = match (op, kernel, dtype.float()) {
            (Op::Mulsum, Kernel::Loops(loops), _) => Scale::By(loops, scalar),
            (Op::Mulsum, Kernel::Table(_), Some(format)) => {
                Scale::Products(float8::products(&format, format.decode(scalar, 8)))
            }
            (Op::Avg, Kernel::Loops(loops), Some(format)) => {
                Scale::By(loops, format.encode(1.0 / f64::from(ranks), 8 * dtype.size() as u32))
            }
            (Op::Avg, Kernel::Table(_), Some(format)) => {
                Scale::Products(float8::products(&format, float8::inverse(&format, ranks)))
            }
            (Op::Avg, Kernel::Loops(loops), None) => {
                divide = loops.divide.map(|divide| (divide, u64::from(ranks)));
                Scale::Not
            }
            _ => Scale::Not,
        };
        Reduction { kernel, scale, divide }
    }

    /// `to = scaled(own)`.
    pub(super) fn scale(&self, to: &mut [u8], own: &[u8]) {
        match &self.scale {
            Scale::Not => to.iter_mut().zip(own).for_each(|(to, own)| *to = *own),
            Scale::By(loops, scalar) => (loops.scale)(to, own, *scalar),
            Scale::Products(products) => {
                to.iter_mut().zip(own).for_each(|(to, own)| *to = products[usize::from(*own)]);
            }
        }
    }

    /// `acc = scaled(acc)`.
    pub(super) fn scale_in_place(&self, acc: &mut [u8]) {
        match &self.scale {
            Scale::Not => {}
            Scale::By(loops, scalar) => (loops.scale_in_place)(acc, *scalar),
            Scale::Products(products) => acc.iter_mut().for_each(|code| *code = products[usize::from(*code)]),
        }
    }

    /// `to = scaled(own) op other`.
    pub(super) fn combine(&self, to: &mut [u8], own: &[u8], other: &[u8]) {
        if matches!(self.scale, Scale::Not) {
            self.kernel.combine(to, own, other);
        } else {
            self.scale(to, own);
            self.kernel.accumulate(to, other);
        }
    }

    /// `acc = acc op other`.
    pub(super) fn accumulate(&self, acc: &mut [u8], other: &[u8]) {
        self.kernel.accumulate(acc, other);
    }

    /// Turns the reduction of all ranks into the result.
    pub(super) fn finish(&self, acc: &mut [u8]) {
        if let Some((divide, divisor)) = self.divide {
            divide(acc, divisor);
        }
    }
}

#[cfg(test)]
mod tests;
