//! Arguments of a call as words, and back. What does not decode is refused, never guessed.

use super::{Creation, LABEL_BYTES};
use crate::case::{DType, Op, Primitive};
use crate::trace::call::Operation;

const SEND: u64 = 0xf0;
const RECV: u64 = 0xf1;
const OTHER: u64 = 0xf2;
const HAS_COUNT: u64 = 1;
const HAS_ROOT: u64 = 2;
const LABEL_WORDS: usize = LABEL_BYTES / 8;

/// Arguments as read back.
pub(super) struct Arguments {
    pub operation: Operation,
    pub op: Option<Op>,
    pub dtype: Option<DType>,
    pub count: Option<u64>,
    pub root: Option<u32>,
}

/// Kind, op, dtype and flags in a byte each, then peer or root; and the count.
pub(super) fn pack(call: &Creation<'_>) -> (u64, u64) {
    let (kind, rank, rooted) = match call.operation {
        Operation::Collective(primitive) => (*primitive as u64, call.root.unwrap_or(0), call.root.is_some()),
        Operation::Send { peer } => (SEND, *peer, false),
        Operation::Recv { peer } => (RECV, *peer, false),
        Operation::Other(_) => (OTHER, call.root.unwrap_or(0), call.root.is_some()),
    };
    let op = call.op.map_or(0, |op| op as u64 + 1);
    let dtype = call.dtype.map_or(0, |dtype| dtype as u64 + 1);
    let flags = if call.count.is_some() { HAS_COUNT } else { 0 } | if rooted { HAS_ROOT } else { 0 };
    (kind | op << 8 | dtype << 16 | flags << 24 | u64::from(rank) << 32, call.count.unwrap_or(0))
}

/// `None` where a byte names nothing.
pub(super) fn unpack(packed: u64, count: u64) -> Option<Arguments> {
    fn pick<T: Copy>(all: &[T], byte: u64) -> Option<Option<T>> {
        match byte {
            0 => Some(None),
            n => all.get(n as usize - 1).copied().map(Some),
        }
    }
    let byte = |shift: u32| packed >> shift & 0xff;
    let rank = (packed >> 32) as u32;
    let operation = match byte(0) {
        SEND => Operation::Send { peer: rank },
        RECV => Operation::Recv { peer: rank },
        OTHER => Operation::Other("other".to_owned()),
        n => Operation::Collective(*Primitive::ALL.get(n as usize)?),
    };
    let flags = byte(24);
    if flags & !(HAS_COUNT | HAS_ROOT) != 0 {
        return None;
    }
    Some(Arguments {
        operation,
        op: pick(&Op::ALL, byte(8))?,
        dtype: pick(&DType::ALL, byte(16))?,
        count: (flags & HAS_COUNT != 0).then_some(count),
        root: (flags & HAS_ROOT != 0).then_some(rank),
    })
}

/// The label's words and its length in bytes, cut at a character's boundary.
pub(super) fn label(text: &str) -> ([u64; LABEL_WORDS], usize) {
    let mut bytes = text.len().min(LABEL_BYTES);
    while !text.is_char_boundary(bytes) {
        bytes -= 1;
    }
    let mut words = [0; LABEL_WORDS];
    for (word, chunk) in words.iter_mut().zip(text.as_bytes().get(..bytes).unwrap_or_default().chunks(8)) {
        let mut whole = [0u8; 8];
        for (to, from) in whole.iter_mut().zip(chunk) {
            *to = *from;
        }
        *word = u64::from_le_bytes(whole);
    }
    (words, bytes)
}

/// The label's text; `None` where it is too long or no text.
pub(super) fn text(words: &[u64], bytes: u64) -> Option<String> {
    let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= words.len() * 8)?;
    let mut all: Vec<u8> = words.iter().take(bytes.div_ceil(8)).flat_map(|word| word.to_le_bytes()).collect();
    all.truncate(bytes);
    String::from_utf8(all).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The codes are positions in the `ALL` lists; the casts above take declaration order for the same.
    #[test]
    fn declaration_order_is_the_order_of_the_lists() {
        assert!(Primitive::ALL.iter().enumerate().all(|(i, p)| *p as usize == i));
        assert!(Op::ALL.iter().enumerate().all(|(i, op)| *op as usize == i));
        assert!(DType::ALL.iter().enumerate().all(|(i, dtype)| *dtype as usize == i));
    }

    #[test]
    fn a_label_is_cut_between_characters() {
        let long = "é".repeat(LABEL_BYTES);
        let (words, bytes) = label(&format!("x{long}"));
        assert_eq!(bytes, LABEL_BYTES - 1);
        assert_eq!(text(&words, bytes as u64).unwrap(), format!("x{}", "é".repeat(LABEL_BYTES / 2 - 1)));
    }
}
