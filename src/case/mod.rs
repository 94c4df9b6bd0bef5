//! What can be asked of a machine: one case per primitive x op x dtype x size, and its name.

mod dtype;
mod forced;
mod op;
pub mod primitive;
mod size;
mod variant;

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

pub use dtype::{DType, FloatFormat, Kind};
pub use forced::{Forced, NotForced, Symmetric};
pub use op::Op;
pub use primitive::{Primitive, Workload};
pub use size::{BadSize, Bytes};
pub use variant::{UnknownVariant, Variant};

use crate::fault;

/// A name that is not one of a fixed set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} {given:?}; known are {known}")]
pub struct Unknown {
    what: &'static str,
    given: String,
    known: String,
}

impl Unknown {
    pub(crate) fn new<const N: usize>(what: &'static str, given: &str, known: [&str; N]) -> Self {
        Unknown { what, given: given.to_owned(), known: known.join(", ") }
    }
}

/// One test case. Its name means the same case forever.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Case {
    /// The collective.
    pub primitive: Primitive,
    /// The reduction; `None` exactly where the primitive only moves data.
    pub op: Option<Op>,
    /// The element type.
    pub dtype: DType,
    /// The size asked for: nccl-tests' size column.
    pub size: Bytes,
    /// Departures from the plain case, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<Variant>,
}

impl Case {
    /// The name: `primitive::op::dtype::size[@variant[+variant]...]`.
    pub fn name(&self) -> String {
        self.to_string()
    }

    /// The root rank of a rooted primitive.
    pub fn root(&self) -> u32 {
        let root = self.variants.iter().find_map(|v| match v {
            Variant::Root(rank) => Some(*rank),
            _ => None,
        });
        root.unwrap_or(0)
    }

    /// The path that NCCL must take; empty where it is NCCL's choice.
    pub fn forced(&self) -> Vec<Forced> {
        let forced = |v: &Variant| if let Variant::Path(forced) = v { Some(*forced) } else { None };
        self.variants.iter().filter_map(forced).collect()
    }

    /// The fault that it carries.
    pub fn fault(&self) -> Option<fault::Kind> {
        self.variants.iter().find_map(|v| if let Variant::Fault(kind) = v { Some(*kind) } else { None })
    }

    /// The same case without the fault.
    pub fn sound(&self) -> Case {
        let variants = self.variants.iter().copied().filter(|v| !matches!(v, Variant::Fault(_)));
        Case { variants: variants.collect(), ..self.clone() }
    }

    /// What `ranks` ranks do in this case.
    pub fn workload(&self, ranks: u32) -> Workload {
        Workload {
            bytes: self.size.0,
            dtype: self.dtype,
            ranks,
            root: self.root(),
            aligned: !self.variants.contains(&Variant::Odd),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let op = self.op.map_or("none", Op::name);
        write!(f, "{}::{op}::{}::{}", self.primitive, self.dtype, self.size)?;
        for (i, variant) in self.variants.iter().enumerate() {
            write!(f, "{}{variant}", if i == 0 { '@' } else { '+' })?;
        }
        Ok(())
    }
}

/// Why a text is not a case name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// Not four parts.
    #[error("{0:?} is not a case name: it reads primitive::op::dtype::size[@variant+...]")]
    Shape(String),
    /// A part that is not known.
    #[error(transparent)]
    Unknown(#[from] Unknown),
    /// The size.
    #[error(transparent)]
    Size(#[from] BadSize),
    /// A variant.
    #[error(transparent)]
    Variant(#[from] UnknownVariant),
    /// An op where there is none to choose, or none where one is needed.
    #[error("{0:?}: {1} takes {2}")]
    Op(String, Primitive, &'static str),
}

impl FromStr for Case {
    type Err = BadName;

    fn from_str(name: &str) -> Result<Self, BadName> {
        let (base, variants) = name.split_once('@').unwrap_or((name, ""));
        let parts: Vec<&str> = base.split("::").collect();
        let [primitive, op, dtype, size] = parts[..] else {
            return Err(BadName::Shape(name.to_owned()));
        };
        let primitive: Primitive = primitive.parse()?;
        let op = if op == "none" { None } else { Some(op.parse()?) };
        match (primitive.unit().reduces(), op) {
            (true, None) => return Err(BadName::Op(name.to_owned(), primitive, "an op, as sum")),
            (false, Some(_)) => return Err(BadName::Op(name.to_owned(), primitive, "no op: write none")),
            _ => {}
        }
        let mut variants =
            variants.split('+').filter(|v| !v.is_empty()).map(str::parse).collect::<Result<Vec<Variant>, _>>()?;
        variants.sort();
        Ok(Case { primitive, op, dtype: dtype.parse()?, size: size.parse()?, variants })
    }
}
