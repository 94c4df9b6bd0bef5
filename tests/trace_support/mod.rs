//! A small simulator of ranks that make calls: programs go in, the records that they would leave come out.
#![allow(dead_code, reason = "each test file uses a part")]

use collcheck::case::{DType, Op, Primitive};
use collcheck::trace::call::{Call, Operation, State};
use collcheck::trace::{Communicator, Incident, Liveness, RankEvidence};
use std::collections::HashMap;

pub const WORLD: u64 = 0xabc;

/// One step of a rank's program.
#[derive(Clone, Debug)]
pub enum Step {
    /// A call; `seq`, state and times are filled in.
    Call(Call),
    /// The rank never comes back.
    Sleep,
}

pub fn all_reduce(count: u64) -> Step {
    collective(WORLD, Primitive::AllReduce, count)
}

pub fn collective(comm: u64, primitive: Primitive, count: u64) -> Step {
    Step::Call(Call {
        op: (primitive == Primitive::AllReduce).then_some(Op::Sum),
        dtype: Some(DType::Float),
        count: Some(count),
        ..Call::new(comm, 0, Operation::Collective(primitive))
    })
}

pub fn send(peer: u32, count: u64) -> Step {
    p2p(Operation::Send { peer }, count)
}

pub fn recv(peer: u32, count: u64) -> Step {
    p2p(Operation::Recv { peer }, count)
}

fn p2p(operation: Operation, count: u64) -> Step {
    Step::Call(Call { dtype: Some(DType::Float), count: Some(count), ..Call::new(WORLD, 0, operation) })
}

/// Changes a call.
pub fn with(step: Step, change: impl FnOnce(&mut Call)) -> Step {
    match step {
        Step::Call(mut call) => {
            change(&mut call);
            Step::Call(call)
        }
        Step::Sleep => Step::Sleep,
    }
}

/// How programs are carried out.
#[derive(Clone, Debug)]
pub struct Machine {
    pub communicators: Vec<Communicator>,
    /// Calls that a rank queues behind the one that holds it.
    pub depth: usize,
    /// Whether starts are recorded, as a Flight Recorder without timing does not.
    pub starts: bool,
    /// Records that a rank keeps.
    pub ring: usize,
}

impl Machine {
    pub fn new(ranks: u32) -> Self {
        let world = Communicator { id: WORLD, label: "default_pg".into(), ranks: (0..ranks).collect() };
        Machine { communicators: vec![world], depth: 0, starts: true, ring: 2000 }
    }

    pub fn and(mut self, id: u64, label: &str, ranks: &[u32]) -> Self {
        self.communicators.push(Communicator { id, label: label.into(), ranks: ranks.to_vec() });
        self
    }

    /// Runs the programs until nobody gets on.
    pub fn run(&self, programs: &[Vec<Step>]) -> Incident {
        let n = programs.len();
        let mut made: Vec<Vec<Call>> = vec![Vec::new(); n];
        let mut at = vec![0usize; n];
        let mut clock = 1_000;
        loop {
            let mut moved = false;
            for rank in 0..n {
                let held = made[rank].last().is_some_and(|call| call.state != State::Completed);
                if !held && let Some(Step::Call(call)) = programs[rank].get(at[rank]) {
                    clock += 10;
                    let call = self.numbered(call, &made[rank], clock);
                    made[rank].push(call);
                    at[rank] += 1;
                    moved = true;
                }
            }
            moved |= self.complete(&mut made, &mut clock);
            if !moved {
                break;
            }
        }
        for rank in 0..n {
            let held = made[rank].last().is_some_and(|call| call.state != State::Completed);
            for step in programs[rank].iter().skip(at[rank]).take(if held { self.depth } else { 0 }) {
                let Step::Call(call) = step else { break };
                clock += 10;
                let mut call = self.numbered(call, &made[rank], clock);
                call.state = State::Queued;
                call.started_ns = None;
                made[rank].push(call);
            }
        }
        let evidence = made.into_iter().enumerate().map(|(rank, mut calls)| {
            let lost = calls.len().saturating_sub(self.ring);
            calls.drain(..lost);
            RankEvidence {
                rank: rank as u32,
                host: format!("host{}", rank / 8),
                liveness: Liveness::Alive,
                calls: Some(calls),
                lost: lost as u64,
                ..RankEvidence::default()
            }
        });
        Incident { ranks: evidence.collect(), communicators: self.communicators.clone(), world: None }
    }

    fn numbered(&self, call: &Call, before: &[Call], now: u64) -> Call {
        let alike =
            before.iter().rev().find(|c| c.comm == call.comm && c.operation.is_p2p() == call.operation.is_p2p());
        Call {
            seq: alike.map_or(1, |c| c.seq + 1),
            created_ns: now,
            state: if self.starts { State::Running } else { State::Queued },
            started_ns: self.starts.then_some(now + 1),
            ..call.clone()
        }
    }

    fn complete(&self, made: &mut [Vec<Call>], clock: &mut u64) -> bool {
        // Who is held in what.
        let mut meetings: HashMap<(u64, u64), Vec<usize>> = HashMap::new();
        let mut done = Vec::new();
        for (rank, calls) in made.iter().enumerate() {
            let Some(call) = calls.last().filter(|call| call.state != State::Completed) else { continue };
            match call.operation {
                Operation::Send { peer } => {
                    let meets = |other: &Call| {
                        other.state != State::Completed
                            && other.operation == (Operation::Recv { peer: rank as u32 })
                            && other.count == call.count
                    };
                    if made[peer as usize].last().is_some_and(meets) {
                        done.extend([rank, peer as usize]);
                    }
                }
                Operation::Recv { .. } => {}
                _ => meetings.entry((call.comm, call.seq)).or_default().push(rank),
            }
        }
        for ((comm, _), ranks) in meetings {
            let size = self.communicators.iter().find(|c| c.id == comm).map_or(0, |c| c.ranks.len());
            let first = made[ranks[0]].last().cloned();
            let same =
                |rank: &usize| made[*rank].last().zip(first.as_ref()).is_some_and(|(a, b)| a.differs(b).is_none());
            if ranks.len() == size && ranks.iter().all(same) {
                done.extend(ranks);
            }
        }
        *clock += 100;
        for rank in &done {
            if let Some(call) = made[*rank].last_mut() {
                call.state = State::Completed;
                call.completed_ns = Some(*clock);
            }
        }
        !done.is_empty()
    }
}

/// Every rank runs the same program, changed by rank.
pub fn programs(ranks: u32, program: impl Fn(u32) -> Vec<Step>) -> Vec<Vec<Step>> {
    (0..ranks).map(program).collect()
}

/// Sizes of the hang laboratory: step k has (k + 1) x 65,536 elements.
pub fn lab(steps: u64) -> Vec<Step> {
    (1..=steps).map(|k| all_reduce(k << 16)).collect()
}

/// Renames ranks: rank r becomes `to[r]`.
pub fn permuted(incident: &Incident, to: &[u32]) -> Incident {
    let mut incident = incident.clone();
    let map = |rank: u32| to[rank as usize];
    for evidence in &mut incident.ranks {
        evidence.rank = map(evidence.rank);
    }
    for communicator in &mut incident.communicators {
        // Places within the communicator stay, so peers and roots do too.
        communicator.ranks = communicator.ranks.iter().map(|rank| map(*rank)).collect();
    }
    incident.ranks.sort_by_key(|evidence| evidence.rank);
    incident
}
