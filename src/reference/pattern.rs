//! Patterns for device names: `*` for any characters, `?` for one, letter case ignored.

/// Whether the whole of `name` fits `pattern`.
pub(super) fn fits(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.to_lowercase().chars().collect();
    let name: Vec<char> = name.to_lowercase().chars().collect();
    let (mut p, mut n) = (0, 0);
    // Where to go on when what follows the last star does not fit: one character later.
    let mut retry: Option<(usize, usize)> = None;
    while let Some(&c) = name.get(n) {
        match pattern.get(p) {
            Some('*') => {
                retry = Some((p + 1, n + 1));
                p += 1;
            }
            Some(&wanted) if wanted == '?' || wanted == c => {
                p += 1;
                n += 1;
            }
            _ => match retry {
                Some((after_star, from)) => {
                    p = after_star;
                    n = from;
                    retry = Some((after_star, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(p).all(|&c| c == '*')
}

/// How narrow a pattern is: 2 for a plain name, 1 for a pattern, 0 for one that fits everything.
pub(super) fn specificity(pattern: &str) -> u32 {
    if pattern.chars().all(|c| c == '*') {
        0
    } else if pattern.contains(['*', '?']) {
        1
    } else {
        2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_whole_names() {
        for (pattern, name, fit) in [
            ("*", "", true),
            ("*", "anything", true),
            ("", "", true),
            ("", "x", false),
            ("NVIDIA H200", "nvidia h200", true),
            ("NVIDIA H200", "NVIDIA H200 NVL", false),
            ("NVIDIA B200*", "NVIDIA GB200", false),
            ("*A100-SXM*", "NVIDIA A100-SXM4-80GB", true),
            ("*A100*PCI*", "NVIDIA A100 80GB PCIe", true),
            ("*a?b*c", "xxaab a1bzzc", true),
            ("*ab", "aab", true),
            ("a*", "ba", false),
            ("?", "", false),
        ] {
            assert_eq!(fits(pattern, name), fit, "{pattern} on {name}");
        }
    }

    #[test]
    fn a_plain_name_is_narrower_than_a_pattern() {
        assert!(specificity("NVIDIA H200") > specificity("*H200*"));
        assert!(specificity("*H200*") > specificity("*"));
    }
}
