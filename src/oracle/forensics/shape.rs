//! The shape of the damage: where wrong elements lie, from a bounded sample of them.

use std::fmt;

use crate::backend::Wrong;

/// Runs that are listed one by one.
const LISTED: usize = 4;

/// Where wrong elements lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Wrong elements in all.
    pub wrong: u64,
    /// Those that are known by index.
    pub sampled: usize,
    /// The lowest index known.
    pub first: u64,
    /// The highest index known.
    pub last: u64,
    /// Runs of neighbours among those known, as start and length; all there are if `complete`.
    pub runs: Vec<(u64, u64)>,
    /// Every wrong element is known.
    pub complete: bool,
    /// The largest step that leads from each to the next, if it is more than one.
    pub stride: Option<u64>,
    /// The damage reaches the last element of the buffer.
    pub to_the_end: bool,
    /// Bytes of an element.
    pub width: u64,
}

impl Shape {
    /// The shape of a sorted sample; `end` is where the checked elements end.
    pub(super) fn new(sample: &[Wrong], wrong: u64, width: u64, end: u64) -> Shape {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        let mut step = 0;
        let mut before: Option<u64> = None;
        for index in sample.iter().map(|w| w.index) {
            match runs.last_mut() {
                Some((start, len)) if *start + *len == index => *len += 1,
                _ => runs.push((index, 1)),
            }
            step = gcd(before.map_or(0, |before| index - before), step);
            before = Some(index);
        }
        let (first, last) = (sample.first().map_or(0, |w| w.index), sample.last().map_or(0, |w| w.index));
        Shape {
            wrong,
            sampled: sample.len(),
            first,
            last,
            runs,
            complete: sample.len() as u64 >= wrong,
            stride: (step > 1 && sample.len() > 2).then_some(step),
            to_the_end: !sample.is_empty() && last + 1 == end,
            width,
        }
    }

    /// All wrong elements lie side by side, as far as that can be known.
    pub fn is_one_run(&self) -> bool {
        self.complete && self.runs.len() == 1
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The largest power of two that divides a byte offset, if it is one that buffers are cut by: 16 bytes and more.
fn cut(bytes: u64) -> Option<String> {
    let power = 1u64 << bytes.trailing_zeros().min(22);
    if bytes == 0 || power < 16 {
        return None;
    }
    Some(crate::case::Bytes(power).to_string())
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.sampled == 0 {
            return write!(f, "{} wrong elements, none of them known", self.wrong);
        }
        if self.wrong == 1 {
            write!(f, "element {}", self.first)?;
        } else if self.is_one_run() {
            write!(f, "elements {} to {}", self.first, self.last)?;
        } else if self.complete && self.runs.len() <= LISTED {
            write!(f, "{} elements:", self.wrong)?;
            for (k, (start, len)) in self.runs.iter().enumerate() {
                let comma = if k == 0 { "" } else { "," };
                match len {
                    1 => write!(f, "{comma} {start}")?,
                    _ => write!(f, "{comma} {start} to {}", start + len - 1)?,
                }
            }
        } else {
            let known = if self.complete { "" } else { "at least " };
            write!(f, "{} elements, from {} to {known}{}", self.wrong, self.first, self.last)?;
        }
        if let Some(stride) = self.stride {
            write!(f, ", in steps of {stride}")?;
        }
        if let Some(cut) = cut(self.first * self.width) {
            write!(f, ", from a multiple of {cut} on")?;
        }
        match cut((self.last + 1) * self.width) {
            _ if self.to_the_end && self.wrong > 1 => write!(f, ", to the end of the buffer")?,
            Some(cut) if self.is_one_run() && self.wrong > 1 => write!(f, ", up to a multiple of {cut}")?,
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(indices: &[u64], wrong: u64, width: u64, end: u64) -> Shape {
        let sample: Vec<Wrong> = indices.iter().map(|&index| Wrong { index, actual: 0, expected: 1 }).collect();
        Shape::new(&sample, wrong, width, end)
    }

    #[test]
    fn a_chunk_is_told_by_its_ends() {
        let run: Vec<u64> = (8192..8320).collect();
        let shape = shape(&run, 128, 4, 65536);
        assert!(shape.is_one_run() && !shape.to_the_end);
        assert_eq!(shape.to_string(), "elements 8192 to 8319, from a multiple of 32KiB on, up to a multiple of 512B");
    }

    #[test]
    fn a_tail_is_told_as_one() {
        assert_eq!(shape(&[97, 98, 99], 3, 4, 100).to_string(), "elements 97 to 99, to the end of the buffer");
    }

    #[test]
    fn a_stride_is_found() {
        let shape = shape(&[3, 7, 11, 19], 4, 8, 1000);
        assert_eq!(shape.stride, Some(4));
        assert_eq!(shape.to_string(), "4 elements: 3, 7, 11, 19, in steps of 4");
    }

    #[test]
    fn a_sample_does_not_claim_to_be_the_whole() {
        let shape = shape(&[10, 11, 500], 5000, 4, 1 << 20);
        assert!(!shape.complete && !shape.is_one_run());
        assert_eq!(shape.to_string(), "5000 elements, from 10 to at least 500");
    }
}
