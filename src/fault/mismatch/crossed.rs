//! crossed: class D of hangs. A rank enters two communicators in the other order, on one stream: each waits for the other.

use super::super::{Expectation, Family, Fault, Injector, Rank};
use super::hangs;
use crate::backend::{Call, RankError};
use crate::trace::Class;

pub struct Crossed;

/// Rounds in the right order, before the one in the wrong order.
const BEFORE: u32 = 5;

impl Fault for Crossed {
    fn name(&self) -> &'static str {
        "crossed"
    }

    fn family(&self) -> Family {
        Family::Mismatch
    }

    fn deed(&self) -> &'static str {
        "enters two communicators in the other order, in the last of six rounds"
    }

    fn injector(&self) -> Box<dyn Injector> {
        Box::new(Two)
    }

    fn expects(&self) -> Expectation {
        hangs(&[Class::DCrossed])
    }
}

/// In the first launch, rounds of the same call on both communicators.
struct Two;

fn on_twin(rank: &mut Rank<'_>, calls: &[Call<'_>]) -> Result<(), RankError> {
    rank.station.twin(true)?;
    let launched = rank.station.launch(calls);
    rank.station.twin(false)?;
    launched
}

impl Injector for Two {
    fn launch(&mut self, rank: &mut Rank<'_>, calls: &[Call<'_>]) -> Result<(), RankError> {
        if rank.step > 1 {
            return rank.station.launch(calls);
        }
        for _ in 0..BEFORE {
            rank.station.launch(calls)?;
            on_twin(rank, calls)?;
        }
        if rank.culprit() {
            rank.armed();
            on_twin(rank, calls)?;
            rank.station.launch(calls)
        } else {
            rank.station.launch(calls)?;
            on_twin(rank, calls)
        }
    }
}
