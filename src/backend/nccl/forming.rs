//! One more communicator beside the one that there is, which comes about or does not.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::api::{self, UniqueId};
use super::driver::DeviceMemory;
use super::lane::Lane;
use super::library::Library;
use super::making::{self, Party};
use super::peers::Peers;
use crate::backend::RankError;
use crate::case::DType;

/// Makes a communicator of `ranks` ranks, as this one holds, and closes it again. The lane's GPU must be current.
pub fn form(library: &Arc<Library>, lane: &Lane, peers: &Peers, ranks: u32, within: Duration) -> Result<(), RankError> {
    let id = shared_identity(library, lane, peers)?;
    let devices = [Arc::clone(&lane.device)];
    let party = Party { first: lane.rank, devices: &devices, ranks };
    let mut made = making::beside(library, &party, id, Instant::now() + within, &|| peers.lost())?;
    made.iter_mut().for_each(|communicator| communicator.close(false));
    // Closing frees memory, which waits for all that runs on the GPUs: also for a call of a rank that is already further, and
    // waits for this one.
    if peers.all(true) { Ok(()) } else { Err(RankError::Aborted) }
}

/// A new communicator's identity, which rank 0 makes and sends to all over the communicator that there is.
fn shared_identity(library: &Library, lane: &Lane, peers: &Peers) -> Result<UniqueId, RankError> {
    let call = "ncclBroadcast";
    let mut id = if lane.rank == 0 { library.unique_id()? } else { UniqueId { internal: [0; 128] } };
    let (memory, length) = (DeviceMemory::new(id.internal.len())?, id.internal.len());
    // SAFETY: the memory has as many bytes.
    unsafe { lane.stream.write(memory.address(), &id.internal)? };
    let pointer: *mut c_void = ptr::with_exposed_provenance_mut(memory.address() as usize);
    let data_type = api::data_type(DType::Uint8);
    let (comm, stream) = (lane.communicator.raw(), lane.stream.raw());
    // SAFETY: the memory has as many bytes, and lives until the stream was found idle, or else for ever.
    let code = unsafe { (library.api.broadcast)(pointer.cast_const(), pointer, length, data_type, 0, comm, stream) };
    if code != api::IN_PROGRESS {
        library.check(call, code)?;
    }
    let sent = lane.communicator.settle(call).and_then(|()| {
        while !lane.stream.idle()? {
            lane.communicator.check_async()?;
            if peers.lost() {
                return Err(RankError::Aborted);
            }
            std::thread::yield_now();
        }
        Ok(())
    });
    if let Err(error) = sent {
        // the GPU may still write to it, and freeing it would wait for that
        std::mem::forget(memory);
        return Err(error);
    }
    // SAFETY: as above.
    unsafe { lane.stream.read(&mut id.internal, memory.address())? };
    Ok(id)
}
