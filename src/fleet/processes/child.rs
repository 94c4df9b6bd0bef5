//! One worker process.

use std::fs;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
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

/// Of a thread that is on its way out (include/linux/sched.h).
const PF_EXITING: u32 = 4;

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
            Ok(Some(status)) => ended(status),
            Ok(None) => {
                let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
                unreaped(&stat)
            }
            Err(_) => Liveness::Unknown,
        }
    }
}

fn ended(status: ExitStatus) -> Liveness {
    Liveness::Exited { code: status.code(), signal: status.signal() }
}

/// How a process is that cannot be waited for yet, by its /proc/PID/stat.
///
/// One that was killed has ended for good while its last thread still gives back what the process held, which takes the
/// driver the longer, the more memory of a GPU that is: connections are closed by then, and there is no status to be had.
fn unreaped(stat: &str) -> Liveness {
    // behind the name in brackets: the state, its flags, and at the end the status, which is 0 where it is not shown
    let Some((_, rest)) = stat.rsplit_once(") ") else { return Liveness::Alive };
    let field = |at: usize| rest.split_whitespace().nth(at);
    let exiting = field(6).and_then(|flags| flags.parse::<u32>().ok()).is_some_and(|flags| flags & PF_EXITING != 0);
    match field(0) {
        Some("Z" | "X") => {}
        _ if exiting => {}
        Some("T" | "t") => return Liveness::Stopped,
        _ => return Liveness::Alive,
    }
    let status = field(49).and_then(|status| status.parse().ok()).filter(|status| *status != 0);
    status.map(ExitStatus::from_raw).map_or(Liveness::Exited { code: None, signal: None }, ended)
}

impl Drop for Worker {
    fn drop(&mut self) {
        // An error means that it has ended already. SIGKILL also ends one that is stopped, so that the wait is short.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_process_has_ended_before_it_can_be_waited_for() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let stat = |pid| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        assert_eq!(unreaped(&stat(child.id())), Liveness::Alive);
        child.kill().unwrap();
        // nobody waits for it meanwhile
        while unreaped(&stat(child.id())) == Liveness::Alive {
            std::thread::yield_now();
        }
        assert_eq!(unreaped(&stat(child.id())), Liveness::Exited { code: None, signal: Some(9) });
        child.wait().unwrap();
    }

    #[test]
    fn a_process_is_what_its_stat_file_says() {
        let of = |state: &str, flags: u32, status: i32| {
            let between = "0 ".repeat(42);
            unreaped(&format!("77 (a) b) {state} 1 77 77 0 -1 {flags} {between}{status}\n"))
        };
        assert_eq!(of("S", 0x40_0000, 0), Liveness::Alive);
        assert_eq!(of("T", 0x40_0000, 0), Liveness::Stopped);
        let gone = |code, signal| Liveness::Exited { code, signal };
        assert_eq!(of("D", 0x40_0004, 9), gone(None, Some(9)), "a driver takes its time");
        assert_eq!(of("Z", 0x40_0004, 9), gone(None, Some(9)));
        assert_eq!(of("Z", 0x40_0004, 3 << 8), gone(Some(3), None));
        assert_eq!([of("Z", 0x40_0004, 0), unreaped("77 (a) Z 1")], [gone(None, None); 2]);
        assert_eq!(unreaped(""), Liveness::Alive);
    }
}
