//! The kernels' sources, compiled for the CPU and compared with the oracle in Rust: no GPU needed, only a C compiler.
//!
//! `CC` and `CXX` name the compilers (else `cc` and `c++`). Without one the tests say so and pass, unless
//! `COLLCHECK_REQUIRE_CC=1`.

mod arithmetic;
mod large;
mod library;
mod regions;

use collcheck::case::{DType, Op, Primitive};
use collcheck::oracle::{Data, Plan};

/// Every recipe of plain data, for some numbers of ranks.
fn plans(ranks: &[u32]) -> impl Iterator<Item = (Option<Op>, DType, Plan)> {
    let ops = || Op::ALL.into_iter().map(Some).chain([None]);
    ops().flat_map(move |op| {
        DType::ALL.into_iter().flat_map(move |dtype| {
            ranks.iter().map(move |&n| (op, dtype, Plan::new(7, Primitive::AllReduce, op, dtype, n, n.into())))
        })
    })
}

/// Every recipe of data that is not made of masked words.
fn unmasked(ranks: &[u32]) -> impl Iterator<Item = (Option<Op>, DType, Plan)> {
    [Data::Special, Data::OddScalars].into_iter().flat_map(move |data| {
        plans(ranks).filter_map(move |(op, dtype, plain)| {
            let ranks = plain.params().ranks;
            let plan = Plan::with(data, 7, Primitive::AllReduce, op, dtype, ranks, ranks.into());
            (plan.params() != plain.params()).then_some((op, dtype, plan))
        })
    })
}
