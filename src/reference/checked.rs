//! Objects whose fields must also agree with each other, checked while they are read.
//!
//! The check runs before the reader leaves the object, so that serde_json gives its error the object's own line. A
//! `try_from` attribute would be too late: the reader is then already at the next token.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

/// What the fields of an object must fulfil together.
pub(super) trait Check {
    /// What the object is, as in "expected ...".
    const WHAT: &'static str;

    /// What is wrong, and what was expected.
    fn check(&self) -> Result<(), String>;
}

/// A value that has been checked.
pub(super) struct Checked<T>(pub T);

impl<'de, T: Deserialize<'de> + Check> Deserialize<'de> for Checked<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de> + Check> Visitor<'de> for Object<T> {
            type Value = Checked<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::WHAT)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let value = T::deserialize(MapAccessDeserializer::new(map))?;
                value.check().map_err(A::Error::custom)?;
                Ok(Checked(value))
            }
        }

        deserializer.deserialize_map(Object(PhantomData))
    }
}

/// For `deserialize_with`: one object.
pub(super) fn one<'de, D: Deserializer<'de>, T: Deserialize<'de> + Check>(deserializer: D) -> Result<T, D::Error> {
    Checked::deserialize(deserializer).map(|c| c.0)
}

/// For `deserialize_with`: a list of objects.
pub(super) fn list<'de, D: Deserializer<'de>, T: Deserialize<'de> + Check>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    Ok(Vec::<Checked<T>>::deserialize(deserializer)?.into_iter().map(|c| c.0).collect())
}
