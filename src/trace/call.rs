//! One recorded call of one rank: what was asked for, and how far it got.

use serde::{Deserialize, Serialize};
use std::fmt;

use crate::case::{DType, Op, Primitive};

/// What a call does. Peers are ranks within the communicator, as in NCCL.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// All ranks of the communicator take part.
    Collective(Primitive),
    /// A message to one peer.
    Send {
        /// To whom.
        peer: u32,
    },
    /// A message from one peer.
    Recv {
        /// From whom.
        peer: u32,
    },
    /// Something that the evidence names and collcheck does not know, such as a coalesced group. Taken as a collective
    /// of which only the name is compared.
    Other(String),
}

impl Operation {
    /// Whether it concerns one peer only.
    pub const fn is_p2p(&self) -> bool {
        matches!(self, Operation::Send { .. } | Operation::Recv { .. })
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operation::Collective(primitive) => write!(f, "{primitive}"),
            Operation::Send { peer } => write!(f, "send to {peer}"),
            Operation::Recv { peer } => write!(f, "recv from {peer}"),
            Operation::Other(name) => f.write_str(name),
        }
    }
}

/// How far a call got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Called by the host, not known to have started.
    Queued,
    /// Started on the device.
    Running,
    /// Done.
    Completed,
}

/// One call of one rank. `None` in an argument means that the evidence does not tell it: it then agrees with anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The communicator: an id that all of its ranks share.
    pub comm: u64,
    /// Counts up within communicator and rank; collectives and point-to-point calls each have their own count, as in
    /// PyTorch. Calls of one coalesced group may share a number.
    pub seq: u64,
    /// What it does.
    pub operation: Operation,
    /// The reduction.
    pub op: Option<Op>,
    /// The element type.
    pub dtype: Option<DType>,
    /// NCCL's count argument in elements; `None` also where ranks may lawfully differ.
    pub count: Option<u64>,
    /// The root, as a rank within the communicator.
    pub root: Option<u32>,
    /// How far it got.
    pub state: State,
    /// When it was called, in ns of a clock of the rank's host; 0 where unknown.
    pub created_ns: u64,
    /// When it was seen to have started.
    pub started_ns: Option<u64>,
    /// When it was seen to be done.
    pub completed_ns: Option<u64>,
    /// Case name or call site; may be empty.
    pub label: String,
}

/// An argument in which two ranks' calls can differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// The collective itself.
    Operation,
    /// The root rank.
    Root,
    /// The number of elements.
    Count,
    /// The element type.
    DType,
    /// The reduction.
    Op,
}

impl Field {
    /// All, those first that explain the others.
    pub const ALL: [Field; 5] = [Field::Operation, Field::Root, Field::Count, Field::DType, Field::Op];

    /// For people.
    pub const fn name(self) -> &'static str {
        match self {
            Field::Operation => "operation",
            Field::Root => "root",
            Field::Count => "count",
            Field::DType => "dtype",
            Field::Op => "op",
        }
    }
}

impl Call {
    /// A queued call of which only the essentials are known.
    pub fn new(comm: u64, seq: u64, operation: Operation) -> Self {
        Call {
            comm,
            seq,
            operation,
            op: None,
            dtype: None,
            count: None,
            root: None,
            state: State::Queued,
            created_ns: 0,
            started_ns: None,
            completed_ns: None,
            label: String::new(),
        }
    }

    /// Whether the host is known to have seen it start.
    pub fn start_seen(&self) -> bool {
        self.started_ns.is_some() || self.state == State::Running
    }

    /// The value of a field as text; `None` where it is unknown or may lawfully differ.
    pub fn value(&self, field: Field) -> Option<String> {
        match field {
            Field::Operation => Some(self.operation.to_string()),
            _ if matches!(self.operation, Operation::Other(_)) => None,
            Field::Root => self.root.map(|root| root.to_string()),
            Field::Count => self.comparable_count().map(|count| count.to_string()),
            Field::DType => self.dtype.map(|dtype| dtype.to_string()),
            Field::Op => self.op.map(|op| op.to_string()),
        }
    }

    /// The first field in which two calls cannot be the same call; unknown values agree with anything.
    pub fn differs(&self, other: &Call) -> Option<Field> {
        fn apart<T: PartialEq>(a: Option<T>, b: Option<T>) -> bool {
            matches!((a, b), (Some(a), Some(b)) if a != b)
        }
        if self.operation != other.operation {
            return Some(Field::Operation);
        }
        if matches!(self.operation, Operation::Other(_)) {
            return None;
        }
        if apart(self.root, other.root) {
            return Some(Field::Root);
        }
        if apart(self.comparable_count(), other.comparable_count()) {
            return Some(Field::Count);
        }
        if apart(self.dtype, other.dtype) {
            return Some(Field::DType);
        }
        apart(self.op, other.op).then_some(Field::Op)
    }

    /// Ranks of an alltoallv pass counts of their own.
    fn comparable_count(&self) -> Option<u64> {
        if self.operation == Operation::Collective(Primitive::Alltoallv) { None } else { self.count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_reduce(count: Option<u64>) -> Call {
        Call { count, ..Call::new(1, 1, Operation::Collective(Primitive::AllReduce)) }
    }

    #[test]
    fn an_unknown_argument_agrees_with_any() {
        assert_eq!(all_reduce(None).differs(&all_reduce(Some(4))), None);
        assert_eq!(all_reduce(Some(3)).differs(&all_reduce(Some(4))), Some(Field::Count));
    }

    #[test]
    fn ranks_of_an_alltoallv_may_differ_in_count() {
        let call = |count| Call { count, ..Call::new(1, 1, Operation::Collective(Primitive::Alltoallv)) };
        assert_eq!(call(Some(3)).differs(&call(Some(4))), None);
    }

    #[test]
    fn a_call_reads_back_from_json() {
        let call = Call { dtype: Some(DType::Half), label: "lab.py:21".into(), ..all_reduce(Some(7)) };
        let json = serde_json::to_string(&call).unwrap();
        assert_eq!(serde_json::from_str::<Call>(&json).unwrap(), call);
    }
}
