//! reuse: a rank's send buffer is written for the next call while the last one has not read it.

use super::super::area::{before, input};
use super::super::{Injector, Rank};
use super::{LAG_US, Stale, beside};
use crate::backend::{Call, RankError};

pub static REUSE: Stale = Stale {
    name: "reuse",
    deed: "has its send buffer used again while the call is in flight",
    injector: || Box::new(Race),
};

struct Race;

impl Injector for Race {
    fn launch(&mut self, rank: &mut Rank<'_>, calls: &[Call<'_>]) -> Result<(), RankError> {
        let Some(call) = calls.first().filter(|_| rank.acts_in(1)) else { return rank.station.launch(calls) };
        let (area, other) = (input(rank, call)?, before(call)?);
        let late = |rank: &mut Rank<'_>| {
            rank.station.delay(0, LAG_US)?;
            rank.station.launch(calls)
        };
        if rank.order.ordered {
            late(rank)?;
        } else {
            rank.armed();
            beside(rank, late)?;
        }
        rank.station.fill(0, &area.region(&other))?;
        rank.station.wait()?;
        // what comes after finds the buffer as it was
        rank.station.fill(0, &area.region(call.plan))
    }
}
