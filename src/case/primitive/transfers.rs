//! The sends and receives of which a rank's part of an exchange consists.

use super::{Source, Unit, Workload};

/// Which way a [`Transfer`] goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the peer.
    Send,
    /// From the peer.
    Recv,
}

/// One send or receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// To the peer, or from it.
    pub direction: Direction,
    /// The other rank, or the same.
    pub peer: u32,
    /// First element in the send or the receive buffer.
    pub start: u64,
    /// Elements.
    pub len: u64,
}

/// Sends and receives that move every segment from its source to its receiver, as far as `rank` has part in them: by peer,
/// and with each first the sends.
pub fn transfers(unit: &dyn Unit, w: &Workload, rank: u32) -> Vec<Transfer> {
    let own = unit.expected(w, rank);
    let mut all = Vec::new();
    for peer in 0..w.ranks {
        for segment in unit.expected(w, peer) {
            if let Source::Rank { rank: source, element } = segment.source
                && source == rank
            {
                all.push(Transfer { direction: Direction::Send, peer, start: element, len: segment.len });
            }
        }
        for segment in &own {
            if matches!(segment.source, Source::Rank { rank, .. } if rank == peer) {
                all.push(Transfer { direction: Direction::Recv, peer, start: segment.start, len: segment.len });
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::Primitive;
    use super::super::tests::workload;
    use super::*;

    #[test]
    fn every_send_of_an_exchange_has_a_receive_of_the_same_length() {
        for primitive in Primitive::ALL.into_iter().filter(|primitive| primitive.is_exchange()) {
            let w = workload(1000, 3);
            let of = |rank| transfers(primitive.unit(), &w, rank);
            let lengths = |from: u32, to: u32, direction| {
                let (rank, peer) = if direction == Direction::Send { (from, to) } else { (to, from) };
                let own = of(rank).into_iter().filter(|t| t.direction == direction && t.peer == peer);
                own.map(|t| t.len).collect::<Vec<_>>()
            };
            for (from, to) in (0..3).flat_map(|from| (0..3).map(move |to| (from, to))) {
                assert_eq!(lengths(from, to, Direction::Send), lengths(from, to, Direction::Recv), "{primitive}");
            }
        }
    }

    #[test]
    fn a_rank_of_a_sendrecv_sends_to_the_next_and_receives_from_the_previous() {
        let transfer = |direction, peer| Transfer { direction, peer, start: 0, len: 16 };
        assert_eq!(
            transfers(Primitive::Sendrecv.unit(), &workload(64, 4), 1),
            [transfer(Direction::Recv, 0), transfer(Direction::Send, 2)]
        );
    }
}
