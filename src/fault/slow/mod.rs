//! Slower than it should be, at one end of the curve. What is too slow is told by the same case without the fault, in the
//! same run: see `crate::run`, which also says how much slower to be.

pub(super) mod bandwidth;
pub(super) mod dip;
pub(super) mod latency;

use super::armed::{Injector, Rank};
use super::{Called, Detector, End, Expectation, Who};
use crate::backend::{Call, RankError};

const fn expects(end: End) -> Expectation {
    Expectation { by: &[Detector::Performance], called: Called::Curve(end), who: Who::Nobody }
}

/// Every rank's every launch is held up for as long as the order says for this size.
struct HeldUp;

impl Injector for HeldUp {
    fn launch(&mut self, rank: &mut Rank<'_>, calls: &[Call<'_>]) -> Result<(), RankError> {
        if rank.order.delay_us > 0 {
            rank.armed();
            rank.station.delay(0, rank.order.delay_us)?;
        }
        rank.station.launch(calls)
    }
}
