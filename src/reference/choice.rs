//! One part of a key: `"any"`, one value, or a list of values.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, IntoDeserializer, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

/// What a key says of one fact.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Choice<T> {
    /// It does not matter.
    #[default]
    Any,
    /// It must be one of these; never empty when read from a file.
    Of(Vec<T>),
}

impl<T: PartialEq> Choice<T> {
    /// Whether `value` will do.
    pub fn admits(&self, value: &T) -> bool {
        match self {
            Choice::Any => true,
            Choice::Of(values) => values.contains(value),
        }
    }
}

impl<T> Choice<T> {
    /// Exactly this value.
    pub fn only(value: T) -> Self {
        Choice::Of(vec![value])
    }

    /// Whether it says anything.
    pub fn is_any(&self) -> bool {
        matches!(self, Choice::Any)
    }
}

impl<T: fmt::Display> fmt::Display for Choice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Any => f.write_str("any"),
            Choice::Of(values) => {
                for (i, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if i == 0 { "" } else { " or " })?;
                }
                Ok(())
            }
        }
    }
}

impl<T: Serialize> Serialize for Choice<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Choice::Any => serializer.serialize_str("any"),
            Choice::Of(values) => match values.as_slice() {
                [one] => one.serialize(serializer),
                many => many.serialize(serializer),
            },
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Choice<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Values<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Values<T> {
            type Value = Choice<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"any\", one value, or a list of values")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                if text == "any" { Ok(Choice::Any) } else { T::deserialize(text.into_deserializer()).map(Choice::only) }
            }

            fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
                T::deserialize(value.into_deserializer()).map(Choice::only)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
                let values = Vec::<T>::deserialize(SeqAccessDeserializer::new(seq))?;
                if values.is_empty() {
                    return Err(A::Error::custom("the list is empty; expected at least one value, or \"any\""));
                }
                Ok(Choice::Of(values))
            }
        }

        deserializer.deserialize_any(Values(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Op;

    #[test]
    fn any_one_and_many_read_back_as_written() {
        for (text, value) in [
            (r#""any""#, Choice::Any),
            (r#""sum""#, Choice::only(Op::Sum)),
            (r#"["sum","max"]"#, Choice::Of(vec![Op::Sum, Op::Max])),
        ] {
            assert_eq!(serde_json::from_str::<Choice<Op>>(text).unwrap(), value);
            assert_eq!(serde_json::to_string(&value).unwrap(), text);
        }
        assert_eq!(serde_json::from_str::<Choice<bool>>("false").unwrap(), Choice::only(false));
    }

    #[test]
    fn an_unknown_value_and_an_empty_list_are_refused() {
        let unknown = serde_json::from_str::<Choice<Op>>(r#"["sum","xor"]"#).unwrap_err().to_string();
        assert!(unknown.contains("xor") && unknown.contains("mulsum"), "{unknown}");
        assert!(serde_json::from_str::<Choice<Op>>("[]").unwrap_err().to_string().contains("at least one"));
        assert!(serde_json::from_str::<Choice<Op>>("7").unwrap_err().to_string().contains("list of values"));
    }
}
