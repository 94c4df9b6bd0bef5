//! Who waits for whom: ranks, the calls that they are held in, and the ranks that those calls lack.

use std::collections::BTreeMap;

use super::align::{Alignment, Cell, Key};
use super::p2p::Pair;

/// A collective that somebody is held in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// Index into [`Alignment::groups`].
    pub group: usize,
    /// Its place.
    pub key: Key,
    /// Ranks held in it.
    pub held: Vec<usize>,
    /// Ranks that it lacks: they did not call it, or are held in a call before it.
    pub lacks: Vec<usize>,
}

/// The whole picture. Ranks are indices into [`Alignment::ranks`].
pub struct Waits {
    /// Per rank: its calls that are under way.
    pub fronts: Vec<Vec<usize>>,
    /// All collectives under way, by communicator and place.
    pub meetings: Vec<Meeting>,
    /// Indices of pairs whose one end is under way while the other is not there: `(pair, who waits, for whom)`.
    pub lonely: Vec<(usize, usize, usize)>,
    edges: Vec<Vec<usize>>,
}

impl Waits {
    /// Finds out who waits.
    pub fn new(alignment: &Alignment<'_>, pairs: &[Pair]) -> Self {
        let fronts: Vec<Vec<usize>> = (0..alignment.ranks.len()).map(|track| front(alignment, track)).collect();
        let reached = |track: usize, index: usize| {
            alignment.ranks.get(track).is_some_and(|r| r.done.get(index) == Some(&true))
                || fronts.get(track).is_some_and(|front| front.contains(&index))
        };
        let mut held: BTreeMap<(usize, Key), Vec<usize>> = BTreeMap::new();
        for (at, group) in alignment.groups.iter().enumerate() {
            for lane in &group.lanes {
                for index in fronts.get(lane.track).into_iter().flatten() {
                    let here = |(_, i): &&(Key, usize)| i == index;
                    if let Some((key, _)) = lane.calls.iter().rev().find(here) {
                        held.entry((at, *key)).or_default().push(lane.track);
                    }
                }
            }
        }
        let meetings: Vec<Meeting> = held
            .into_iter()
            .map(|((at, key), held)| {
                let lanes = alignment.groups.get(at).map_or(&[][..], |group| &group.lanes);
                let lacking = lanes.iter().filter(|lane| match alignment.cell(lane, key) {
                    Cell::Called(index) => !reached(lane.track, index),
                    Cell::Never | Cell::Silent => true,
                    Cell::Lost => false,
                });
                Meeting { group: at, key, lacks: lacking.map(|lane| lane.track).collect(), held }
            })
            .collect();
        let mut lonely = Vec::new();
        for (at, pair) in pairs.iter().enumerate() {
            let there = |track, index: Option<usize>| index.is_some_and(|index| reached(track, index));
            let active = |track: usize, index: Option<usize>| {
                index.is_some_and(|index| fronts.get(track).is_some_and(|front| front.contains(&index)))
            };
            if active(pair.from, pair.send) && !there(pair.to, pair.recv) {
                lonely.push((at, pair.from, pair.to));
            }
            if active(pair.to, pair.recv) && !there(pair.from, pair.send) {
                lonely.push((at, pair.to, pair.from));
            }
        }
        // Nodes: ranks, then meetings.
        let ranks = alignment.ranks.len();
        let mut edges = vec![Vec::new(); ranks + meetings.len()];
        for (at, meeting) in meetings.iter().enumerate() {
            for track in &meeting.held {
                edges[*track].push(ranks + at);
            }
            edges[ranks + at].clone_from(&meeting.lacks);
        }
        for (_, waits, owes) in &lonely {
            edges[*waits].push(*owes);
        }
        Waits { fronts, meetings, lonely, edges }
    }

    /// Ranks that others wait for and that are in no call themselves.
    pub fn outside(&self) -> Vec<usize> {
        let mut owing: Vec<usize> = self.meetings.iter().flat_map(|m| m.lacks.iter().copied()).collect();
        owing.extend(self.lonely.iter().map(|(_, _, owes)| *owes));
        owing.sort_unstable();
        owing.dedup();
        owing.retain(|track| self.fronts.get(*track).is_some_and(Vec::is_empty));
        owing
    }

    /// Ranks that wait for each other in circles, those of all circles together.
    pub fn circle(&self) -> Vec<usize> {
        let ranks = self.fronts.len();
        let circles = components(&self.edges).into_iter().filter(|nodes| nodes.len() > 1);
        let mut all: Vec<usize> = circles.flatten().filter(|node| *node < ranks).collect();
        all.sort_unstable();
        all
    }

    /// Collectives under way that lack nobody.
    pub fn complete(&self) -> impl Iterator<Item = &Meeting> {
        self.meetings.iter().filter(|meeting| meeting.lacks.is_empty())
    }

    /// Whether anybody is held in anything.
    pub fn anybody(&self) -> bool {
        self.fronts.iter().any(|front| !front.is_empty())
    }
}

/// Calls under way: the first that is not done; neighbours that may be in one group with it; whatever is seen running.
fn front(alignment: &Alignment<'_>, track: usize) -> Vec<usize> {
    let Some(rank) = alignment.ranks.get(track) else { return Vec::new() };
    let Some(first) = rank.pending() else { return Vec::new() };
    let is_p2p = |index: usize| rank.calls.get(index).is_some_and(|call| call.operation.is_p2p());
    let open = |index: &usize| rank.done.get(*index) == Some(&false);
    let mut front: Vec<usize> = if is_p2p(first) {
        (first..rank.calls.len()).take_while(|index| is_p2p(*index)).filter(open).collect()
    } else {
        vec![first]
    };
    let running = (first..rank.calls.len())
        .filter(open)
        .filter(|i| rank.calls.get(*i).is_some_and(super::call::Call::start_seen));
    let more: Vec<usize> = running.filter(|index| !front.contains(index)).collect();
    front.extend(more);
    front
}

/// Strongly connected components (Tarjan, without recursion).
fn components(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    const UNSEEN: usize = usize::MAX;
    let mut order = vec![UNSEEN; edges.len()];
    let mut low = vec![UNSEEN; edges.len()];
    let mut on_stack = vec![false; edges.len()];
    let (mut stack, mut found, mut next) = (Vec::new(), Vec::new(), 0);
    for root in 0..edges.len() {
        if order[root] != UNSEEN {
            continue;
        }
        let mut path = vec![(root, 0usize)];
        while let Some((node, edge)) = path.pop() {
            if edge == 0 {
                (order[node], low[node]) = (next, next);
                next += 1;
                stack.push(node);
                on_stack[node] = true;
            }
            if let Some(&to) = edges[node].get(edge) {
                path.push((node, edge + 1));
                if order[to] == UNSEEN {
                    path.push((to, 0));
                } else if on_stack[to] {
                    low[node] = low[node].min(order[to]);
                }
                continue;
            }
            if let Some((parent, _)) = path.last() {
                low[*parent] = low[*parent].min(low[node]);
            }
            if low[node] == order[node] {
                let mut component = Vec::new();
                while let Some(top) = stack.pop() {
                    on_stack[top] = false;
                    component.push(top);
                    if top == node {
                        break;
                    }
                }
                found.push(component);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_is_one_component_and_a_tail_is_not_in_it() {
        let edges = vec![vec![1], vec![2], vec![0], vec![0, 4], vec![]];
        let mut sizes: Vec<usize> = components(&edges).iter().map(Vec::len).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [1, 1, 3]);
    }
}
