//! Elements as numbers that can be read from bytes of any alignment.

/// A number in the machine's own format, or widened to one.
pub(super) trait Element: Copy {
    /// Bytes.
    const SIZE: usize;
    /// From `SIZE` bytes.
    fn load(bytes: &[u8]) -> Self;
    /// To `SIZE` bytes.
    fn store(self, bytes: &mut [u8]);
    /// From the low bits.
    fn from_bits(bits: u64) -> Self;
    /// Sum; integers wrap.
    fn add(self, other: Self) -> Self;
    /// Product; integers wrap.
    fn mul(self, other: Self) -> Self;
    /// The smaller; of a number and a NaN the number.
    fn min(self, other: Self) -> Self;
    /// The larger; of a number and a NaN the number.
    fn max(self, other: Self) -> Self;
}

/// An element that averages divide: floats are scaled first instead.
pub(super) trait Integer: Element {
    /// The quotient by a positive number, towards zero.
    fn divide(self, divisor: u64) -> Self;
}

/// Loading and storing. Buffers are little-endian, as they are on GPUs.
macro_rules! native {
    ($type:ty) => {
        const SIZE: usize = size_of::<$type>();

        #[inline(always)]
        fn load(bytes: &[u8]) -> Self {
            let mut raw = [0; size_of::<$type>()];
            raw.copy_from_slice(bytes);
            <$type>::from_le_bytes(raw)
        }

        #[inline(always)]
        fn store(self, bytes: &mut [u8]) {
            bytes.copy_from_slice(&self.to_le_bytes());
        }
    };
}

macro_rules! integer {
    ($type:ty, $wide:ty) => {
        impl Element for $type {
            native!($type);

            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                bits as $type
            }

            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            #[inline(always)]
            fn min(self, other: Self) -> Self {
                Ord::min(self, other)
            }

            #[inline(always)]
            fn max(self, other: Self) -> Self {
                Ord::max(self, other)
            }
        }

        impl Integer for $type {
            #[inline(always)]
            fn divide(self, divisor: u64) -> Self {
                // Ranks fit in 32 bits, so the divisor fits either wide type.
                (self as $wide / Ord::max(divisor as $wide, 1)) as $type
            }
        }
    };
}

integer!(i8, i64);
integer!(u8, u64);
integer!(i32, i64);
integer!(u32, u64);
integer!(i64, i64);
integer!(u64, u64);

macro_rules! float {
    ($type:ty, $bits:ty) => {
        impl Element for $type {
            native!($type);

            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                <$type>::from_bits(bits as $bits)
            }

            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self + other
            }

            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                self * other
            }

            #[inline(always)]
            fn min(self, other: Self) -> Self {
                <$type>::min(self, other)
            }

            #[inline(always)]
            fn max(self, other: Self) -> Self {
                <$type>::max(self, other)
            }
        }
    };
}

float!(f32, u32);
float!(f64, u64);

/// bfloat16, held as the f32 of the same value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bfloat(f32);

impl Element for Bfloat {
    const SIZE: usize = 2;

    #[inline(always)]
    fn load(bytes: &[u8]) -> Self {
        let mut raw = [0; 2];
        raw.copy_from_slice(bytes);
        Self::from_bits(u16::from_le_bytes(raw).into())
    }

    /// Rounds to nearest even. Adding half of the dropped part's range carries into the kept part just when it must.
    #[inline(always)]
    fn store(self, bytes: &mut [u8]) {
        let bits = self.0.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        // a NaN whose payload is all in the dropped part must stay one
        let quiet = bits >> 16 | 0x40;
        let kept = if self.0.is_nan() { quiet } else { rounded };
        bytes.copy_from_slice(&(kept as u16).to_le_bytes());
    }

    #[inline(always)]
    fn from_bits(bits: u64) -> Self {
        Bfloat(f32::from_bits((bits as u32) << 16))
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Bfloat(self.0 + other.0)
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        Bfloat(self.0 * other.0)
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        Bfloat(self.0.min(other.0))
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        Bfloat(self.0.max(other.0))
    }
}
