//! One rank's communicator, with the reductions made for it.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::api::{self, Comm, Config, RedOp, UniqueId};
use super::device::Device;
use super::library::Library;
use crate::backend::RankError;
use crate::case::{DType, Op};
use crate::oracle::Plan;

/// One rank's handle. Closed by [`Communicator::close`]; one that is only dropped is left to the process' end.
pub struct Communicator {
    library: Arc<Library>,
    /// Null once closed or aborted; whoever takes the handle out ends it.
    raw: Arc<AtomicPtr<c_void>>,
    rank: u32,
    /// One per data type: the scalar depends on that and on the rank.
    pre_mul_sums: Vec<(DType, RedOp)>,
}

// SAFETY: NCCL's handles may be used from any thread, by one at a time; `&mut` and `Send` without `Sync` see to that.
unsafe impl Send for Communicator {}

impl Communicator {
    /// Makes the communicators of all ranks, `devices[rank]` being each one's GPU, in one group of this thread.
    pub fn all(library: &Arc<Library>, devices: &[Arc<Device>]) -> Result<Vec<Communicator>, RankError> {
        let api = &library.api;
        let id = library.unique_id()?;
        let ranks = c_int::try_from(devices.len()).unwrap_or(c_int::MAX);
        let mut handles: Vec<Comm> = vec![ptr::null_mut(); devices.len()];
        let mut config = Config::new();

        // SAFETY: takes nothing.
        library.check("ncclGroupStart", unsafe { (api.group_start)() })?;
        let mut failure = None;
        for (rank, device) in (0..).zip(devices) {
            if let Err(e) = device.context.activate() {
                failure = Some(e.into());
                break;
            }
            let handle = handles.as_mut_ptr().wrapping_add(rank as usize);
            // SAFETY: `handle` lies in `handles`, which is not touched before the group ends; `config` is initialised.
            let code = unsafe { (api.comm_init_rank_config)(handle, ranks, id, rank, &mut config) };
            if code != api::SUCCESS && code != api::IN_PROGRESS {
                failure = Some(library.failure("ncclCommInitRankConfig", code));
                break;
            }
        }
        // SAFETY: the group was opened above.
        let end = unsafe { (api.group_end)() };
        // After a failure NCCL has taken the communicators down itself.
        if let Some(failure) = failure {
            return Err(failure);
        }
        if end != api::IN_PROGRESS {
            library.check("ncclGroupEnd", end)?;
        }

        let communicators: Vec<Communicator> = (0..)
            .zip(handles)
            .map(|(rank, raw)| Communicator {
                library: Arc::clone(library),
                raw: Arc::new(AtomicPtr::new(raw)),
                rank,
                pre_mul_sums: Vec::new(),
            })
            .collect();
        for communicator in &communicators {
            communicator.settle("ncclCommInitRankConfig")?;
            communicator.expect_ranks(ranks)?;
        }
        Ok(communicators)
    }

    /// Makes one rank's communicator; those of the others are made elsewhere, with the same id. Returns once all are there.
    pub fn one(
        library: &Arc<Library>,
        device: &Device,
        id: UniqueId,
        rank: u32,
        ranks: u32,
    ) -> Result<Communicator, RankError> {
        device.context.activate()?;
        let mut raw: Comm = ptr::null_mut();
        let mut config = Config::new();
        let size = c_int::try_from(ranks).unwrap_or(c_int::MAX);
        let number = c_int::try_from(rank).unwrap_or(c_int::MAX);
        // SAFETY: the handle's place and the initialised configuration outlive the call, which waits.
        let code = unsafe { (library.api.comm_init_rank_config)(&mut raw, size, id, number, &mut config) };
        if code != api::IN_PROGRESS {
            library.check("ncclCommInitRankConfig", code)?;
        }
        let raw = Arc::new(AtomicPtr::new(raw));
        let made = Communicator { library: Arc::clone(library), raw, rank, pre_mul_sums: Vec::new() };
        made.settle("ncclCommInitRankConfig")?;
        made.expect_ranks(size)?;
        Ok(made)
    }

    /// NCCL's handle; null once it was aborted, which NCCL's calls answer with an error.
    pub fn raw(&self) -> Comm {
        self.raw.load(Ordering::Acquire)
    }

    /// Aborts it from another thread, unless it is closed already. For threads inside a call of NCCL's, which nothing else
    /// gets out; it may itself be held up by the library.
    pub fn aborter(&self) -> impl Fn() + Send + Sync + use<> {
        let (library, raw) = (Arc::clone(&self.library), Arc::clone(&self.raw));
        move || {
            let handle = raw.swap(ptr::null_mut(), Ordering::AcqRel);
            if !handle.is_null() {
                // SAFETY: the handle is live, as who closes takes it out first. NCCL lets another thread abort while one is
                // in a call.
                unsafe { (library.api.comm_abort)(handle) };
            }
        }
    }

    /// A communicator of fewer ranks than asked for would test something else and pass.
    fn expect_ranks(&self, ranks: c_int) -> Result<(), RankError> {
        let mut count = 0;
        // SAFETY: the pointer is good for one int.
        let code = unsafe { (self.library.api.comm_count)(self.raw(), &mut count) };
        self.library.check("ncclCommCount", code)?;
        if count == ranks {
            return Ok(());
        }
        Err(RankError::Broken {
            call: "ncclCommCount".to_owned(),
            message: format!("the communicator has {count} ranks instead of {ranks}"),
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
        loop {
            match self.async_code()? {
                api::SUCCESS => return Ok(()),
                api::IN_PROGRESS => std::thread::yield_now(),
                code => return Err(self.lost(call, code)),
            }
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

    /// NCCL's number of a reduction on this communicator. Mulsum is made at its first use.
    pub fn reduction(&mut self, op: Option<Op>, plan: &Plan) -> Result<RedOp, RankError> {
        // Data movement has no reduction; the argument is not used then.
        let Some(op) = op else { return Ok(0) };
        if let Some(built_in) = api::built_in(op) {
            return Ok(built_in);
        }
        let dtype = plan.dtype();
        if let Some((_, made)) = self.pre_mul_sums.iter().find(|(of, _)| *of == dtype) {
            return Ok(*made);
        }
        // Little-endian, as every host of an NVIDIA GPU is: the element's bytes come first.
        let mut scalar = plan.scalar(self.rank);
        let mut made: RedOp = 0;
        let pointer = (&raw mut scalar).cast::<c_void>();
        let data_type = api::data_type(dtype);
        // SAFETY: the scalar has 8 bytes, as many as the widest type, and is read before the call returns.
        let code = unsafe {
            (self.library.api.create_pre_mul_sum)(&mut made, pointer, data_type, api::SCALAR_HOST_IMMEDIATE, self.raw())
        };
        self.library.check("ncclRedOpCreatePreMulSum", code)?;
        self.pre_mul_sums.push((dtype, made));
        Ok(made)
    }

    /// Ends it. `abort` where work may still be waiting for a rank that is lost.
    ///
    /// Of several ranks in a process, NCCL tears all down at the last one's call; the others return at once. So one
    /// thread can close its ranks one after the other.
    pub fn close(&mut self, abort: bool) {
        let raw = self.raw.swap(ptr::null_mut(), Ordering::AcqRel);
        if raw.is_null() {
            return;
        }
        let api = &self.library.api;
        let reductions = std::mem::take(&mut self.pre_mul_sums);
        if abort {
            // SAFETY: the handle is live, and not used again.
            unsafe { (api.comm_abort)(raw) };
        } else {
            for (_, reduction) in reductions {
                // SAFETY: it was made for this communicator, whose last use of it has been queued.
                unsafe { (api.destroy_red_op)(reduction, raw) };
            }
            // SAFETY: the handle is live, and not used again.
            unsafe { (api.comm_destroy)(raw) };
        }
    }
}
