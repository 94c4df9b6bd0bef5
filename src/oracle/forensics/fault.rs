//! What a wrong value can turn out to be.

use std::fmt;

use crate::case::DType;

/// A fault that would make just the values that were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Still the poison that was there before.
    Unwritten,
    /// Zero.
    Zero,
    /// Not a number.
    NotANumber,
    /// The filling of guard zones: read from outside a buffer.
    Guard,
    /// One bit flipped: the same everywhere, or any.
    BitFlipped(Option<u32>),
    /// This rank's own input, not reduced.
    OwnInput,
    /// The input of another rank alone, not reduced.
    InputOf(u32),
    /// One rank's contribution is missing.
    Missing(u32),
    /// One rank's contribution counts twice.
    Doubled(u32),
    /// The result of so many epochs before.
    Stale(u64),
    /// The value of the element so many further on.
    Shifted(i64),
    /// Two blocks so many elements apart have changed places.
    Swapped(u64),
    /// Data movement: the data of another rank.
    OtherRank(u32),
    /// Data movement: what belongs elsewhere in the buffer, so many elements further on.
    OtherPlace(i64),
    /// In place of one rank's contribution, the input of another.
    Slot {
        /// Whose contribution.
        rank: u32,
        /// Whose input was taken.
        read: u32,
    },
    /// In place of one rank's contribution, that of so many epochs before.
    StaleContribution {
        /// Whose.
        rank: u32,
        /// How long ago.
        epochs: u64,
    },
    /// In place of one rank's contribution, its own of the element so many further on.
    MovedContribution {
        /// Whose.
        rank: u32,
        /// How far.
        by: i64,
    },
    /// The right value, rounded to a narrower type on the way.
    Narrowed(DType),
}

impl Fault {
    /// Where several faults explain the same values, the one of the lowest number is the likeliest.
    ///
    /// A single wrong value is a flipped bit before it is anything that a whole chunk would show.
    pub(super) fn order(self, values: usize) -> u32 {
        match self {
            Fault::Unwritten => 0,
            Fault::BitFlipped(_) if values == 1 => 1,
            Fault::OwnInput => 2,
            Fault::Missing(_) => 3,
            Fault::Doubled(_) => 4,
            Fault::Stale(_) => 5,
            Fault::OtherRank(_) => 6,
            Fault::OtherPlace(_) => 7,
            Fault::Swapped(_) => 8,
            Fault::Shifted(_) => 9,
            Fault::InputOf(_) => 10,
            Fault::Slot { .. } => 11,
            Fault::StaleContribution { .. } => 12,
            Fault::MovedContribution { .. } => 13,
            Fault::Zero => 14,
            Fault::NotANumber => 15,
            Fault::Guard => 16,
            Fault::BitFlipped(Some(_)) => 17,
            Fault::BitFlipped(None) => 18,
            Fault::Narrowed(_) => 19,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Unwritten => write!(f, "never written"),
            Fault::Zero => write!(f, "zero"),
            Fault::NotANumber => write!(f, "not a number"),
            Fault::Guard => write!(f, "the filling of guard zones: read from outside a buffer"),
            Fault::BitFlipped(Some(bit)) => write!(f, "bit {bit} flipped"),
            Fault::BitFlipped(None) => write!(f, "one bit flipped, not always the same"),
            Fault::OwnInput => write!(f, "this rank's own input, not reduced"),
            Fault::InputOf(rank) => write!(f, "rank {rank}'s input, not reduced"),
            Fault::Missing(rank) => write!(f, "rank {rank}'s contribution is missing"),
            Fault::Doubled(rank) => write!(f, "rank {rank}'s contribution counts twice"),
            Fault::Stale(epochs) => write!(f, "the result of {}", before(*epochs)),
            Fault::Shifted(by) => write!(f, "the value of the element {} {}", by.unsigned_abs(), way(*by)),
            Fault::Swapped(apart) => write!(f, "blocks {apart} elements apart have changed places"),
            Fault::OtherRank(rank) => write!(f, "the data of rank {rank}"),
            Fault::OtherPlace(by) => {
                write!(f, "what belongs {} elements {} in this buffer", by.unsigned_abs(), way(*by))
            }
            Fault::Slot { rank, read } => write!(f, "rank {rank} contributed rank {read}'s input"),
            Fault::StaleContribution { rank, epochs } => {
                write!(f, "rank {rank} contributed its input of {}", before(*epochs))
            }
            Fault::MovedContribution { rank, by } => {
                write!(f, "rank {rank} contributed its input of the element {} {}", by.unsigned_abs(), way(*by))
            }
            Fault::Narrowed(to) => write!(f, "rounded to {to} on the way"),
        }
    }
}

fn before(epochs: u64) -> String {
    if epochs == 1 { "the run before".to_owned() } else { format!("{epochs} runs before") }
}

fn way(by: i64) -> &'static str {
    if by < 0 { "before" } else { "further on" }
}
