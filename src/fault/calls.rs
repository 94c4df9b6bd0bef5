//! Calls that are like others but for one thing.

use crate::backend::Call;
use crate::case::{Bytes, Case};

/// Parts that growing launches cut the case's size into. More than launches of a placement.
pub const GROWTH: u32 = 16;

/// The cases of these calls, changed.
pub fn recast(calls: &[Call<'_>], change: impl Fn(&Case) -> Case) -> Vec<Case> {
    calls.iter().map(|call| change(call.case)).collect()
}

/// The calls with these cases in place of their own.
pub fn with<'a>(calls: &[Call<'a>], cases: &'a [Case]) -> Vec<Call<'a>> {
    let recast = |(call, case): (&Call<'a>, &'a Case)| Call {
        case,
        workload: case.workload(call.workload.ranks),
        ..call.clone()
    };
    calls.iter().zip(cases).map(recast).collect()
}

/// The case with so many parts of its elements.
pub fn part_of(case: &Case, parts: u32, of: u32) -> Case {
    let elements = case.size.0 / case.dtype.size();
    let some = (elements * u64::from(parts) / u64::from(of.max(1))).max(1);
    Case { size: Bytes(some * case.dtype.size()), ..case.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_whole_elements_and_at_least_one() {
        let case: Case = "all_reduce::sum::float::64KiB".parse().unwrap();
        assert_eq!(part_of(&case, 3, 16).size, Bytes(12 << 10));
        assert_eq!(part_of(&Case { size: Bytes(8), ..case }, 3, 16).size, Bytes(4));
    }
}
