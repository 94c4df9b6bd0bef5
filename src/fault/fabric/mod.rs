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
use super::{Called, Connections, Detector, End, Expectation, Family, Fault, Method, Needs, STEP, Who};
use crate::backend::{Call, Harm, RankError};
use crate::case::{DType, Op, Primitive};
use crate::trace::Class;

/// The rank before this one in the ring.
pub(super) fn previous(rank: u32, ranks: u32) -> u32 {
    rank.checked_sub(1).unwrap_or(ranks.saturating_sub(1))
}

/// The culprit does harm, and that is a deed for each connection struck: none, and nothing was done.
fn strike(rank: &mut Rank<'_>, peer: u32, harm: Harm) -> Result<(), RankError> {
    let struck = rank.station.harm(peer, harm)?;
    (0..struck).for_each(|_| rank.armed());
    Ok(())
}

/// The way between the culprit and the rank before it breaks, once and for good.
pub(super) struct Break {
    name: &'static str,
    deed: &'static str,
    harm: Harm,
    by: &'static [Detector],
}

impl Fault for Break {
    fn name(&self) -> &'static str {
        self.name
    }

    fn family(&self) -> Family {
        Family::Fabric
    }

    fn deed(&self) -> &'static str {
        self.deed
    }

    fn misfit(&self, primitive: Primitive, _op: Option<Op>, _dtype: DType) -> Option<&'static str> {
        let known = matches!(primitive, Primitive::Sendrecv | Primitive::AllReduce);
        (!known).then_some(
            "only of sendrecv and all_reduce is it known that the way to the rank before is used, and who then waits",
        )
    }

    fn needs(&self) -> Needs {
        Needs { connections: Some(Connections::Any), ..Needs::default() }
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(Broken(self.harm))
    }

    fn expects(&self) -> Expectation {
        Expectation { by: self.by, called: Called::Class(&[Class::FFabric]), who: Who::Ends }
    }
}

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
pub(super) struct Slowed {
    name: &'static str,
    deed: &'static str,
    connections: Connections,
    harm: HowSlow,
    lifted: Harm,
    moves: End,
}

/// What to do, from what the order says, and the size of the message.
type HowSlow = fn(delay_us: u32, bytes: u64) -> Harm;

impl Fault for Slowed {
    fn name(&self) -> &'static str {
        self.name
    }

    fn family(&self) -> Family {
        Family::Fabric
    }

    fn deed(&self) -> &'static str {
        self.deed
    }

    fn misfit(&self, primitive: Primitive, _op: Option<Op>, _dtype: DType) -> Option<&'static str> {
        (primitive != Primitive::Sendrecv)
            .then_some("only sendrecv is sure to send a message of its size to the next rank")
    }

    fn needs(&self) -> Needs {
        Needs { connections: Some(self.connections), ..Needs::default() }
    }

    fn method(&self) -> Method {
        Method::Curve
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(Slow { harm: self.harm, lifted: self.lifted })
    }

    fn expects(&self) -> Expectation {
        Expectation { by: &[Detector::Performance], called: Called::Curve(self.moves), who: Who::Nobody }
    }
}

struct Slow {
    harm: HowSlow,
    lifted: Harm,
}

fn next(rank: &Rank<'_>) -> u32 {
    (rank.me + 1) % rank.request.ranks.max(1)
}

impl Injector for Slow {
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
