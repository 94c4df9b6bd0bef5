//! Microseconds on the wire: whole nanoseconds in one string, `12250 12393 12536`, which is read faster than a list of numbers,
//! and is finer than any clock here. What is no time becomes 0.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserializer, Serializer};

/// Bytes of a short time: room is made for as many as there may be of those.
const SHORT: usize = 5;

/// For `#[serde(with)]`.
pub fn serialize<S: Serializer>(us: &[f32], to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&Text(us))
}

/// Likewise.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f32>, D::Error> {
    from.deserialize_str(Times)
}

struct Text<'t>(&'t [f32]);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut space = "";
        for us in self.0 {
            write!(f, "{space}{}", (f64::from(*us) * 1e3).round() as u64)?;
            space = " ";
        }
        Ok(())
    }
}

struct Times;

impl Visitor<'_> for Times {
    type Value = Vec<f32>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nanoseconds with spaces between them")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vec<f32>, E> {
        let mut all = Vec::with_capacity(text.len() / SHORT + 1);
        for ns in text.split_ascii_whitespace() {
            let ns: u64 = ns.parse().map_err(|_| E::custom(format_args!("{ns:?} is no time")))?;
            all.push((ns as f64 / 1e3) as f32);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize)]
    struct Few(#[serde(with = "super")] Vec<f32>);

    #[test]
    fn times_come_back_to_the_nanosecond_and_what_is_none_as_zero() {
        let given = vec![0.0, 1.5, 13.678_572, 522_240.03, f32::NAN, -1.0];
        let text = serde_json::to_string(&Few(given.clone())).unwrap();
        assert!(text.starts_with("\"0 1500 13679 "), "{text}");
        let Few(back) = serde_json::from_str(&text).unwrap();
        assert!(given.iter().zip(&back).take(4).all(|(a, b)| (a - b).abs() <= 0.001_f32.max(a * 1e-6)), "{back:?}");
        assert_eq!(back[4..], [0.0, 0.0]);
    }

    #[test]
    fn no_times_are_none_and_what_is_no_number_is_no_message() {
        let of = |text: &str| serde_json::from_str::<Few>(text).map(|Few(all)| all).map_err(|e| e.to_string());
        assert_eq!(serde_json::to_string(&Few(Vec::new())).unwrap(), "\"\"");
        assert_eq!(of("\"\""), Ok(Vec::new()));
        assert_eq!(of("\"7 8\""), Ok(vec![0.007, 0.008]));
        for (garbage, why) in [("\"7 x\"", "\"x\" is no time"), ("\"-7\"", "is no time"), ("[7]", "nanoseconds with")] {
            assert!(of(garbage).unwrap_err().contains(why), "{garbage}: {:?}", of(garbage));
        }
    }
}
