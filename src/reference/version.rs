//! Ranges of NCCL versions: `any`, `2.28`, `2.27-2.30` or `2.27+`.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

/// Major and minor version; patch levels do not count.
pub(super) type MajorMinor = (u32, u32);

/// NCCL versions that an environment key admits, ends included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NcclRange {
    /// All.
    #[default]
    Any,
    /// From one to another.
    Between(MajorMinor, MajorMinor),
    /// From this one on.
    From(MajorMinor),
}

/// A text that is no range of versions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no range of NCCL versions; expected any, 2.28, 2.27-2.30 or 2.27+")]
pub struct BadRange(String);

impl NcclRange {
    /// Whether `version` (`2.28.9`) is inside; `None` where the text names no version.
    pub fn admits(&self, version: &str) -> Option<bool> {
        if matches!(self, NcclRange::Any) {
            return Some(true);
        }
        let version = major_minor(version)?;
        Some(match self {
            NcclRange::Any => true,
            NcclRange::Between(low, high) => (*low..=*high).contains(&version),
            NcclRange::From(low) => version >= *low,
        })
    }

    /// 2 for one version, 1 for several, 0 for all.
    pub(super) fn specificity(&self) -> u32 {
        match self {
            NcclRange::Any => 0,
            NcclRange::Between(low, high) if low == high => 2,
            NcclRange::Between(..) | NcclRange::From(_) => 1,
        }
    }
}

/// The first two numbers of a version.
pub(super) fn major_minor(version: &str) -> Option<MajorMinor> {
    let mut parts = version.trim().split('.');
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?.parse().ok()?;
    Some((major, minor))
}

impl FromStr for NcclRange {
    type Err = BadRange;

    fn from_str(text: &str) -> Result<Self, BadRange> {
        let bad = || BadRange(text.to_owned());
        if text == "any" {
            return Ok(NcclRange::Any);
        }
        if let Some(low) = text.strip_suffix('+') {
            return major_minor(low).map(NcclRange::From).ok_or_else(bad);
        }
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        match (major_minor(low), major_minor(high)) {
            (Some(low), Some(high)) if low <= high => Ok(NcclRange::Between(low, high)),
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for NcclRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NcclRange::Any => f.write_str("any"),
            NcclRange::From((major, minor)) => write!(f, "{major}.{minor}+"),
            NcclRange::Between(low, high) if low == high => write!(f, "{}.{}", low.0, low.1),
            NcclRange::Between(low, high) => write!(f, "{}.{}-{}.{}", low.0, low.1, high.0, high.1),
        }
    }
}

impl Serialize for NcclRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

// By hand, so that an error is raised inside the reader, which then still knows the line.
impl<'de> Deserialize<'de> for NcclRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = NcclRange;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a range of NCCL versions: any, 2.28, 2.27-2.30 or 2.27+")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<NcclRange, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_read_back_and_include_their_ends() {
        for (range, version, inside) in [
            ("any", "2.4.8", Some(true)),
            ("any", "", Some(true)),
            ("2.28", "2.28.9", Some(true)),
            ("2.28", "2.29.2", Some(false)),
            ("2.9-2.27", "2.27.7", Some(true)),
            ("2.9-2.27", "2.9.0", Some(true)),
            ("2.9-2.27", "2.8.4", Some(false)),
            ("2.27+", "3.0.0", Some(true)),
            ("2.27+", "2.4.8", Some(false)),
            ("2.27+", "", None),
        ] {
            let read: NcclRange = range.parse().unwrap();
            assert_eq!(read.to_string(), range);
            assert_eq!(read.admits(version), inside, "{range} on {version:?}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "2", "2.30-2.27", "2.x", "newest", "+"] {
            assert!(text.parse::<NcclRange>().is_err(), "{text}");
        }
    }
}
