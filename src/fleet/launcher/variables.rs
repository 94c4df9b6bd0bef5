//! The environment as data.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::claim::Said;
use super::error::Confusion;

/// Variables by name. What is not text is left out: no launcher writes such.
#[derive(Debug, Clone, Default)]
pub struct Variables(BTreeMap<String, String>);

impl Variables {
    /// The text of a variable; an empty one counts as none.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    /// Whether it is there and not empty.
    pub fn has(&self, name: &str) -> bool {
        self.text(name).is_some()
    }

    /// A variable that counts something.
    pub fn number(&self, name: &'static str) -> Result<Option<Said>, Confusion> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let value = text.parse().map_err(|_| Confusion::NotANumber { name, value: text.to_owned() })?;
        Ok(Some(Said { name, value }))
    }

    /// The first of these that is there.
    pub fn first_number(&self, names: &[&'static str]) -> Result<Option<Said>, Confusion> {
        names.iter().find(|name| self.has(name)).map_or(Ok(None), |name| self.number(name))
    }

    /// The text of the first of these that is there.
    pub fn first_text(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.text(name))
    }
}

impl FromIterator<(OsString, OsString)> for Variables {
    fn from_iter<I: IntoIterator<Item = (OsString, OsString)>>(all: I) -> Variables {
        Variables(all.into_iter().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))).collect())
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Variables {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(all: I) -> Variables {
        Variables(all.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}
