//! Small words for summaries.

/// `rank 3`, `ranks 0-2 and 5`.
pub(crate) fn ranks(ranks: &[u32]) -> String {
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let runs = sorted.chunk_by(|a, b| a.checked_add(1) == Some(*b));
    let parts: Vec<String> = runs
        .filter_map(|run| match *run {
            [] => None,
            [one] => Some(one.to_string()),
            [a, b] => Some(format!("{a}, {b}")),
            [a, .., b] => Some(format!("{a}-{b}")),
        })
        .collect();
    format!("{} {}", if sorted.len() == 1 { "rank" } else { "ranks" }, parts.join(", "))
}

/// The verb for that many subjects, in the present.
pub(crate) fn verb<'t>(n: usize, one: &'t str, more: &'t str) -> &'t str {
    if n == 1 { one } else { more }
}

/// A message on one line, cut to a length that fits a report.
pub(crate) fn line(message: &str) -> String {
    const MOST: usize = 240;
    let text: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MOST + 1).collect();
    let text = text.trim();
    if text.chars().count() > MOST {
        format!("{}...", text.chars().take(MOST).collect::<String>())
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_listed_in_runs() {
        assert_eq!(ranks(&[3]), "rank 3");
        assert_eq!(ranks(&[5, 0, 1, 2, 7, 8]), "ranks 0-2, 5, 7, 8");
        assert_eq!(ranks(&[u32::MAX, 0]), format!("ranks 0, {}", u32::MAX));
    }
}
