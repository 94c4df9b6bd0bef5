//! no-dependency: a rank's producer runs on another stream than its call, and nothing makes the call wait for it.

use super::super::area::{before, input};
use super::super::{Injector, Rank};
use super::{LAG_US, Stale, beside};
use crate::backend::{Call, RankError};

pub static NO_DEPENDENCY: Stale = Stale {
    name: "no-dependency",
    deed: "has its input written on another stream, which the call does not wait for",
    injector: || Box::new(Race),
};

struct Race;

impl Injector for Race {
    fn launch(&mut self, rank: &mut Rank<'_>, calls: &[Call<'_>]) -> Result<(), RankError> {
        let Some(call) = calls.first().filter(|_| rank.acts_in(1)) else { return rank.station.launch(calls) };
        let (area, old) = (input(rank, call)?, before(call)?);
        rank.station.fill(0, &area.region(&old))?;
        rank.station.wait()?;
        let produce = |rank: &mut Rank<'_>| {
            rank.station.delay(0, LAG_US)?;
            rank.station.fill(0, &area.region(call.plan))
        };
        if rank.order.ordered {
            produce(rank)?;
        } else {
            rank.armed();
            beside(rank, produce)?;
        }
        rank.station.launch(calls)?;
        rank.station.wait()
    }
}
