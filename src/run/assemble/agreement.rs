//! Whether ranks hold the same bits, and whether the same call on the same inputs gives them again.
//!
//! Where results are known bit for bit, the check says both. Where it accepts what is near (an inexact float avg), their
//! fingerprints are compared: copies of a result must be identical, as NCCL promises of all_reduce; that bits are the same
//! from run to run nobody promises, so that is reported and not judged.

use super::place;
use crate::case::Case;
use crate::case::primitive::{Segment, Source};
use crate::fleet::protocol::Measured;

/// What came of comparing one placement's results.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Whether ranks that get the same result hold the same bits; `None` where none do, or nothing is known.
    pub agree: Option<bool>,
    /// Whether two launches on the same inputs gave the same bits.
    pub repeats: Option<bool>,
    /// What to say of ranks that do not agree.
    pub complaint: Option<String>,
}

/// Compares results that passed their checks; of others, and of unchecked ones, nothing is said.
pub fn judge(case: &Case, ranks: u32, measured: &[(u32, &Measured)]) -> Agreement {
    let sound = |m: &Measured| m.output.as_ref().is_none_or(|verdict| verdict.wrong == 0);
    let checked: Vec<&(u32, &Measured)> = measured.iter().filter(|(_, m)| m.output.is_some()).collect();
    if checked.is_empty() || !measured.iter().all(|(_, m)| sound(m)) {
        return Agreement::default();
    }
    let copies = copies(case, ranks);
    if checked.iter().all(|(_, m)| m.bits.is_none()) {
        return Agreement { agree: copies.then_some(true), repeats: Some(true), complaint: None };
    }
    let bits = |m: &Measured| m.bits.map(|bits| bits.first);
    let again = checked.iter().filter_map(|(_, m)| m.bits).map(|bits| bits.again.map(|again| again == bits.first));
    let repeats = again.reduce(|all, one| Some(all? && one?)).flatten();
    let agree = copies.then(|| checked.windows(2).all(|pair| bits(pair[0].1) == bits(pair[1].1)));
    let complaint = (agree == Some(false)).then(|| {
        let all: Vec<(u32, Option<u64>)> = checked.iter().map(|(rank, m)| (*rank, bits(m))).collect();
        format!("{}: {}", place(checked[0].1), disagreement(&all))
    });
    Agreement { agree, repeats, complaint }
}

/// Whether all ranks get the same reduction.
fn copies(case: &Case, ranks: u32) -> bool {
    let (unit, workload) = (case.primitive.unit(), case.workload(ranks));
    let first = unit.expected(&workload, 0);
    let reduced = |segment: &Segment| matches!(segment.source, Source::Reduced { .. });
    ranks > 1 && first.iter().any(reduced) && (1..ranks).all(|rank| unit.expected(&workload, rank) == first)
}

/// Ranks by what they hold, the largest party first.
fn disagreement(all: &[(u32, Option<u64>)]) -> String {
    let mut parties: Vec<(Option<u64>, Vec<u32>)> = Vec::new();
    for (rank, bits) in all {
        match parties.iter_mut().find(|(of, _)| of == bits) {
            Some((_, ranks)) => ranks.push(*rank),
            None => parties.push((*bits, vec![*rank])),
        }
    }
    parties.sort_by_key(|(_, ranks)| std::cmp::Reverse(ranks.len()));
    let named = |ranks: &[u32]| {
        let shown: Vec<String> = ranks.iter().take(super::NAMED).map(u32::to_string).collect();
        let more = ranks.len().saturating_sub(super::NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("rank{} {}{more}", if ranks.len() == 1 { "" } else { "s" }, shown.join(", "))
    };
    let named: Vec<String> = parties.iter().take(super::NAMED).map(|(_, ranks)| named(ranks)).collect();
    format!(
        "ranks hold different bits of the same result, each within the tolerance: {} against {}",
        named.first().map_or("", String::as_str),
        named.get(1..).unwrap_or_default().join(" against ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Placement, Verdict};
    use crate::case::DType;
    use crate::fleet::occasion::{Launch, Occasion};
    use crate::fleet::protocol::Bits;

    fn measured(bits: Option<Bits>) -> Measured {
        Measured {
            placement: Placement::OutOfPlace,
            mean_us: 1.0,
            iteration_us: Vec::new(),
            given: None,
            output: Some(Verdict::default()),
            input: None,
            guard: None,
            bits,
            occasion: Occasion { launch: Launch::First, call: None, dtype: DType::Float, epoch: Some(0) },
        }
    }

    fn judged(case: &str, bits: &[Option<(u64, Option<u64>)>]) -> Agreement {
        let all: Vec<Measured> =
            bits.iter().map(|bits| measured(bits.map(|(first, again)| Bits { first, again }))).collect();
        let numbered: Vec<(u32, &Measured)> = (0..).zip(&all).collect();
        judge(&case.parse().unwrap(), bits.len() as u32, &numbered)
    }

    #[test]
    fn what_is_known_bit_for_bit_agrees_and_repeats() {
        let exact = judged("all_reduce::sum::float::8B", &[None; 3]);
        assert_eq!(exact, Agreement { agree: Some(true), repeats: Some(true), complaint: None });
        // each rank has a block of its own
        assert_eq!(judged("reduce_scatter::sum::float::1KiB", &[None; 3]).agree, None);
    }

    #[test]
    fn ranks_that_round_differently_are_named_and_the_many_come_first() {
        let same = judged("all_reduce::avg::float::8B", &[Some((7, Some(7))); 3]);
        assert_eq!(same, Agreement { agree: Some(true), repeats: Some(true), complaint: None });
        let odd = judged("all_reduce::avg::float::8B", &[Some((9, Some(9))), Some((7, Some(7))), Some((7, Some(7)))]);
        assert_eq!((odd.agree, odd.repeats), (Some(false), Some(true)));
        assert!(odd.complaint.unwrap().ends_with("within the tolerance: ranks 1, 2 against rank 0"));
        // blocks of their own may well differ
        let blocks = judged("reduce_scatter::avg::float::1KiB", &[Some((9, None)), Some((7, None)), Some((7, None))]);
        assert_eq!(blocks, Agreement::default());
    }

    #[test]
    fn bits_that_change_from_run_to_run_are_told_and_no_fault() {
        let unsteady =
            judged("all_reduce::avg::float::8B", &[Some((7, Some(8))), Some((7, Some(7))), Some((7, Some(7)))]);
        assert_eq!(unsteady, Agreement { agree: Some(true), repeats: Some(false), complaint: None });
        // one launch tells nothing
        assert_eq!(judged("all_reduce::avg::float::8B", &[Some((7, None)); 3]).repeats, None);
    }

    #[test]
    fn nothing_is_said_of_wrong_or_unchecked_results() {
        let mut wrong = measured(Some(Bits { first: 1, again: None }));
        wrong.output = Some(Verdict { wrong: 1, ..Verdict::default() });
        let mut unchecked = measured(None);
        unchecked.output = None;
        let case: Case = "all_reduce::avg::float::8B".parse().unwrap();
        assert_eq!(judge(&case, 2, &[(0, &wrong), (1, &wrong)]), Agreement::default());
        assert_eq!(judge(&case, 2, &[(0, &unchecked), (1, &unchecked)]), Agreement::default());
    }
}
