//! Values of data types: bits to numbers and back, correctly rounded, for all twelve.

use crate::case::{DType, FloatFormat, Kind};

impl FloatFormat {
    /// The value of finite bits; exact, as no format here is wider than a double.
    pub fn decode(&self, bits: u64, width_bits: u32) -> f64 {
        let magnitude = bits & !(1 << (width_bits - 1));
        let negative = bits >> (width_bits - 1) & 1 == 1;
        let fraction_mask = (1u64 << self.fraction_bits) - 1;
        let field = (magnitude >> self.fraction_bits) as i32;
        let fraction = magnitude & fraction_mask;
        let value = if self.infinity == Some(magnitude) {
            f64::INFINITY
        } else if magnitude > self.max_finite {
            f64::NAN
        } else if width_bits == 64 {
            f64::from_bits(magnitude)
        } else if field == 0 {
            scale(fraction as f64, 1 - self.bias - self.fraction_bits as i32)
        } else {
            let significand = fraction | 1 << self.fraction_bits;
            scale(significand as f64, field - self.bias - self.fraction_bits as i32)
        };
        if negative { -value } else { value }
    }

    /// The bits of the nearest value, ties to even. Beyond the largest finite value: infinity, or NaN where there is none.
    ///
    /// The argument is taken as exact, so this rounds once; `half::*::from_f64` would round twice.
    pub fn encode(&self, value: f64, width_bits: u32) -> u64 {
        let sign = u64::from(value.is_sign_negative()) << (width_bits - 1);
        let nan = (1u64 << (width_bits - 1)) - 1;
        if value.is_nan() {
            return sign | nan;
        }
        let overflow = self.infinity.unwrap_or(nan);
        if value.is_infinite() {
            return sign | overflow;
        }
        let raw = value.abs().to_bits();
        if width_bits == 64 {
            return sign | raw;
        }
        let field = (raw >> 52) as i32;
        if field == 0 {
            return sign; // a double's subnormals are below half of every other format's smallest
        }
        let significand = raw & ((1 << 52) - 1) | 1 << 52;
        let exponent = field - 1023;
        let smallest = 1 - self.bias;
        // the unit in the last place of the result, as a power of two
        let quantum = exponent.max(smallest) - self.fraction_bits as i32;
        let shift = quantum - (exponent - 52);
        if shift > 54 {
            return sign;
        }
        let quotient = significand >> shift;
        let rest = significand & ((1 << shift) - 1);
        let half = 1u64 << (shift - 1);
        let up = rest > half || (rest == half && quotient & 1 == 1);
        let rounded = quotient + u64::from(up);
        let magnitude = if exponent < smallest {
            rounded
        } else {
            // the hidden bit adds one to the exponent field, and so does a carry
            (((exponent - smallest) as u64) << self.fraction_bits) + rounded
        };
        sign | if magnitude > self.max_finite { overflow } else { magnitude }
    }
}

/// `value * 2^exponent`, exact while the result is a normal double.
fn scale(value: f64, exponent: i32) -> f64 {
    value * f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// An element as people read it: value and bits, as `1.5 (0x3fc00000)`.
pub fn show(dtype: DType, bits: u64) -> String {
    let digits = 2 * dtype.size() as usize;
    let width = 8 * dtype.size() as u32;
    let bits = bits & dtype.mask();
    match dtype.kind() {
        Kind::Unsigned => format!("{bits} (0x{bits:0digits$x})"),
        Kind::Signed => {
            let value = ((bits << (64 - width)) as i64) >> (64 - width);
            format!("{value} (0x{bits:0digits$x})")
        }
        Kind::Float(format) => {
            let value = format.decode(bits, width);
            let value = match dtype {
                DType::Double => format!("{value:?}"),
                _ => format!("{:?}", value as f32),
            };
            format!("{value} (0x{bits:0digits$x})")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small_formats() -> impl Iterator<Item = (DType, FloatFormat, u32)> {
        DType::ALL
            .into_iter()
            .filter_map(|d| d.float().map(|f| (d, f, 8 * d.size() as u32)))
            .filter(|(_, _, w)| *w <= 16)
    }

    #[test]
    fn every_finite_code_reads_back() {
        for (dtype, format, width) in small_formats() {
            for bits in 0..1u64 << width {
                let value = format.decode(bits, width);
                if value.is_nan() {
                    assert!(format.decode(format.encode(value, width), width).is_nan());
                } else {
                    assert_eq!(format.encode(value, width), bits, "{dtype} {bits:#x} is {value}");
                }
            }
        }
    }

    #[test]
    fn codes_agree_with_the_half_crate() {
        for bits in 0..=u16::MAX {
            let half = half::f16::from_bits(bits).to_f64();
            let bf16 = half::bf16::from_bits(bits).to_f64();
            let ours = DType::Half.float().unwrap().decode(bits.into(), 16);
            assert!(ours == half || (ours.is_nan() && half.is_nan()));
            let ours = DType::Bfloat16.float().unwrap().decode(bits.into(), 16);
            assert!(ours == bf16 || (ours.is_nan() && bf16.is_nan()));
        }
    }

    /// All values between neighbouring codes round to the nearer one, ties to the even one.
    #[test]
    fn rounding_is_to_nearest_even() {
        for (dtype, format, width) in small_formats() {
            for bits in 0..format.max_finite {
                let (low, high) = (format.decode(bits, width), format.decode(bits + 1, width));
                let middle = (low + high) / 2.0;
                let even = bits + (bits & 1);
                assert_eq!(format.encode(middle, width), even, "{dtype} {middle}");
                assert_eq!(format.encode(middle - (high - low) / 1e6, width), bits, "{dtype}");
                assert_eq!(format.encode(middle + (high - low) / 1e6, width), bits + 1, "{dtype}");
            }
        }
        // where double rounding through f32 goes wrong
        let bf16 = DType::Bfloat16.float().unwrap();
        assert_eq!(bf16.encode(1.0 + 2f64.powi(-8) + 2f64.powi(-40), 16), 0x3f81);
    }

    #[test]
    fn eight_bit_floats_have_their_published_limits() {
        let (e4m3, e5m2) = (DType::F8e4m3.float().unwrap(), DType::F8e5m2.float().unwrap());
        assert_eq!(e4m3.decode(0x7e, 8), 448.0);
        assert!(e4m3.decode(0x7f, 8).is_nan());
        assert_eq!(e4m3.decode(0x01, 8), 2f64.powi(-9));
        assert_eq!(e5m2.decode(0x7b, 8), 57344.0);
        assert_eq!(e5m2.decode(0xfc, 8), f64::NEG_INFINITY);
        assert_eq!(e5m2.decode(0x01, 8), 2f64.powi(-16));
    }
}
