//! Telling communicators of buffers, one rank by itself or all together.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use super::api::{self, Comm, Window};
use super::lane::Lane;
use super::library::Library;
use super::peers::Peers;
use super::version::Version;
use crate::backend::{Need, RankError, Registration};

/// What a communicator has been told of.
#[derive(Debug)]
pub enum Registered {
    /// By `ncclCommRegister`.
    Local(*mut c_void),
    /// By `ncclCommWindowRegister`.
    Window(Window),
}

impl Registered {
    /// Takes it back.
    ///
    /// # Safety
    /// It must have been registered with this communicator, and not have been taken back.
    pub unsafe fn take_back(self, library: &Library, communicator: Comm) -> Result<(), RankError> {
        let api = &library.api;
        match self {
            Registered::Local(handle) => {
                // SAFETY: the caller promises it.
                library.check("ncclCommDeregister", unsafe { (api.comm_deregister)(communicator, handle) })
            }
            Registered::Window(window) => {
                let call = "ncclCommWindowDeregister";
                let take_back = api.window_deregister.ok_or_else(|| missing(call))?;
                // SAFETY: the caller promises it.
                library.check(call, unsafe { take_back(communicator, window) })
            }
        }
    }
}

fn missing(call: &str) -> RankError {
    RankError::Unsupported(format!("the loaded NCCL has no {call}"))
}

/// Why this library cannot have such buffers.
pub fn supported(library: &Library, need: &Need) -> Result<(), RankError> {
    requirement(need.registration).map_or(Ok(()), |(what, since)| library.require(what, since))
}

/// What a registration needs, and the first NCCL that has it.
const fn requirement(registration: Registration) -> Option<(&'static str, Version)> {
    match registration {
        // As old as the oldest NCCL that is driven, as its memory is.
        Registration::None | Registration::Local => None,
        Registration::Window => Some(("a symmetric window", Version::WINDOWS)),
        Registration::SharedWindows => Some(("windows of one allocation", Version::SHARED_WINDOWS)),
    }
}

/// Registers both buffers of a lane with its own communicator.
pub fn local(lane: &mut Lane) -> Result<(), RankError> {
    let library = Arc::clone(lane.communicator.library());
    for (address, length) in lane.buffers.stretches() {
        let mut handle = ptr::null_mut();
        let buffer = ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: the stretch is memory that is freed only after its registration has been taken back.
        let code =
            unsafe { (library.api.comm_register)(lane.communicator.raw(), buffer, length as usize, &mut handle) };
        library.check("ncclCommRegister", code)?;
        // Without a handle NCCL has no use for it, as without NVLink SHARP in 2.19, and wants none back.
        if !handle.is_null() {
            lane.communicator.keep(Registered::Local(handle));
        }
    }
    Ok(())
}

/// Registers both buffers of all lanes as symmetric windows, in one group. All stations do this at the same time, with
/// buffers of the same sizes.
pub fn windows(library: &Library, peers: &Peers, lanes: &mut [Lane]) -> Result<(), RankError> {
    let call = "ncclCommWindowRegister";
    let register = library.api.window_register.ok_or_else(|| missing(call))?;
    // NCCL writes here when the group ends, or behind that.
    let mut handles: Box<[Window]> = vec![ptr::null_mut(); 2 * lanes.len()].into_boxed_slice();
    let first = handles.as_mut_ptr();
    // SAFETY: takes nothing.
    library.check("ncclGroupStart", unsafe { (library.api.group_start)() })?;
    let mut issued = Ok(());
    'lanes: for (index, lane) in lanes.iter().enumerate() {
        if let Err(e) = lane.device.context.activate() {
            issued = Err(e.into());
            break;
        }
        for (which, (address, length)) in lane.buffers.stretches().into_iter().enumerate() {
            let buffer = ptr::with_exposed_provenance_mut(address as usize);
            let handle = first.wrapping_add(2 * index + which);
            // SAFETY: the stretch is memory that is freed only after its window has been taken back; `handle` lies in
            // `handles`, which live until the communicators have settled.
            let code =
                unsafe { register(lane.communicator.raw(), buffer, length as usize, handle, api::WINDOW_SYMMETRIC) };
            if code != api::SUCCESS && code != api::IN_PROGRESS {
                issued = Err(library.failure(call, code));
                break 'lanes;
            }
        }
    }
    // SAFETY: the group was opened above.
    let end = unsafe { (library.api.group_end)() };
    if issued.is_ok() && end != api::IN_PROGRESS {
        issued = library.check("ncclGroupEnd", end);
    }
    if issued.is_ok() {
        issued = lanes.iter().try_for_each(|lane| lane.communicator.settle_with(peers, call));
    }
    if matches!(issued, Err(RankError::Aborted | RankError::Broken { .. })) {
        // NCCL may still be writing.
        Box::leak(handles);
        return issued;
    }
    let mut all = true;
    for (lane, pair) in lanes.iter_mut().zip(handles.chunks(2)) {
        for handle in pair {
            // SAFETY: the element lives. Volatile: another thread may have written it since it was passed on.
            let window = unsafe { ptr::read_volatile(handle) };
            if window.is_null() {
                all = false;
            } else {
                lane.communicator.keep(Registered::Window(window));
            }
        }
    }
    issued?;
    if all {
        Ok(())
    } else {
        Err(RankError::Unsupported("NCCL makes no symmetric windows between these GPUs".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_windows_are_registered_together_and_need_a_younger_nccl() {
        for (registration, collective, since) in [
            (Registration::None, false, None),
            (Registration::Local, false, None),
            (Registration::Window, true, Some(Version::new(2, 27, 3))),
            (Registration::SharedWindows, true, Some(Version::new(2, 28, 3))),
        ] {
            assert_eq!(registration.is_collective(), collective, "{registration:?}");
            assert_eq!(requirement(registration).map(|(_, since)| since), since, "{registration:?}");
        }
    }
}
