//! The sends and receives that a call consists of.

use crate::backend::Twist;
use crate::case::primitive::{Direction, Transfer, transfers};
use crate::case::{Primitive, Workload};
use crate::trace::call::Operation;

/// What decides which messages an exchange consists of.
pub type Exchange = (Primitive, Workload, Option<Twist>);

/// A rank's sends and receives of an exchange.
pub fn messages((primitive, workload, twist): Exchange, rank: u32) -> Vec<(Operation, u64)> {
    let message = |transfer: Transfer| {
        let Transfer { direction, peer, len, .. } = transfer;
        let operation = match direction {
            Direction::Send => Operation::Send { peer: twist.map_or(Some(peer), |twist| twist.send(rank, peer))? },
            Direction::Recv => Operation::Recv { peer: twist.map_or(Some(peer), |twist| twist.recv(rank, peer))? },
        };
        Some((operation, len))
    };
    transfers(primitive.unit(), &workload, rank).into_iter().filter_map(message).collect()
}
