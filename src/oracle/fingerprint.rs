//! A number for the bits of a result.
//!
//! Where a check leaves a choice of roundings (an inexact float avg), it cannot tell whether ranks hold the same bits, nor
//! whether two runs gave the same. Their fingerprints do: one changed element changes it for certain, any other difference
//! but by chance.

/// What one element adds to the sum: all terms together, modulo 2^64, are the fingerprint. The finalizer is SplitMix64's.
/// `fingerprint_term` in `oracle.cuh` is the same.
#[inline]
pub const fn term(index: u64, bits: u64) -> u64 {
    let mut z = bits.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The sum over elements of `size` bytes, little-endian, the first of which is number `first` of its region.
pub fn sum(bytes: &[u8], size: usize, first: u64) -> u64 {
    let bits = |element: &[u8]| element.iter().rev().fold(0u64, |bits, byte| (bits << 8) | u64::from(*byte));
    let terms = bytes.chunks(size.max(1)).zip(first..).map(|(element, index)| term(index, bits(element)));
    terms.fold(0, u64::wrapping_add)
}

/// The fingerprint of several regions in a row.
pub const fn join(so_far: u64, next: u64) -> u64 {
    so_far.rotate_left(19) ^ next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_element_more_or_less_off_or_elsewhere_changes_it() {
        let bytes: Vec<u8> = (0..64u8).map(|b| b.wrapping_mul(37)).collect();
        let whole = sum(&bytes, 2, 0);
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_ne!(sum(&other, 2, 0), whole);
        }
        let mut swapped = bytes.clone();
        swapped.swap(0, 2);
        swapped.swap(1, 3);
        assert_ne!(sum(&swapped, 2, 0), whole);
        assert_ne!(sum(&bytes[2..], 2, 0), whole);
        assert_ne!(join(whole, 1), join(1, whole));
    }

    #[test]
    fn pieces_add_up_to_the_whole() {
        let bytes: Vec<u8> = (0..=255).collect();
        for size in [1, 2, 4, 8] {
            let parts = sum(&bytes[..64], size, 0).wrapping_add(sum(&bytes[64..], size, 64 / size as u64));
            assert_eq!(parts, sum(&bytes, size, 0));
        }
    }
}
