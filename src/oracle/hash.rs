//! The counter-based hash that all inputs come from. Written twice: here and in `kernels/oracle.cuh`.

/// A key of the hash: one stream of random words.
pub type Key = [u32; 2];

/// Random word `w` of a stream.
///
/// For a fixed key this is a bijection of the low half of `w`, so that words of one stream within 16 GiB never repeat.
/// The second half of the key enters between the two rounds, so that streams are not shifts of each other.
#[inline]
pub fn word(key: Key, w: u64) -> u32 {
    let mut x = (w as u32) ^ key[0] ^ ((w >> 32) as u32).wrapping_mul(0x9e37_79b1);
    x ^= x >> 16;
    x = x.wrapping_mul(0x7feb_352d);
    x ^= key[1];
    x ^= x >> 15;
    x = x.wrapping_mul(0x846c_a68b);
    x ^ (x >> 16)
}

/// The `k`-th sub-stream of a stream.
#[inline]
pub fn sub(key: Key, k: u32) -> Key {
    [key[0].wrapping_add(k.wrapping_mul(0x9e37_79b9)), key[1] ^ k.wrapping_mul(0x85eb_ca6b)]
}

/// Element `i` of a stream packed into elements of `width` bytes: words hold 4 / `width` elements, or half of one.
#[inline]
pub fn element(key: Key, width: u32, i: u64) -> u64 {
    match width {
        1 => u64::from(word(key, i >> 2) >> (8 * (i & 3)) & 0xff),
        2 => u64::from(word(key, i >> 1) >> (16 * (i & 1)) & 0xffff),
        4 => u64::from(word(key, i)),
        _ => u64::from(word(key, 2 * i)) | u64::from(word(key, 2 * i + 1)) << 32,
    }
}

/// A number for element `i` that is as wide as it needs: 64 bits for 8-byte elements, else 32.
#[inline]
pub fn draw(key: Key, width: u32, i: u64) -> u64 {
    if width == 8 { element(key, 8, i) } else { u64::from(word(key, i)) }
}

/// Maps a [`draw`] to `0..range`.
#[inline]
pub fn below(draw: u64, width: u32, range: u64) -> u64 {
    let bits = if width == 8 { 64 } else { 32 };
    ((u128::from(draw) * u128::from(range)) >> bits) as u64
}

/// Mixes 64 bits (the finaliser of SplitMix64): for keys, on the host only.
pub fn mix64(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The key of the stream named by `parts`.
pub fn key(parts: &[u64]) -> Key {
    let z = parts.iter().fold(0x636f_6c6c_6368_6563, |acc, &part| mix64(acc ^ mix64(part)));
    [z as u32, (z >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_stream_do_not_repeat_and_look_random() {
        let key = key(&[1, 2, 3]);
        let words: Vec<u32> = (0..1 << 16).map(|w| word(key, w)).collect();
        let distinct: std::collections::HashSet<_> = words.iter().collect();
        assert_eq!(distinct.len(), words.len());
        for bit in 0..32 {
            let ones = words.iter().filter(|w| *w >> bit & 1 == 1).count();
            assert!((32_000..33_500).contains(&ones), "bit {bit}: {ones} of 65536");
        }
    }

    #[test]
    fn an_index_above_32_bits_is_another_word() {
        let key = key(&[7]);
        assert_ne!(word(key, 5), word(key, 5 | 1 << 32));
    }

    #[test]
    fn elements_tile_the_words() {
        let key = key(&[9]);
        for i in 0..64u64 {
            let word = u64::from(word(key, i));
            let bytes = (0..4).map(|b| element(key, 1, 4 * i + b) << (8 * b)).sum::<u64>();
            let halves = (0..2).map(|h| element(key, 2, 2 * i + h) << (16 * h)).sum::<u64>();
            assert_eq!((word, word), (bytes, halves));
        }
    }
}
