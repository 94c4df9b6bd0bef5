//! What connects the ranks of a communicator: the channels, where they lie, and grouped sends and receives.
//!
//! There are three sets of channels, as collectives over rings, over trees and between pairs do not share connections in
//! NCCL either: an unpaired send disturbs later sends to that rank, not the next all_reduce.
//!
//! All of them lie in one region of shared memory, or each is a connection of its own (`tcp`).

use std::sync::Arc;

use super::board;
use super::channel::ring::CONTROL;
use super::channel::{Receiver, Sender, ring, stream};
use super::memory::{PAGE, Region, Span};
use super::tcp::hello::Kind;
use super::tcp::{Damage, Network};
use super::wait::{Abort, Waiter};
use crate::backend::{RankError, Twist};

/// Where the board lies, behind the abort flag.
pub(super) const BOARD: usize = 256;

/// Bytes in front of the channels: the abort flag and the board.
pub(super) const HEADER: usize = BOARD + board::BYTES;

/// Capacity of ring and tree channels. There are three for each rank.
pub(super) const COLLECTIVE_CAPACITY: usize = 256 << 10;

/// Bytes that all channels between pairs may take together, as far as each keeps its minimum.
const PAIR_BUDGET: usize = 64 << 20;
const PAIR_MIN: usize = 8 << 10;
const PAIR_MAX: usize = 256 << 10;

/// Bytes that are moved before they are handed over, so that the next rank starts early.
pub(super) const PIECE: usize = 16 << 10;

/// One channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    /// To the next rank.
    Ring { from: usize },
    /// To the parent in the tree.
    Up { from: usize },
    /// From the parent in the tree.
    Down { to: usize },
    /// Between a pair.
    Pair { from: usize, to: usize },
}

impl Route {
    /// The kind of channel, its writer and its reader.
    fn ends(self, ranks: usize) -> (Kind, usize, usize) {
        let parent = |rank: usize| rank.saturating_sub(1) / 2;
        match self {
            Route::Ring { from } => (Kind::Ring, from, (from + 1) % ranks.max(1)),
            Route::Up { from } => (Kind::Up, from, parent(from)),
            Route::Down { to } => (Kind::Down, parent(to), to),
            Route::Pair { from, to } => (Kind::Pair, from, to),
        }
    }
}

/// Where the channels of `ranks` ranks lie in their region.
#[derive(Debug, Clone, Copy)]
pub(super) struct Geometry {
    ranks: usize,
    pair_capacity: usize,
}

impl Geometry {
    pub(super) fn new(ranks: usize) -> Geometry {
        let share = PAIR_BUDGET / ranks.saturating_mul(ranks).max(1);
        let power = share.checked_ilog2().map_or(0, |log| 1 << log);
        Geometry { ranks, pair_capacity: power.clamp(PAIR_MIN, PAIR_MAX) }
    }

    /// Bytes that a send takes before it waits for its receive.
    pub(super) fn pair_capacity(&self) -> usize {
        self.pair_capacity
    }

    /// Bytes of the region, most of which are never touched.
    pub(super) fn bytes(&self) -> Option<usize> {
        let collective = self.ranks.checked_mul(3)?.checked_mul(CONTROL + COLLECTIVE_CAPACITY)?;
        let pairs = self.ranks.checked_mul(self.ranks)?.checked_mul(CONTROL + self.pair_capacity)?;
        collective.checked_add(pairs)?.checked_add(HEADER)
    }

    /// The same in whole pages, as a file of several communicators' channels is divided.
    pub(super) fn paged(&self) -> Option<usize> {
        self.bytes()?.checked_next_multiple_of(PAGE)
    }

    fn place(&self, route: Route) -> (usize, usize) {
        let collective = |index: usize| (HEADER + index * (CONTROL + COLLECTIVE_CAPACITY), COLLECTIVE_CAPACITY);
        match route {
            Route::Ring { from } => collective(from),
            Route::Up { from } => collective(self.ranks + from),
            Route::Down { to } => collective(2 * self.ranks + to),
            Route::Pair { from, to } => {
                let pairs = collective(3 * self.ranks).0;
                (pairs + (from * self.ranks + to) * (CONTROL + self.pair_capacity), self.pair_capacity)
            }
        }
    }
}

/// A rank's neighbour in the tree: what comes from there and what goes there.
#[derive(Debug)]
pub(super) struct Branch {
    pub(super) input: Receiver,
    pub(super) output: Sender,
}

/// All channel ends of one rank.
#[derive(Debug)]
pub(super) struct Links {
    pub(super) rank: usize,
    pub(super) ranks: usize,
    /// All of the rank's waiting, and with it the abort flag.
    pub(super) waiter: Waiter,
    /// From the previous rank.
    pub(super) previous: Receiver,
    /// To the next rank.
    pub(super) next: Sender,
    /// In the binary tree in which rank r's parent is (r - 1) / 2.
    pub(super) parent: Option<Branch>,
    pub(super) children: Vec<Branch>,
    to: Vec<Sender>,
    from: Vec<Receiver>,
    /// What the ends are made of, unless that is shared memory.
    network: Option<Network>,
}

impl Links {
    /// The ends of `rank` in shared memory; to be made once for each rank, as a channel has one writer and one reader.
    pub(super) fn new(region: &Arc<Region>, geometry: Geometry, rank: usize) -> Option<Links> {
        let sender = |route| {
            let (offset, capacity) = geometry.place(route);
            Some(Sender::Ring(ring::Sender::new(region, offset, capacity)?))
        };
        let receiver = |route| {
            let (offset, capacity) = geometry.place(route);
            Some(Receiver::Ring(ring::Receiver::new(region, offset, capacity)?))
        };
        Links::assemble(rank, geometry.ranks, Abort::new(region.clone()), sender, receiver)
    }

    /// The ends of a rank over connections. `abort` is the flag of the ranks in this process.
    ///
    /// The ring and the tree are connected at once, pairs at their first send. None of it waits for anybody.
    pub(super) fn over(network: Network, abort: Abort) -> Option<Links> {
        let (rank, ranks) = (network.rank, network.peers.len());
        // what a rank sends to itself; at most a ring of one, and a pair
        let own = Arc::new(Region::zeroed(2 * (CONTROL + PAIR_MAX))?);
        let place = |kind| if kind == Kind::Ring { 0 } else { CONTROL + PAIR_MAX };
        let sender = |route: Route| {
            let (kind, from, to) = route.ends(ranks);
            if from == to {
                return Some(Sender::Ring(ring::Sender::new(&own, place(kind), PAIR_MAX)?));
            }
            let sender = stream::Sender::new(&network, kind, to)?;
            Some(Sender::Stream(Box::new(if kind == Kind::Pair { sender } else { sender.open() })))
        };
        let receiver = |route: Route| {
            let (kind, from, to) = route.ends(ranks);
            if from == to {
                return Some(Receiver::Ring(ring::Receiver::new(&own, place(kind), PAIR_MAX)?));
            }
            Some(Receiver::Stream(Box::new(stream::Receiver::new(&network, kind, from)?)))
        };
        let links = Links::assemble(rank, ranks, abort, sender, receiver)?;
        Some(Links { network: Some(network), ..links })
    }

    fn assemble(
        rank: usize,
        ranks: usize,
        abort: Abort,
        sender: impl Fn(Route) -> Option<Sender>,
        receiver: impl Fn(Route) -> Option<Receiver>,
    ) -> Option<Links> {
        let parent = if rank == 0 {
            None
        } else {
            Some(Branch { input: receiver(Route::Down { to: rank })?, output: sender(Route::Up { from: rank })? })
        };
        let children = [2 * rank + 1, 2 * rank + 2].into_iter().filter(|child| *child < ranks);
        let child =
            |c| Some(Branch { input: receiver(Route::Up { from: c })?, output: sender(Route::Down { to: c })? });
        Some(Links {
            rank,
            ranks,
            waiter: Waiter::new(abort),
            previous: receiver(Route::Ring { from: (rank + ranks - 1) % ranks })?,
            next: sender(Route::Ring { from: rank })?,
            parent,
            children: children.map(child).collect::<Option<_>>()?,
            to: (0..ranks).map(|to| sender(Route::Pair { from: rank, to })).collect::<Option<_>>()?,
            from: (0..ranks).map(|from| receiver(Route::Pair { from, to: rank })).collect::<Option<_>>()?,
            network: None,
        })
    }

    /// For damage to the connections, where there are any.
    pub(super) fn damage(&self) -> Option<Damage> {
        self.network.clone().map(Damage::new)
    }

    /// The same, with another communicator's flag to end its waits.
    pub(super) fn aborted_by(self, abort: Abort) -> Links {
        Links { waiter: Waiter::new(abort), ..self }
    }

    /// Carries out a group of sends and receives, all in flight together, so that no order of them can block another.
    ///
    /// A send ends when its last byte is in the channel. Flows in one direction with one rank keep their order.
    pub(super) fn exchange(&mut self, flows: &mut [Flow<'_>]) -> Result<(), RankError> {
        self.waiter.reset();
        // The first unfinished flow of each channel is the one that moves.
        let mut busy = vec![[false; 2]; self.ranks];
        loop {
            busy.fill([false; 2]);
            let (mut moved, mut open) = (false, false);
            for flow in flows.iter_mut() {
                if flow.finished() {
                    open |= flow.sends && !self.flushed(flow.peer)?;
                    continue;
                }
                open = true;
                let Some(busy) = busy.get_mut(flow.peer) else {
                    return Err(no_such_rank(flow.peer, self.ranks));
                };
                if !std::mem::replace(&mut busy[usize::from(flow.sends)], true) {
                    moved |= self.advance(flow)?;
                }
            }
            if !open {
                return Ok(());
            }
            if moved {
                self.waiter.reset();
            } else {
                self.waiter.pause()?;
            }
        }
    }

    fn flushed(&mut self, peer: usize) -> Result<bool, RankError> {
        self.to.get_mut(peer).map_or(Ok(true), Sender::flushed)
    }

    /// Moves some of a flow; whether anything moved.
    fn advance(&mut self, flow: &mut Flow<'_>) -> Result<bool, RankError> {
        let rest = flow.span.part(flow.done, PIECE);
        let moved = if flow.sends {
            let Some(sender) = self.to.get_mut(flow.peer) else { return Ok(false) };
            if !flow.started {
                sender.begin();
            }
            let room = sender.room(rest.len())?;
            rest.load(room);
            let len = room.len();
            sender.commit(len);
            len
        } else {
            let Some(receiver) = self.from.get_mut(flow.peer) else { return Ok(false) };
            if !flow.started {
                receiver.begin();
            }
            let ready = receiver.ready(rest.len())?;
            rest.store(ready);
            let len = ready.len();
            receiver.consume(len);
            len
        };
        flow.started = true;
        flow.done += moved;
        Ok(moved > 0)
    }
}

fn no_such_rank(peer: usize, ranks: usize) -> RankError {
    RankError::Refused {
        call: "exchange".into(),
        code: "invalid argument".into(),
        message: format!("there is no rank {peer} among {ranks}"),
    }
}

/// One send or receive of a group.
#[derive(Debug)]
pub(super) struct Flow<'a> {
    peer: usize,
    sends: bool,
    span: Span<'a>,
    done: usize,
    started: bool,
}

impl<'a> Flow<'a> {
    /// Sends the span's bytes to `peer`.
    pub(super) fn send(peer: usize, span: Span<'a>) -> Flow<'a> {
        Flow { peer, sends: true, span, done: 0, started: false }
    }

    /// Receives the span's bytes from `peer`.
    pub(super) fn recv(peer: usize, span: Span<'a>) -> Flow<'a> {
        Flow { peer, sends: false, span, done: 0, started: false }
    }

    /// What becomes of it at `rank`; nothing where the twist leaves it out.
    pub(super) fn twisted(self, twist: Twist, rank: usize) -> Option<Flow<'a>> {
        let (rank, peer) = (u32::try_from(rank).ok()?, u32::try_from(self.peer).ok()?);
        let peer = if self.sends { twist.send(rank, peer) } else { twist.recv(rank, peer) }?;
        Some(Flow { peer: peer as usize, ..self })
    }

    fn finished(&self) -> bool {
        self.done == self.span.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(ranks: usize) -> Vec<Links> {
        let geometry = Geometry::new(ranks);
        let region = Arc::new(Region::zeroed(geometry.bytes().unwrap()).unwrap());
        (0..ranks).map(|rank| Links::new(&region, geometry, rank).unwrap()).collect()
    }

    #[test]
    fn channels_do_not_overlap_and_end_inside() {
        for ranks in [1usize, 2, 3, 5] {
            let geometry = Geometry::new(ranks);
            let mut places = Vec::new();
            for from in 0..ranks {
                places.extend([Route::Ring { from }, Route::Up { from }, Route::Down { to: from }]);
                places.extend((0..ranks).map(|to| Route::Pair { from, to }));
            }
            let mut places: Vec<_> = places.into_iter().map(|route| geometry.place(route)).collect();
            places.sort_unstable();
            let mut end = HEADER;
            for (offset, capacity) in places {
                assert_eq!(offset, end);
                end = offset + CONTROL + capacity;
            }
            assert_eq!(Some(end), geometry.bytes());
        }
    }

    #[test]
    fn many_ranks_do_not_take_gigabytes() {
        assert!(Geometry::new(64).bytes().unwrap() < 256 << 20);
        assert_eq!(Geometry::new(4).pair_capacity(), PAIR_MAX);
        assert_eq!(Geometry::new(usize::MAX).bytes(), None);
    }

    /// More than the channels hold crosses in both directions at once, and two flows to one rank keep their order.
    #[test]
    fn a_group_does_not_depend_on_its_order() {
        let bytes = 3 * PAIR_MAX + 7;
        let ranks = links(2).into_iter().map(|mut links| {
            std::thread::spawn(move || {
                let peer = 1 - links.rank;
                let memory = Region::zeroed(4 * bytes).unwrap();
                let span = |k: usize| memory.span(k * bytes, bytes).unwrap();
                span(0).store(&vec![1 + links.rank as u8; bytes]);
                span(1).store(&vec![11 + links.rank as u8; bytes]);
                let mut flows = vec![
                    Flow::send(peer, span(0)),
                    Flow::send(peer, span(1)),
                    Flow::recv(peer, span(2)),
                    Flow::recv(peer, span(3)),
                ];
                if links.rank == 1 {
                    flows.rotate_left(2);
                }
                links.exchange(&mut flows).unwrap();
                let mut got = vec![0; 2 * bytes];
                memory.span(2 * bytes, 2 * bytes).unwrap().load(&mut got);
                let (first, second) = got.split_at(bytes);
                assert!(first.iter().all(|b| *b == 1 + peer as u8) && second.iter().all(|b| *b == 11 + peer as u8));
            })
        });
        ranks.collect::<Vec<_>>().into_iter().for_each(|rank| rank.join().unwrap());
    }

    #[test]
    fn a_send_to_oneself_and_to_nobody() {
        let mut links = links(1).pop().unwrap();
        let memory = Region::zeroed(16).unwrap();
        memory.span(0, 8).unwrap().store(&[7; 8]);
        let span = |at| memory.span(at, 8).unwrap();
        links.exchange(&mut [Flow::send(0, span(0)), Flow::recv(0, span(8))]).unwrap();
        let mut got = [0; 8];
        span(8).load(&mut got);
        assert_eq!(got, [7; 8]);
        assert!(matches!(links.exchange(&mut [Flow::send(3, span(0))]), Err(RankError::Refused { .. })));
    }
}
