//! Microseconds on the wire: as whole nanoseconds, which are quicker to read than decimal fractions, and finer than any clock
//! here. What is no time becomes 0.

use serde::{Deserialize, Deserializer, Serializer};

/// For `#[serde(with)]`.
pub fn serialize<S: Serializer>(us: &[f32], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(us.iter().map(|us| (f64::from(*us) * 1e3).round() as u64))
}

/// Likewise.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f32>, D::Error> {
    let ns = Vec::<u64>::deserialize(from)?;
    Ok(ns.into_iter().map(|ns| (ns as f64 / 1e3) as f32).collect())
}

#[cfg(test)]
mod tests {
    use serde::Serialize;

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Times(#[serde(with = "super")] Vec<f32>);

    #[test]
    fn times_come_back_to_the_nanosecond_and_what_is_none_as_zero() {
        let given = vec![0.0, 1.5, 13.678_572, 522_240.03, f32::NAN, -1.0];
        let text = serde_json::to_string(&Times(given.clone())).unwrap();
        assert!(text.starts_with("[0,1500,13679,"), "{text}");
        let Times(back) = serde_json::from_str(&text).unwrap();
        assert!(given.iter().zip(&back).take(4).all(|(a, b)| (a - b).abs() <= 0.001_f32.max(a * 1e-6)), "{back:?}");
        assert_eq!(back[4..], [0.0, 0.0]);
    }
}
