//! Collectives that are groups of sends and receives between pairs.
//!
//! A rank starts with its nearest neighbour, so that not all ranks turn to the same one first.

use super::super::transport::{Flow, Links};
use super::{Collective, bytes};
use crate::backend::RankError;
use crate::case::primitive::Source;

/// All other ranks, by distance: whom to send to, and whom to receive from.
fn others(rank: usize, ranks: usize) -> impl Iterator<Item = (usize, usize)> {
    (1..ranks).map(move |distance| ((rank + distance) % ranks, (rank + ranks - distance) % ranks))
}

/// Carries out all sends and receives of a call, but for what its twist does to them.
fn exchange<'a>(links: &mut Links, call: &Collective<'a>, mut flows: Vec<Flow<'a>>) -> Result<(), RankError> {
    if let Some(twist) = call.twist {
        let rank = links.rank;
        flows = flows.into_iter().filter_map(|flow| flow.twisted(twist, rank)).collect();
    }
    links.exchange(&mut flows)
}

/// Block r of every rank goes to rank r.
pub(super) fn alltoall(links: &mut Links, call: &Collective<'_>) -> Result<(), RankError> {
    let (rank, ranks, block) = (links.rank, links.ranks, call.block());
    call.recv.part(rank * block, block).copy_from(&call.send.part(rank * block, block));
    let mut flows = Vec::with_capacity(2 * ranks);
    for (to, from) in others(rank, ranks) {
        flows.push(Flow::send(to, call.send.part(to * block, block)));
        flows.push(Flow::recv(from, call.recv.part(from * block, block)));
    }
    exchange(links, call, flows)
}

/// As [`alltoall`], with blocks that depend on the distance of the two ranks.
pub(super) fn alltoallv(links: &mut Links, call: &Collective<'_>) -> Result<(), RankError> {
    let (rank, ranks) = (links.rank, links.ranks);
    let blocks = blocks_by_distance(call, ranks);
    let block = |from: usize, to: usize| blocks.get((to + ranks - from) % ranks).copied().unwrap_or(0);
    let sends = places(ranks, |to| block(rank, to));
    let recvs = places(ranks, |from| block(from, rank));
    let mut flows = Vec::with_capacity(2 * ranks);
    for (peer, (&(sent, send_len), &(received, recv_len))) in sends.iter().zip(&recvs).enumerate() {
        let (send, recv) = (call.send.part(sent, send_len), call.recv.part(received, recv_len));
        if peer == rank {
            recv.copy_from(&send);
        } else {
            flows.push(Flow::send(peer, send));
            flows.push(Flow::recv(peer, recv));
        }
    }
    exchange(links, call, flows)
}

/// Bytes from a rank to the one `distance` further on: the pattern is part of the case, and the same at every rank.
fn blocks_by_distance(call: &Collective<'_>, ranks: usize) -> Vec<usize> {
    let mut blocks = vec![0; ranks];
    for segment in call.primitive.unit().expected(&call.workload, 0) {
        if let Source::Rank { rank, .. } = segment.source
            && let Some(block) = blocks.get_mut((ranks - rank as usize % ranks) % ranks)
        {
            *block = bytes(segment.len, call.grain());
        }
    }
    blocks
}

/// Offsets and lengths of blocks that lie one behind the other, in rank order.
fn places(ranks: usize, len: impl Fn(usize) -> usize) -> Vec<(usize, usize)> {
    let mut end = 0usize;
    (0..ranks)
        .map(|rank| {
            let start = end;
            end = end.saturating_add(len(rank));
            (start, end - start)
        })
        .collect()
}

/// The root sends every rank its block.
pub(super) fn scatter(links: &mut Links, call: &Collective<'_>) -> Result<(), RankError> {
    let (rank, ranks, block, root) = (links.rank, links.ranks, call.block(), call.root());
    let recv = call.recv.part(0, block);
    if rank != root {
        return exchange(links, call, vec![Flow::recv(root, recv)]);
    }
    let own = |rank: usize| call.send.part(rank * block, block);
    recv.copy_from(&own(rank));
    let flows: Vec<_> = others(rank, ranks).map(|(to, _)| Flow::send(to, own(to))).collect();
    exchange(links, call, flows)
}

/// Every rank sends the root its block.
pub(super) fn gather(links: &mut Links, call: &Collective<'_>) -> Result<(), RankError> {
    let (rank, ranks, block, root) = (links.rank, links.ranks, call.block(), call.root());
    let own = call.send.part(0, block);
    if rank != root {
        return exchange(links, call, vec![Flow::send(root, own)]);
    }
    let to = |rank: usize| call.recv.part(rank * block, block);
    to(rank).copy_from(&own);
    let flows: Vec<_> = others(rank, ranks).map(|(_, from)| Flow::recv(from, to(from))).collect();
    exchange(links, call, flows)
}

/// Everything to the next rank, everything from the previous one.
pub(super) fn sendrecv(links: &mut Links, call: &Collective<'_>) -> Result<(), RankError> {
    let (rank, ranks, message) = (links.rank, links.ranks, call.message());
    let (own, to) = (call.send.part(0, message), call.recv.part(0, message));
    if ranks == 1 {
        to.copy_from(&own);
        return Ok(());
    }
    let flows = vec![Flow::send((rank + 1) % ranks, own), Flow::recv((rank + ranks - 1) % ranks, to)];
    exchange(links, call, flows)
}

/// In step k ranks that differ in bit k swap all blocks that they have by then: 2^k, which lie together.
pub(super) fn hypercube(links: &mut Links, call: &Collective<'_>) -> Result<(), RankError> {
    let (rank, ranks, block) = (links.rank, links.ranks, call.block());
    call.recv.part(rank * block, block).copy_from(&call.send.part(0, block));
    let mut held = 1;
    while held < ranks {
        let peer = rank ^ held;
        let group = |rank: usize| call.recv.part((rank - rank % held) * block, held * block);
        links.exchange(&mut [Flow::send(peer, group(rank)), Flow::recv(peer, group(peer))])?;
        held *= 2;
    }
    Ok(())
}
