//! What has become of calls that were queued.
//!
//! A library that queues tells of an end only to who waits for it. Of launches queued in a row all are open, then, though
//! only one hangs. But streams run in order: a call that is next on all of its ranks, and that all made alike, has ended.
//! So the queues are run down until that holds no more, and the first call that is left is the one that hangs. Who waits for all
//! that it has queued has at least its last call open.

use std::collections::BTreeMap;

use crate::trace::call::{Call, Operation, State};

/// One call of a rank, or its sends and receives that share a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Step {
    comm: u64,
    seq: u64,
    exchange: bool,
}

impl Step {
    fn of(call: &Call) -> Step {
        Step { comm: call.comm, seq: call.seq, exchange: call.operation.is_p2p() }
    }
}

/// A rank with its calls in the order in which they were made.
pub struct Queue<'a> {
    /// The rank.
    pub rank: u32,
    /// Its calls.
    pub calls: &'a mut Vec<Call>,
    /// It waits for the end of all of them.
    pub waits: bool,
}

/// Takes for completed what queues must have got through, where it is not recorded. Without an open call on which ranks
/// differ nothing is changed: then any of them may hang.
pub fn run_down(queues: &mut [Queue<'_>]) {
    let seen_to_start = queues.iter().flat_map(|q| q.calls.iter()).any(|call| call.state == State::Running);
    if seen_to_start {
        return;
    }
    let open: Vec<Vec<Step>> = queues.iter().map(|queue| steps(queue.calls)).collect();
    let (_, left) = ended(queues, open.clone(), false);
    if left.iter().all(Vec::is_empty) {
        return;
    }
    let (over, _) = ended(queues, open, true);
    for (queue, over) in queues.iter_mut().zip(over) {
        for call in queue.calls.iter_mut().filter(|call| over.contains(&Step::of(call))) {
            call.state = State::Completed;
        }
    }
}

/// The open steps of each rank that have ended, and those that are left; the last of one that waits is not taken for ended, if
/// that is to be heeded.
fn ended(queues: &[Queue<'_>], mut open: Vec<Vec<Step>>, heeding: bool) -> (Vec<Vec<Step>>, Vec<Vec<Step>>) {
    let mut over: Vec<Vec<Step>> = vec![Vec::new(); queues.len()];
    while let Some(step) = next(queues, &open, heeding) {
        for (left, over) in open.iter_mut().zip(&mut over) {
            if left.first() == Some(&step) {
                left.remove(0);
                over.push(step);
            }
        }
    }
    (over, open)
}

/// The open steps of a rank, in order.
fn steps(calls: &[Call]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for call in calls.iter().filter(|call| call.state != State::Completed) {
        let step = Step::of(call);
        if !steps.contains(&step) {
            steps.push(step);
        }
    }
    steps
}

/// A step that has ended: no rank has anything open in front of it, and all have made it alike.
fn next(queues: &[Queue<'_>], open: &[Vec<Step>], heeding: bool) -> Option<Step> {
    let mut heads = open.iter().filter_map(|steps| steps.first().copied());
    let reached = |step: &Step| open.iter().all(|steps| steps.first() == Some(step) || !steps.contains(step));
    let awaited = |step: &Step| {
        let mut waiting = queues.iter().zip(open).filter(|(queue, _)| heeding && queue.waits);
        waiting.any(|(_, steps)| steps[..] == [*step])
    };
    heads.find(|step| reached(step) && !awaited(step) && alike(queues, *step))
}

fn alike(queues: &[Queue<'_>], step: Step) -> bool {
    let of = |calls: &'_ [Call]| -> Vec<Call> { calls.iter().filter(|call| Step::of(call) == step).cloned().collect() };
    if step.exchange {
        return paired(queues.iter().map(|queue| (queue.rank, of(queue.calls))));
    }
    let arguments = |call: &Call| (call.operation.clone(), call.op, call.dtype, call.count, call.root);
    let mut all = queues.iter().map(|queue| of(queue.calls).iter().map(arguments).collect::<Vec<_>>());
    let first = all.next().unwrap_or_default();
    !first.is_empty() && all.all(|other| other == first)
}

/// Whether each send has its receive, of as much.
fn paired(ranks: impl Iterator<Item = (u32, Vec<Call>)>) -> bool {
    // by sender, receiver and what is sent: sends less receives
    let mut messages: BTreeMap<(u32, u32, Option<u64>, String), i64> = BTreeMap::new();
    for (rank, calls) in ranks {
        for call in calls {
            let dtype = call.dtype.map(|dtype| dtype.to_string()).unwrap_or_default();
            let (from, to, sign) = match call.operation {
                Operation::Send { peer } => (rank, peer, 1),
                Operation::Recv { peer } => (peer, rank, -1),
                _ => continue,
            };
            *messages.entry((from, to, call.count, dtype)).or_default() += sign;
        }
    }
    messages.values().all(|left| *left == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Primitive;

    fn call(seq: u64, count: u64) -> Call {
        Call { count: Some(count), ..Call::new(1, seq, Operation::Collective(Primitive::AllReduce)) }
    }

    fn message(seq: u64, operation: Operation) -> Call {
        Call { count: Some(8), ..Call::new(1, seq, operation) }
    }

    /// Numbers of the calls that are open once the queues have run down.
    fn left(ranks: &mut [Vec<Call>]) -> Vec<Vec<u64>> {
        left_while(ranks, &[])
    }

    /// The same, while these ranks wait for all of theirs.
    fn left_while(ranks: &mut [Vec<Call>], waiting: &[u32]) -> Vec<Vec<u64>> {
        let queue = |(calls, rank)| Queue { rank, calls, waits: waiting.contains(&rank) };
        let mut queues: Vec<Queue<'_>> = ranks.iter_mut().zip(0..).map(queue).collect();
        run_down(&mut queues);
        let open = |calls: &Vec<Call>| calls.iter().filter(|c| c.state != State::Completed).map(|c| c.seq).collect();
        ranks.iter().map(open).collect()
    }

    #[test]
    fn queues_run_down_to_the_first_call_that_differs() {
        let mut ranks = [vec![call(4, 1), call(5, 2), call(6, 3)], vec![call(4, 1), call(5, 9), call(6, 3)]];
        assert_eq!(left(&mut ranks), [[5, 6], [5, 6]]);
    }

    #[test]
    fn queues_run_down_to_the_call_that_a_rank_never_made() {
        let mut ranks = [vec![call(4, 1), call(5, 2), call(6, 3)], vec![call(4, 1)]];
        assert_eq!(left(&mut ranks), [vec![5, 6], vec![]]);
    }

    #[test]
    fn what_another_rank_is_known_to_have_done_has_ended_here_too() {
        let done = |call: Call| Call { state: State::Completed, ..call };
        let mut ranks = [vec![done(call(4, 1)), done(call(5, 7))], vec![call(4, 1), call(5, 2), call(6, 3)]];
        assert_eq!(left(&mut ranks), [vec![], vec![5, 6]]);
    }

    #[test]
    fn where_no_rank_differs_any_call_may_hang() {
        let mut ranks = [vec![call(4, 1), call(5, 2)], vec![call(4, 1), call(5, 2)]];
        assert_eq!(left(&mut ranks), [[4, 5], [4, 5]]);
    }

    #[test]
    fn the_last_call_of_one_that_waits_has_not_ended_whatever_others_are_at() {
        let done = |call: Call| Call { state: State::Completed, ..call };
        // the root of a broadcast has sent ahead
        let ranks = [vec![done(call(4, 1)), done(call(5, 1)), call(6, 1)], vec![call(4, 1), call(5, 1)]];
        assert_eq!(left_while(&mut ranks.clone(), &[1]), [vec![6], vec![5]]);
        assert_eq!(left_while(&mut ranks.clone(), &[]), [vec![6], vec![]]);
        // where all wait for the same, any of them may hang
        let mut alike = [vec![call(4, 1), call(5, 1)], vec![call(4, 1), call(5, 1)]];
        assert_eq!(left_while(&mut alike, &[0, 1]), [[4, 5], [4, 5]]);
    }

    #[test]
    fn crossed_communicators_stay_crossed() {
        let second = |call: Call| Call { comm: 2, ..call };
        let (a, b) = (call(2, 1), second(call(1, 1)));
        let mut ranks = [vec![call(1, 1), a.clone(), b.clone()], vec![call(1, 1), b, a]];
        assert_eq!(left(&mut ranks), [[2, 1], [1, 2]]);
    }

    #[test]
    fn an_exchange_ends_where_each_send_has_its_receive() {
        let (send, recv) = (|peer| Operation::Send { peer }, |peer| Operation::Recv { peer });
        let whole = |seq, peer| [message(seq, send(peer)), message(seq, recv(peer))];
        let mut ranks = [[whole(1, 1), whole(2, 1)].concat(), [&whole(1, 0)[..], &[message(2, send(0))]].concat()];
        assert_eq!(left(&mut ranks), [vec![2, 2], vec![2]]);
    }

    #[test]
    fn calls_that_were_seen_to_start_are_left_as_they_are() {
        let running = Call { state: State::Running, ..call(4, 1) };
        let mut ranks = [vec![running.clone(), call(5, 1)], vec![running]];
        assert_eq!(left(&mut ranks), [vec![4, 5], vec![4]]);
    }
}
