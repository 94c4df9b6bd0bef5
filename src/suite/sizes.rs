//! Message sizes of a suite: a geometric series or a list, and what `-b`, `-e` and `-f` make of them.

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

use crate::case::Bytes;

/// The factor of a series that names none.
pub const DEFAULT_FACTOR: u64 = 2;

/// Sizes of one block of a suite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sizes {
    /// `min * factor^k`, up to and including `max`.
    Series(Series),
    /// These and no others.
    List(Vec<Bytes>),
}

/// `min * factor^k`, up to and including `max`, for `k` from 0 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Series {
    /// The first size.
    pub min: Bytes,
    /// No size is above this.
    pub max: Bytes,
    /// From one size to the next, at least 2.
    pub factor: u64,
}

/// Sizes asked for on the command line, in place of the suite's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SizeOverride {
    /// `-b`.
    pub min: Option<Bytes>,
    /// `-e`.
    pub max: Option<Bytes>,
    /// `-f`.
    pub factor: Option<u64>,
}

impl SizeOverride {
    /// Whether it leaves the suite's sizes alone.
    pub fn is_empty(&self) -> bool {
        *self == SizeOverride::default()
    }

    /// Whether a size lies in the range asked for.
    pub fn allows(&self, size: Bytes) -> bool {
        self.min.is_none_or(|min| min <= size) && self.max.is_none_or(|max| size <= max)
    }
}

impl Sizes {
    /// The smallest and the largest size that the block states.
    pub fn bounds(&self) -> (Bytes, Bytes) {
        match self {
            Sizes::Series(series) => (series.min, series.max),
            Sizes::List(list) => {
                let min = list.iter().min().copied().unwrap_or(Bytes(u64::MAX));
                (min, list.iter().max().copied().unwrap_or(Bytes(0)))
            }
        }
    }

    /// The sizes, ascending and each once.
    ///
    /// An override that is not empty turns any sizes into a series; what it does not state is the block's own. The
    /// result is empty where the two ranges do not meet.
    pub fn expand(&self, over: &SizeOverride) -> Vec<Bytes> {
        match self {
            Sizes::List(list) if over.is_empty() => {
                let mut list = list.clone();
                list.sort_unstable();
                list.dedup();
                list
            }
            _ => {
                let (min, max) = self.bounds();
                let factor = match self {
                    Sizes::Series(series) => series.factor,
                    Sizes::List(_) => DEFAULT_FACTOR,
                };
                let series = Series {
                    min: over.min.unwrap_or(min),
                    max: over.max.unwrap_or(max),
                    factor: over.factor.unwrap_or(factor),
                };
                series.iter().collect()
            }
        }
    }
}

impl Series {
    /// Its members, ascending.
    pub fn iter(self) -> impl Iterator<Item = Bytes> {
        let first = (self.min <= self.max).then_some(self.min);
        std::iter::successors(first, move |size| {
            // a factor below 2 would never end
            size.0.checked_mul(self.factor.max(2)).map(Bytes).filter(|next| *next <= self.max)
        })
    }
}

/// A size in a suite file: `65536` or `"64KiB"`.
struct Size(Bytes);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SizeVisitor;

        impl Visitor<'_> for SizeVisitor {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size, as 65536 or \"64KiB\"")
            }

            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Size, E> {
                self.visit_str(&n.to_string())
            }

            fn visit_u64<E: de::Error>(self, n: u64) -> Result<Size, E> {
                self.visit_str(&n.to_string())
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map(Size).map_err(E::custom)
            }
        }

        deserializer.deserialize_any(SizeVisitor)
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct SeriesTable {
    min: Size,
    max: Size,
    factor: Option<i64>,
}

impl<'de> Deserialize<'de> for Sizes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SizesVisitor;

        impl<'de> Visitor<'de> for SizesVisitor {
            type Value = Sizes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("sizes, as [8, \"64KiB\"] or { min = 8, max = \"1GiB\", factor = 2 }")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Sizes, A::Error> {
                let list = Vec::<Size>::deserialize(SeqAccessDeserializer::new(seq))?;
                if list.is_empty() {
                    return Err(de::Error::invalid_length(0, &"at least one size"));
                }
                Ok(Sizes::List(list.into_iter().map(|size| size.0).collect()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Sizes, A::Error> {
                let table = SeriesTable::deserialize(MapAccessDeserializer::new(map))?;
                let (min, max) = (table.min.0, table.max.0);
                if min > max {
                    return Err(de::Error::custom(format_args!("min {min} is above max {max}, expected min <= max")));
                }
                let factor = match table.factor {
                    None => DEFAULT_FACTOR,
                    Some(factor) => u64::try_from(factor).ok().filter(|f| *f >= 2).ok_or_else(|| {
                        de::Error::custom(format_args!("factor {factor}, expected a whole number from 2 on"))
                    })?,
                };
                Ok(Sizes::Series(Series { min, max, factor }))
            }
        }

        deserializer.deserialize_any(SizesVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(min: u64, max: u64, factor: u64) -> Sizes {
        Sizes::Series(Series { min: Bytes(min), max: Bytes(max), factor })
    }

    fn expand(sizes: &Sizes, min: Option<u64>, max: Option<u64>, factor: Option<u64>) -> Vec<u64> {
        let over = SizeOverride { min: min.map(Bytes), max: max.map(Bytes), factor };
        sizes.expand(&over).into_iter().map(|b| b.0).collect()
    }

    #[test]
    fn a_series_holds_both_ends_and_stops_before_it_would_overflow() {
        assert_eq!(expand(&series(8, 64, 2), None, None, None), [8, 16, 32, 64]);
        assert_eq!(expand(&series(8, 63, 2), None, None, None), [8, 16, 32]);
        assert_eq!(expand(&series(5, 5, 7), None, None, None), [5]);
        assert_eq!(expand(&series(1 << 62, u64::MAX, 4), None, None, None), [1 << 62]);
    }

    #[test]
    fn a_list_comes_out_ascending_and_each_once() {
        let list = Sizes::List([1000, 8, 1000].map(Bytes).to_vec());
        assert_eq!(expand(&list, None, None, None), [8, 1000]);
    }

    #[test]
    fn an_override_makes_a_series_of_what_it_states_and_of_the_rest_of_the_block() {
        let list = Sizes::List([8, 1000].map(Bytes).to_vec());
        assert_eq!(expand(&list, None, None, Some(10)), [8, 80, 800]);
        assert_eq!(expand(&list, Some(500), None, None), [500, 1000]);
        assert_eq!(expand(&series(8, 64, 4), None, Some(512), None), [8, 32, 128, 512]);
        assert!(expand(&series(8, 64, 4), Some(65), None, None).is_empty());
    }
}
