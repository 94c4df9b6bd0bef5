//! Loops over elements, one for each op and dtype, that the compiler turns into vector code.

use super::element::{Bfloat, Element, Integer};
use super::float8::{self, Format, Table};
use super::half16;
use crate::case::{DType, Op};

/// How one op combines elements of one dtype.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kernel {
    /// By arithmetic.
    Loops(Loops),
    /// By lookup.
    Table(&'static Table),
}

/// `acc = acc / divisor`.
pub(super) type Divide = fn(&mut [u8], u64);

/// The loops of one op and dtype.
#[derive(Debug, Clone, Copy)]
pub(super) struct Loops {
    /// `to = a op b`.
    pub(super) combine: fn(&mut [u8], &[u8], &[u8]),
    /// `acc = acc op b`.
    pub(super) accumulate: fn(&mut [u8], &[u8]),
    /// `to = a * scalar`, the scalar as bits.
    pub(super) scale: fn(&mut [u8], &[u8], u64),
    /// `acc = acc * scalar`.
    pub(super) scale_in_place: fn(&mut [u8], u64),
    /// For integers.
    pub(super) divide: Option<Divide>,
}

impl Kernel {
    pub(super) fn new(op: Op, dtype: DType) -> Kernel {
        Kernel::Loops(match dtype {
            DType::Int8 => integer::<i8>(op),
            DType::Uint8 => integer::<u8>(op),
            DType::Int32 => integer::<i32>(op),
            DType::Uint32 => integer::<u32>(op),
            DType::Int64 => integer::<i64>(op),
            DType::Uint64 => integer::<u64>(op),
            DType::Float => by_op::<f32>(op),
            DType::Double => by_op::<f64>(op),
            DType::Bfloat16 => by_op::<Bfloat>(op),
            DType::Half => half16::loops(op),
            DType::F8e4m3 => return Kernel::Table(float8::table(op, Format::E4m3)),
            DType::F8e5m2 => return Kernel::Table(float8::table(op, Format::E5m2)),
        })
    }

    /// `to = a op b`.
    pub(super) fn combine(&self, to: &mut [u8], a: &[u8], b: &[u8]) {
        match self {
            Kernel::Loops(loops) => (loops.combine)(to, a, b),
            Kernel::Table(table) => float8::combine(table, to, a, b),
        }
    }

    /// `acc = acc op b`.
    pub(super) fn accumulate(&self, acc: &mut [u8], b: &[u8]) {
        match self {
            Kernel::Loops(loops) => (loops.accumulate)(acc, b),
            Kernel::Table(table) => float8::accumulate(table, acc, b),
        }
    }
}

/// What combines two elements; avg and mulsum are sums of scaled inputs.
pub(super) trait Combine {
    fn combine<E: Element>(a: E, b: E) -> E;
}

pub(super) struct Sum;
pub(super) struct Prod;
pub(super) struct Min;
pub(super) struct Max;

macro_rules! combine {
    ($op:ty, $method:ident) => {
        impl Combine for $op {
            #[inline(always)]
            fn combine<E: Element>(a: E, b: E) -> E {
                a.$method(b)
            }
        }
    };
}

combine!(Sum, add);
combine!(Prod, mul);
combine!(Min, min);
combine!(Max, max);

fn integer<E: Integer>(op: Op) -> Loops {
    Loops { divide: Some(divide::<E>), ..by_op::<E>(op) }
}

fn by_op<E: Element>(op: Op) -> Loops {
    match op {
        Op::Sum | Op::Avg | Op::Mulsum => loops::<E, Sum>(),
        Op::Prod => loops::<E, Prod>(),
        Op::Min => loops::<E, Min>(),
        Op::Max => loops::<E, Max>(),
    }
}

fn loops<E: Element, C: Combine>() -> Loops {
    Loops {
        combine: combine::<E, C>,
        accumulate: accumulate::<E, C>,
        scale: scale::<E>,
        scale_in_place: scale_in_place::<E>,
        divide: None,
    }
}

fn combine<E: Element, C: Combine>(to: &mut [u8], a: &[u8], b: &[u8]) {
    let pairs = a.chunks_exact(E::SIZE).zip(b.chunks_exact(E::SIZE));
    for (to, (a, b)) in to.chunks_exact_mut(E::SIZE).zip(pairs) {
        C::combine(E::load(a), E::load(b)).store(to);
    }
}

fn accumulate<E: Element, C: Combine>(acc: &mut [u8], b: &[u8]) {
    for (acc, b) in acc.chunks_exact_mut(E::SIZE).zip(b.chunks_exact(E::SIZE)) {
        C::combine(E::load(acc), E::load(b)).store(acc);
    }
}

fn scale<E: Element>(to: &mut [u8], a: &[u8], scalar: u64) {
    let scalar = E::from_bits(scalar);
    for (to, a) in to.chunks_exact_mut(E::SIZE).zip(a.chunks_exact(E::SIZE)) {
        E::load(a).mul(scalar).store(to);
    }
}

fn scale_in_place<E: Element>(acc: &mut [u8], scalar: u64) {
    let scalar = E::from_bits(scalar);
    for acc in acc.chunks_exact_mut(E::SIZE) {
        E::load(acc).mul(scalar).store(acc);
    }
}

fn divide<E: Integer>(acc: &mut [u8], divisor: u64) {
    for acc in acc.chunks_exact_mut(E::SIZE) {
        E::load(acc).divide(divisor).store(acc);
    }
}
