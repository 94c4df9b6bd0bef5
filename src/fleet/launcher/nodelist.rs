//! Slurm's short forms: `node[01-03,07],gpu5` for hosts, `8(x2),7` for numbers of tasks.

/// No list that is expanded is longer.
const MOST: usize = 65_536;

/// The hosts, or nothing where this is no list of such.
pub fn expand(list: &str) -> Option<Vec<String>> {
    let mut hosts = Vec::new();
    for word in split(list)? {
        hosts.extend(word_hosts(word)?);
        if hosts.len() > MOST {
            return None;
        }
    }
    Some(hosts)
}

/// The numbers, or nothing where this is no list of such.
pub fn repeated(list: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for word in list.split(',') {
        let (number, times) = match word.split_once("(x") {
            Some((number, times)) => (number, times.strip_suffix(')')?.parse().ok()?),
            None => (word, 1),
        };
        if numbers.len().checked_add(times)? > MOST {
            return None;
        }
        numbers.extend(std::iter::repeat_n(number.trim().parse::<u32>().ok()?, times));
    }
    Some(numbers)
}

/// The words between commas that are not in brackets.
fn split(list: &str) -> Option<Vec<&str>> {
    let mut words = Vec::new();
    let (mut depth, mut start) = (0u32, 0);
    for (at, c) in list.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => {
                words.push(list.get(start..at)?);
                start = at + 1;
            }
            _ => {}
        }
        if depth > 1 {
            return None;
        }
    }
    words.push(list.get(start..)?);
    let whole = depth == 0 && words.iter().all(|word| !word.is_empty());
    whole.then_some(words)
}

/// The hosts of one word, as `rack[1-2]node[01-10]`.
fn word_hosts(word: &str) -> Option<Vec<String>> {
    let mut hosts = vec![String::new()];
    let mut rest = word;
    while let Some((plain, tail)) = rest.split_once('[') {
        let (inside, tail) = tail.split_once(']')?;
        let numbers = ranges(inside)?;
        if hosts.len().checked_mul(numbers.len())? > MOST {
            return None;
        }
        hosts = hosts.iter().flat_map(|host| numbers.iter().map(move |n| format!("{host}{plain}{n}"))).collect();
        rest = tail;
    }
    hosts.iter_mut().for_each(|host| host.push_str(rest));
    Some(hosts)
}

/// `01-03,07` as numbers of the width that they are written in.
fn ranges(text: &str) -> Option<Vec<String>> {
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u64, u64) = (from.parse().ok()?, to.parse().ok()?);
        if last < first || last - first >= MOST as u64 || numbers.len() > MOST {
            return None;
        }
        numbers.extend((first..=last).map(|n| format!("{n:0width$}", width = from.len())));
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_expanded_as_scontrol_does() {
        let of = |list: &str| expand(list).unwrap().join(" ");
        assert_eq!(of("gpu5"), "gpu5");
        assert_eq!(of("node[01-03,07],gpu5"), "node01 node02 node03 node07 gpu5");
        assert_eq!(of("n[9-11]"), "n9 n10 n11");
        assert_eq!(of("r[1-2]n[3,5]-ib"), "r1n3-ib r1n5-ib r2n3-ib r2n5-ib");
    }

    #[test]
    fn what_is_no_list_gives_nothing() {
        for bad in ["", ",", "a,,b", "n[", "n]", "n[1", "n[1-]", "n[3-1]", "n[a]", "n[[1]]", "n[0-99999999999999]"] {
            assert_eq!(expand(bad), None, "{bad}");
        }
        assert_eq!(expand("a[1-60000]b[1-60000]"), None);
    }

    #[test]
    fn numbers_may_be_repeated() {
        assert_eq!(repeated("8(x2),7"), Some(vec![8, 8, 7]));
        assert_eq!(repeated("7,8"), Some(vec![7, 8]));
        for bad in ["", "8(x", "8(x2", "x", "8(x99999999999)", "1(x70000)"] {
            assert_eq!(repeated(bad), None, "{bad}");
        }
    }
}
