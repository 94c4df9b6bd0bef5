//! What stands in front of a message, from `ncclDebugLog` in NCCL's debug.cc.
//!
//! ```text
//! host:pid:tid [dev] NCCL INFO ...                  2.18 on
//! host:pid:tid [dev] file:line NCCL WARN ...        2.18 on, after an empty line
//! host:pid:tid [dev] file:line (func) NCCL WARN ... 2.30 on
//! [2025-07-01 12:00:00] host:pid:tid [dev] ...      2.26 on, where NCCL_DEBUG_TIMESTAMP_LEVELS asks for it
//! host:pid:tid NCCL CALL ...
//! host:pid:tid [dev] 12.5 func:line NCCL TRACE ...
//! ```
//!
//! The host part or the device may be absent, not both: else any text with "NCCL INFO" in it would be a line. Whatever is
//! in front of that (a timestamp in the user's own format, a launcher's tag) is kept as it is.

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Level {
    Warn,
    Info,
    Call,
    Trace,
}

const LEVELS: [(&str, Level); 4] =
    [("INFO", Level::Info), ("WARN", Level::Warn), ("CALL", Level::Call), ("TRACE", Level::Trace)];

/// Who wrote a line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prefix {
    /// What comes before all else: a timestamp, a launcher's tag, the beginning of a line that was interrupted.
    pub before: String,
    /// The host's name, up to its first dot.
    pub host: Option<String>,
    /// The process.
    pub pid: Option<u32>,
    /// The thread.
    pub tid: Option<u32>,
    /// The CUDA device that is current in the thread; not always that of the communicator.
    pub device: Option<i32>,
    /// The rank, where it stands in place of the device as `[Rank 3]`.
    pub rank: Option<u32>,
    /// File or function and line of the source, for warnings and traces.
    pub place: Option<String>,
}

/// One message and its prefix.
#[derive(Debug)]
pub(super) struct Part<'a> {
    pub prefix: Prefix,
    pub level: Level,
    pub text: &'a str,
}

/// The messages in one line: none, one, or several where a writer was interrupted by another.
pub(super) fn split(line: &str) -> Vec<Part<'_>> {
    let mut found: Vec<(usize, Part<'_>)> = Vec::new();
    for (at, _) in line.match_indices("NCCL ") {
        let Some((head, tail)) = line.split_at_checked(at) else { continue };
        let Some((level, text)) = level(tail) else { continue };
        let begin = found.last().map_or(0, |(_, part)| line.len() - part.text.len());
        let Some((start, prefix)) = head.get(begin..).and_then(read) else { continue };
        let start = begin + start;
        if let Some((_, earlier)) = found.last_mut() {
            let end = start.saturating_sub(begin);
            earlier.text = earlier.text.get(..end).unwrap_or(earlier.text).trim_end();
        }
        found.push((start, Part { prefix, level, text }));
    }
    found.into_iter().map(|(_, part)| part).collect()
}

fn level(tail: &str) -> Option<(Level, &str)> {
    let tail = tail.strip_prefix("NCCL ")?;
    LEVELS.iter().find_map(|(name, level)| {
        let text = tail.strip_prefix(name)?;
        (text.is_empty() || text.starts_with(' ')).then(|| (*level, text.trim_start()))
    })
}

/// Reads a prefix from its end to its front; also where it begins.
fn read(head: &str) -> Option<(usize, Prefix)> {
    let mut rest = Backward(head);
    let mut prefix = Prefix::default();
    rest.take(|word| (word.starts_with('(') && word.ends_with(')')).then_some(()));
    prefix.place = rest.take(place);
    rest.take(|word| word.contains('.').then(|| word.parse::<f64>().ok())?);
    if let Some(rank) = rest.take(|word| word.strip_suffix(']')?.parse().ok())
        && rest.take(|word| (word == "[Rank").then_some(())).is_some()
    {
        prefix.rank = Some(rank);
    }
    if prefix.rank.is_none() {
        prefix.device = rest.take(|word| word.strip_prefix('[')?.strip_suffix(']')?.parse().ok());
    }
    let writer = rest.take(|word| {
        let (rest, tid) = word.rsplit_once(':')?;
        let (host, pid) = rest.rsplit_once(':')?;
        Some((host.to_owned(), pid.parse().ok()?, tid.parse().ok()?))
    });
    if let Some((host, pid, tid)) = writer {
        // a launcher's tag, as `[1,0]<stdout>:`, is written without a space
        let (tag, host) = host.rsplit_once([':', '>']).map_or(("", host.as_str()), |(tag, host)| (tag, host));
        prefix.before = tag.to_owned();
        prefix.host = Some(host.to_owned());
        (prefix.pid, prefix.tid) = (Some(pid), Some(tid));
    }
    if prefix.host.is_none() && prefix.device.is_none() && prefix.rank.is_none() {
        return None;
    }
    let before = rest.0.trim();
    prefix.before = if before.is_empty() { prefix.before } else { format!("{before} {}", prefix.before) };
    prefix.before.truncate(prefix.before.trim_end().len());
    let start = rest.0.len() + head.get(rest.0.len()..).map_or(0, |tail| tail.len() - tail.trim_start().len());
    Some((start, prefix))
}

/// `file:line` or `func:line`, but not `host:pid:tid`.
fn place(word: &str) -> Option<String> {
    let (file, line) = word.rsplit_once(':')?;
    let of_writer = file.rsplit_once(':').is_some_and(|(_, pid)| pid.parse::<u32>().is_ok());
    (!of_writer && line.parse::<u32>().is_ok() && !file.is_empty()).then(|| word.to_owned())
}

/// Words from the end of a text.
struct Backward<'a>(&'a str);

impl Backward<'_> {
    /// Takes the last word, if it is what `read` wants.
    fn take<T>(&mut self, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let text = self.0.trim_end();
        let start =
            text.rfind(char::is_whitespace).map_or(0, |i| i + text[i..].chars().next().map_or(1, char::len_utf8));
        let (before, word) = text.split_at(start);
        let value = read(word)?;
        self.0 = before;
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> (Prefix, Level, String) {
        let mut parts = split(line);
        assert_eq!(parts.len(), 1, "{line}");
        let part = parts.remove(0);
        (part.prefix, part.level, part.text.to_owned())
    }

    fn written() -> Prefix {
        Prefix { host: Some("node-1".into()), pid: Some(17), tid: Some(18), device: Some(3), ..Prefix::default() }
    }

    #[test]
    fn every_form_of_prefix_is_read() {
        let text = "Using network IB".to_owned();
        for (line, prefix, level) in [
            ("node-1:17:18 [3] NCCL INFO Using network IB", written(), Level::Info),
            (
                "node-1:17:18 [3] src/init.cc:812 NCCL WARN Using network IB",
                Prefix { place: Some("src/init.cc:812".into()), ..written() },
                Level::Warn,
            ),
            (
                "node-1:17:18 [3] init.cc:812 (ncclInit) NCCL WARN Using network IB",
                Prefix { place: Some("init.cc:812".into()), ..written() },
                Level::Warn,
            ),
            (
                "[2025-07-01 12:00:00] node-1:17:18 [3] NCCL INFO Using network IB",
                Prefix { before: "[2025-07-01 12:00:00]".into(), ..written() },
                Level::Info,
            ),
            (
                "[1,0]<stdout>:node-1:17:18 [3] NCCL INFO Using network IB",
                Prefix { before: "[1,0]<stdout>".into(), ..written() },
                Level::Info,
            ),
            ("node-1:17:18 NCCL CALL Using network IB", Prefix { device: None, ..written() }, Level::Call),
            (
                "node-1:17:18 [3] 12.500000 f:9 NCCL TRACE Using network IB",
                Prefix { place: Some("f:9".into()), ..written() },
                Level::Trace,
            ),
            ("[3] NCCL INFO Using network IB", Prefix { device: Some(3), ..Prefix::default() }, Level::Info),
            ("[Rank 5] NCCL INFO Using network IB", Prefix { rank: Some(5), ..Prefix::default() }, Level::Info),
        ] {
            assert_eq!(one(line), (prefix, level, text.clone()), "{line}");
        }
    }

    #[test]
    fn lines_that_ran_into_another_are_parted() {
        let line = "a:1:1 [0] NCCL INFO Using network IB b:2:2 [1] NCCL INFO Connected all trees";
        let parts = split(line);
        let texts: Vec<_> = parts.iter().map(|part| (part.prefix.pid, part.text)).collect();
        assert_eq!(texts, [(Some(1), "Using network IB"), (Some(2), "Connected all trees")]);
    }

    #[test]
    fn a_text_that_quotes_a_level_stays_one_message() {
        let (_, _, text) = one("a:1:1 [0] NCCL INFO set NCCL WARN here");
        assert_eq!(text, "set NCCL WARN here");
    }
}
