//! The kernels' sources, compiled for the CPU and compared with the oracle in Rust: no GPU needed, only a C compiler.
//!
//! `CC` and `CXX` name the compilers (else `cc` and `c++`). Without one the tests say so and pass, unless
//! `COLLCHECK_REQUIRE_CC=1`.

mod arithmetic;
mod library;
mod regions;

use collcheck::case::{DType, Op, Primitive};
use collcheck::oracle::Plan;

/// Every recipe there is, for some numbers of ranks.
fn plans(ranks: &[u32]) -> impl Iterator<Item = (Option<Op>, DType, Plan)> {
    let ops = || Op::ALL.into_iter().map(Some).chain([None]);
    ops().flat_map(move |op| {
        DType::ALL.into_iter().flat_map(move |dtype| {
            ranks.iter().map(move |&n| (op, dtype, Plan::new(7, Primitive::AllReduce, op, dtype, n, n.into())))
        })
    })
}
