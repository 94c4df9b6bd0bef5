//! One worker process.

use std::fs;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::{Orders, wire};
use crate::backend::{Recipe, nccl};
use crate::trace::Liveness;

/// The hidden command that makes a worker of this program.
pub const COMMAND: &str = "worker";

/// A worker process, killed and reaped when dropped.
pub struct Worker {
    child: Child,
    /// Its standard input.
    line: UnixStream,
}

/// How long a worker may take to take in what it is told; it listens whatever it does, unless it is stopped.
const PATIENCE: Duration = Duration::from_secs(5);

impl Worker {
    /// Starts it and gives it its orders. Its standard input stays open as long as this lives: it ends with it.
    ///
    /// Call this on a thread that outlives the worker: the kernel kills it when the thread ends.
    pub(super) fn start(orders: &Orders) -> io::Result<Worker> {
        let mut command = Command::new(std::env::current_exe()?);
        let (line, theirs) = UnixStream::pair()?;
        line.set_write_timeout(Some(PATIENCE))?;
        command.arg(COMMAND).stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).process_group(0);
        // One fixed address serves one communicator; workers are told the identity of each.
        command.env_remove("NCCL_COMM_ID");
        if let Recipe::Nccl { .. } = orders.recipe {
            let unset = |(name, _): &(&str, String)| std::env::var_os(name).is_none();
            command.envs(nccl::sharing(orders.ranks_per_gpu).into_iter().filter(unset));
        }
        let mut worker = Worker { child: command.spawn()?, line };
        wire::send(&mut worker.line, orders)?;
        Ok(worker)
    }

    /// Tells it something. One that does not take it in has ended or is stopped, and hears nothing any more: half of a message is
    /// none.
    pub fn tell(&mut self, frame: &[u8]) {
        if self.line.write_all(frame).is_err() {
            let _ = self.line.shutdown(Shutdown::Both);
        }
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it runs, is stopped, or how it ended.
    pub fn liveness(&mut self) -> Liveness {
        match self.child.try_wait() {
            Ok(Some(status)) => Liveness::Exited { code: status.code(), signal: status.signal() },
            Ok(None) if self.stopped() => Liveness::Stopped,
            Ok(None) => Liveness::Alive,
            Err(_) => Liveness::Unknown,
        }
    }

    /// By the state in /proc, which stands behind the name in brackets.
    fn stopped(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        matches!(state, Some('T' | 't'))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // An error means that it has ended already. SIGKILL also ends one that is stopped, so that the wait is short.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
