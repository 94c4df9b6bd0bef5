//! half, in blocks: the `half` crate converts slices by the processor's own instructions where it has them.

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::element::Element;
use super::kernel::{Combine, Loops, Max, Min, Prod, Sum};
use crate::case::Op;

/// Elements converted at a time.
const BLOCK: usize = 128;

pub(super) fn loops(op: Op) -> Loops {
    match op {
        Op::Sum | Op::Avg | Op::Mulsum => blocks::<Sum>(),
        Op::Prod => blocks::<Prod>(),
        Op::Min => blocks::<Min>(),
        Op::Max => blocks::<Max>(),
    }
}

fn blocks<C: Combine>() -> Loops {
    Loops { combine: combine::<C>, accumulate: accumulate::<C>, scale, scale_in_place, divide: None }
}

/// A block as f32.
struct Block {
    narrow: [f16; BLOCK],
    wide: [f32; BLOCK],
}

impl Block {
    fn new() -> Block {
        Block { narrow: [f16::ZERO; BLOCK], wide: [0.0; BLOCK] }
    }

    fn load(&mut self, bytes: &[u8]) {
        for (narrow, raw) in self.narrow.iter_mut().zip(bytes.chunks_exact(2)) {
            let mut two = [0; 2];
            two.copy_from_slice(raw);
            *narrow = f16::from_le_bytes(two);
        }
        self.narrow.convert_to_f32_slice(&mut self.wide);
    }

    fn store(&mut self, bytes: &mut [u8]) {
        self.narrow.convert_from_f32_slice(&self.wide);
        for (narrow, raw) in self.narrow.iter().zip(bytes.chunks_exact_mut(2)) {
            raw.copy_from_slice(&narrow.to_le_bytes());
        }
    }

    fn combine<C: Combine>(&mut self, other: &Block) {
        for (a, b) in self.wide.iter_mut().zip(&other.wide) {
            *a = C::combine(*a, *b);
        }
    }
}

fn combine<C: Combine>(to: &mut [u8], a: &[u8], b: &[u8]) {
    let (mut x, mut y) = (Block::new(), Block::new());
    let pairs = a.chunks(2 * BLOCK).zip(b.chunks(2 * BLOCK));
    for (to, (a, b)) in to.chunks_mut(2 * BLOCK).zip(pairs) {
        x.load(a);
        y.load(b);
        x.combine::<C>(&y);
        x.store(to);
    }
}

fn accumulate<C: Combine>(acc: &mut [u8], b: &[u8]) {
    let (mut x, mut y) = (Block::new(), Block::new());
    for (acc, b) in acc.chunks_mut(2 * BLOCK).zip(b.chunks(2 * BLOCK)) {
        x.load(acc);
        y.load(b);
        x.combine::<C>(&y);
        x.store(acc);
    }
}

fn scale(to: &mut [u8], a: &[u8], scalar: u64) {
    let scalar = f16::from_bits(scalar as u16).to_f32();
    let mut x = Block::new();
    for (to, a) in to.chunks_mut(2 * BLOCK).zip(a.chunks(2 * BLOCK)) {
        x.load(a);
        x.wide.iter_mut().for_each(|value| *value = value.mul(scalar));
        x.store(to);
    }
}

fn scale_in_place(acc: &mut [u8], scalar: u64) {
    let scalar = f16::from_bits(scalar as u16).to_f32();
    let mut x = Block::new();
    for acc in acc.chunks_mut(2 * BLOCK) {
        x.load(acc);
        x.wide.iter_mut().for_each(|value| *value = value.mul(scalar));
        x.store(acc);
    }
}
