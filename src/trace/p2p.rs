//! Sends and recvs, paired: the k-th send from a to b meets the k-th recv on b from a.

use std::collections::BTreeMap;

use super::align::Alignment;
use super::call::{Call, Field, Operation};
use super::pattern::progression;

/// A send and its recv, or one of them alone. Only pairs that tell something are kept: see [`pairs`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The communicator.
    pub comm: u64,
    /// Sender: index into [`Alignment::ranks`].
    pub from: usize,
    /// Receiver, likewise.
    pub to: usize,
    /// Index of the send among the sender's calls.
    pub send: Option<usize>,
    /// Index of the recv among the receiver's calls.
    pub recv: Option<usize>,
    /// Field in which the two differ.
    pub differs: Option<Field>,
    /// Count that the pairs before let expect.
    pub expected: Option<u64>,
}

impl Pair {
    /// The end that exists, and the one that does not: `(owner, its call, other rank)`.
    pub fn alone(&self) -> Option<(usize, usize, usize)> {
        match (self.send, self.recv) {
            (Some(send), None) => Some((self.from, send, self.to)),
            (None, Some(recv)) => Some((self.to, recv, self.from)),
            _ => None,
        }
    }
}

/// Calls of one direction between two ranks.
#[derive(Default)]
struct Traffic {
    sends: Vec<usize>,
    recvs: Vec<usize>,
}

/// Pairs of which one end is missing, or not done, or whose ends differ.
pub fn pairs(alignment: &Alignment<'_>) -> Vec<Pair> {
    let mut all: BTreeMap<(u64, usize, usize), Traffic> = BTreeMap::new();
    for (own, rank) in alignment.ranks.iter().enumerate() {
        for (index, call) in rank.calls.iter().enumerate() {
            let (Operation::Send { peer } | Operation::Recv { peer }) = call.operation else { continue };
            let global = alignment.group(call.comm).map_or(peer, |group| group.global(peer));
            let Some(peer) = alignment.track(global) else { continue };
            if matches!(call.operation, Operation::Send { .. }) {
                all.entry((call.comm, own, peer)).or_default().sends.push(index);
            } else {
                all.entry((call.comm, peer, own)).or_default().recvs.push(index);
            }
        }
    }
    all.into_iter().flat_map(|((comm, from, to), traffic)| match_up(alignment, comm, from, to, &traffic)).collect()
}

fn match_up(alignment: &Alignment<'_>, comm: u64, from: usize, to: usize, traffic: &Traffic) -> Vec<Pair> {
    let (Some(sender), Some(receiver)) = (alignment.ranks.get(from), alignment.ranks.get(to)) else {
        return Vec::new();
    };
    let done = |track: &super::align::RankTrack<'_>, index: usize| track.done.get(index) == Some(&true);
    let finished = |track, calls: &[usize]| calls.iter().filter(|index| done(track, **index)).count();
    let cut = |track: &super::align::RankTrack<'_>| {
        let first = track.calls.iter().find(|call| call.comm == comm && call.operation.is_p2p());
        track.evidence.is_some_and(|e| e.lost > 0) || first.is_some_and(|call| call.seq > 1)
    };
    // Where the front may be lost, the last finished ones are taken for partners; what has none before them is not told.
    let (mut sends, mut recvs) = (&traffic.sends[..], &traffic.recvs[..]);
    if cut(sender) || cut(receiver) {
        let (sent, received) = (finished(sender, sends), finished(receiver, recvs));
        let common = sent.min(received);
        sends = sends.get(sent - common..).unwrap_or_default();
        recvs = recvs.get(received - common..).unwrap_or_default();
    }
    let mut counts: Vec<u64> = Vec::new();
    let mut told = Vec::new();
    for k in 0..sends.len().max(recvs.len()) {
        let (send, recv) = (sends.get(k).copied(), recvs.get(k).copied());
        let call =
            |track: &super::align::RankTrack<'_>, index: Option<usize>| index.and_then(|i| track.calls.get(i)).cloned();
        let both_done = send.is_some_and(|i| done(sender, i)) && recv.is_some_and(|i| done(receiver, i));
        let differs = match (send.and_then(|i| sender.calls.get(i)), recv.and_then(|i| receiver.calls.get(i))) {
            (Some(send), Some(recv)) => apart(send, recv),
            // A rank without a record may well have called: only what it owes to a waiting rank is told.
            (Some(_), None) if receiver.silent() && send.is_some_and(|i| done(sender, i)) => continue,
            (None, Some(_)) if sender.silent() && recv.is_some_and(|i| done(receiver, i)) => continue,
            _ => None,
        };
        if !both_done || differs.is_some() {
            told.push(Pair { comm, from, to, send, recv, differs, expected: expected(&counts) });
        }
        counts.extend(call(sender, send).and_then(|c| c.count));
        if counts.len() > 8 {
            counts.remove(0);
        }
    }
    told
}

fn apart(send: &Call, recv: &Call) -> Option<Field> {
    match (send.count, recv.count, send.dtype, recv.dtype) {
        (Some(a), Some(b), ..) if a != b => Some(Field::Count),
        (_, _, Some(a), Some(b)) if a != b => Some(Field::DType),
        _ => None,
    }
}

fn expected(counts: &[u64]) -> Option<u64> {
    match counts {
        [.., a, b, c] if a == b && b == c => Some(*c),
        _ => progression(counts, 0),
    }
}
