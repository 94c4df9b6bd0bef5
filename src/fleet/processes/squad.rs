//! Worker processes of this host, with the logs that they leave behind.

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{MemfdFlags, memfd_create};

use super::Orders;
use super::child::Worker;
use super::errand::Task;
use super::hall::Spot;
use super::wire::{self, ToAll};
use crate::backend::Unavailable;
use crate::fleet::log::Log;
use crate::trace::Liveness;

/// Workers that this process has started. They are killed when it is dropped.
pub struct Squad {
    workers: Vec<Worker>,
    logs: Vec<Log>,
    /// Inherited by workers; kept for none but them.
    _memory: OwnedFd,
}

impl Squad {
    /// Starts them; they report at `address`.
    ///
    /// Call this on a thread that outlives them: the kernel kills them when it ends.
    pub fn start(task: &Task, address: SocketAddr) -> Result<Squad, Unavailable> {
        let memory = |e: std::io::Error| Unavailable(format!("no memory can be shared with workers: {e}"));
        let logs = shared("logs", task.own.len() as u64 * Log::SHARED_BYTES).map_err(memory)?;
        let mut workers = Vec::new();
        for (slot, &(rank, gpu)) in (0..).zip(&task.own) {
            let orders = Orders {
                address,
                token: task.token.clone(),
                rank,
                ranks: task.ranks,
                gpu,
                ranks_per_gpu: task.ranks_per_gpu,
                logs: inherited(&logs),
                slot,
                gate: task.gate.clone().map(|first| Spot { slot: first.slot.saturating_add(slot), ..first }),
                channels: task.channels.clone(),
                recipe: task.recipe.clone(),
            };
            let started = Worker::start(&orders);
            workers.push(started.map_err(|e| Unavailable(format!("worker {rank} cannot be started: {e}")))?);
        }
        let file = File::from(logs);
        let logs = (0..task.own.len() as u32).map(|slot| Log::shared(&file, slot)).collect::<Result<_, _>>();
        let logs = logs.map_err(|e| memory(std::io::Error::other(e)))?;
        Ok(Squad { workers, logs, _memory: OwnedFd::from(file) })
    }

    /// Tells all of them the same.
    pub fn tell(&mut self, what: &ToAll) {
        // one that is larger than any frame reaches nobody, and is missed by all at the deadline
        if let Ok(frame) = wire::frame(what) {
            self.workers.iter_mut().for_each(|worker| worker.tell(&frame));
        }
    }

    /// How each is.
    pub fn states(&mut self) -> Vec<Liveness> {
        self.workers.iter_mut().map(Worker::liveness).collect()
    }

    /// Their processes.
    pub fn processes(&self) -> Vec<u32> {
        self.workers.iter().map(Worker::id).collect()
    }

    /// Their logs.
    pub fn logs(&self) -> &[Log] {
        &self.logs
    }
}

/// Memory without a name that children inherit. What it is for is seen in `/proc`, and nowhere else.
pub fn shared(what: &str, bytes: u64) -> std::io::Result<OwnedFd> {
    // not closed on exec, so that it is inherited
    let memory = File::from(memfd_create(format!("collcheck {what}"), MemfdFlags::empty())?);
    memory.set_len(bytes.max(1))?;
    Ok(OwnedFd::from(memory))
}

/// Where a child finds it.
pub fn inherited(memory: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", memory.as_raw_fd()).into()
}

/// Where another process of the same user and host finds it, as long as this one lives.
pub fn lent(memory: &OwnedFd) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd()).into()
}
