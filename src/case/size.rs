//! Message sizes: bytes, written with the largest binary unit that divides them.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A message size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, shift) in UNITS {
            if self.0 != 0 && self.0.trailing_zeros() >= shift {
                return f.pad(&format!("{}{unit}", self.0 >> shift));
            }
        }
        f.pad(&format!("{}B", self.0))
    }
}

/// Why a text is not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a size: {why} (write 8, 8B, 64K, 64KiB, 1M, 1G ...; units are powers of 1024)")]
pub struct BadSize {
    text: String,
    why: &'static str,
}

impl FromStr for Bytes {
    type Err = BadSize;

    fn from_str(text: &str) -> Result<Self, BadSize> {
        let bad = |why| BadSize { text: text.to_owned(), why };
        let trimmed = text.trim();
        if trimmed.starts_with('-') {
            return Err(bad("it is negative"));
        }
        let digits = trimmed.len() - trimmed.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if digits == 0 {
            return Err(bad("it does not start with a number"));
        }
        let (number, unit) = trimmed.split_at(digits);
        let number: u64 = number.parse().map_err(|_| bad("the number is too large"))?;
        let shift = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(bad("its unit is unknown")),
        };
        if number == 0 {
            return Err(bad("it is zero"));
        }
        if number.leading_zeros() <= shift {
            return Err(bad("it is too large"));
        }
        Ok(Bytes(number << shift))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printing_reads_back() {
        for bytes in [1, 8, 1000, 1024, 1536, 1 << 20, 3 << 20, 1 << 30, (1 << 32) + 3, (1 << 40) + 8, 1 << 45] {
            assert_eq!(Bytes(bytes).to_string().parse::<Bytes>(), Ok(Bytes(bytes)));
        }
        assert_eq!(Bytes(65536).to_string(), "64KiB");
    }

    #[test]
    fn nonsense_is_refused_with_the_reason() {
        for (text, why) in [
            ("1Q", "unit"),
            ("0", "zero"),
            ("-8", "negative"),
            ("", "number"),
            ("99999999999G", "too large"),
            ("K", "number"),
        ] {
            let message = text.parse::<Bytes>().unwrap_err().to_string();
            assert!(message.contains(why), "{text}: {message}");
        }
    }
}
