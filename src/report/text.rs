//! Strings of libraries and machines, made fit for terminals and XML.

use std::borrow::Cow;
use std::fmt::Write;

/// Text without anything that a terminal would obey or XML 1.0 forbids.
///
/// Control characters but tab and newline, marks that reorder text, and the non-characters U+FFFE and U+FFFF become
/// visible escapes. Carriage returns become newlines.
pub fn clean(text: &str) -> Cow<'_, str> {
    clean_within(text, usize::MAX)
}

/// The first `limit` bytes of clean text, and how many bytes more there were. Costs no more than what is kept.
pub fn clean_within(text: &str, limit: usize) -> Cow<'_, str> {
    if text.len() <= limit && !text.contains(|c| c == '\r' || unfit(c)) {
        return Cow::Borrowed(text);
    }
    let mut out = Bounded::new(limit);
    let mut characters = text.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        if !out.push(if c == '\r' { '\n' } else { c }) {
            return Cow::Owned(out.cut(text.len() - at));
        }
        if c == '\r' {
            characters.next_if(|(_, next)| *next == '\n');
        }
    }
    Cow::Owned(out.text)
}

/// Clean text in one line, every run of white space a single space; cut as [`clean_within`] does.
pub fn one_line(text: &str, limit: usize) -> String {
    let text = text.trim();
    let mut out = Bounded::new(limit);
    let mut space = false;
    for (at, c) in text.char_indices() {
        if c.is_whitespace() {
            space = true;
            continue;
        }
        if (std::mem::take(&mut space) && !out.push(' ')) || !out.push(c) {
            return out.cut(text.len() - at);
        }
    }
    out.text
}

/// Text that grows by clean characters up to a limit.
struct Bounded {
    text: String,
    limit: usize,
}

impl Bounded {
    fn new(limit: usize) -> Bounded {
        Bounded { text: String::new(), limit }
    }

    /// Adds a character or its escape, unless that would go over the limit.
    fn push(&mut self, c: char) -> bool {
        let before = self.text.len();
        // Writing to a String cannot fail.
        let _ = match c {
            c if unfit(c) && c.is_ascii() => write!(self.text, "\\x{:02x}", u32::from(c)),
            c if unfit(c) => write!(self.text, "\\u{{{:x}}}", u32::from(c)),
            c => self.text.write_char(c),
        };
        let fits = self.text.len() <= self.limit;
        if !fits {
            self.text.truncate(before);
        }
        fits
    }

    fn cut(mut self, rest: usize) -> String {
        let _ = write!(self.text, " ... ({rest} more bytes)");
        self.text
    }
}

fn unfit(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c, '\u{fffe}' | '\u{ffff}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A word as a POSIX shell must be given it.
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./-_".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Seconds, for people.
pub fn seconds(s: f64) -> String {
    if !s.is_finite() {
        return "unknown time".to_owned();
    }
    if s < 60.0 {
        return format!("{s:.2}s");
    }
    let whole = s as u64;
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    if hours > 0 { format!("{hours}h{minutes:02}m{seconds:02}s") } else { format!("{minutes}m{seconds:02}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_or_xml_forbids_becomes_visible() {
        assert_eq!(clean("a\x1b[31mb\0c\x07\u{9b}\u{fffe}\u{ffff}"), "a\\x1b[31mb\\x00c\\x07\\u{9b}\\u{fffe}\\u{ffff}");
        assert_eq!(clean("abc\u{202e}fed"), "abc\\u{202e}fed");
    }

    #[test]
    fn other_text_is_left_alone() {
        let text = "tab\tline\nß 漢字 🚀 ]]> \u{fffd}";
        assert!(matches!(clean(text), Cow::Borrowed(t) if t == text));
    }

    #[test]
    fn every_line_end_is_a_newline() {
        assert_eq!(clean("a\r\nb\rc"), "a\nb\nc");
    }

    #[test]
    fn cutting_splits_no_character_and_no_escape() {
        for limit in 0..8 {
            assert!(clean_within("🚀🚀", limit).contains("more bytes"));
        }
        assert_eq!(clean_within("🚀🚀", 5), "🚀 ... (4 more bytes)");
        assert_eq!(clean_within("🚀🚀", 8), "🚀🚀");
        assert_eq!(clean_within("abc", 3), "abc");
        assert_eq!(clean_within("a\x1bbc", 3), "a ... (3 more bytes)");
    }

    #[test]
    fn one_line_holds_no_line_break() {
        assert_eq!(one_line("a\n\tb\r\n c", 100), "a b c");
        assert_eq!(one_line(&"x".repeat(1 << 20), 8), "xxxxxxxx ... (1048568 more bytes)");
    }

    #[test]
    fn a_shell_gives_words_back_as_they_were() {
        for word in ["plain::1MiB@odd", "two words", "it's", "$HOME", "", "a;b"] {
            let script = format!("printf %s {}", shell_word(word));
            let out = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&out.stdout), word);
        }
    }

    #[test]
    fn seconds_read_well_at_any_length() {
        assert_eq!(seconds(0.123), "0.12s");
        assert_eq!(seconds(75.9), "1m15s");
        assert_eq!(seconds(7265.0), "2h01m05s");
        assert_eq!(seconds(f64::NAN), "unknown time");
    }
}
