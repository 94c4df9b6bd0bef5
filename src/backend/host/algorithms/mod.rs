//! The collectives, as algorithms over channels.
//!
//! Every rank runs them by itself, from its own arguments. Nothing compares those with the other ranks': ranks that
//! disagree on primitive, count, dtype, op or root hang or compute nonsense, and each stays inside its own buffers.

mod pairs;
mod ring;
mod step;
mod tree;

use super::arithmetic::Reduction;
use super::memory::Span;
use super::transport::Links;
use crate::backend::{RankError, Twist};
use crate::case::{Primitive, Workload};

/// What carries out a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Around the ring of all ranks; broadcast and reduce follow it as a chain from or to the root.
    Ring,
    /// Up and down a binary tree.
    Tree,
    /// Directly between pairs of ranks, all in flight at once.
    Pairs,
    /// Pairwise exchange of doubling blocks.
    Hypercube,
}

/// Up to this many bytes all_reduce takes the tree: a ring has 2 (n - 1) steps in a row, the tree 2 log2 n, but the tree
/// moves the whole message on every link. Measured with 4 and 8 ranks on 2 cores.
pub(super) const TREE_MAX_BYTES: u64 = 64 << 10;

/// Up to this many ranks the ring has no more steps than the tree.
const RING_MAX_RANKS: u32 = 2;

impl Algorithm {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Ring => "ring",
            Algorithm::Tree => "tree",
            Algorithm::Pairs => "pairs",
            Algorithm::Hypercube => "hypercube",
        }
    }

    /// The choice for a collective, from this rank's arguments alone.
    pub fn choose(primitive: Primitive, w: &Workload) -> Algorithm {
        let bytes = w.elements().saturating_mul(w.dtype.size());
        match primitive {
            Primitive::AllReduce if bytes <= TREE_MAX_BYTES && w.ranks > RING_MAX_RANKS => Algorithm::Tree,
            Primitive::AllReduce
            | Primitive::AllGather
            | Primitive::ReduceScatter
            | Primitive::Broadcast
            | Primitive::Reduce => Algorithm::Ring,
            Primitive::Hypercube => Algorithm::Hypercube,
            _ => Algorithm::Pairs,
        }
    }
}

/// One rank's call.
#[derive(Debug)]
pub(super) struct Collective<'a> {
    pub(super) primitive: Primitive,
    pub(super) workload: Workload,
    /// The data sent.
    pub(super) send: Span<'a>,
    /// Where received data goes; equal to `send`, inside or around it where the call is in place.
    pub(super) recv: Span<'a>,
    /// For primitives that reduce.
    pub(super) reduction: Option<&'a Reduction>,
    /// For exchanges: what is left out or misdirected.
    pub(super) twist: Option<Twist>,
}

impl<'a> Collective<'a> {
    /// Bytes of one element.
    fn grain(&self) -> usize {
        self.workload.dtype.size() as usize
    }

    /// Bytes of one rank's block.
    fn block(&self) -> usize {
        bytes(self.workload.block(), self.grain())
    }

    /// Bytes of the whole message.
    fn message(&self) -> usize {
        bytes(self.workload.elements(), self.grain())
    }

    /// The root.
    fn root(&self) -> usize {
        self.workload.root as usize
    }

    /// The reduction, or why there is none.
    fn reduction(&self) -> Result<&'a Reduction, RankError> {
        self.reduction.ok_or_else(|| RankError::Refused {
            call: self.primitive.name().into(),
            code: "invalid argument".into(),
            message: "it needs an op".into(),
        })
    }
}

/// Elements as bytes. Larger counts than memory holds were refused with the buffers.
fn bytes(elements: u64, grain: usize) -> usize {
    usize::try_from(elements).unwrap_or(usize::MAX).saturating_mul(grain)
}

/// Carries a call out by `algorithm`, or where that does not suit the primitive, by its own.
pub(super) fn run(links: &mut Links, call: &Collective<'_>, algorithm: Algorithm) -> Result<Algorithm, RankError> {
    let by_default = Algorithm::choose(call.primitive, &call.workload);
    match (call.primitive, algorithm) {
        (Primitive::AllReduce, Algorithm::Tree) => return tree::all_reduce(links, call).map(|()| Algorithm::Tree),
        (Primitive::AllReduce, _) => return ring::all_reduce(links, call).map(|()| Algorithm::Ring),
        (Primitive::AllGather, _) => ring::all_gather(links, call),
        (Primitive::ReduceScatter, _) => ring::reduce_scatter(links, call),
        (Primitive::Broadcast, _) => ring::broadcast(links, call),
        (Primitive::Reduce, _) => ring::reduce(links, call),
        (Primitive::Alltoall, _) => pairs::alltoall(links, call),
        (Primitive::Alltoallv, _) => pairs::alltoallv(links, call),
        (Primitive::Scatter, _) => pairs::scatter(links, call),
        (Primitive::Gather, _) => pairs::gather(links, call),
        (Primitive::Sendrecv, _) => pairs::sendrecv(links, call),
        (Primitive::Hypercube, _) => pairs::hypercube(links, call),
    }?;
    Ok(by_default)
}
