//! Writing what the oracle says into bytes, and comparing bytes with it.

use crate::backend::{Content, MAX_SAMPLES, Verdict, Wrong};
use crate::oracle::Plan;

/// Writes the content, or its complement.
pub(super) fn write(bytes: &mut [u8], plan: &Plan, content: Content, complement: bool) {
    let flip = if complement { u64::MAX } else { 0 };
    match content {
        Content::Input { rank, element } => each(bytes, plan, |k| plan.input(rank, element.wrapping_add(k)) ^ flip),
        Content::Reduced { element } => each(bytes, plan, |k| plan.reduced(element.wrapping_add(k)) ^ flip),
    }
}

/// The content from element `skip` of a region on.
pub(super) fn after(content: Content, skip: u64) -> Content {
    match content {
        Content::Input { rank, element } => Content::Input { rank, element: element.wrapping_add(skip) },
        Content::Reduced { element } => Content::Reduced { element: element.wrapping_add(skip) },
    }
}

fn each(bytes: &mut [u8], plan: &Plan, bits: impl Fn(u64) -> u64) {
    match plan.dtype().size() {
        1 => elements::<1>(bytes, bits),
        2 => elements::<2>(bytes, bits),
        4 => elements::<4>(bytes, bits),
        _ => elements::<8>(bytes, bits),
    }
}

fn elements<const SIZE: usize>(bytes: &mut [u8], bits: impl Fn(u64) -> u64) {
    let (elements, _) = bytes.as_chunks_mut::<SIZE>();
    for (element, k) in elements.iter_mut().zip(0..) {
        let word = bits(k).to_le_bytes();
        element.iter_mut().zip(word).for_each(|(to, byte)| *to = byte);
    }
}

/// Compares bytes with the content; wrong elements are added to the verdict, the first byte's element being `start`.
///
/// Only results have a tolerance: an input that was changed at all is wrong.
pub(super) fn compare(bytes: &[u8], plan: &Plan, content: Content, start: u64, verdict: &mut Verdict) {
    let found = Found { bytes, start, verdict };
    let size = plan.dtype().size();
    match content {
        Content::Input { rank, element } => {
            found.differ(size, |k| plan.input(rank, element.wrapping_add(k)), |_, _| false);
        }
        Content::Reduced { element } => {
            found.differ(size, |k| plan.reduced(element.wrapping_add(k)), |actual, bits| plan.accepts(actual, bits));
        }
    }
}

/// What is compared, and where the outcome goes.
struct Found<'a> {
    bytes: &'a [u8],
    start: u64,
    verdict: &'a mut Verdict,
}

impl Found<'_> {
    /// Elements of `size` bytes that are neither the expected bits nor close enough to them.
    fn differ(self, size: u64, expected: impl Fn(u64) -> u64, close: impl Fn(u64, u64) -> bool) {
        match size {
            1 => self.elements::<1>(expected, close),
            2 => self.elements::<2>(expected, close),
            4 => self.elements::<4>(expected, close),
            _ => self.elements::<8>(expected, close),
        }
    }

    fn elements<const SIZE: usize>(self, expected: impl Fn(u64) -> u64, close: impl Fn(u64, u64) -> bool) {
        let (elements, _) = self.bytes.as_chunks::<SIZE>();
        for (element, k) in elements.iter().zip(0..) {
            let mut word = [0; 8];
            word.iter_mut().zip(element).for_each(|(to, byte)| *to = *byte);
            let (actual, expected) = (u64::from_le_bytes(word), expected(k));
            if actual != expected && !close(actual, expected) {
                add(self.verdict, Wrong { index: self.start.wrapping_add(k), actual, expected });
            }
        }
    }
}

#[cold]
fn add(verdict: &mut Verdict, wrong: Wrong) {
    verdict.wrong += 1;
    if verdict.first.is_none_or(|first| wrong.index < first.index) {
        verdict.first = Some(wrong);
    }
    if verdict.samples.len() < MAX_SAMPLES {
        verdict.samples.push(wrong);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{DType, Op, Primitive};
    use crate::oracle::Data;

    fn contents() -> impl Iterator<Item = (Plan, Content, usize)> {
        DType::ALL.into_iter().flat_map(|dtype| {
            let plain = [None, Some(Op::Sum), Some(Op::Avg)].map(|op| (Data::Plain, op));
            let others = [(Data::Special, Some(Op::Min)), (Data::OddScalars, Some(Op::Mulsum))];
            plain.into_iter().chain(others).flat_map(move |(data, op)| {
                let primitive = if op.is_none() { Primitive::AllGather } else { Primitive::AllReduce };
                let plan = Plan::with(data, 1, primitive, op, dtype, 3, 0);
                let input = Content::Input { rank: 2, element: 5 };
                [input, Content::Reduced { element: 7 }].map(|content| (plan.clone(), content, dtype.size() as usize))
            })
        })
    }

    #[test]
    fn what_was_written_is_found_again_and_no_element_of_its_complement() {
        for (plan, content, size) in contents() {
            let mut bytes = vec![0; 100 * size];
            write(&mut bytes, &plan, content, false);
            let mut verdict = Verdict::default();
            compare(&bytes, &plan, content, 0, &mut verdict);
            assert_eq!(verdict, Verdict::default());
            write(&mut bytes, &plan, content, true);
            compare(&bytes, &plan, content, 0, &mut verdict);
            assert_eq!(verdict.wrong, 100);
        }
    }

    #[test]
    fn a_wrong_element_is_told_by_index_and_bits_and_samples_are_few() {
        let plan = Plan::new(1, Primitive::AllReduce, Some(Op::Sum), DType::Int32, 2, 0);
        let content = Content::Reduced { element: 10 };
        let mut bytes = vec![0; 4000];
        write(&mut bytes, &plan, content, false);
        bytes[4 * 7] ^= 1;
        let mut verdict = Verdict::default();
        compare(&bytes, &plan, content, 100, &mut verdict);
        let expected = plan.reduced(17);
        let wrong = Wrong { index: 107, actual: expected ^ 1, expected };
        assert_eq!(verdict, Verdict { wrong: 1, first: Some(wrong), samples: vec![wrong] });
        write(&mut bytes, &plan, content, true);
        compare(&bytes, &plan, content, 50, &mut verdict);
        assert_eq!(
            (verdict.wrong, verdict.first.map(|w| w.index), verdict.samples.len()),
            (1001, Some(50), MAX_SAMPLES)
        );
    }
}
