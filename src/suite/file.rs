//! The file format of suites: see `suites/README.md`. Whatever is wrong is said with file, line and column.

use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::str::FromStr;
use toml::Spanned;

use super::rules;
use super::sizes::Sizes;
use super::{Block, Settings, Suite};
use crate::case::{DType, Op, Primitive, Variant};

/// What is wrong with a suite file, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}")]
pub struct BadSuite {
    /// The file as it was given.
    pub file: String,
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
    /// What was found and what was expected.
    pub message: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SuiteTable {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    defaults: DefaultsTable,
    cases: Spanned<Vec<Spanned<BlockTable>>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct DefaultsTable {
    iters: Option<Spanned<u32>>,
    warmup: Option<u32>,
    check: Option<bool>,
    path: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BlockTable {
    primitives: Option<Spanned<Names<Primitive>>>,
    ops: Option<Names<Op>>,
    dtypes: Option<Names<DType>>,
    sizes: Sizes,
    variants: Option<Spanned<Vec<Spanned<Vec<Variant>>>>>,
}

/// Reads a suite from the text of a file; `file` is only for messages.
pub fn parse(file: &str, text: &str) -> Result<Suite, BadSuite> {
    let bad = |span: Option<Range<usize>>, message: String| {
        let (line, column) = position(text, span.map_or(0, |s| s.start));
        BadSuite { file: file.to_owned(), line, column, message }
    };
    let table: SuiteTable = toml::from_str(text).map_err(|e| bad(e.span(), one_line(e.message())))?;
    if let Some(iters) = table.defaults.iters.as_ref().filter(|iters| *iters.get_ref() == 0) {
        return Err(bad(Some(iters.span()), "iters is 0, expected at least 1".into()));
    }
    if table.cases.get_ref().is_empty() {
        return Err(bad(Some(table.cases.span()), "no cases, expected at least one [[cases]] block".into()));
    }
    let defaults = Settings::default();
    let settings = Settings {
        iters: table.defaults.iters.map_or(defaults.iters, Spanned::into_inner),
        warmup: table.defaults.warmup.unwrap_or(defaults.warmup),
        check: table.defaults.check.unwrap_or(defaults.check),
        path: table.defaults.path.unwrap_or(defaults.path),
    };
    let blocks = table.cases.into_inner().into_iter().map(|block| block.into_inner().resolve());
    let blocks = blocks.collect::<Result<Vec<Block>, _>>().map_err(|(span, message)| bad(Some(span), message))?;
    Ok(Suite { name: table.name, description: table.description, settings, blocks })
}

impl BlockTable {
    /// The block with all its defaults; or what is wrong, and where.
    fn resolve(self) -> Result<Block, (Range<usize>, String)> {
        let primitives = self.primitives.map_or(Primitive::ALL.to_vec(), |names| names.into_inner().0);
        let ops = self.ops.map_or(Op::ALL.to_vec(), |names| names.0);
        let dtypes = self.dtypes.map_or(DType::ALL.to_vec(), |names| names.0);
        let variants = match self.variants {
            None => vec![Vec::new()],
            Some(sets) if sets.get_ref().is_empty() => {
                return Err((sets.span(), "no variants, expected at least one set, as [[]]".into()));
            }
            Some(sets) => {
                let sets = sets.into_inner().into_iter().map(|set| variant_set(set, &primitives, &ops, &dtypes));
                sets.collect::<Result<Vec<_>, _>>()?
            }
        };
        Ok(Block { primitives, ops, dtypes, sizes: self.sizes, variants })
    }
}

/// One set of variants, which must apply to at least one primitive: a line that selects nothing is a mistake.
fn variant_set(
    set: Spanned<Vec<Variant>>,
    primitives: &[Primitive],
    ops: &[Op],
    dtypes: &[DType],
) -> Result<Vec<Variant>, (Range<usize>, String)> {
    let span = set.span();
    let canonical = rules::canonical_variants(set.get_ref()).map_err(|misfit| (span.clone(), misfit.to_string()))?;
    let mut misfit = None;
    for &primitive in primitives {
        let ops: Vec<Option<Op>> =
            if primitive.unit().reduces() { ops.iter().copied().map(Some).collect() } else { vec![None] };
        for op in ops {
            for &dtype in dtypes {
                match rules::apply(set.get_ref(), primitive, op, dtype) {
                    Ok(()) => return Ok(canonical),
                    Err(why) => misfit = Some(why),
                }
            }
        }
    }
    let why = misfit.map_or_else(String::new, |why| format!(": {why}"));
    Err((span, format!("these variants apply to no primitive of the block{why}")))
}

/// `"all"`, one name, or a list of names, in the order and with the repetitions of the file.
struct Names<T>(Vec<T>);

/// A set of names that `all` stands for.
trait Named: FromStr<Err: fmt::Display> + Copy + 'static {
    const WHAT: &'static str;
    const EVERY: &'static [Self];
}

impl Named for Primitive {
    const WHAT: &'static str = "primitive";
    const EVERY: &'static [Self] = &Primitive::ALL;
}

impl Named for Op {
    const WHAT: &'static str = "op";
    const EVERY: &'static [Self] = &Op::ALL;
}

impl Named for DType {
    const WHAT: &'static str = "dtype";
    const EVERY: &'static [Self] = &DType::ALL;
}

/// One entry of [`Names`], an own type so that an error carries the entry's place.
struct Entry<T>(Vec<T>);

impl<'de, T: Named> Deserialize<'de> for Entry<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntryVisitor<T>(PhantomData<T>);

        impl<T: Named> Visitor<'_> for EntryVisitor<T> {
            type Value = Entry<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "the name of one {} or \"all\"", T::WHAT)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Entry<T>, E> {
                if text == "all" {
                    return Ok(Entry(T::EVERY.to_vec()));
                }
                text.parse().map(|one| Entry(vec![one])).map_err(E::custom)
            }
        }

        deserializer.deserialize_str(EntryVisitor(PhantomData))
    }
}

impl<'de, T: Named> Deserialize<'de> for Names<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NamesVisitor<T>(PhantomData<T>);

        impl<'de, T: Named> Visitor<'de> for NamesVisitor<T> {
            type Value = Names<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "\"all\", the name of one {} or a list of such names", T::WHAT)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Names<T>, E> {
                let entry = Entry::deserialize(de::value::StrDeserializer::new(text))?;
                Ok(Names(entry.0))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Names<T>, A::Error> {
                let mut all = Vec::new();
                while let Some(entry) = seq.next_element::<Entry<T>>()? {
                    all.extend(entry.0);
                }
                if all.is_empty() {
                    return Err(de::Error::invalid_length(0, &"at least one name"));
                }
                Ok(Names(all))
            }
        }

        deserializer.deserialize_any(NamesVisitor(PhantomData))
    }
}

/// Line and column, both from 1, of a byte of the text.
fn position(text: &str, byte: usize) -> (usize, usize) {
    let before = text.as_bytes().get(..byte).unwrap_or(text.as_bytes());
    let before = String::from_utf8_lossy(before);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |tail| tail.chars().count()) + 1;
    (line, column)
}

fn one_line(message: &str) -> String {
    message.split('\n').map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}
