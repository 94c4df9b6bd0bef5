//! Reading along a text: every step takes what it asks for from the front, or says that it is not there.

use std::str::FromStr;

/// What is left of a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scan<'a>(pub &'a str);

impl<'a> Scan<'a> {
    /// Takes exactly this.
    pub fn eat(&mut self, literal: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(literal)?;
        Some(())
    }

    /// Takes what comes before this, and this.
    pub fn until(&mut self, literal: &str) -> Option<&'a str> {
        let (before, after) = self.0.split_once(literal)?;
        self.0 = after;
        Some(before)
    }

    /// Takes a number as its digits, with a sign.
    pub fn number<T: FromStr>(&mut self) -> Option<T> {
        let is_part = |(i, c): (usize, char)| c.is_ascii_digit() || (i == 0 && c == '-');
        let end = self.0.char_indices().find(|&part| !is_part(part)).map_or(self.0.len(), |(i, _)| i);
        let (digits, rest) = self.0.split_at(end);
        let number = digits.parse().ok()?;
        self.0 = rest;
        Some(number)
    }

    /// Takes a number in base 16, with or without `0x`; `(nil)` is how the C library prints the null pointer.
    pub fn hex(&mut self) -> Option<u64> {
        if self.eat("(nil)").is_some() {
            return Some(0);
        }
        let digits = self.0.strip_prefix("0x").unwrap_or(self.0);
        let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
        let (digits, rest) = digits.split_at(end);
        let number = u64::from_str_radix(digits, 16).ok()?;
        self.0 = rest;
        Some(number)
    }

    /// Takes a word of letters, digits and underscores, at least one.
    pub fn word(&mut self) -> Option<&'a str> {
        let end = self.0.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        (!word.is_empty()).then_some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_takes_what_it_asks_for_and_no_more() {
        let mut scan = Scan("rank -12 comm 0x1f stream (nil) Ring_1, é");
        assert_eq!(scan.eat("rank "), Some(()));
        assert_eq!(scan.number::<i32>(), Some(-12));
        assert_eq!(scan.until("comm "), Some(" "));
        assert_eq!(scan.hex(), Some(31));
        assert_eq!(scan.until("stream "), Some(" "));
        assert_eq!((scan.hex(), scan.eat(" ")), (Some(0), Some(())));
        assert_eq!(scan.word(), Some("Ring_1"));
        assert_eq!((scan.word(), scan.number::<u8>(), scan.hex()), (None, None, None));
        assert_eq!(scan.0, ", é");
    }

    #[test]
    fn numbers_that_do_not_fit_are_none() {
        assert_eq!(Scan("99999999999999999999").number::<u64>(), None);
        assert_eq!(Scan("-1").number::<u32>(), None);
        assert_eq!(Scan("1ffffffffffffffff").hex(), None);
    }
}
