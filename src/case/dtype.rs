//! The twelve data types, with what the oracle needs to know of each.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

use super::Unknown;

/// A data type of a collective, named as nccl-tests names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum DType {
    Int8,
    Uint8,
    Int32,
    Uint32,
    Int64,
    Uint64,
    Half,
    Float,
    Double,
    Bfloat16,
    F8e4m3,
    F8e5m2,
}

/// How the bits of a data type are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Two's complement.
    Signed,
    /// Plain binary.
    Unsigned,
    /// Sign, exponent and fraction.
    Float(FloatFormat),
}

/// The parts of a binary floating-point format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloatFormat {
    /// Bits of the stored fraction, without the hidden bit.
    pub fraction_bits: u32,
    /// Exponent bias.
    pub bias: i32,
    /// Bits (without sign) of the largest finite value.
    pub max_finite: u64,
    /// Bits (without sign) of infinity, where the format has one.
    pub infinity: Option<u64>,
}

impl FloatFormat {
    /// Significand bits, the hidden one included.
    pub const fn precision(&self) -> u32 {
        self.fraction_bits + 1
    }
}

impl DType {
    /// All of them, in nccl-tests' order.
    pub const ALL: [DType; 12] = [
        DType::Int8,
        DType::Uint8,
        DType::Int32,
        DType::Uint32,
        DType::Int64,
        DType::Uint64,
        DType::Half,
        DType::Float,
        DType::Double,
        DType::Bfloat16,
        DType::F8e4m3,
        DType::F8e5m2,
    ];

    /// The name in case names and reports.
    pub const fn name(self) -> &'static str {
        match self {
            DType::Int8 => "int8",
            DType::Uint8 => "uint8",
            DType::Int32 => "int32",
            DType::Uint32 => "uint32",
            DType::Int64 => "int64",
            DType::Uint64 => "uint64",
            DType::Half => "half",
            DType::Float => "float",
            DType::Double => "double",
            DType::Bfloat16 => "bfloat16",
            DType::F8e4m3 => "f8e4m3",
            DType::F8e5m2 => "f8e5m2",
        }
    }

    /// Other spellings accepted on input.
    const fn aliases(self) -> &'static [&'static str] {
        match self {
            DType::Int8 => &["i8", "char"],
            DType::Uint8 => &["u8", "uchar", "byte"],
            DType::Int32 => &["i32", "int"],
            DType::Uint32 => &["u32", "uint"],
            DType::Int64 => &["i64"],
            DType::Uint64 => &["u64"],
            DType::Half => &["f16", "fp16", "float16"],
            DType::Float => &["f32", "fp32", "float32"],
            DType::Double => &["f64", "fp64", "float64"],
            DType::Bfloat16 => &["bf16"],
            DType::F8e4m3 => &["fp8e4m3", "fp8_e4m3", "e4m3", "float8e4m3", "float8_e4m3fn"],
            DType::F8e5m2 => &["fp8e5m2", "fp8_e5m2", "e5m2", "float8e5m2", "float8_e5m2"],
        }
    }

    /// Bytes of one element.
    pub const fn size(self) -> u64 {
        match self {
            DType::Int8 | DType::Uint8 | DType::F8e4m3 | DType::F8e5m2 => 1,
            DType::Half | DType::Bfloat16 => 2,
            DType::Int32 | DType::Uint32 | DType::Float => 4,
            DType::Int64 | DType::Uint64 | DType::Double => 8,
        }
    }

    /// How its bits are read.
    pub const fn kind(self) -> Kind {
        match self {
            DType::Int8 | DType::Int32 | DType::Int64 => Kind::Signed,
            DType::Uint8 | DType::Uint32 | DType::Uint64 => Kind::Unsigned,
            DType::Half => {
                Kind::Float(FloatFormat { fraction_bits: 10, bias: 15, max_finite: 0x7bff, infinity: Some(0x7c00) })
            }
            DType::Bfloat16 => {
                Kind::Float(FloatFormat { fraction_bits: 7, bias: 127, max_finite: 0x7f7f, infinity: Some(0x7f80) })
            }
            DType::Float => Kind::Float(FloatFormat {
                fraction_bits: 23,
                bias: 127,
                max_finite: 0x7f7f_ffff,
                infinity: Some(0x7f80_0000),
            }),
            DType::Double => Kind::Float(FloatFormat {
                fraction_bits: 52,
                bias: 1023,
                max_finite: 0x7fef_ffff_ffff_ffff,
                infinity: Some(0x7ff0_0000_0000_0000),
            }),
            DType::F8e4m3 => Kind::Float(FloatFormat { fraction_bits: 3, bias: 7, max_finite: 0x7e, infinity: None }),
            DType::F8e5m2 => {
                Kind::Float(FloatFormat { fraction_bits: 2, bias: 15, max_finite: 0x7b, infinity: Some(0x7c) })
            }
        }
    }

    /// The floating-point format, if it is one.
    pub const fn float(self) -> Option<FloatFormat> {
        match self.kind() {
            Kind::Float(format) => Some(format),
            _ => None,
        }
    }

    /// All bits of one element, as a mask.
    pub const fn mask(self) -> u64 {
        u64::MAX >> (64 - 8 * self.size())
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = Unknown;

    fn from_str(s: &str) -> Result<Self, Unknown> {
        let wanted = s.to_ascii_lowercase();
        DType::ALL
            .into_iter()
            .find(|d| d.name() == wanted || d.aliases().contains(&wanted.as_str()))
            .ok_or_else(|| Unknown::new("dtype", s, DType::ALL.map(DType::name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_and_alias_reads_back_and_none_is_shared() {
        let mut seen = std::collections::HashSet::new();
        for d in DType::ALL {
            for name in d.aliases().iter().chain([&d.name()]) {
                assert_eq!(name.parse::<DType>().ok(), Some(d));
                assert!(seen.insert(*name), "{name} names two dtypes");
            }
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let message = "float7".parse::<DType>().unwrap_err().to_string();
        assert!(message.contains("float7") && message.contains("bfloat16"), "{message}");
    }
}
