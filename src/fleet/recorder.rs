//! A station that records its calls on the way.
//!
//! Every launch of every rank is recorded, which costs a look at the clock or two and 200 bytes written. Timed launches are
//! counted instead, at two or three words written for each: they are alike, and were recorded once when they were announced.
//! What a graph holds is recorded as it is replayed.
//!
//! Calls on a second communicator are recorded as of one, see [`TWIN`].
//!
//! A call of a library that queues is known to be done when the worker has waited for it. So of launches that are queued
//! in a row, the first that is not known to be done may be earlier than the one that hangs.

mod exchange;

use std::sync::Arc;
use std::time::Duration;

use exchange::{Exchange, messages};

use super::log::{Doing, Log, now_ns};
use crate::backend::{Aborter, Buffer, Call, GuardBreach, Harm, Need, RankError, Region, Station, Verdict, Watcher};
use crate::case::{DType, Op, Primitive};
use crate::trace::call::Operation;
use crate::trace::ring::{Creation, RingError, Ticket, Writer};

/// Added to a case's number, it is the id of the second communicator that the case's calls may be of.
pub const TWIN: u64 = 1 << 63;

/// A station whose calls are recorded.
pub struct Recorder {
    station: Box<dyn Station>,
    lanes: Vec<Lane>,
    /// The case that calls belong to, as a communicator's id: numbers count from 1 in each.
    case: u64,
    label: String,
    /// Numbers given on the communicator, and on its twin.
    numbers: [Numbers; 2],
    synchronous: bool,
    aside: bool,
    twin: bool,
    /// The exchange last made, as one rarely follows another.
    exchange: Option<(Exchange, Arc<Messages>)>,
    /// What is being captured.
    capturing: Option<Vec<Made>>,
    captured: Vec<Made>,
    batch: Option<Batch>,
}

/// Launches that are counted.
struct Batch {
    /// Where the announced calls lie, and how many they are; other calls are not those.
    calls: (usize, usize),
    replayed: bool,
    /// What the numbers were before.
    before: Numbers,
    /// Numbers that a launch takes.
    each: Numbers,
    made: u64,
    done: u64,
}

impl Batch {
    fn is_of(&self, calls: &[Call<'_>]) -> bool {
        !self.replayed && self.calls == place(calls)
    }
}

fn place(calls: &[Call<'_>]) -> (usize, usize) {
    (calls.as_ptr().addr(), calls.len())
}

/// The last numbers given: whole calls and exchanges count apart.
#[derive(Clone, Copy, Default)]
struct Numbers {
    whole: u64,
    exchange: u64,
}

struct Lane {
    log: Log,
    writer: Writer<Log>,
    /// Calls not known to be done.
    open: Vec<Ticket>,
    /// Those of them that were made aside.
    beside: Vec<Ticket>,
}

/// By lane: sends and receives, with their elements.
type Messages = Vec<Vec<(Operation, u64)>>;

/// What is recorded of a call.
#[derive(Clone)]
struct Made {
    what: What,
    op: Option<Op>,
    dtype: DType,
    root: Option<u32>,
    twin: bool,
}

#[derive(Clone)]
enum What {
    /// One operation, the same on all lanes.
    Whole(Operation, u64),
    /// Sends and receives, of which ranks differ in theirs.
    Exchange(Arc<Messages>),
}

impl Recorder {
    /// Records the station's calls in a log for each of its ranks, in lane order.
    pub fn new(station: Box<dyn Station>, logs: &[Log]) -> Result<Recorder, RingError> {
        let lane = |(log, rank): (&Log, &u32)| {
            let writer = Writer::new(log.clone(), *rank)?;
            Ok(Lane { log: log.clone(), writer, open: Vec::new(), beside: Vec::new() })
        };
        let lanes = logs.iter().zip(station.ranks()).map(lane).collect::<Result<_, RingError>>()?;
        let synchronous = station.synchronous();
        Ok(Recorder {
            station,
            lanes,
            case: 0,
            label: String::new(),
            numbers: [Numbers::default(); 2],
            synchronous,
            aside: false,
            twin: false,
            exchange: None,
            capturing: None,
            captured: Vec::new(),
            batch: None,
        })
    }

    fn at(&self, doing: Doing) {
        self.lanes.iter().for_each(|lane| lane.log.at(doing));
    }

    /// What to record of a call.
    ///
    /// A sendrecv is always recorded as its sends and receives, so that one without its partner is seen as that. Others are
    /// one operation, which all ranks make alike, unless they are twisted.
    fn made(&mut self, call: &Call<'_>) -> Made {
        let (primitive, unit) = (call.case.primitive, call.case.primitive.unit());
        let apart = primitive == Primitive::Sendrecv || (call.twist.is_some() && primitive.is_exchange());
        let what = if apart {
            What::Exchange(self.messages((primitive, call.workload, call.twist)))
        } else {
            What::Whole(Operation::Collective(primitive), unit.shape(&call.workload).count)
        };
        let root = (unit.rooted() && !apart).then_some(call.workload.root);
        Made { what, op: call.case.op, dtype: call.workload.dtype, root, twin: self.twin }
    }

    fn messages(&mut self, exchange: Exchange) -> Arc<Messages> {
        match &self.exchange {
            Some((last, messages)) if *last == exchange => Arc::clone(messages),
            _ => {
                let messages = self.station.ranks().iter().map(|rank| messages(exchange, *rank)).collect();
                let messages = Arc::new(messages);
                self.exchange = Some((exchange, Arc::clone(&messages)));
                messages
            }
        }
    }

    /// Makes ready for records of the case that is under way.
    fn turn(&mut self) {
        let Some(log) = self.lanes.first().map(|lane| &lane.log) else { return };
        let case = log.case();
        if case != self.case {
            (self.case, self.numbers, self.label) = (case, [Numbers::default(); 2], log.label());
            self.batch = None;
            for lane in &mut self.lanes {
                lane.open.clear();
                lane.beside.clear();
            }
        }
    }

    /// Records calls that are about to be made.
    fn make(&mut self, calls: &[Call<'_>]) {
        self.turn();
        let now = now_ns();
        for call in calls {
            let made = self.made(call);
            self.record(&made, now);
        }
    }

    /// Records calls of a graph that is about to be replayed.
    fn make_captured(&mut self) {
        self.turn();
        let captured = std::mem::take(&mut self.captured);
        let now = now_ns();
        captured.iter().for_each(|made| self.record(made, now));
        self.captured = captured;
    }

    /// Records a call that is about to be made.
    fn record(&mut self, made: &Made, now: u64) {
        let Recorder { lanes, numbers: [first, second], label, case, .. } = self;
        let (numbers, comm) = if made.twin { (second, *case | TWIN) } else { (first, *case) };
        let number = match made.what {
            What::Whole(..) => &mut numbers.whole,
            What::Exchange(_) => &mut numbers.exchange,
        };
        *number += 1;
        let creation = |operation, count| Creation {
            comm,
            seq: *number,
            operation,
            op: made.op,
            dtype: Some(made.dtype),
            count: Some(count),
            root: made.root,
            label,
        };
        // what is made aside has not begun when the call returns, and is not done either
        let begun = self.synchronous && !self.aside;
        for (index, lane) in lanes.iter_mut().enumerate() {
            let mut create = |operation, count| {
                let ticket = lane.writer.created(&creation(operation, count), now);
                if begun {
                    lane.writer.started(ticket, now);
                }
                if self.aside { lane.beside.push(ticket) } else { lane.open.push(ticket) }
            };
            match &made.what {
                What::Whole(operation, count) => create(operation, *count),
                What::Exchange(messages) => {
                    let own = messages.get(index).map_or(&[][..], Vec::as_slice);
                    own.iter().for_each(|(operation, count)| create(operation, *count));
                }
            }
        }
    }

    /// What was not made aside is done.
    fn done(&mut self) {
        let now = now_ns();
        for Lane { writer, open, .. } in &mut self.lanes {
            open.drain(..).for_each(|ticket| writer.completed(ticket, now));
        }
    }

    /// So is what was.
    fn all_done(&mut self) {
        self.done();
        if self.lanes.iter().any(|lane| !lane.beside.is_empty()) {
            let now = now_ns();
            for Lane { writer, beside, .. } in &mut self.lanes {
                beside.drain(..).for_each(|ticket| writer.completed(ticket, now));
            }
        }
    }

    /// Looks at what a call returned: that of a communicator which is lost is noted, as who waits for others afterwards may not
    /// come to tell of it.
    fn heed<T>(&self, result: Result<T, RankError>) -> Result<T, RankError> {
        if let Err(error @ RankError::Broken { .. }) = &result {
            self.lanes.iter().for_each(|lane| lane.log.trouble(&error.to_string()));
        }
        result
    }

    /// One launch of the batch.
    fn count(&mut self, launch: impl FnOnce(&mut dyn Station) -> Result<(), RankError>) -> Result<(), RankError> {
        let Some(batch) = &mut self.batch else { return launch(self.station.as_mut()) };
        batch.made += 1;
        self.lanes.iter().for_each(|lane| lane.log.made(batch.made));
        let result = launch(self.station.as_mut());
        if self.synchronous && result.is_ok() {
            batch.done = batch.made;
            self.lanes.iter().for_each(|lane| lane.log.done(batch.done));
        }
        self.heed(result)
    }

    /// Ends the batch, after as many launches as there were: all that follow count on from there.
    fn close(&mut self) {
        self.turn();
        let Some(Batch { before, each, made, done, .. }) = self.batch.take() else { return };
        let [numbers, _] = &mut self.numbers;
        numbers.whole = before.whole + each.whole * made;
        numbers.exchange = before.exchange + each.exchange * made;
        if done == made {
            self.done();
        }
    }

    /// Passes on what waits for all lanes.
    fn waited<T>(&mut self, wait: impl FnOnce(&mut dyn Station) -> Result<T, RankError>) -> Result<T, RankError> {
        if let Some(batch) = &mut self.batch {
            if !self.synchronous {
                self.lanes.iter().for_each(|lane| lane.log.still(Doing::Waiting));
            }
            let result = wait(self.station.as_mut());
            if result.is_ok() {
                batch.done = batch.made;
                self.lanes.iter().for_each(|lane| lane.log.done(batch.done));
            }
            return self.heed(result);
        }
        let waits = !self.synchronous || self.lanes.iter().any(|lane| !lane.beside.is_empty());
        if waits {
            self.at(Doing::Waiting);
        }
        let result = wait(self.station.as_mut());
        if result.is_ok() && waits {
            self.all_done();
        }
        self.heed(result)
    }
}

impl Station for Recorder {
    fn ranks(&self) -> &[u32] {
        self.station.ranks()
    }

    fn enter(&mut self) -> Result<(), RankError> {
        self.station.enter()
    }

    fn prepare(&mut self, need: &Need) -> Result<(), RankError> {
        self.at(Doing::Preparing);
        self.batch = None; // left of a case that failed
        self.station.prepare(need)
    }

    fn fill(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        self.at(Doing::Filling);
        self.station.fill(lane, region)
    }

    fn poison(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        self.at(Doing::Filling);
        self.station.poison(lane, region)
    }

    fn check(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        self.at(Doing::Checking);
        self.station.check(lane, region)
    }

    fn verdict(&mut self, lane: usize, dtype: DType) -> Result<Verdict, RankError> {
        self.at(Doing::Checking);
        self.station.verdict(lane, dtype)
    }

    fn guards(&mut self, lane: usize) -> Result<Option<GuardBreach>, RankError> {
        self.at(Doing::Checking);
        self.station.guards(lane)
    }

    fn fingerprint(&mut self, lane: usize, region: &Region<'_>) -> Result<u64, RankError> {
        self.at(Doing::Checking);
        self.station.fingerprint(lane, region)
    }

    fn tamper(&mut self, lane: usize, buffer: Buffer, dtype: DType, index: u64, xor: u64) -> Result<(), RankError> {
        self.station.tamper(lane, buffer, dtype, index, xor)
    }

    fn peek(&mut self, lane: usize, buffer: Buffer, at: i64, into: &mut [u8]) -> Result<(), RankError> {
        self.station.peek(lane, buffer, at, into)
    }

    fn poke(&mut self, lane: usize, buffer: Buffer, at: i64, bytes: &[u8]) -> Result<(), RankError> {
        self.station.poke(lane, buffer, at, bytes)
    }

    fn aside(&mut self, aside: bool) -> Result<(), RankError> {
        self.station.aside(aside)?;
        self.aside = aside;
        Ok(())
    }

    fn twin(&mut self, twin: bool) -> Result<(), RankError> {
        self.at(Doing::Preparing);
        self.station.twin(twin)?;
        self.twin = twin;
        Ok(())
    }

    fn harm(&mut self, peer: u32, harm: Harm) -> Result<usize, RankError> {
        self.station.harm(peer, harm)
    }

    fn form(&mut self, ranks: u32, within: Duration) -> Result<(), RankError> {
        self.at(Doing::Forming);
        self.lanes.iter().for_each(|lane| lane.log.forming(ranks, false));
        let formed = self.station.form(ranks, within);
        if formed.is_ok() {
            self.lanes.iter().for_each(|lane| lane.log.forming(ranks, true));
        }
        self.heed(formed)
    }

    fn launch(&mut self, calls: &[Call<'_>]) -> Result<(), RankError> {
        if self.capturing.is_some() {
            for call in calls {
                let made = self.made(call);
                self.capturing.iter_mut().for_each(|all| all.push(made.clone()));
            }
            return self.station.launch(calls);
        }
        if self.batch.as_ref().is_some_and(|batch| batch.is_of(calls)) {
            return self.count(|station| station.launch(calls));
        }
        self.close();
        self.make(calls);
        self.lanes.iter().for_each(|lane| lane.log.still(Doing::Launching));
        let result = self.station.launch(calls);
        if self.synchronous && !self.aside && result.is_ok() {
            self.done();
        }
        self.heed(result)
    }

    fn fill_early(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        self.at(Doing::Filling);
        self.station.fill_early(lane, region)
    }

    fn delay(&mut self, lane: usize, us: u32) -> Result<(), RankError> {
        self.station.delay(lane, us)
    }

    fn begin_capture(&mut self) -> Result<(), RankError> {
        self.capturing = Some(Vec::new());
        self.station.begin_capture()
    }

    fn end_capture(&mut self) -> Result<(), RankError> {
        self.captured = self.capturing.take().unwrap_or_default();
        self.station.end_capture()
    }

    fn replay(&mut self) -> Result<(), RankError> {
        if self.batch.as_ref().is_some_and(|batch| batch.replayed) {
            return self.count(|station| station.replay());
        }
        self.close();
        self.make_captured();
        self.lanes.iter().for_each(|lane| lane.log.still(Doing::Launching));
        let replayed = self.station.replay();
        self.heed(replayed)
    }

    fn begin_batch(&mut self, calls: &[Call<'_>], replayed: bool) {
        self.close();
        let [before, _] = self.numbers;
        let open: Vec<usize> = self.lanes.iter().map(|lane| lane.open.len()).collect();
        if replayed {
            self.make_captured();
        } else {
            self.make(calls);
        }
        let [after, _] = self.numbers;
        let each = Numbers { whole: after.whole - before.whole, exchange: after.exchange - before.exchange };
        // calls of one case are all of one sort
        let (first, numbers) =
            if each.whole > 0 { (before.whole + 1, each.whole) } else { (before.exchange + 1, each.exchange) };
        for (lane, open) in self.lanes.iter().zip(open) {
            lane.log.begin_batch(first, numbers, lane.open.len().saturating_sub(open) as u64);
        }
        self.batch = Some(Batch { calls: place(calls), replayed, before, each, made: 0, done: 0 });
        self.station.begin_batch(calls, replayed);
    }

    fn end_batch(&mut self) {
        self.close();
        self.station.end_batch();
    }

    fn mark(&mut self) -> Result<(), RankError> {
        self.station.mark()
    }

    fn intervals(&mut self) -> Result<Vec<Vec<f32>>, RankError> {
        self.waited(|station| station.intervals())
    }

    fn wait(&mut self) -> Result<(), RankError> {
        self.waited(|station| station.wait())
    }

    fn synchronous(&self) -> bool {
        self.synchronous
    }

    fn watcher(&self) -> Watcher {
        self.station.watcher()
    }

    fn aborter(&self) -> Aborter {
        self.station.aborter()
    }
}

#[cfg(test)]
mod tests;
