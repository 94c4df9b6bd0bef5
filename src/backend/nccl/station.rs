//! One thread's ranks on GPUs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::checker::Work;
use super::driver::Graph;
use super::lane::Lane;
use super::launch::Launch;
use super::library::Library;
use super::peers::Peers;
use super::registration;
use crate::backend::{Aborter, Buffer, Call, GuardBreach, Need, RankError, Region, Registration, Station, Verdict};
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
        let (ready, recording, graphs) = (None, false, Vec::new());
        NcclStation { library, size, ranks, lanes, spread, ready, recording, graphs, peers }
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
        let lanes = self.lanes.len();
        let lane = self
            .lanes
            .get_mut(lane)
            .ok_or_else(|| refused("lane", "out of range", format!("lane {lane} of {lanes}")))?;
        lane.device.context.activate()?;
        Ok(lane)
    }

    fn run_kernel(&mut self, lane: usize, work: Work, region: &Region<'_>) -> Result<(), RankError> {
        let lane = self.lane(lane)?;
        let call = match work.action {
            Action::Fill => "fill",
            Action::Poison => "poison",
            Action::Check => "check",
        };
        let address = lane.address(call, region)?;
        let Lane { device, kernels, stream, checker, .. } = lane;
        // SAFETY: the region was found to lie in its buffer, which lives until the stream was waited for.
        unsafe { checker.launch(work, address, region, device, kernels, stream)? };
        Ok(())
    }

    fn prepare_lanes(&mut self, need: &Need) -> Result<(), RankError> {
        registration::supported(&self.library, need)?;
        let mut fit = self.lanes.iter().all(|lane| lane.buffers.fit(need));
        if registration::is_collective(need.registration) {
            // Whoever has to register can do so only with all others.
            fit = self.peers.all(fit);
        }
        if !fit {
            self.poll()?;
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
        if self.recording {
            return Err(refused("begin_capture", "out of order", "a recording is under way".to_owned()));
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
        let mut polls = 0u32;
        for lane in &self.lanes {
            if self.spread {
                lane.device.context.activate()?;
            }
            while !lane.stream.idle()? {
                polls = polls.wrapping_add(1);
                if polls.is_multiple_of(POLLS_PER_LOOK) {
                    self.look()?;
                }
                // As nccl-tests does: NCCL's own threads may need the core.
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    fn look(&self) -> Result<(), RankError> {
        for lane in &self.lanes {
            lane.communicator.check_async()?;
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
            loop {
                match lane.stream.idle() {
                    Ok(true) => return true,
                    Ok(false) if Instant::now() < end => std::thread::yield_now(),
                    _ => return false,
                }
            }
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
        let verdict = self.lane(lane).and_then(|lane| Ok(lane.checker.verdict(&lane.stream)?));
        self.note(verdict)
    }

    fn guards(&mut self, lane: usize) -> Result<Option<GuardBreach>, RankError> {
        let breach = self.lane(lane).and_then(Lane::guards);
        self.note(breach)
    }

    fn tamper(&mut self, lane: usize, buffer: Buffer, dtype: DType, index: u64, xor: u64) -> Result<(), RankError> {
        let done = self.lane(lane).and_then(|lane| lane.tamper(buffer, dtype, index, xor));
        self.note(done)
    }

    fn peek(&mut self, _lane: usize, _buffer: Buffer, _at: i64, _into: &mut [u8]) -> Result<(), RankError> {
        Err(RankError::Unsupported("peek".to_owned()))
    }

    fn poke(&mut self, _lane: usize, _buffer: Buffer, _at: i64, _bytes: &[u8]) -> Result<(), RankError> {
        Err(RankError::Unsupported("poke".to_owned()))
    }

    fn aside(&mut self, _aside: bool) -> Result<(), RankError> {
        Err(RankError::Unsupported("aside".to_owned()))
    }

    fn twin(&mut self, _twin: bool) -> Result<(), RankError> {
        Err(RankError::Unsupported("twin".to_owned()))
    }

    fn launch(&mut self, calls: &[Call<'_>]) -> Result<(), RankError> {
        if self.ready.as_ref().is_none_or(|ready| !ready.is_of(calls, &self.lanes)) {
            self.ready = None;
            let compiled = Launch::compile(&self.library, self.size, &mut self.lanes, calls);
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
        let queued = self.lane(lane).and_then(|lane| Ok(lane.stream.sleep(us)?));
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
        self.note(waited)
    }

    /// Waits end by themselves once the communicator counts as lost. Whoever is inside a call of NCCL's is freed by
    /// ncclCommAbort only, which comes a little later, as a thread that waits closes its communicators better itself.
    fn aborter(&self) -> Aborter {
        let peers = Arc::clone(&self.peers);
        let aborters: Vec<_> = self.lanes.iter().map(|lane| lane.communicator.aborter()).collect();
        Box::new(move || {
            peers.lose();
            std::thread::sleep(ABORT_AFTER);
            aborters.iter().for_each(|abort| abort());
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
        // All communicators before any buffer: one rank's kernel may still read another's.
        for lane in &mut self.lanes {
            // Without its GPU current NCCL still takes the communicator down.
            let _ = lane.device.context.activate();
            lane.communicator.close(abort);
        }
    }
}

fn refused(call: &str, code: &str, message: String) -> RankError {
    RankError::Refused { call: call.to_owned(), code: code.to_owned(), message }
}
