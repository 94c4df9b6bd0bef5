//! What a rank would have called next, had it gone on as before. Breaks ties where there is no majority.

/// Calls that must have been alike before a repetition counts.
const CONTEXT: usize = 3;
/// No longer context is compared.
const LONGEST: usize = 32;

/// What followed the last time that the end of `history` occurred: programs are loops.
///
/// `ahead` is 0 for the next element, 1 for the one after. `same` compares two elements. At most [`LONGEST`] comparisons
/// for each element of the history.
pub(super) fn repetition<T: Copy>(history: &[T], ahead: usize, same: impl Fn(T, T) -> bool) -> Option<T> {
    let end = history.len();
    let mut best: Option<(usize, usize)> = None;
    for at in (CONTEXT..end.saturating_sub(ahead)).rev() {
        let before = history[..at].iter().rev().zip(history.iter().rev()).take(LONGEST);
        let alike = before.take_while(|(a, b)| same(**a, **b)).count();
        if alike >= CONTEXT && best.is_none_or(|(longest, _)| alike > longest) {
            best = Some((alike, at));
            if alike == LONGEST {
                break;
            }
        }
    }
    best.and_then(|(_, at)| history.get(at + ahead).copied())
}

/// The next value of a series that ends in at least three equal steps other than 0.
pub(super) fn progression(values: &[u64], ahead: usize) -> Option<u64> {
    let [.., a, b, c, d] = *values else { return None };
    let step = i128::from(d) - i128::from(c);
    let even = step != 0 && [(a, b), (b, c)].into_iter().all(|(from, to)| i128::from(to) - i128::from(from) == step);
    let next = i128::from(d) + step * (ahead as i128 + 1);
    if even { u64::try_from(next).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_is_continued() {
        let history: Vec<char> = "abcabdabcabdabc".chars().collect();
        assert_eq!(repetition(&history, 0, |a, b| a == b), Some('a'));
        assert_eq!(repetition(&history, 1, |a, b| a == b), Some('b'));
        assert_eq!(repetition(&history, 2, |a, b| a == b), Some('d'));
    }

    #[test]
    fn too_little_history_tells_nothing() {
        assert_eq!(repetition(&['a', 'b', 'c'], 0, |a, b| a == b), None);
        assert_eq!(repetition::<u8>(&[], 0, |a, b| a == b), None);
        assert_eq!(progression(&[1, 2, 3], 0), None);
    }

    #[test]
    fn an_even_series_is_continued_and_no_other() {
        assert_eq!(progression(&[9, 1, 2, 3, 4], 0), Some(5));
        assert_eq!(progression(&[65536, 131072, 196608, 262144, 327680], 1), Some(458752));
        assert_eq!(progression(&[1, 2, 4, 8], 0), None);
        assert_eq!(progression(&[5, 5, 5, 5], 0), None);
        assert_eq!(progression(&[3, 2, 1, 0], 0), None);
        assert_eq!(progression(&[u64::MAX - 3, u64::MAX - 2, u64::MAX - 1, u64::MAX], 0), None);
    }
}
