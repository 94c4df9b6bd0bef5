//! Rings and chains. Rank r receives from r - 1 and sends to r + 1.
//!
//! Around a ring a rank works on a chunk of every block in turn, then on the next chunks. Between its sends and receives
//! it is one chunk ahead at most, so that channels that hold more than a chunk and a piece cannot all be full.

use super::super::transport::{COLLECTIVE_CAPACITY, Links, PIECE};
use super::Collective;
use super::step::{Step, reduce_alone};
use crate::backend::RankError;

/// Bytes of a block that go around the ring at a time.
const CHUNK: usize = COLLECTIVE_CAPACITY / 4;

const _: () = assert!(CHUNK + PIECE <= COLLECTIVE_CAPACITY && CHUNK.is_multiple_of(16));

/// The rank `steps` before `rank`, around the ring.
fn back(rank: usize, steps: usize, ranks: usize) -> usize {
    (rank + ranks - steps % ranks) % ranks
}

/// Offsets and lengths of the chunks of a block.
fn chunks(block: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..block).step_by(CHUNK).map(move |at| (at, CHUNK.min(block - at)))
}

/// Reduce-scatter, then all-gather, of as much of the message at a time as gives every rank one chunk.
pub(super) fn all_reduce(links: &mut Links, call: &Collective<'_>) -> Result<(), RankError> {
    let reduction = call.reduction()?;
    let (rank, ranks, message) = (links.rank, links.ranks, call.message());
    let (send, recv) = (call.send.part(0, message), call.recv.part(0, message));
    if ranks == 1 {
        reduce_alone(reduction, send, recv);
        return Ok(());
    }
    let Links { waiter, previous, next, .. } = links;
    let mut step = Step { waiter, grain: call.grain() };
    let mut start = 0;
    while start < message {
        let share = (message - start).div_ceil(ranks).next_multiple_of(16).min(CHUNK);
        let round = (message - start).min(share * ranks);
        let (send, recv) = (send.part(start, round), recv.part(start, round));
        // The chunk whose reduction ends at a rank; those of the last ranks can be empty.
        let of = |rank: usize| (rank * share, share);
        let own = |(at, len)| send.part(at, len);
        let to = |(at, len)| recv.part(at, len);

        step.send_scaled(next, own(of(back(rank, 1, ranks))), reduction)?;
        for steps in 2..ranks {
            step.reduce_send(previous, next, own(of(back(rank, steps, ranks))), reduction)?;
        }
        step.reduce_last(previous, Some(next), own(of(rank)), to(of(rank)), reduction)?;
        for steps in 1..ranks - 1 {
            step.forward(previous, next, to(of(back(rank, steps, ranks))))?;
        }
        step.receive(previous, to(of(back(rank, ranks - 1, ranks))))?;
        start += round;
    }
    Ok(())
}

/// Every block goes once around.
pub(super) fn all_gather(links: &mut Links, call: &Collective<'_>) -> Result<(), RankError> {
    let (rank, ranks, block) = (links.rank, links.ranks, call.block());
    call.recv.part(rank * block, block).copy_from(&call.send.part(0, block));
    let Links { waiter, previous, next, .. } = links;
    let mut step = Step { waiter, grain: call.grain() };
    if ranks == 1 {
        return Ok(());
    }
    for (at, len) in chunks(block) {
        let of = |rank: usize| call.recv.part(rank * block + at, len);
        step.send(next, of(rank))?;
        for steps in 1..ranks - 1 {
            step.forward(previous, next, of(back(rank, steps, ranks)))?;
        }
        step.receive(previous, of(back(rank, ranks - 1, ranks)))?;
    }
    Ok(())
}

/// The partial reduction of a block goes once around, and ends at the rank that keeps it.
pub(super) fn reduce_scatter(links: &mut Links, call: &Collective<'_>) -> Result<(), RankError> {
    let reduction = call.reduction()?;
    let (rank, ranks, block) = (links.rank, links.ranks, call.block());
    let Links { waiter, previous, next, .. } = links;
    let mut step = Step { waiter, grain: call.grain() };
    if ranks == 1 {
        reduce_alone(reduction, call.send.part(0, block), call.recv.part(0, block));
        return Ok(());
    }
    for (at, len) in chunks(block) {
        let of = |rank: usize| call.send.part(rank * block + at, len);
        step.send_scaled(next, of(back(rank, 1, ranks)), reduction)?;
        for steps in 2..ranks {
            step.reduce_send(previous, next, of(back(rank, steps, ranks)), reduction)?;
        }
        step.reduce_last(previous, None, of(rank), call.recv.part(at, len), reduction)?;
    }
    Ok(())
}

/// A chain from the root on.
pub(super) fn broadcast(links: &mut Links, call: &Collective<'_>) -> Result<(), RankError> {
    let (rank, ranks, message) = (links.rank, links.ranks, call.message());
    let recv = call.recv.part(0, message);
    let Links { waiter, previous, next, .. } = links;
    let mut step = Step { waiter, grain: call.grain() };
    let last = back(call.root(), 1, ranks);
    if rank == call.root() {
        let own = call.send.part(0, message);
        if ranks > 1 {
            step.send(next, own)?;
        }
        recv.copy_from(&own);
        Ok(())
    } else if rank == last {
        step.receive(previous, recv)
    } else {
        step.forward(previous, next, recv)
    }
}

/// A chain that ends at the root.
pub(super) fn reduce(links: &mut Links, call: &Collective<'_>) -> Result<(), RankError> {
    let reduction = call.reduction()?;
    let (rank, ranks, message) = (links.rank, links.ranks, call.message());
    let own = call.send.part(0, message);
    let Links { waiter, previous, next, .. } = links;
    let mut step = Step { waiter, grain: call.grain() };
    let first = (call.root() + 1) % ranks;
    if ranks == 1 {
        reduce_alone(reduction, own, call.recv.part(0, message));
        Ok(())
    } else if rank == call.root() {
        step.reduce_last(previous, None, own, call.recv.part(0, message), reduction)
    } else if rank == first {
        step.send_scaled(next, own, reduction)
    } else {
        step.reduce_send(previous, next, own, reduction)
    }
}
