//! Making communicators: all ranks of a process at once, as a case wants them. Other processes may make other ranks.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::api::{self, Code, Comm, Config, UniqueId};
use super::communicator::Communicator;
use super::device::Device;
use super::library::Library;
use super::version::Version;
use crate::backend::{Making, RankError};

/// How often one who waits for a communicator looks.
const LOOK: Duration = Duration::from_millis(1);

/// Why this library cannot make such communicators.
pub fn supported(library: &Library, making: &Making) -> Result<(), RankError> {
    requirement(making).map_or(Ok(()), |(what, since)| library.require(what, since))
}

/// What a making needs, and the first NCCL that has it.
const fn requirement(making: &Making) -> Option<(&'static str, Version)> {
    match making.cta_policy {
        Some(0) => Some(("CTA policy 0", Version::CTA_POLICY)),
        Some(1) => Some(("CTA policy 1", Version::CTA_POLICY)),
        Some(_) => Some(("CTA policy 2", Version::CTA_POLICY_ZERO)),
        // Nonblocking communicators and splits are as old as the oldest NCCL that is driven.
        None => None,
    }
}

/// Which rank's place each rank takes where devices are permuted: the order is reversed, so that on more than one GPU no
/// two neighbours keep theirs. `ordinals` are the GPUs by rank; nothing where there is only one.
pub fn permutation(ordinals: &[u32]) -> Option<Vec<usize>> {
    let first = ordinals.first()?;
    ordinals.iter().any(|ordinal| ordinal != first).then(|| (0..ordinals.len()).rev().collect())
}

/// The ranks of a communicator that this process makes.
pub struct Party<'a> {
    /// The first of them; the others follow it.
    pub first: u32,
    /// Each one's GPU.
    pub devices: &'a [Arc<Device>],
    /// Ranks of the communicator, those of other processes included.
    pub ranks: u32,
}

impl Party<'_> {
    fn size(&self) -> c_int {
        c_int::try_from(self.ranks).unwrap_or(c_int::MAX)
    }

    /// The rank of one of the devices.
    fn rank(&self, index: usize) -> u32 {
        self.first.saturating_add(u32::try_from(index).unwrap_or(u32::MAX))
    }
}

/// Makes the communicators of the party's ranks, in groups of this thread. All parties do this with the same `id`, at the
/// same time.
pub fn communicators(
    library: &Arc<Library>,
    party: &Party<'_>,
    id: UniqueId,
    making: &Making,
) -> Result<Vec<Communicator>, RankError> {
    supported(library, making)?;
    let mut config = Config::new();
    if let Some(policy) = making.cta_policy {
        config = config.cta_policy(c_int::try_from(policy).unwrap_or(c_int::MAX));
    }
    if making.nonblocking {
        config = config.nonblocking();
    }
    let call = "ncclCommInitRankConfig";
    let handles = in_group(library, call, party, |index, handle| {
        let rank = c_int::try_from(party.rank(index)).unwrap_or(c_int::MAX);
        // SAFETY: `handle` is good for one handle until the group has ended; `config` is initialised.
        unsafe { (library.api.comm_init_rank_config)(handle, party.size(), id, rank, &mut config) }
    })?;
    let made = settled(owned(library, party, &handles), call, party.size())?;
    if making.split { split(library, party, made) } else { Ok(made) }
}

/// Makes one more communicator of the party's ranks, which all parties do with the same `id`. Where it is not there at `end`, or
/// the others do not come as they are `lost`, it is given up. Whatever goes wrong with it, other communicators are sound.
pub fn beside(
    library: &Arc<Library>,
    party: &Party<'_>,
    id: UniqueId,
    end: Instant,
    lost: &dyn Fn() -> bool,
) -> Result<Vec<Communicator>, RankError> {
    let call = "ncclCommInitRankConfig";
    // only those can be given up while they are made
    let mut config = Config::new().nonblocking();
    let handles = in_group(library, call, party, |index, handle| {
        let rank = c_int::try_from(party.rank(index)).unwrap_or(c_int::MAX);
        // SAFETY: `handle` is good for one handle until it is there, or for ever; `config` is initialised.
        unsafe { (library.api.comm_init_rank_config)(handle, party.size(), id, rank, &mut config) }
    })?;
    let mut made = owned(library, party, &handles);
    let there = loop {
        match made.iter().try_fold(true, |all, one| Ok::<_, RankError>(one.is_settled(call)? && all)) {
            Ok(true) => break Ok(()),
            Ok(false) if lost() => break Err(RankError::Aborted),
            Ok(false) if Instant::now() >= end => break Err(timeout(call, party.ranks)),
            Ok(false) => std::thread::sleep(LOOK),
            Err(RankError::Broken { call, message }) => {
                break Err(RankError::Refused { call, code: "an error".to_owned(), message });
            }
            Err(error) => break Err(error),
        }
    };
    if there.is_err() {
        made.iter_mut().for_each(|communicator| communicator.close(true));
        Box::leak(handles.0); // NCCL may still be writing
    }
    there.map(|()| made)
}

fn timeout(call: &str, ranks: u32) -> RankError {
    let message = format!("a communicator of {ranks} ranks did not come about");
    RankError::Refused { call: call.to_owned(), code: "nothing in time".to_owned(), message }
}

/// Splits off communicators of the same ranks in the same order, which keep their parents alive.
fn split(
    library: &Arc<Library>,
    party: &Party<'_>,
    parents: Vec<Communicator>,
) -> Result<Vec<Communicator>, RankError> {
    match children(library, party, &parents.iter().collect::<Vec<_>>()) {
        Ok(children) => {
            Ok(children.into_iter().zip(parents).map(|(child, parent)| child.descend_from(parent)).collect())
        }
        Err(e) => {
            parents.into_iter().for_each(|mut parent| parent.close(true));
            Err(e)
        }
    }
}

/// Splits off communicators of the same ranks in the same order, with the configuration of their parents, which are to be
/// closed after them. All parties do this at the same time.
pub fn children(
    library: &Arc<Library>,
    party: &Party<'_>,
    parents: &[&Communicator],
) -> Result<Vec<Communicator>, RankError> {
    let call = "ncclCommSplit";
    let raw: Vec<Comm> = parents.iter().map(|parent| parent.raw()).collect();
    let handles = in_group(library, call, party, |index, handle| {
        let rank = c_int::try_from(party.rank(index)).unwrap_or(c_int::MAX);
        let parent = raw.get(index).copied().unwrap_or(ptr::null_mut());
        // SAFETY: the parent is live, and `handle` good for one handle until parents have settled. No configuration: the
        // child takes its parent's.
        unsafe { (library.api.comm_split)(parent, 0, rank, handle, ptr::null_mut()) }
    })?;
    // A nonblocking parent says when its child is there; only then is the child's handle written.
    match parents.iter().try_for_each(|parent| parent.settle(call)) {
        Ok(()) => settled(owned(library, party, &handles), call, party.size()),
        Err(e) => {
            Box::leak(handles.0); // NCCL may still be writing
            Err(e)
        }
    }
}

/// Handles that NCCL writes to, some of them when their group or even a thread of NCCL's ends.
struct Handles(Box<[Comm]>);

impl Handles {
    fn read(&self) -> Vec<Comm> {
        // SAFETY: the elements live. Volatile: another thread may have written them since they were passed on.
        self.0.iter().map(|handle| unsafe { ptr::read_volatile(handle) }).collect()
    }
}

/// Makes one call for each rank, with its GPU current and a place for its handle, in one group.
fn in_group(
    library: &Library,
    call: &str,
    party: &Party<'_>,
    mut make: impl FnMut(usize, *mut Comm) -> Code,
) -> Result<Handles, RankError> {
    let api = &library.api;
    let mut handles = Handles(vec![ptr::null_mut(); party.devices.len()].into_boxed_slice());
    let first = handles.0.as_mut_ptr();
    // SAFETY: takes nothing.
    library.check("ncclGroupStart", unsafe { (api.group_start)() })?;
    let mut failure = None;
    for (index, device) in party.devices.iter().enumerate() {
        if let Err(e) = device.context.activate() {
            failure = Some(e.into());
            break;
        }
        let code = make(index, first.wrapping_add(index));
        if code != api::SUCCESS && code != api::IN_PROGRESS {
            failure = Some(library.failure(call, code));
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
    Ok(handles)
}

fn owned(library: &Arc<Library>, party: &Party<'_>, handles: &Handles) -> Vec<Communicator> {
    let handles = handles.read().into_iter().enumerate();
    handles.map(|(index, raw)| Communicator::new(library, raw, party.rank(index))).collect()
}

/// Waits for all of them, and looks whether they are what was asked for; none is left where one is not.
fn settled(mut made: Vec<Communicator>, call: &str, ranks: c_int) -> Result<Vec<Communicator>, RankError> {
    let checked = made.iter().try_for_each(|communicator| {
        communicator.settle(call)?;
        communicator.expect(ranks)
    });
    match checked {
        Ok(()) => Ok(made),
        Err(e) => {
            made.iter_mut().for_each(|communicator| communicator.close(true));
            Err(e)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cta_policy_needs_the_nccl_that_brought_it_and_all_else_needs_none() {
        let since = |cta_policy| requirement(&Making { cta_policy, ..Making::default() }).map(|(_, since)| since);
        assert_eq!(since(None), None);
        assert_eq!(since(Some(0)), Some(Version::new(2, 27, 3)));
        assert_eq!(since(Some(1)), Some(Version::new(2, 27, 3)));
        assert_eq!(since(Some(2)), Some(Version::new(2, 28, 3)));
        let others = Making { cta_policy: None, permuted: true, split: true, nonblocking: true, connected: true };
        assert_eq!(requirement(&others), None);
    }

    #[test]
    fn permuted_ranks_take_the_gpus_in_reverse_and_need_two() {
        assert_eq!(permutation(&[0, 1, 2]), Some(vec![2, 1, 0]));
        assert_eq!(permutation(&[0, 0, 1]), Some(vec![2, 1, 0]));
        assert_eq!(permutation(&[0, 0]), None);
        assert_eq!(permutation(&[0]), None);
        assert_eq!(permutation(&[]), None);
    }
}
