//! The first bytes of a connection.

/// Bytes of a communicator's token.
pub const TOKEN: usize = 16;

/// Bytes of a hello.
pub const BYTES: usize = 8 + TOKEN + 12;

/// Goes up with every change of what crosses a connection.
const MAGIC: [u8; 8] = *b"collchk1";

/// Which of a rank's channels; two ranks have at most one of each kind in each direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// To the next rank.
    Ring,
    /// To the parent in the tree.
    Up,
    /// To a child in the tree.
    Down,
    /// Between a pair.
    Pair,
}

const KINDS: [Kind; 4] = [Kind::Ring, Kind::Up, Kind::Down, Kind::Pair];

/// Who a connection is from, and what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// The communicator's.
    pub token: [u8; TOKEN],
    /// The channel.
    pub kind: Kind,
    /// The writer.
    pub from: u32,
    /// The reader.
    pub to: u32,
}

impl Hello {
    /// As it is sent.
    pub fn to_bytes(self) -> [u8; BYTES] {
        let kind = KINDS.iter().position(|kind| *kind == self.kind).unwrap_or_default() as u32;
        let mut bytes = [0; BYTES];
        let parts = MAGIC.into_iter().chain(self.token);
        let parts = parts.chain([kind, self.from, self.to].into_iter().flat_map(u32::to_le_bytes));
        bytes.iter_mut().zip(parts).for_each(|(byte, part)| *byte = part);
        bytes
    }

    /// As it was received, if it is one.
    pub fn from_bytes(bytes: &[u8; BYTES]) -> Option<Hello> {
        let (magic, rest) = bytes.split_first_chunk()?;
        let (token, rest) = rest.split_first_chunk()?;
        let mut words = rest.chunks_exact(4).map(|word| word.first_chunk().map(|word| u32::from_le_bytes(*word)));
        let mut word = || words.next().flatten();
        let (kind, from, to) = (word()?, word()?, word()?);
        let kind = *KINDS.get(kind as usize)?;
        (*magic == MAGIC).then_some(Hello { token: *token, kind, from, to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_comes_back_as_it_went_and_garbage_is_none() {
        for kind in KINDS {
            let hello = Hello { token: [7; TOKEN], kind, from: 3, to: u32::MAX };
            assert_eq!(Hello::from_bytes(&hello.to_bytes()), Some(hello));
            for at in [0, 8 + TOKEN + 1] {
                let mut bytes = hello.to_bytes();
                bytes[at] ^= 1;
                assert_eq!(Hello::from_bytes(&bytes), None, "byte {at}");
            }
        }
    }
}
