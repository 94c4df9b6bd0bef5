//! The way between two ranks goes wrong: connections are really cut, reset, held up or throttled.
//!
//! What breaks is the way between the culprit and the rank before it, in both directions: what that one sends comes in at
//! the culprit, which is where a process can stop it. What is slowed down is what the culprit sends to the next rank, which
//! is where a sender can be held up. Each goes through [`crate::backend::Station::harm`], below the recorder: calls stay as
//! they are.

pub(super) mod cut;
pub(super) mod delayed;
pub(super) mod reset;
pub(super) mod throttled;

use super::armed::{Injector, Rank};
use super::{Connections, Needs, STEP};
use crate::backend::{Call, Harm, RankError};
use crate::case::Primitive;

/// The rank before this one in the ring.
pub(super) fn previous(rank: u32, ranks: u32) -> u32 {
    rank.checked_sub(1).unwrap_or(ranks.saturating_sub(1))
}

fn needs(connections: Connections) -> Needs {
    Needs { connections: Some(connections), ..Needs::default() }
}

/// Calls of which it is known who waits where the way from the rank before is broken.
fn all_wait(primitive: Primitive) -> Option<&'static str> {
    let known = matches!(primitive, Primitive::Sendrecv | Primitive::AllReduce);
    (!known).then_some(
        "only of sendrecv and all_reduce is it known that the way to the rank before is used, and who then waits",
    )
}

fn one_way(primitive: Primitive) -> Option<&'static str> {
    (primitive != Primitive::Sendrecv).then_some("only sendrecv is sure to send a message of its size to the next rank")
}

/// The culprit does harm, and that is a deed for each connection struck: none, and nothing was done.
fn strike(rank: &mut Rank<'_>, peer: u32, harm: Harm) -> Result<(), RankError> {
    let struck = rank.station.harm(peer, harm)?;
    (0..struck).for_each(|_| rank.armed());
    Ok(())
}

/// The culprit breaks the way to the rank before it, once.
struct Broken(Harm);

impl Injector for Broken {
    fn launch(&mut self, rank: &mut Rank<'_>, calls: &[Call<'_>]) -> Result<(), RankError> {
        if rank.acts_in(STEP) {
            let peer = previous(rank.me, rank.request.ranks);
            strike(rank, peer, self.0)?;
        }
        rank.station.launch(calls)
    }
}

/// What the culprit sends to the next rank is slowed down in all launches, and no longer.
struct Slowed {
    /// What to do, from what the order says, and the size of the message.
    harm: fn(delay_us: u32, bytes: u64) -> Harm,
    lifted: Harm,
}

fn next(rank: &Rank<'_>) -> u32 {
    (rank.me + 1) % rank.request.ranks.max(1)
}

impl Injector for Slowed {
    fn launch(&mut self, rank: &mut Rank<'_>, calls: &[Call<'_>]) -> Result<(), RankError> {
        if rank.culprit() && rank.order.delay_us > 0 {
            // at each launch, as connections are made at the first
            let bytes = calls.iter().map(|call| call.case.size.0).max().unwrap_or(0);
            let (peer, harm) = (next(rank), (self.harm)(rank.order.delay_us, bytes));
            strike(rank, peer, harm)?;
        }
        rank.station.launch(calls)
    }

    fn end(&mut self, rank: &mut Rank<'_>) {
        if rank.culprit() {
            // a way that could not be slowed down has nothing to be lifted
            let _ = rank.station.harm(next(rank), self.lifted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_before_the_first_is_the_last() {
        assert_eq!([previous(0, 4), previous(3, 4), previous(0, 0)], [3, 2, 0]);
    }
}
