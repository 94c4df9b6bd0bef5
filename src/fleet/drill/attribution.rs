//! Which of many checks a wrong element comes from, where they were all counted together.
//!
//! A wrong element is told with the bits that were expected of it, and each round expects its own. So the round is known
//! without a second run, in which a race might not show.

use crate::backend::Wrong;

/// The checks that the samples come from, in order: as few as can explain them all.
///
/// `expected(check, index)` is what a check expects there. Where two explain the same samples, as narrow dtypes let happen
/// by chance, both are named.
pub fn checks(samples: &[Wrong], count: usize, expected: impl Fn(usize, u64) -> Option<u64>) -> Vec<usize> {
    let mut open: Vec<&Wrong> = samples.iter().collect();
    let mut named = Vec::new();
    let explains = |check: usize, wrong: &Wrong| expected(check, wrong.index) == Some(wrong.expected);
    while !open.is_empty() {
        let explained: Vec<usize> =
            (0..count).map(|check| open.iter().filter(|wrong| explains(check, wrong)).count()).collect();
        let most = explained.iter().copied().max().unwrap_or(0);
        if most == 0 {
            break;
        }
        let best: Vec<usize> = (0..count).filter(|check| explained.get(*check) == Some(&most)).collect();
        open.retain(|wrong| !best.iter().any(|check| explains(*check, wrong)));
        named.extend(best);
    }
    named.sort_unstable();
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks expect ten times their number, plus the index.
    fn expected(check: usize, index: u64) -> Option<u64> {
        Some(10 * check as u64 + index)
    }

    fn wrong(check: usize, index: u64) -> Wrong {
        Wrong { index, actual: 0, expected: 10 * check as u64 + index }
    }

    #[test]
    fn samples_are_told_apart_by_what_was_expected() {
        assert_eq!(checks(&[wrong(3, 7)], 8, expected), [3]);
        assert_eq!(checks(&[wrong(5, 1), wrong(2, 7), wrong(5, 2)], 8, expected), [2, 5]);
        assert!(checks(&[], 8, expected).is_empty());
    }

    #[test]
    fn a_chance_match_of_some_samples_names_nobody() {
        // check 4 expects at index 0 what check 1 does
        let alike = |check: usize, index| if check == 4 && index == 0 { Some(10) } else { expected(check, index) };
        assert_eq!(checks(&[wrong(1, 0), wrong(1, 5)], 8, alike), [1]);
        assert_eq!(checks(&[wrong(1, 0)], 8, alike), [1, 4]);
    }

    #[test]
    fn what_no_check_expected_is_left_open() {
        assert!(checks(&[Wrong { index: 0, actual: 1, expected: 999 }], 8, expected).is_empty());
    }
}
