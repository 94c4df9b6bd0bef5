//! The evidence: wrong elements, with what should be in them.

use crate::backend::{Verdict, Wrong};
use crate::case::primitive::{Segment, Source};
use crate::oracle::Plan;

/// Where and how a check found wrong elements.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// The recipe that the check went by.
    pub plan: &'a Plan,
    /// What the checked buffer should hold; starts are counted as [`Wrong::index`] is, from the buffer's base.
    pub segments: &'a [Segment],
    /// Whose buffer it is.
    pub rank: u32,
}

/// One wrong element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Clue {
    pub index: u64,
    pub actual: u64,
    pub expected: u64,
    pub source: Source,
}

impl Clue {
    /// The logical element.
    pub fn element(&self) -> u64 {
        match self.source {
            Source::Reduced { element } | Source::Rank { element, .. } => element,
        }
    }

    /// What the source gives for another logical element.
    pub fn value(&self, plan: &Plan, element: u64) -> u64 {
        value(plan, self.source, element)
    }
}

/// What a source gives for a logical element.
fn value(plan: &Plan, source: Source, element: u64) -> u64 {
    match source {
        Source::Reduced { .. } => plan.reduced(element),
        Source::Rank { rank, .. } => plan.input(rank, element),
    }
}

/// What should be at an index of the buffer; `None` outside all segments.
pub(super) fn source_at(segments: &[Segment], index: u64) -> Option<Source> {
    let after = segments.partition_point(|segment| segment.start <= index);
    let segment = segments.get(after.checked_sub(1)?)?;
    let offset = index - segment.start;
    if offset >= segment.len {
        return None;
    }
    Some(match segment.source {
        Source::Reduced { element } => Source::Reduced { element: element + offset },
        Source::Rank { rank, element } => Source::Rank { rank, element: element + offset },
    })
}

/// The value that belongs at an index of the buffer.
pub(super) fn value_at(scene: &Scene<'_>, index: u64) -> Option<u64> {
    let source = source_at(scene.segments, index)?;
    let (Source::Reduced { element } | Source::Rank { element, .. }) = source;
    Some(value(scene.plan, source, element))
}

/// All distinct wrong elements that a verdict tells of, by index.
pub(super) fn sampled(verdict: &Verdict) -> Vec<Wrong> {
    let mut wrong: Vec<Wrong> = verdict.samples.iter().copied().chain(verdict.first).collect();
    wrong.sort_by_key(|w| w.index);
    wrong.dedup_by_key(|w| w.index);
    wrong
}

/// Those of them that the scene accounts for.
pub(super) fn clues(scene: &Scene<'_>, wrong: &[Wrong]) -> Vec<Clue> {
    let clue = |w: &Wrong| {
        let source = source_at(scene.segments, w.index)?;
        let clue = Clue { index: w.index, actual: w.actual, expected: w.expected, source };
        // else it was another recipe that the check went by
        (clue.value(scene.plan, clue.element()) == w.expected).then_some(clue)
    };
    wrong.iter().filter_map(clue).collect()
}
