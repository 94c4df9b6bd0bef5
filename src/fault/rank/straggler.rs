//! straggler: a rank makes all its calls, and each of them late. Nothing hangs; everything is slow, and it is one rank's doing.

use std::time::Duration;

use super::super::{Called, Detector, End, Expectation, Family, Fault, Injector, Method, Rank, Who};
use crate::backend::{Call, RankError};

pub struct Straggler;

impl Fault for Straggler {
    fn name(&self) -> &'static str {
        "straggler"
    }

    fn family(&self) -> Family {
        Family::Rank
    }

    fn deed(&self) -> &'static str {
        "makes every call late"
    }

    fn method(&self) -> Method {
        Method::Curve
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(Late)
    }

    fn expects(&self) -> Expectation {
        Expectation { by: &[Detector::Performance], called: Called::Curve(End::All), who: Who::Culprit }
    }
}

struct Late;

impl Injector for Late {
    fn launch(&mut self, rank: &mut Rank<'_>, calls: &[Call<'_>]) -> Result<(), RankError> {
        if rank.culprit() {
            rank.armed();
            // on the host, as a process that is late is: a stream that is late would not show in its calls
            std::thread::sleep(Duration::from_micros(rank.order.delay_us.into()));
        }
        rank.station.launch(calls)
    }
}
