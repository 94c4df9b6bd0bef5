//! One rank's communicator, with the reductions made for it and the buffers registered with it.

use std::ffi::{c_int, c_void};
use std::iter;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::api::{self, Comm, RedOp};
use super::driver::{DeviceMemory, Stream};
use super::library::Library;
use super::peers::Peers;
use super::registration::Registered;
use crate::backend::RankError;
use crate::case::{DType, Op};
use crate::oracle::Plan;

/// Where a handle is, or will be once a communicator is made; null while there is none. Clones are the same place.
#[derive(Clone, Default)]
pub struct Place(Arc<AtomicPtr<c_void>>);

impl Place {
    fn get(&self) -> Comm {
        self.0.load(Ordering::Acquire)
    }

    /// Takes the handle out: who gets it ends it.
    fn take(&self) -> Comm {
        self.0.swap(ptr::null_mut(), Ordering::AcqRel)
    }

    /// Aborts what is there, if anything is.
    pub fn abort(&self, library: &Library) {
        let handle = self.take();
        if !handle.is_null() {
            // SAFETY: the handle is live, as who closes takes it out first. NCCL lets another thread abort while one is in
            // a call.
            unsafe { (library.api.comm_abort)(handle) };
        }
    }
}

/// Aborts second communicators while the first ones are aborted here.
///
/// Both may have work on one stream, and the abort of one whose work is behind waits until the other's has gone. Where no
/// thread is to be had, the second ones are left to the process' end.
pub fn abort_all(twins: impl FnOnce() + Send, firsts: impl FnOnce()) {
    std::thread::scope(|scope| {
        let _ = std::thread::Builder::new().name("abort".to_owned()).spawn_scoped(scope, twins);
        firsts();
    });
}

/// One rank's handle. Closed by [`Communicator::close`]; one that is only dropped is left to the process' end.
pub struct Communicator {
    library: Arc<Library>,
    /// Null once closed or aborted; whoever takes the handle out ends it.
    raw: Place,
    rank: u32,
    /// What it was split off, to be closed after it.
    parent: Option<Box<Communicator>>,
    reductions: Vec<PreMulSum>,
    registered: Vec<Registered>,
}

// SAFETY: NCCL's handles may be used from any thread, by one at a time; `&mut` and `Send` without `Sync` see to that.
unsafe impl Send for Communicator {}

/// A mulsum made for this rank.
struct PreMulSum {
    dtype: DType,
    scalar: u64,
    /// Where the scalar lies, if it is read while the collective runs.
    memory: Option<DeviceMemory>,
    made: RedOp,
}

impl Communicator {
    /// Takes over a handle.
    pub fn new(library: &Arc<Library>, raw: Comm, rank: u32) -> Communicator {
        let library = Arc::clone(library);
        let raw = Place(Arc::new(AtomicPtr::new(raw)));
        Communicator { library, raw, rank, parent: None, reductions: Vec::new(), registered: Vec::new() }
    }

    /// Keeps what it was split off for as long as it lives itself.
    pub fn descend_from(self, parent: Communicator) -> Communicator {
        Communicator { parent: Some(Box::new(parent)), ..self }
    }

    /// Moves the handle to a place that was given away before, so that whoever aborts what is there finds it.
    pub fn moved_to(self, place: &Place) -> Communicator {
        place.0.store(self.raw.take(), Ordering::Release);
        Communicator { raw: place.clone(), ..self }
    }

    /// NCCL's handle; null once it was aborted, which NCCL's calls answer with an error.
    pub fn raw(&self) -> Comm {
        self.raw.get()
    }

    /// Aborts it from another thread, unless it is closed already, and then what it was split off. For threads inside a
    /// call of NCCL's, which nothing else gets out; it may itself be held up by the library.
    pub fn aborter(&self) -> impl Fn() + Send + Sync + use<> {
        let library = Arc::clone(&self.library);
        let places: Vec<Place> =
            iter::successors(Some(self), |one| one.parent.as_deref()).map(|one| one.raw.clone()).collect();
        move || places.iter().for_each(|place| place.abort(&library))
    }

    /// Tells from another thread whether something has failed behind NCCL's calls. Not to be asked while it is closed.
    pub fn watcher(&self) -> impl Fn() -> Option<String> + Send + Sync + use<> {
        let (library, raw) = (Arc::clone(&self.library), self.raw.clone());
        move || {
            let handle = raw.get();
            if handle.is_null() {
                return None;
            }
            let call = "ncclCommGetAsyncError";
            let mut code = api::SUCCESS;
            // SAFETY: the handle is live, as nobody closes it meanwhile. NCCL only reads what its other threads set.
            let result = unsafe { (library.api.comm_async_error)(handle, &mut code) };
            let failed = result == api::SUCCESS && code != api::SUCCESS && code != api::IN_PROGRESS;
            failed.then(|| library.failure(call, code).to_string())
        }
    }

    /// The library that made it.
    pub fn library(&self) -> &Arc<Library> {
        &self.library
    }

    /// A communicator of fewer ranks than asked for, or of ranks in another order, would test something else and pass.
    pub fn expect(&self, ranks: c_int) -> Result<(), RankError> {
        let api = &self.library.api;
        let (mut count, mut rank) = (0, -1);
        // SAFETY: the pointer is good for one int.
        self.library.check("ncclCommCount", unsafe { (api.comm_count)(self.raw(), &mut count) })?;
        // SAFETY: as above.
        self.library.check("ncclCommUserRank", unsafe { (api.comm_user_rank)(self.raw(), &mut rank) })?;
        if count == ranks && i64::from(rank) == i64::from(self.rank) {
            return Ok(());
        }
        Err(RankError::Broken {
            call: "ncclCommUserRank".to_owned(),
            message: format!("this is rank {rank} of {count} instead of {} of {ranks}", self.rank),
        })
    }

    /// Whether something has failed behind NCCL's calls.
    pub fn check_async(&self) -> Result<(), RankError> {
        match self.async_code()? {
            api::SUCCESS | api::IN_PROGRESS => Ok(()),
            code => Err(self.lost("ncclCommGetAsyncError", code)),
        }
    }

    /// Waits until a nonblocking communicator has done what it was asked for.
    pub fn settle(&self, call: &str) -> Result<(), RankError> {
        while !self.is_settled(call)? {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// The same, as long as no peer is lost: it may be that one that is waited for.
    pub fn settle_with(&self, peers: &Peers, call: &str) -> Result<(), RankError> {
        while !self.is_settled(call)? {
            if peers.lost() {
                return Err(RankError::Aborted);
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Whether a nonblocking communicator has done what it was asked for.
    pub fn is_settled(&self, call: &str) -> Result<bool, RankError> {
        match self.async_code()? {
            api::SUCCESS => Ok(true),
            api::IN_PROGRESS => Ok(false),
            code => Err(self.lost(call, code)),
        }
    }

    fn async_code(&self) -> Result<api::Code, RankError> {
        let mut code = api::SUCCESS;
        // SAFETY: the pointer is good for one code.
        let result = unsafe { (self.library.api.comm_async_error)(self.raw(), &mut code) };
        self.library.check("ncclCommGetAsyncError", result)?;
        Ok(code)
    }

    /// An asynchronous error ends the communicator whatever its code is.
    fn lost(&self, call: &str, code: api::Code) -> RankError {
        match self.library.failure(call, code) {
            RankError::Refused { call, code, message } => {
                RankError::Broken { call, message: format!("{code}: {message}") }
            }
            other => other,
        }
    }

    /// NCCL's number of a reduction on this communicator. Mulsum is made at its first use, with the scalar in device
    /// memory if `on_device`; the rank's GPU must be current.
    pub fn reduction(&mut self, op: Option<Op>, plan: &Plan, on_device: bool) -> Result<RedOp, RankError> {
        // Data movement has no reduction; the argument is not used then.
        let Some(op) = op else { return Ok(0) };
        if let Some(built_in) = api::built_in(op) {
            return Ok(built_in);
        }
        let dtype = plan.dtype();
        let mut scalar = plan.scalar(self.rank);
        let alike = |r: &&PreMulSum| (r.dtype, r.scalar, r.memory.is_some()) == (dtype, scalar, on_device);
        if let Some(reduction) = self.reductions.iter().find(alike) {
            return Ok(reduction.made);
        }
        let memory = if on_device { Some(on_gpu(scalar)?) } else { None };
        let (pointer, residence) = match &memory {
            Some(memory) => (ptr::with_exposed_provenance_mut(memory.address() as usize), api::SCALAR_DEVICE),
            // Little-endian, as every host of an NVIDIA GPU is: the element's bytes come first.
            None => ((&raw mut scalar).cast::<c_void>(), api::SCALAR_HOST_IMMEDIATE),
        };
        let mut made: RedOp = 0;
        let data_type = api::data_type(dtype);
        // SAFETY: the scalar has 8 bytes, as many as the widest type. One on the host is read before the call returns; one
        // on the GPU lives until the communicator is closed.
        let code =
            unsafe { (self.library.api.create_pre_mul_sum)(&mut made, pointer, data_type, residence, self.raw()) };
        self.library.check("ncclRedOpCreatePreMulSum", code)?;
        self.reductions.push(PreMulSum { dtype, scalar: plan.scalar(self.rank), memory, made });
        Ok(made)
    }

    /// Adds what was registered with it, to be taken back before it is closed.
    pub fn keep(&mut self, registered: Registered) {
        self.registered.push(registered);
    }

    /// Takes back all registrations. Nothing that uses them may be in flight on this rank.
    pub fn deregister(&mut self) -> Result<(), RankError> {
        let (registered, raw) = (std::mem::take(&mut self.registered), self.raw());
        if raw.is_null() {
            return Ok(()); // they ended with the communicator
        }
        let mut first = Ok(());
        for one in registered {
            // SAFETY: it was registered with this communicator, and is taken back once.
            let taken_back = unsafe { one.take_back(&self.library, raw) };
            first = first.and(taken_back);
        }
        first
    }

    /// Ends it. `abort` where work may still be waiting for a rank that is lost; registrations then end with it.
    ///
    /// Of several ranks in a process, NCCL tears all down at the last one's call; the others return at once. So one
    /// thread can close its ranks one after the other.
    pub fn close(&mut self, abort: bool) {
        // Taken back while the handle is still there to be asked.
        if !abort {
            // What fails here, fails for the last time.
            let _ = self.deregister();
        }
        let raw = self.raw.take();
        let reductions = std::mem::take(&mut self.reductions);
        self.registered.clear();
        if !raw.is_null() {
            let api = &self.library.api;
            if abort {
                // SAFETY: the handle is live, and not used again.
                unsafe { (api.comm_abort)(raw) };
            } else {
                for reduction in &reductions {
                    // SAFETY: it was made for this communicator, whose last use of it has been queued.
                    unsafe { (api.destroy_red_op)(reduction.made, raw) };
                }
                // SAFETY: the handle is live, and not used again. This waits, also for a nonblocking communicator.
                unsafe { (api.comm_destroy)(raw) };
            }
        }
        if let Some(mut parent) = self.parent.take() {
            parent.close(abort);
        }
    }
}

/// A scalar in memory of the current GPU. Its stream is its own: the lane's may be recording.
fn on_gpu(scalar: u64) -> Result<DeviceMemory, RankError> {
    let memory = DeviceMemory::new(size_of::<u64>())?;
    // SAFETY: the memory has 8 bytes.
    unsafe { Stream::new()?.write(memory.address(), &scalar.to_le_bytes())? };
    Ok(memory)
}
