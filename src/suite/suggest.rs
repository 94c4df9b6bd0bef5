//! "Did you mean": names near a filter that matches none.

use std::collections::BTreeSet;

use crate::case::{Bytes, Case, DType, Op};

/// Suggestions in one message.
const MOST: usize = 3;

/// Longer parts than this are not typing mistakes of anything, and would only cost time.
const LONGEST: usize = 40;

/// What to append to the message about an unmatched filter: near names, or where the names are.
///
/// Each part of the filter is replaced by known parts near to it. What comes out is suggested only if it matches.
pub(super) fn hint<'a>(filter: &str, pool: impl Iterator<Item = (&'a Case, &'a str)>) -> String {
    let (cases, names): (Vec<&Case>, Vec<&str>) = pool.unzip();
    let words = vocabulary(&cases);
    let mut candidates = vec![String::new()];
    for (part, separator) in parts(filter) {
        let near = near(part, &words);
        candidates = candidates
            .iter()
            .flat_map(|front| near.iter().map(move |word| format!("{front}{word}{separator}")))
            .take(MOST * MOST)
            .collect();
    }
    let found: Vec<String> = candidates
        .into_iter()
        .filter(|candidate| names.iter().any(|name| name.contains(candidate.as_str())))
        .take(MOST)
        .map(|candidate| format!("{candidate:?}"))
        .collect();
    if found.is_empty() {
        "; `collcheck list` prints the names".to_owned()
    } else {
        format!("; did you mean {}?", found.join(" or "))
    }
}

/// Every part that names of these cases have.
fn vocabulary(cases: &[&Case]) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    let sizes: BTreeSet<Bytes> = cases.iter().map(|case| case.size).collect();
    words.extend(sizes.iter().map(Bytes::to_string));
    let dtypes: BTreeSet<DType> = cases.iter().map(|case| case.dtype).collect();
    words.extend(dtypes.iter().map(DType::to_string));
    let primitives: BTreeSet<_> = cases.iter().map(|case| case.primitive).collect();
    words.extend(primitives.iter().map(ToString::to_string));
    let ops: BTreeSet<_> = cases.iter().map(|case| case.op).collect();
    words.extend(ops.iter().map(|op| op.map_or("none", Op::name).to_owned()));
    let variants: BTreeSet<_> = cases.iter().flat_map(|case| &case.variants).collect();
    words.extend(variants.iter().map(ToString::to_string));
    words
}

/// The parts of a filter, each with the separator behind it.
fn parts(filter: &str) -> Vec<(&str, &str)> {
    let mut parts = Vec::new();
    let mut rest = filter;
    // more separators than a name has make no name
    for _ in 0..8 {
        let next = ["::", "@", "+"].iter().filter_map(|s| rest.find(s).map(|at| (at, *s))).min();
        let Some((at, separator)) = next else { break };
        let (part, behind) = rest.split_at(at);
        parts.push((part, separator));
        rest = behind.get(separator.len()..).unwrap_or("");
    }
    parts.push((rest, ""));
    parts
}

/// What may be meant by a part: a size under its own spelling, the part itself if names contain it, a dtype under its own
/// name, else the nearest words.
fn near(part: &str, words: &BTreeSet<String>) -> Vec<String> {
    let known = |word: String| words.contains(&word).then_some(word);
    if let Some(size) = part.parse::<Bytes>().ok().and_then(|size| known(size.to_string())) {
        return vec![size];
    }
    if words.iter().any(|word| word.contains(part)) {
        return vec![part.to_owned()];
    }
    if let Some(dtype) = part.parse::<DType>().ok().and_then(|dtype| known(dtype.to_string())) {
        return vec![dtype];
    }
    let part: Vec<char> = part.to_lowercase().chars().collect();
    if part.len() > LONGEST {
        return Vec::new();
    }
    let allowed = (part.len() / 3).max(1);
    let scored = words.iter().map(|word| (distance(&part, &word.to_lowercase().chars().collect::<Vec<_>>()), word));
    let scored: Vec<(usize, &String)> = scored.filter(|(distance, _)| *distance <= allowed).collect();
    let best = scored.iter().map(|(distance, _)| *distance).min();
    scored
        .into_iter()
        .filter(|(distance, _)| Some(*distance) == best)
        .take(MOST)
        .map(|(_, word)| word.clone())
        .collect()
}

/// Insertions, deletions, replacements and swaps of neighbours that make one of the other (optimal string alignment).
fn distance(a: &[char], b: &[char]) -> usize {
    // rows of the table of distances between beginnings: the one above, and the one before that
    let mut above: Vec<usize> = (0..=b.len()).collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last_a = None;
    for (i, &x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        let mut left = i + 1;
        let mut last_b = None;
        for (j, (&y, pair)) in b.iter().zip(above.windows(2)).enumerate() {
            let [diagonal, up] = *pair else { break };
            left = (left + 1).min(up + 1).min(diagonal + usize::from(x != y));
            if last_a == Some(y) && last_b == Some(x) {
                let swapped = j.checked_sub(1).and_then(|j| before.get(j)).map_or(usize::MAX, |d| d + 1);
                left = left.min(swapped);
            }
            row.push(left);
            last_b = Some(y);
        }
        before = std::mem::replace(&mut above, row);
        last_a = Some(x);
    }
    above.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint_for(filter: &str) -> String {
        let names =
            ["all_reduce::sum::bfloat16::1KiB", "all_gather::none::float::64KiB@odd", "alltoall::none::int8::8B"];
        let cases: Vec<Case> = names.iter().map(|name| name.parse().expect("a case name")).collect();
        hint(filter, cases.iter().zip(names))
    }

    #[test]
    fn a_slip_in_any_part_is_found() {
        for (filter, meant) in [
            ("allreduce", "all_reduce"),
            ("ALL_REDUCE", "all_reduce"),
            ("all-gather::none", "all_gather::none"),
            ("bf16", "bfloat16"),
            ("floaat", "float"),
            ("all_reduce::sum::bf16::1024", "all_reduce::sum::bfloat16::1KiB"),
            ("64KiB@od d", "64KiB@odd"),
        ] {
            assert!(hint_for(filter).contains(&format!("{meant:?}")), "{filter}: {}", hint_for(filter));
        }
    }

    #[test]
    fn what_matches_nothing_is_not_suggested() {
        for filter in ["all_gather::som", "frobnicate", "", &"::".repeat(50), &"x".repeat(10_000)] {
            let hint = hint_for(filter);
            assert!(filter.is_empty() || hint.contains("collcheck list"), "{filter}: {hint}");
        }
    }

    #[test]
    fn distance_counts_single_changes() {
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        for (a, b, d) in [("", "", 0), ("abc", "", 3), ("kitten", "sitting", 3), ("half", "hlaf", 1), ("ca", "abc", 3)]
        {
            assert_eq!(distance(&chars(a), &chars(b)), d, "{a} {b}");
        }
    }
}
