//! Harm to the sockets over which NCCL moves data in this process, and one more communicator beside the one that there is.

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
use crate::backend::sockets::own::{self, Blow, OwnSocket};
use crate::backend::sockets::pace::Traffic;
use crate::backend::{Harm, RankError};
use crate::case::DType;

/// The least that a socket has carried over which data go: what is exchanged to make a communicator is less.
const LEAST: u64 = 16 << 10;

/// A socket has carried at least this part of what the busiest has: channels share the data.
const PART: u64 = 8;

/// Strikes sockets opened since before the communicator was made, and returns how many. Either one of its ranks is in this
/// process, or there are two in all, so that both ends of each connection are here.
///
/// NCCL does not say which socket is for what. Those for data are known by what they have carried, and by the direction: what
/// comes in is from the rank before, and what goes out is for the next one, as in a ring or a sendrecv.
pub fn strike(peers: &Peers, harm: Harm) -> Result<usize, RankError> {
    let unknown = || RankError::Unsupported("the sockets of this process could not be looked at".to_owned());
    let before = peers.before().ok_or_else(unknown)?;
    let failed = |what: &str, error: std::io::Error| RankError::Unsupported(format!("cannot {what} sockets: {error}"));
    let all = own::opened_since(before).map_err(|error| failed("look for", error))?;
    let all: Vec<(OwnSocket, Traffic)> =
        all.into_iter().filter_map(|socket| Some((socket, own::traffic(&socket)?))).collect();
    let carried = |traffic: &Traffic| match harm {
        Harm::Throttle(_) => traffic.sent,
        _ if peers.are_apart() => traffic.received,
        _ => traffic.sent.max(traffic.received),
    };
    let busiest = all.iter().map(|(_, traffic)| carried(traffic)).max().unwrap_or(0);
    let busy = |traffic: &Traffic| carried(traffic) >= LEAST.max(busiest / PART);
    let chosen: Vec<OwnSocket> = all.iter().filter(|(_, traffic)| busy(traffic)).map(|(socket, _)| *socket).collect();
    let blow = match harm {
        Harm::Cut => Blow::Cut,
        Harm::Reset => Blow::Reset,
        Harm::Throttle(0) => Blow::Pace(0),
        Harm::Throttle(rate) => Blow::Pace((rate / chosen.len().max(1) as u64).max(1)),
        Harm::Delay(_) => {
            let why = "what NCCL sends cannot be held back: the kernel delays no socket's data without privileges";
            return Err(RankError::Unsupported(why.to_owned()));
        }
    };
    Ok(own::damage(&chosen, blow).map_err(|error| failed("strike", error))?.connections.len())
}

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
