//! What a rank's buffers must hold before a case and after it: the semantics of a primitive, laid out in memory.

use crate::backend::{Buffer, Content, Placement};
use crate::case::Case;
use crate::case::primitive::{InPlace, Source};

/// Some elements of one buffer, and what is in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Which buffer.
    pub buffer: Buffer,
    /// First element.
    pub start: u64,
    /// Number of elements.
    pub len: u64,
    /// The contents.
    pub what: What,
}

/// What a piece holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Something that the case's own oracle defines.
    Data(Content),
    /// Noise that the collective has no business with.
    Filler,
}

/// One rank's side of one placement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Staging {
    /// Bytes of the send buffer in use; none in place.
    pub send_bytes: u64,
    /// Bytes of the receive buffer in use.
    pub recv_bytes: u64,
    /// To be written before the call.
    pub before: Vec<Piece>,
    /// The output: to be poisoned before the call (where the input does not lie there), and checked after it.
    pub output: Vec<Piece>,
    /// The part of `output` that holds nothing before the call.
    pub poison: Vec<Piece>,
    /// To be found unchanged after the call.
    pub survives: Vec<Piece>,
}

impl Staging {
    /// The staging of `rank`, or `None` where the primitive has no such placement.
    pub fn new(case: &Case, ranks: u32, rank: u32, placement: Placement) -> Option<Staging> {
        let unit = case.primitive.unit();
        let w = case.workload(ranks);
        let shape = unit.shape(&w);
        let size = case.dtype.size();
        let (place, send_buffer) = match placement {
            Placement::OutOfPlace => (InPlace { send: 0, recv: 0 }, Buffer::Send),
            Placement::InPlace => (unit.in_place(&w, rank)?, Buffer::Recv),
        };
        let sends = unit.sends(&w, rank);
        let input = |start: u64, end: u64| Piece {
            buffer: send_buffer,
            start,
            len: end - start,
            what: What::Data(Content::Input { rank, element: start - place.send }),
        };
        let output = unit
            .expected(&w, rank)
            .into_iter()
            .map(|s| Piece {
                buffer: Buffer::Recv,
                start: place.recv + s.start,
                len: s.len,
                what: What::Data(match s.source {
                    Source::Reduced { element } => Content::Reduced { element },
                    Source::Rank { rank, element } => Content::Input { rank, element },
                }),
            })
            .collect();
        let mut staging = Staging { output, ..Staging::default() };
        let send = if sends { (place.send, place.send + shape.send) } else { (0, 0) };
        if sends {
            staging.before.push(input(send.0, send.1));
        }
        match placement {
            Placement::OutOfPlace => {
                staging.send_bytes = shape.send * size;
                staging.recv_bytes = shape.recv * size;
                staging.poison = staging.output.clone();
                if sends {
                    staging.survives.push(input(send.0, send.1));
                }
            }
            Placement::InPlace => {
                staging.recv_bytes = shape.send.max(shape.recv) * size;
                let written: Vec<(u64, u64)> = staging.output.iter().map(|p| (p.start, p.start + p.len)).collect();
                staging.poison = staging.output.iter().flat_map(|p| outside(p, send)).collect();
                // what was sent and is not overwritten stays
                for (start, end) in gaps(send, &written) {
                    staging.survives.push(input(start, end));
                }
            }
        }
        if staging.output.is_empty() && !(placement == Placement::InPlace && sends) {
            // a rank that receives nothing, as all but the root of a reduce: its receive buffer is left alone
            let filler = Piece { buffer: Buffer::Recv, start: place.recv, len: shape.recv, what: What::Filler };
            staging.before.push(filler);
            staging.survives.push(filler);
        }
        Some(staging)
    }

    /// Elements checked in the output.
    pub fn outputs(&self) -> u64 {
        self.output.iter().map(|p| p.len).sum()
    }
}

/// The parts of a piece outside `range`.
fn outside(piece: &Piece, range: (u64, u64)) -> impl Iterator<Item = Piece> {
    let end = piece.start + piece.len;
    let parts = [(piece.start, end.min(range.0.max(piece.start))), (piece.start.max(range.1.min(end)), end)];
    let piece = *piece;
    let whole = range.0 >= range.1 || range.1 <= piece.start || range.0 >= end;
    let parts = if whole { vec![(piece.start, end)] } else { parts.to_vec() };
    parts.into_iter().filter(|(a, b)| a < b).map(move |(a, b)| {
        let skip = a - piece.start;
        let what = match piece.what {
            What::Data(Content::Input { rank, element }) => {
                What::Data(Content::Input { rank, element: element + skip })
            }
            What::Data(Content::Reduced { element }) => What::Data(Content::Reduced { element: element + skip }),
            What::Filler => What::Filler,
        };
        Piece { start: a, len: b - a, what, ..piece }
    })
}

/// The parts of `range` that no piece covers; `covered` is in order.
fn gaps(range: (u64, u64), covered: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut gaps = Vec::new();
    let mut at = range.0;
    for &(start, end) in covered {
        if start > at {
            gaps.push((at, start.min(range.1)));
        }
        at = at.max(end);
    }
    if at < range.1 {
        gaps.push((at, range.1));
    }
    gaps.retain(|(a, b)| a < b);
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn staging(name: &str, ranks: u32, rank: u32, placement: Placement) -> Staging {
        Staging::new(&name.parse().unwrap(), ranks, rank, placement).unwrap()
    }

    #[test]
    fn out_of_place_the_whole_output_is_poisoned_and_the_input_survives() {
        let s = staging("all_reduce::sum::float::64B", 4, 1, Placement::OutOfPlace);
        assert_eq!((s.send_bytes, s.recv_bytes), (64, 64));
        assert_eq!(s.poison, s.output);
        assert_eq!(s.survives, s.before);
    }

    #[test]
    fn in_place_all_reduce_has_nothing_to_poison_and_nothing_that_survives() {
        let s = staging("all_reduce::sum::float::64B", 4, 1, Placement::InPlace);
        assert_eq!((s.send_bytes, s.recv_bytes), (0, 64));
        assert!(s.poison.is_empty() && s.survives.is_empty());
    }

    #[test]
    fn in_place_all_gather_poisons_all_blocks_but_its_own() {
        let s = staging("all_gather::none::float::64B", 4, 1, Placement::InPlace);
        let poisoned: Vec<_> = s.poison.iter().map(|p| (p.start, p.len)).collect();
        assert_eq!(poisoned, [(0, 4), (8, 4), (12, 4)]);
        assert_eq!(
            s.before,
            [Piece {
                buffer: Buffer::Recv,
                start: 4,
                len: 4,
                what: What::Data(Content::Input { rank: 1, element: 0 })
            }]
        );
    }

    #[test]
    fn in_place_reduce_scatter_leaves_the_other_blocks_alone() {
        let s = staging("reduce_scatter::sum::float::64B", 4, 2, Placement::InPlace);
        let kept: Vec<_> = s.survives.iter().map(|p| (p.start, p.len)).collect();
        assert_eq!(kept, [(0, 8), (12, 4)]);
        assert_eq!(s.survives[1].what, What::Data(Content::Input { rank: 2, element: 12 }));
    }

    #[test]
    fn a_rank_that_receives_nothing_keeps_what_it_had() {
        let s = staging("reduce::sum::float::64B", 4, 3, Placement::OutOfPlace);
        assert!(s.output.is_empty());
        assert!(s.survives.iter().any(|p| p.buffer == Buffer::Recv && p.what == What::Filler && p.len == 16));
        let s = staging("reduce::sum::float::64B", 4, 3, Placement::InPlace);
        assert_eq!(
            s.survives,
            [Piece {
                buffer: Buffer::Recv,
                start: 0,
                len: 16,
                what: What::Data(Content::Input { rank: 3, element: 0 })
            }]
        );
    }

    #[test]
    fn more_than_2_to_the_32_elements_are_laid_out_in_full() {
        let bytes = (1u64 << 32) + 3;
        let s = staging(&format!("all_reduce::sum::int8::{bytes}B"), 2, 1, Placement::OutOfPlace);
        assert_eq!((s.send_bytes, s.recv_bytes, s.outputs(), s.survives[0].len), (bytes, bytes, bytes, bytes));
        let s = staging(&format!("all_gather::none::int8::{bytes}B@odd"), 2, 1, Placement::InPlace);
        assert_eq!((s.output[1].start, s.output[1].len), (bytes / 2, bytes / 2));
        let s = staging("reduce_scatter::sum::double::64GiB", 3, 2, Placement::InPlace);
        let kept: u64 = s.survives.iter().map(|p| p.len).sum();
        assert!(s.outputs() + kept == s.before[0].len && s.output[0].start > 1 << 32);
    }

    #[test]
    fn there_is_no_in_place_alltoall() {
        assert!(Staging::new(&"alltoall::none::float::64B".parse().unwrap(), 4, 0, Placement::InPlace).is_none());
    }
}
