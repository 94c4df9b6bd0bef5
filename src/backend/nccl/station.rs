//! One thread's ranks on GPUs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::checker::Work;
use super::communicator::abort_all;
use super::driver::{Graph, Stream};
use super::fabric;
use super::forming;
use super::lane::{self, Lane, Track};
use super::launch::Launch;
use super::library::Library;
use super::making::{self, Party};
use super::peers::Peers;
use super::registration;
use crate::backend::{
    Aborter, Buffer, Call, GuardBreach, Harm, Need, RankError, Region, Registration, Station, Verdict, Watcher,
};
use crate::case::DType;
use crate::kernels::Action;

/// How many polls of a stream pass between two looks at the communicator.
const POLLS_PER_LOOK: u32 = 256;

/// How long a station that is dropped waits for work in flight before it aborts.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long an aborted station has to close its communicators itself.
const ABORT_AFTER: Duration = Duration::from_secs(3);

/// One thread's ranks.
pub struct NcclStation {
    library: Arc<Library>,
    /// Ranks of the communicator.
    size: u32,
    ranks: Vec<u32>,
    lanes: Vec<Lane>,
    /// Whether the lanes are on different GPUs, so that the current context has to follow the lane.
    spread: bool,
    /// Where work goes now.
    track: Track,
    /// The calls last launched, made ready.
    ready: Option<Launch>,
    /// Whether what is queued is recorded.
    recording: bool,
    /// What was last recorded, one for each lane.
    graphs: Vec<Graph>,
    peers: Arc<Peers>,
}

impl NcclStation {
    /// Takes over some lanes of a communicator of `size` ranks.
    pub fn new(library: Arc<Library>, size: u32, lanes: Vec<Lane>, peers: Arc<Peers>) -> NcclStation {
        let ranks = lanes.iter().map(|lane| lane.rank).collect();
        let spread = lanes.windows(2).any(|pair| pair[0].device.ordinal != pair[1].device.ordinal);
        let (track, ready, recording, graphs) = (Track::default(), None, false, Vec::new());
        NcclStation { library, size, ranks, lanes, spread, track, ready, recording, graphs, peers }
    }

    /// Looks at what is returned: a failure ends a recording, and that of a communicator or GPU is told to the peers.
    fn note<T>(&mut self, result: Result<T, RankError>) -> Result<T, RankError> {
        if let Err(e) = &result {
            self.stop_recording();
            if matches!(e, RankError::Broken { .. }) {
                self.peers.lose();
            }
        }
        result
    }

    /// The lane, with its GPU current.
    fn lane(&mut self, lane: usize) -> Result<&mut Lane, RankError> {
        let missing = no_lane(lane, &self.lanes);
        let lane = self.lanes.get_mut(lane).ok_or_else(missing)?;
        lane.device.context.activate()?;
        Ok(lane)
    }

    /// The same, to look at.
    fn active(&self, lane: usize) -> Result<&Lane, RankError> {
        let lane = self.lanes.get(lane).ok_or_else(no_lane(lane, &self.lanes))?;
        lane.device.context.activate()?;
        Ok(lane)
    }

    fn run_kernel(&mut self, lane: usize, work: Work, region: &Region<'_>) -> Result<(), RankError> {
        let track = self.track;
        let lane = self.lane(lane)?;
        let call = match work.action {
            Action::Fill => "fill",
            Action::Poison => "poison",
            Action::Check => "check",
        };
        let address = lane.address(call, region)?;
        let Lane { device, kernels, stream, beside, checker, .. } = lane;
        let stream = if track.aside { beside.as_ref().unwrap_or(stream) } else { stream };
        // SAFETY: the region was found to lie in its buffer, which lives until the stream was waited for.
        unsafe { checker.launch(work, address, region, device, kernels, stream)? };
        Ok(())
    }

    fn prepare_lanes(&mut self, need: &Need) -> Result<(), RankError> {
        registration::supported(&self.library, need)?;
        let mut fit = self.lanes.iter().all(|lane| lane.buffers.fit(need));
        if need.registration.is_collective() {
            // Whoever has to register can do so only with all others.
            fit = self.peers.all(fit);
        }
        if !fit || self.widened() {
            self.poll()?;
        }
        if !fit {
            let made = self.make_buffers(need);
            if made.is_err() {
                // What is half registered must not pass for whole by its size.
                for lane in 0..self.lanes.len() {
                    let _ = self.lane(lane).and_then(Lane::release);
                }
            }
            made?;
        }
        (0..self.lanes.len()).try_for_each(|lane| self.lane(lane)?.place(need))
    }

    fn make_buffers(&mut self, need: &Need) -> Result<(), RankError> {
        let allocated = (0..self.lanes.len()).try_for_each(|lane| self.lane(lane)?.allocate(need));
        match need.registration {
            Registration::None => allocated,
            Registration::Local => {
                allocated?;
                (0..self.lanes.len()).try_for_each(|lane| registration::local(self.lane(lane)?))
            }
            Registration::Window | Registration::SharedWindows => {
                // All go on or none: registering waits for every rank.
                let all = self.peers.all(allocated.is_ok());
                allocated?;
                if !all {
                    return Err(RankError::Aborted);
                }
                registration::windows(&self.library, &self.peers, &mut self.lanes)
            }
        }
    }

    /// An error while a recording is open, which the call would spoil.
    fn unrecorded(&self, call: &str) -> Result<(), RankError> {
        if self.recording { Err(refused(call, "out of order", "a recording is under way".to_owned())) } else { Ok(()) }
    }

    /// Ends a recording that has failed or is not wanted any more.
    fn stop_recording(&mut self) {
        if std::mem::take(&mut self.recording) {
            for lane in &self.lanes {
                let _ = lane.device.context.activate();
                let _ = lane.stream.recorded();
            }
        }
    }

    fn record_lanes(&mut self) -> Result<(), RankError> {
        self.unrecorded("begin_capture")?;
        if self.track.aside {
            return Err(refused("begin_capture", "out of order", "what goes aside cannot be recorded".to_owned()));
        }
        self.graphs.clear();
        self.recording = true;
        (0..self.lanes.len()).try_for_each(|lane| Ok(self.lane(lane)?.stream.record()?))
    }

    fn instantiate(&mut self) -> Result<(), RankError> {
        if !std::mem::take(&mut self.recording) {
            return Err(refused("end_capture", "out of order", "nothing is recorded".to_owned()));
        }
        // All are ended before any failure is returned.
        let ended: Vec<_> = self
            .lanes
            .iter()
            .map(|lane| {
                let _ = lane.device.context.activate();
                lane.stream.recorded()
            })
            .collect();
        for (lane, recorded) in self.lanes.iter().zip(ended) {
            lane.device.context.activate()?;
            self.graphs.push(recorded?.instantiate()?);
        }
        Ok(())
    }

    fn replay_lanes(&mut self) -> Result<(), RankError> {
        if self.recording || self.graphs.len() != self.lanes.len() {
            return Err(refused("replay", "out of order", "nothing has been recorded to the end".to_owned()));
        }
        if self.peers.lost() {
            return Err(RankError::Aborted);
        }
        for (lane, graph) in self.lanes.iter().zip(&self.graphs) {
            if self.spread {
                lane.device.context.activate()?;
            }
            // SAFETY: graphs go before the lane's buffers are changed and its communicator is closed.
            unsafe { graph.launch(&lane.stream)? };
        }
        Ok(())
    }

    /// Polls until all lanes are idle, looking now and then whether they can still become so.
    fn poll(&self) -> Result<(), RankError> {
        for lane in &self.lanes {
            if self.spread {
                lane.device.context.activate()?;
            }
            lane.streams().try_for_each(|stream| self.poll_one(stream))?;
        }
        Ok(())
    }

    /// Polls one stream, whose GPU is current.
    fn poll_one(&self, stream: &Stream) -> Result<(), RankError> {
        let mut polls = 0u32;
        while !stream.idle()? {
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(POLLS_PER_LOOK) {
                self.look()?;
            }
            // As nccl-tests does: NCCL's own threads may need the core.
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Whether anything has ever gone aside.
    fn widened(&self) -> bool {
        self.lanes.iter().any(|lane| lane.beside.is_some())
    }

    /// Polls until both streams of all lanes are idle, if there are two.
    fn rejoin(&self) -> Result<(), RankError> {
        if self.widened() { self.poll() } else { Ok(()) }
    }

    /// Turns to the second streams or back.
    fn turn(&mut self, aside: bool) -> Result<(), RankError> {
        if aside && self.recording {
            return Err(refused("aside", "out of order", "what goes aside cannot be recorded".to_owned()));
        }
        if aside {
            (0..self.lanes.len()).try_for_each(|lane| self.lane(lane)?.widen())?;
        }
        self.track.aside = aside;
        Ok(())
    }

    /// Turns to the second communicators or back. All stations make them at the same time, or none does.
    fn switch(&mut self, twin: bool) -> Result<(), RankError> {
        if twin && self.lanes.iter().any(|lane| lane.twin.is_none()) {
            let sound = self.unrecorded("twin").and_then(|()| self.look());
            let all = self.peers.all(sound.is_ok());
            sound?;
            if !all {
                return Err(RankError::Aborted);
            }
            self.make_twins()?;
        }
        self.track.twin = twin;
        Ok(())
    }

    fn make_twins(&mut self) -> Result<(), RankError> {
        let devices: Vec<_> = self.lanes.iter().map(|lane| Arc::clone(&lane.device)).collect();
        let first = self.ranks.first().copied().unwrap_or(0);
        let party = Party { first, devices: &devices, ranks: self.size };
        let parents: Vec<_> = self.lanes.iter().map(|lane| &lane.communicator).collect();
        let twins = making::children(&self.library, &party, &parents)?;
        let mut lanes = self.lanes.iter_mut();
        twins.into_iter().zip(&mut lanes).try_for_each(|(twin, lane)| lane.adopt(twin, &self.peers))
    }

    fn look(&self) -> Result<(), RankError> {
        for lane in &self.lanes {
            lane.communicator.check_async()?;
            lane.twin.as_ref().map_or(Ok(()), |twin| twin.check_async())?;
        }
        if self.peers.lost() { Err(RankError::Aborted) } else { Ok(()) }
    }

    /// Whether all work is done before patience ends.
    fn drained(&self) -> bool {
        let end = Instant::now() + PATIENCE;
        self.lanes.iter().all(|lane| {
            if lane.device.context.activate().is_err() {
                return false;
            }
            lane.streams().all(|stream| {
                loop {
                    match stream.idle() {
                        Ok(true) => return true,
                        Ok(false) if Instant::now() < end => std::thread::yield_now(),
                        _ => return false,
                    }
                }
            })
        })
    }
}

impl Station for NcclStation {
    fn ranks(&self) -> &[u32] {
        &self.ranks
    }

    fn enter(&mut self) -> Result<(), RankError> {
        let activated = self.lanes.first().map_or(Ok(()), |lane| lane.device.context.activate());
        self.note(activated.map_err(RankError::from))
    }

    fn prepare(&mut self, need: &Need) -> Result<(), RankError> {
        // Buffers may move, and both hold their addresses.
        self.ready = None;
        self.stop_recording();
        self.graphs.clear();
        let prepared = self.prepare_lanes(need);
        self.note(prepared)
    }

    fn fill(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        let done = self.run_kernel(lane, Action::Fill.into(), region);
        self.note(done)
    }

    fn poison(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        let done = self.run_kernel(lane, Action::Poison.into(), region);
        self.note(done)
    }

    fn check(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        let done = self.run_kernel(lane, Action::Check.into(), region);
        self.note(done)
    }

    fn verdict(&mut self, lane: usize, _dtype: DType) -> Result<Verdict, RankError> {
        let rejoined = self.rejoin();
        let verdict = rejoined.and_then(|()| {
            let lane = self.lane(lane)?;
            let verdict = lane.checker.verdict(&lane.stream)?;
            if verdict.wrong > 0 && lane.beside.is_some() {
                // Findings are emptied on one stream: the other's next check must not come first.
                lane.stream.synchronize()?;
            }
            Ok(verdict)
        });
        self.note(verdict)
    }

    fn guards(&mut self, lane: usize) -> Result<Option<GuardBreach>, RankError> {
        let breach = self.rejoin().and_then(|()| self.lane(lane)?.guards());
        self.note(breach)
    }

    fn fingerprint(&mut self, lane: usize, region: &Region<'_>) -> Result<u64, RankError> {
        let print = self.rejoin().and_then(|()| self.lane(lane)?.fingerprint(region));
        self.note(print)
    }

    fn tamper(&mut self, lane: usize, buffer: Buffer, dtype: DType, index: u64, xor: u64) -> Result<(), RankError> {
        let track = self.track;
        let done = self.lane(lane).and_then(|lane| lane.tamper(track, buffer, dtype, index, xor));
        self.note(done)
    }

    fn peek(&mut self, lane: usize, buffer: Buffer, at: i64, into: &mut [u8]) -> Result<(), RankError> {
        let track = self.track;
        let peeked = self.active(lane).and_then(|lane| {
            self.poll_one(lane.stream(track))?;
            lane.peek(track, buffer, at, into)
        });
        self.note(peeked)
    }

    fn poke(&mut self, lane: usize, buffer: Buffer, at: i64, bytes: &[u8]) -> Result<(), RankError> {
        let track = self.track;
        let poked = self.lane(lane).and_then(|lane| lane.poke(track, buffer, at, bytes));
        self.note(poked)
    }

    fn aside(&mut self, aside: bool) -> Result<(), RankError> {
        let turned = self.turn(aside);
        self.note(turned)
    }

    fn twin(&mut self, twin: bool) -> Result<(), RankError> {
        let switched = self.switch(twin);
        self.note(switched)
    }

    fn harm(&mut self, _peer: u32, harm: Harm) -> Result<usize, RankError> {
        fabric::strike(&self.peers, harm)
    }

    fn form(&mut self, ranks: u32, within: Duration) -> Result<(), RankError> {
        self.unrecorded("form")?;
        let formed = self.active(0).and_then(|lane| forming::form(&self.library, lane, &self.peers, ranks, within));
        self.note(formed)
    }

    fn launch(&mut self, calls: &[Call<'_>]) -> Result<(), RankError> {
        if self.ready.as_ref().is_none_or(|ready| !ready.is_of(self.track, calls, &self.lanes)) {
            self.ready = None;
            let compiled = Launch::compile(&self.library, self.size, &mut self.lanes, self.track, calls);
            self.ready = Some(self.note(compiled)?);
        }
        let issued = self.ready.as_ref().map_or(Ok(()), |ready| ready.issue(&self.library, &self.peers, &self.lanes));
        self.note(issued)
    }

    /// What follows begins early only on a GPU of compute capability 9 or above, and only if NCCL launched it so that it
    /// may; elsewhere this is [`Station::fill`].
    fn fill_early(&mut self, lane: usize, region: &Region<'_>) -> Result<(), RankError> {
        let done = self.run_kernel(lane, Work { action: Action::Fill, early: true }, region);
        self.note(done)
    }

    fn delay(&mut self, lane: usize, us: u32) -> Result<(), RankError> {
        let track = self.track;
        let queued = self.lane(lane).and_then(|lane| Ok(lane.stream(track).sleep(us)?));
        self.note(queued)
    }

    fn begin_capture(&mut self) -> Result<(), RankError> {
        let begun = self.record_lanes();
        self.note(begun)
    }

    fn end_capture(&mut self) -> Result<(), RankError> {
        let ended = self.instantiate();
        self.note(ended)
    }

    fn replay(&mut self) -> Result<(), RankError> {
        let queued = self.replay_lanes();
        self.note(queued)
    }

    fn mark(&mut self) -> Result<(), RankError> {
        let spread = self.spread;
        let marked = self.lanes.iter_mut().try_for_each(|lane| {
            if spread {
                lane.device.context.activate()?;
            }
            lane.mark()
        });
        self.note(marked.map_err(RankError::from))
    }

    fn intervals(&mut self) -> Result<Vec<Vec<f32>>, RankError> {
        self.wait()?;
        let intervals = (0..self.lanes.len()).map(|lane| Ok(self.lane(lane)?.intervals()?)).collect();
        self.note(intervals)
    }

    fn wait(&mut self) -> Result<(), RankError> {
        let waited = self.poll();
        if waited.is_ok() {
            self.lanes.iter_mut().for_each(Lane::rested);
        }
        self.note(waited)
    }

    fn watcher(&self) -> Watcher {
        let each: Vec<_> = self.lanes.iter().map(|lane| (lane.rank, lane.communicator.watcher())).collect();
        Box::new(move || each.iter().filter_map(|(rank, look)| Some((*rank, look()?))).collect())
    }

    /// Waits end by themselves once the communicator counts as lost. Whoever is inside a call of NCCL's is freed by
    /// ncclCommAbort only, which comes a little later, as a thread that waits closes its communicators better itself.
    fn aborter(&self) -> Aborter {
        let peers = Arc::clone(&self.peers);
        let firsts: Vec<_> = self.lanes.iter().map(|lane| lane.communicator.aborter()).collect();
        let twins: Vec<_> = self.lanes.iter().map(Lane::twin_aborter).collect();
        Box::new(move || {
            peers.lose();
            std::thread::sleep(ABORT_AFTER);
            abort_all(|| twins.iter().for_each(|abort| abort()), || firsts.iter().for_each(|abort| abort()));
        })
    }
}

impl Drop for NcclStation {
    fn drop(&mut self) {
        self.stop_recording();
        let abort = self.peers.lost() || !self.drained();
        if abort {
            self.peers.lose();
        }
        // Graphs first: NCCL keeps a communicator until those that hold launches of it are gone.
        self.graphs.clear();
        lane::close(&mut self.lanes, abort);
    }
}

fn no_lane(lane: usize, lanes: &[Lane]) -> impl FnOnce() -> RankError + use<> {
    let lanes = lanes.len();
    move || refused("lane", "out of range", format!("lane {lane} of {lanes}"))
}

fn refused(call: &str, code: &str, message: String) -> RankError {
    RankError::Refused { call: call.to_owned(), code: code.to_owned(), message }
}
