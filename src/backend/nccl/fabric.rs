//! Harm to the sockets over which NCCL moves data in this process.

use super::peers::Peers;
use crate::backend::sockets::own::{self, Blow, OwnSocket};
use crate::backend::sockets::pace::Traffic;
use crate::backend::{Harm, RankError};

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
