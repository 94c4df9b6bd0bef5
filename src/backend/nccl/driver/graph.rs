//! Graphs: what was recorded from a stream, ready to be queued again.

use std::ptr;

use cudarc::driver::sys::{self, CUstreamCaptureMode};

use super::{Result, Stream, check, out};

/// A recording made ready.
#[derive(Debug)]
pub struct Graph {
    /// Lives as long as its instance: NCCL binds what the launches need to it.
    _recorded: Recorded,
    instance: sys::CUgraphExec,
}

/// A recording.
#[derive(Debug)]
pub struct Recorded(sys::CUgraph);

// SAFETY: handles of the driver may be used from any thread, by one at a time.
unsafe impl Send for Graph {}
// SAFETY: as above.
unsafe impl Send for Recorded {}

impl Stream {
    /// From here on what is queued is recorded.
    ///
    /// Relaxed: NCCL allocates while it is recorded, and may do so on a thread of its own.
    pub fn record(&self) -> Result<()> {
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream lives.
        check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(self.handle(), mode) })
    }

    /// Ends the recording, also one that has failed; that has no result.
    pub fn recorded(&self) -> Result<Recorded> {
        let mut graph: sys::CUgraph = ptr::null_mut();
        // SAFETY: the stream lives, and the pointer is good for one handle.
        check("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(self.handle(), &mut graph) })?;
        Ok(Recorded(graph))
    }
}

impl Recorded {
    /// Makes it ready on the current context's GPU.
    pub fn instantiate(self) -> Result<Graph> {
        // SAFETY: the pointer is good for one handle, and the graph lives.
        let instance = out("cuGraphInstantiate", |p| unsafe { sys::cuGraphInstantiateWithFlags(p, self.0, 0) })?;
        Ok(Graph { _recorded: self, instance })
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: it is not used again. The driver keeps what an instance in flight still needs.
            unsafe { sys::cuGraphDestroy(self.0) };
        }
    }
}

impl Graph {
    /// Queues all of it.
    ///
    /// # Safety
    /// The memory and the communicator that it was recorded with must live until it is done.
    pub unsafe fn launch(&self, stream: &Stream) -> Result<()> {
        // SAFETY: both live; the caller promises the rest.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.instance, stream.handle()) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: it is not used again; the driver waits for a launch in flight.
        unsafe { sys::cuGraphExecDestroy(self.instance) };
    }
}
