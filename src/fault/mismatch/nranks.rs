//! nranks: ranks do not agree how many they are, as where one was started with another world size. The communicator never
//! comes to be. It is one beside that of the case, with a limit of its own, so that the case's is not lost.

use std::time::Duration;

use super::super::{Called, Detector, Expectation, Family, Fault, Injector, Method, Rank, Who};
use crate::backend::{Call, RankError};
use crate::trace::Class;

pub struct RankCount;

/// How long it may take where all agree.
const LIMIT: Duration = Duration::from_secs(30);

impl Fault for RankCount {
    fn name(&self) -> &'static str {
        "nranks"
    }

    fn family(&self) -> Family {
        Family::Mismatch
    }

    fn deed(&self) -> &'static str {
        "asks for a communicator of one rank more than the others do"
    }

    fn method(&self) -> Method {
        Method::Ordered
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(Forming)
    }

    fn expects(&self) -> Expectation {
        Expectation {
            by: &[Detector::Error, Detector::Deadline],
            called: Called::Class(&[Class::Init]),
            who: Who::Culprit,
        }
    }
}

/// Before the first launch, all make one more communicator.
struct Forming;

impl Injector for Forming {
    fn launch(&mut self, rank: &mut Rank<'_>, calls: &[Call<'_>]) -> Result<(), RankError> {
        if rank.step == 1 {
            let odd = rank.culprit() && !rank.order.ordered;
            if odd {
                rank.armed();
            }
            // well before the case's own limit
            let within = if rank.order.ordered { LIMIT } else { Duration::from_millis(rank.order.stuck_ms / 3) };
            rank.station.form(rank.request.ranks.saturating_add(u32::from(odd)), within)?;
        }
        rank.station.launch(calls)
    }
}
