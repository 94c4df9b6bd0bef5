//! A station of a rank that does a fault, or takes part in a case in which another does.

use std::time::Duration;

use super::{Fault, Order};
use crate::backend::{Aborter, Buffer, Call, GuardBreach, Harm, Need, RankError, Region, Station, Verdict, Watcher};
use crate::case::DType;
use crate::fleet::protocol::Request;
use crate::fleet::worker::Meeting;

use super::calls;

/// What a rank does in place of what it is told. Every rank of a case has one, as faults of two communicators or of
/// streams need the others' part. All defaults do what is told.
pub trait Injector: Send {
    /// In place of a launch.
    fn launch(&mut self, rank: &mut Rank<'_>, calls: &[Call<'_>]) -> Result<(), RankError> {
        rank.station.launch(calls)
    }

    /// After a region was written that holds an input.
    fn filled(&mut self, _rank: &mut Rank<'_>, _region: &Region<'_>) -> Result<(), RankError> {
        Ok(())
    }

    /// In place of a wait for the lane.
    fn wait(&mut self, rank: &mut Rank<'_>) -> Result<(), RankError> {
        rank.station.wait()
    }

    /// After all of the case, however it ended: undoes what would last.
    fn end(&mut self, _rank: &mut Rank<'_>) {}
}

/// The rank that an injector acts for.
pub struct Rank<'a> {
    /// What the recorder stands behind.
    pub station: &'a mut dyn Station,
    /// What all ranks were told of the fault.
    pub order: &'a Order,
    /// What the case is.
    pub request: &'a Request,
    meeting: &'a dyn Meeting,
    /// Its number.
    pub me: u32,
    /// Launches so far, the one that is being made included.
    pub step: u32,
}

impl Rank<'_> {
    /// Whether it is the one who does it.
    pub fn culprit(&self) -> bool {
        self.me == self.order.culprit
    }

    /// Whether it is the one who does it, and now: in this launch.
    pub fn acts_in(&self, step: u32) -> bool {
        self.culprit() && self.step == step
    }

    /// To be called right before the deed, so that it is known even if nothing comes after it. A control does none.
    pub fn armed(&self) {
        if !self.order.ordered {
            self.meeting.armed();
        }
    }
}

/// The station. It has one lane: calls of several lanes are made together, and could not differ. Timed launches are not
/// announced, so that each is recorded: what one of them does otherwise must be seen.
pub struct Armed<'a> {
    rank: Rank<'a>,
    injector: Box<dyn Injector>,
    growing: bool,
}

impl<'a> Armed<'a> {
    /// The station of one rank; an error for stations of several, with their ranks.
    pub fn new(
        station: &'a mut dyn Station,
        meeting: &'a dyn Meeting,
        request: &'a Request,
        order: &'a Order,
    ) -> Result<Armed<'a>, (Vec<u32>, RankError)> {
        let [me] = *station.ranks() else {
            let why = "a fault is one rank's, and ranks of one thread make their calls together: use one rank a thread";
            return Err((station.ranks().to_vec(), RankError::Unsupported(why.to_owned())));
        };
        let fault: &dyn Fault = order.kind.fault();
        let rank = Rank { station, order, request, meeting, me, step: 0 };
        Ok(Armed { rank, injector: fault.injector(), growing: fault.growing() })
    }

    /// Undoes what would outlast the case.
    pub fn end(mut self) {
        self.injector.end(&mut self.rank);
    }
}

impl Station for Armed<'_> {
    fn ranks(&self) -> &[u32] {
        self.rank.station.ranks()
    }

    fn enter(&mut self) -> Result<(), RankError> {
        self.rank.station.enter()
    }

    fn prepare(&mut self, need: &Need) -> Result<(), RankError> {
        self.rank.station.prepare(need)
    }

    fn fill(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        self.rank.station.fill(lane, region)?;
        self.injector.filled(&mut self.rank, region)
    }

    fn poison(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        self.rank.station.poison(lane, region)
    }

    fn check(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        self.rank.station.check(lane, region)
    }

    fn verdict(&mut self, lane: usize, dtype: DType) -> Result<Verdict, RankError> {
        self.rank.station.verdict(lane, dtype)
    }

    fn guards(&mut self, lane: usize) -> Result<Option<GuardBreach>, RankError> {
        self.rank.station.guards(lane)
    }

    fn fingerprint(&mut self, lane: usize, region: &Region<'_>) -> Result<u64, RankError> {
        self.rank.station.fingerprint(lane, region)
    }

    fn tamper(&mut self, lane: usize, buffer: Buffer, dtype: DType, index: u64, xor: u64) -> Result<(), RankError> {
        self.rank.station.tamper(lane, buffer, dtype, index, xor)
    }

    fn peek(&mut self, lane: usize, buffer: Buffer, at: i64, into: &mut [u8]) -> Result<(), RankError> {
        self.rank.station.peek(lane, buffer, at, into)
    }

    fn poke(&mut self, lane: usize, buffer: Buffer, at: i64, bytes: &[u8]) -> Result<(), RankError> {
        self.rank.station.poke(lane, buffer, at, bytes)
    }

    fn aside(&mut self, aside: bool) -> Result<(), RankError> {
        self.rank.station.aside(aside)
    }

    fn twin(&mut self, twin: bool) -> Result<(), RankError> {
        self.rank.station.twin(twin)
    }

    fn harm(&mut self, peer: u32, harm: Harm) -> Result<usize, RankError> {
        self.rank.station.harm(peer, harm)
    }

    fn form(&mut self, ranks: u32, within: Duration) -> Result<(), RankError> {
        self.rank.station.form(ranks, within)
    }

    fn launch(&mut self, all: &[Call<'_>]) -> Result<(), RankError> {
        self.rank.step += 1;
        if self.growing && self.rank.step > 1 {
            let (step, parts) = (self.rank.step, calls::GROWTH);
            let cases = calls::recast(all, |case| calls::part_of(case, step.min(parts), parts));
            return self.injector.launch(&mut self.rank, &calls::with(all, &cases));
        }
        self.injector.launch(&mut self.rank, all)
    }

    fn fill_early(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        self.rank.station.fill_early(lane, region)
    }

    fn delay(&mut self, lane: usize, us: u32) -> Result<(), RankError> {
        self.rank.station.delay(lane, us)
    }

    fn begin_capture(&mut self) -> Result<(), RankError> {
        self.rank.station.begin_capture()
    }

    fn end_capture(&mut self) -> Result<(), RankError> {
        self.rank.station.end_capture()
    }

    fn replay(&mut self) -> Result<(), RankError> {
        self.rank.station.replay()
    }

    fn mark(&mut self) -> Result<(), RankError> {
        self.rank.station.mark()
    }

    fn intervals(&mut self) -> Result<Vec<Vec<f32>>, RankError> {
        self.rank.station.intervals()
    }

    fn wait(&mut self) -> Result<(), RankError> {
        self.injector.wait(&mut self.rank)
    }

    fn watcher(&self) -> Watcher {
        self.rank.station.watcher()
    }

    fn synchronous(&self) -> bool {
        self.rank.station.synchronous()
    }

    fn aborter(&self) -> Aborter {
        self.rank.station.aborter()
    }
}
