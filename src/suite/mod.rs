//! Suites: which cases to run. A suite is a TOML file, see `suites/README.md`; a [`Selection`] takes cases from it.
//!
//! The cases of a suite come in one order, whatever the order in its file: by primitive, op, dtype, size and variants,
//! each as [`Case`] orders them (for the first three the order of their `ALL`). A case that several blocks name is there once.

mod file;
mod rules;
mod select;
mod sizes;
mod suggest;

use std::path::Path;

pub use file::BadSuite;
pub use rules::{Misfit, canonical};
pub use select::{BadSelection, Selection};
pub use sizes::{DEFAULT_FACTOR, Series, SizeOverride, Sizes};

use crate::case::{Case, DType, Op, Primitive, Variant};

/// The suites that the program carries.
const EMBEDDED: [(&str, &str); 5] = [
    ("smoke", include_str!("../../suites/smoke.toml")),
    ("acceptance", include_str!("../../suites/acceptance.toml")),
    ("stress", include_str!("../../suites/stress.toml")),
    ("paths", include_str!("../../suites/paths.toml")),
    ("faults", include_str!("../../suites/faults.toml")),
];

/// Cases that one suite may have. Far above any use: it keeps a slip in a file from filling the memory.
pub const MAX_CASES: usize = 1_000_000;

/// A suite, read and checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Suite {
    /// What messages and results call it.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// How its cases run, where the command line does not say otherwise.
    pub settings: Settings,
    blocks: Vec<Block>,
}

/// How cases run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Timed launches per placement, at least 1.
    pub iters: u32,
    /// Untimed launches before them.
    pub warmup: u32,
    /// Whether results are checked.
    pub check: bool,
    /// Whether results tell which path NCCL took.
    pub path: bool,
}

/// nccl-tests' numbers: 20 timed launches after one, checked.
impl Default for Settings {
    fn default() -> Self {
        Settings { iters: 20, warmup: 1, check: true, path: false }
    }
}

/// The product of some primitives, ops, dtypes, sizes and sets of variants, less what does not exist.
#[derive(Debug, Clone, PartialEq)]
struct Block {
    primitives: Vec<Primitive>,
    /// Only for primitives that reduce.
    ops: Vec<Op>,
    dtypes: Vec<DType>,
    sizes: Sizes,
    /// Canonical sets; a set is left out for primitives that it does not apply to.
    variants: Vec<Vec<Variant>>,
}

/// Why there is no such suite.
#[derive(Debug, thiserror::Error)]
pub enum NoSuite {
    /// Neither a name nor a file.
    #[error("unknown suite {given:?}; known are {known}, or give a TOML file")]
    Unknown {
        /// What was asked for.
        given: String,
        /// Names of embedded suites.
        known: String,
    },
    /// The file cannot be read.
    #[error("cannot read suite {file}")]
    Io {
        /// Which.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// The file is wrong.
    #[error(transparent)]
    Bad(#[from] BadSuite),
}

/// A suite that asks for too much.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("suite {suite:?} has {cases} cases, expected at most {MAX_CASES}")]
pub struct TooMany {
    suite: String,
    cases: usize,
}

impl Suite {
    /// Names of the suites that the program carries.
    pub fn embedded() -> impl Iterator<Item = &'static str> {
        EMBEDDED.iter().map(|(name, _)| *name)
    }

    /// The embedded suite of that name, else the suite in that file. `./smoke` is always a file.
    pub fn find(name_or_file: &str) -> Result<Suite, NoSuite> {
        if let Some((name, text)) = EMBEDDED.iter().find(|(name, _)| *name == name_or_file) {
            return Suite::parse(&format!("suites/{name}.toml"), text);
        }
        let path = Path::new(name_or_file);
        let names_a_file = path.extension().is_some() || path.components().count() > 1 || path.exists();
        if !names_a_file {
            let known = Suite::embedded().collect::<Vec<_>>().join(", ");
            return Err(NoSuite::Unknown { given: name_or_file.to_owned(), known });
        }
        let text =
            std::fs::read_to_string(path).map_err(|source| NoSuite::Io { file: name_or_file.to_owned(), source })?;
        Suite::parse(name_or_file, &text)
    }

    /// Reads a suite from the text of a file; `file` is only for messages.
    pub fn parse(file: &str, text: &str) -> Result<Suite, NoSuite> {
        Ok(file::parse(file, text)?)
    }

    /// All cases, in order, with the suite's sizes or those asked for.
    pub fn cases(&self, sizes: &SizeOverride) -> Result<Vec<Case>, TooMany> {
        let most = self.blocks.iter().fold(0, |sum: usize, block| sum.saturating_add(block.combinations(sizes)));
        if most > MAX_CASES {
            return Err(TooMany { suite: self.name.clone(), cases: most });
        }
        let mut cases = Vec::new();
        for block in &self.blocks {
            block.expand(sizes, &mut cases);
        }
        cases.sort_unstable();
        cases.dedup();
        Ok(cases)
    }
}

impl Block {
    /// Members of the product, before those that do not exist are left out.
    fn combinations(&self, over: &SizeOverride) -> usize {
        let sizes = self.sizes.expand(over).len();
        let factors = [self.primitives.len(), self.ops.len(), self.dtypes.len(), self.variants.len()];
        factors.into_iter().fold(sizes, usize::saturating_mul)
    }

    fn expand(&self, over: &SizeOverride, cases: &mut Vec<Case>) {
        let sizes = self.sizes.expand(over);
        let reductions: Vec<Option<Op>> = self.ops.iter().copied().map(Some).collect();
        for &primitive in &self.primitives {
            let ops = if primitive.unit().reduces() { &reductions[..] } else { &[None] };
            for variants in &self.variants {
                for &op in ops {
                    let applies = |dtype: &&DType| rules::apply(variants, primitive, op, **dtype).is_ok();
                    for &dtype in self.dtypes.iter().filter(applies) {
                        cases.extend(sizes.iter().map(|&size| Case {
                            primitive,
                            op,
                            dtype,
                            size,
                            variants: variants.clone(),
                        }));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
