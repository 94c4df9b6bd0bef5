//! Values of options, where the type of the library does not read itself.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::case::{Op, Unknown};
use crate::fleet::protocol::Tamper;
use crate::run::plan::Destination;

/// One value of a repeatable option, or `all`: no restriction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice<T> {
    /// `all`.
    All,
    /// One of them.
    One(T),
}

impl<T: FromStr> FromStr for Choice<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        if text == "all" { Ok(Choice::All) } else { text.parse().map(Choice::One) }
    }
}

impl<T: Copy> Choice<T> {
    /// The list that a selection takes: empty where anything goes.
    pub fn list(choices: &[Choice<T>]) -> Vec<T> {
        let ones = choices.iter().map(|choice| match choice {
            Choice::All => None,
            Choice::One(one) => Some(*one),
        });
        ones.collect::<Option<Vec<T>>>().unwrap_or_default()
    }
}

/// An op, or `none`: the op of primitives that only move data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpChoice(pub Option<Op>);

impl FromStr for OpChoice {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Self, Unknown> {
        if text == "none" {
            return Ok(OpChoice(None));
        }
        text.parse().map(|op| OpChoice(Some(op))).map_err(|_| {
            let [a, b, c, d, e, f] = Op::ALL.map(Op::name);
            Unknown::new("op", text, [a, b, c, d, e, f, "none"])
        })
    }
}

/// A day: nobody waits longer for one case.
const MOST_SECONDS: f64 = 86_400.0;

/// The seed of inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seed {
    /// Given, or the default.
    Fixed(u64),
    /// Drawn at the start; results state it.
    Random,
}

impl Seed {
    /// The seed itself.
    pub fn resolve(self) -> u64 {
        match self {
            Seed::Fixed(seed) => seed,
            Seed::Random => rand::random(),
        }
    }
}

/// Why a text is not a value of an option: found and expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {0}")]
pub struct Expected(Cow<'static, str>);

/// For a fixed text.
const fn expected(what: &'static str) -> Expected {
    Expected(Cow::Borrowed(what))
}

impl FromStr for Seed {
    type Err = Expected;

    fn from_str(text: &str) -> Result<Self, Expected> {
        if text == "random" {
            return Ok(Seed::Random);
        }
        text.parse().map(Seed::Fixed).map_err(|_| expected("a whole number from 0 to 18446744073709551615, or random"))
    }
}

/// A whole number from `MIN` to `MAX`.
pub fn number<const MIN: u32, const MAX: u32>(text: &str) -> Result<u32, Expected> {
    let read = text.parse().ok().filter(|n| (MIN..=MAX).contains(n));
    read.ok_or_else(|| Expected(format!("a whole number from {MIN} to {MAX}").into()))
}

/// Seconds, fractions allowed.
pub fn seconds(text: &str) -> Result<Duration, Expected> {
    let read = text.parse::<f64>().ok().filter(|s| (0.001..=MOST_SECONDS).contains(s));
    read.map(Duration::from_secs_f64).ok_or(expected("seconds, from 0.001 to 86400"))
}

/// A share between 0 and 1, ends excluded.
pub fn share(text: &str) -> Result<f64, Expected> {
    text.parse().ok().filter(|share| *share > 0.0 && *share < 1.0).ok_or(expected("a share between 0 and 1, as 0.05"))
}

/// The factor between sizes.
pub fn factor(text: &str) -> Result<u64, Expected> {
    text.parse().ok().filter(|factor| *factor >= 2).ok_or(expected("a whole number from 2 on"))
}

/// `RANK:INDEX:BIT`.
pub fn tamper(text: &str) -> Result<Tamper, Expected> {
    let read = || {
        let mut parts = text.split(':');
        let (rank, index, bit) = (parts.next()?, parts.next()?, parts.next()?);
        let tamper = Tamper { rank: rank.parse().ok()?, index: index.parse().ok()?, bit: bit.parse().ok()? };
        parts.next().is_none().then_some(tamper)
    };
    read().ok_or(expected("RANK:INDEX:BIT, as 1:0:3"))
}

/// A flag's environment twin. On the command line clap passes `true`.
pub fn flag(text: &str) -> Result<bool, Expected> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err(expected("1, true, yes, on, 0, false, no or off")),
    }
}

/// A file to write. `-` is refused rather than made a file of that name; `./-` is one.
pub fn file(text: OsString) -> Result<PathBuf, Expected> {
    if text == "-" { Err(expected("a file; only --table writes to -")) } else { Ok(PathBuf::from(text)) }
}

/// A file to write, or `-`.
pub fn destination(text: OsString) -> Destination {
    if text == "-" { Destination::Stdout } else { Destination::File(PathBuf::from(text)) }
}

/// A length of time: a number with the unit s, m, h or d; seconds where there is none.
pub fn duration(text: &str) -> Result<std::time::Duration, String> {
    let bad = || format!("{text:?} is no length of time, expected a number with s, m, h or d, as 90s, 10m or 8h");
    let (number, unit) = match text.find(|c: char| !c.is_ascii_digit()) {
        Some(at) => text.split_at(at),
        None => (text, "s"),
    };
    let number: u64 = number.parse().map_err(|_| bad())?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(bad()),
    };
    match number.checked_mul(seconds) {
        Some(total) if (1..=31_536_000).contains(&total) => Ok(std::time::Duration::from_secs(total)),
        _ => Err(bad()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::DType;

    #[test]
    fn all_among_others_lifts_the_restriction() {
        let list = |texts: &[&str]| {
            let choices: Result<Vec<Choice<DType>>, _> = texts.iter().map(|t| t.parse()).collect();
            choices.map(|choices| Choice::list(&choices))
        };
        assert_eq!(list(&["bf16", "float"]), Ok(vec![DType::Bfloat16, DType::Float]));
        assert_eq!(list(&["bf16", "all"]), Ok(vec![]));
        assert!(list(&["some"]).is_err());
    }

    #[test]
    fn a_tamper_has_three_numbers() {
        assert_eq!(tamper("1:22:3"), Ok(Tamper { rank: 1, index: 22, bit: 3 }));
        for bad in ["", "1:2", "1:2:3:4", "a:b:c", "-1:2:3", "1:2:99999999999"] {
            assert!(tamper(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_know_their_bounds_and_say_them() {
        assert_eq!((number::<1, 5>("1"), number::<1, 5>("5")), (Ok(1), Ok(5)));
        for bad in ["0", "6", "-1", "two", "", "4294967297"] {
            let message = number::<1, 5>(bad).unwrap_err().to_string();
            assert_eq!(message, "expected a whole number from 1 to 5", "{bad}");
        }
    }

    #[test]
    fn seconds_are_more_than_none_and_no_more_than_a_day() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(seconds("86400"), Ok(Duration::from_secs(86_400)));
        for bad in ["0", "-1", "inf", "NaN", "86401", "1m", ""] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_share_is_inside_of_0_and_1() {
        assert_eq!(share("0.05"), Ok(0.05));
        for bad in ["0", "1", "-0.1", "5%", "nan", "inf", ""] {
            assert!(share(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn seeds_factors_and_flags_know_their_bounds() {
        assert_eq!("18446744073709551615".parse(), Ok(Seed::Fixed(u64::MAX)));
        assert_eq!("random".parse(), Ok(Seed::Random));
        assert!("18446744073709551616".parse::<Seed>().is_err());
        assert!(factor("1").is_err() && factor("0").is_err() && factor("1.5").is_err() && factor("2") == Ok(2));
        assert!(flag("ON") == Ok(true) && flag("0") == Ok(false) && flag("2").is_err());
    }
}
