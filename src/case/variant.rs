//! Variants: what a case does otherwise than the plain one, as suffixes of its name.
//!
//! A new variant is one line in [`Variant`], its spelling below, and the place in the worker that honours it.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

use super::Forced;

/// One departure from the plain case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Variant {
    /// The root of a rooted primitive, when it is not rank 0.
    Root(u32),
    /// Counts of gather-like primitives are not rounded down to 16 bytes.
    Odd,
    /// NCCL must take this path.
    Path(Forced),
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Variant::Root(rank) => write!(f, "root{rank}"),
            Variant::Odd => f.write_str("odd"),
            Variant::Path(forced) => forced.fmt(f),
        }
    }
}

/// A name suffix that no variant has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown variant {0:?}; known are rootN (as root3), odd, and paths as ring, ll128 or sym-agxll_r")]
pub struct UnknownVariant(String);

impl FromStr for Variant {
    type Err = UnknownVariant;

    fn from_str(s: &str) -> Result<Self, UnknownVariant> {
        if let Some(rank) = s.strip_prefix("root")
            && let Ok(rank) = rank.parse()
        {
            return Ok(Variant::Root(rank));
        }
        if let Ok(forced) = s.parse() {
            return Ok(Variant::Path(forced));
        }
        match s {
            "odd" => Ok(Variant::Odd),
            _ => Err(UnknownVariant(s.to_owned())),
        }
    }
}

impl From<Variant> for String {
    fn from(variant: Variant) -> String {
        variant.to_string()
    }
}

impl TryFrom<String> for Variant {
    type Error = UnknownVariant;

    fn try_from(text: String) -> Result<Self, UnknownVariant> {
        text.parse()
    }
}
