//! late-input: a rank's input is written after the call was made, while it runs: a producer behind its consumer.

use super::super::area::{before, input};
use super::super::{Injector, Rank};
use super::{LAG_US, Stale, beside};
use crate::backend::{Call, RankError};

pub static LATE_INPUT: Stale = Stale {
    name: "late-input",
    deed: "has its input written after the call is made, and before it is done",
    injector: || Box::new(Race),
};

struct Race;

impl Injector for Race {
    fn launch(&mut self, rank: &mut Rank<'_>, calls: &[Call<'_>]) -> Result<(), RankError> {
        let Some(call) = calls.first().filter(|_| rank.acts_in(1)) else { return rank.station.launch(calls) };
        let (area, old) = (input(rank, call)?, before(call)?);
        rank.station.fill(0, &area.region(&old))?;
        rank.station.wait()?;
        if !rank.order.ordered {
            rank.armed();
            beside(rank, |rank| rank.station.launch(calls))?;
        }
        rank.station.delay(0, LAG_US)?;
        rank.station.fill(0, &area.region(call.plan))?;
        if rank.order.ordered { rank.station.launch(calls) } else { rank.station.wait() }
    }
}
