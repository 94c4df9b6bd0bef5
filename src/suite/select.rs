//! Which cases of a suite to run. What selects nothing is an error: a typing mistake must not look like a pass.

use std::fmt::Display;

use super::rules::{self, Misfit};
use super::suggest;
use super::{SizeOverride, Suite, TooMany};
use crate::case::{BadName, Bytes, Case, DType, Op, Primitive};

/// A selection as the command line states it.
///
/// An empty list does not restrict. `primitives`, `ops`, `dtypes` and `sizes` restrict every case, also those that a filter
/// names; then each filter adds cases, and `skip` takes cases away.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selection {
    /// Substrings of case names, or case names; OR-ed.
    ///
    /// A filter that is a full case name selects that case even where the suite does not have it, so that a name from any
    /// report runs again. As other filters, it is also a substring, unless `exact`.
    pub filters: Vec<String>,
    /// Filters and skips are full case names, not substrings.
    pub exact: bool,
    /// Substrings of case names to leave out.
    pub skip: Vec<String>,
    /// Primitives to keep.
    pub primitives: Vec<Primitive>,
    /// Ops to keep; `None` is that of primitives that only move data.
    pub ops: Vec<Option<Op>>,
    /// Dtypes to keep.
    pub dtypes: Vec<DType>,
    /// Sizes in place of the suite's.
    pub sizes: SizeOverride,
}

/// Why a selection selects nothing, or not what it says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSelection {
    /// A range of sizes without an inside.
    #[error("--min-bytes {0} is above --max-bytes {1}")]
    EmptyRange(Bytes, Bytes),
    /// One end of a range of sizes, beyond what the suite has.
    #[error(
        "suite {suite:?} has sizes from {min} to {max}, none of them {asked}: give both --min-bytes and --max-bytes"
    )]
    NoSizes {
        /// The suite.
        suite: String,
        /// Its smallest size.
        min: Bytes,
        /// Its largest size.
        max: Bytes,
        /// The end that was given.
        asked: String,
    },
    /// Nothing fits all restrictions.
    #[error("suite {suite:?} has no case with {restrictions}{hint}")]
    Nothing {
        /// The suite.
        suite: String,
        /// As on a command line.
        restrictions: String,
        /// What may be meant.
        hint: String,
    },
    /// A filter that matches no name.
    #[error("no case of suite {suite:?} matches {filter:?}{hint}")]
    NoMatch {
        /// The suite.
        suite: String,
        /// The filter.
        filter: String,
        /// What may be meant.
        hint: String,
    },
    /// A filter that names a case which the restrictions exclude.
    #[error("{filter:?} is excluded by {restriction}")]
    Excluded {
        /// The filter.
        filter: String,
        /// As on a command line.
        restriction: String,
    },
    /// A filter that looks like a case name and is none.
    #[error("{filter:?} is not a case: {why}")]
    NotACase {
        /// The filter.
        filter: String,
        /// What is wrong with it.
        why: String,
    },
    /// Everything was skipped.
    #[error("nothing is left to run: --skip {skip} leaves out all {cases} cases")]
    AllSkipped {
        /// What to leave out.
        skip: String,
        /// Cases before that.
        cases: usize,
    },
    /// More than anybody wants to run.
    #[error(transparent)]
    TooMany(#[from] TooMany),
}

/// A case with its name, so that a name is made once.
struct Named {
    name: String,
    case: Case,
}

impl Selection {
    /// The selected cases, in the order of suites, each once; never none.
    pub fn apply(&self, suite: &Suite) -> Result<Vec<Case>, BadSelection> {
        let pool = self.pool(suite)?;
        let mut chosen = if self.filters.is_empty() { pool } else { self.filter(suite, pool)? };
        let before = chosen.len();
        chosen.retain(|named| !self.skip.iter().any(|skip| self.matches(&named.name, skip)));
        if chosen.is_empty() {
            return Err(BadSelection::AllSkipped { skip: self.skip.join(" --skip "), cases: before });
        }
        Ok(chosen.into_iter().map(|named| named.case).collect())
    }

    /// The suite's cases that fit the restrictions. It is empty only where filters may still name cases of their own.
    fn pool(&self, suite: &Suite) -> Result<Vec<Named>, BadSelection> {
        if let (Some(min), Some(max)) = (self.sizes.min, self.sizes.max)
            && min > max
        {
            return Err(BadSelection::EmptyRange(min, max));
        }
        let cases = suite.cases(&self.sizes)?;
        if cases.is_empty() && self.filters.is_empty() {
            return Err(self.no_sizes(suite));
        }
        let cases = cases.into_iter().filter(|case| self.excluded_by(case).is_none());
        let pool: Vec<Named> = cases.map(|case| Named { name: case.name(), case }).collect();
        if pool.is_empty() && self.filters.is_empty() {
            return Err(self.nothing(suite));
        }
        Ok(pool)
    }

    /// Cases that at least one filter selects. Every filter must select one.
    fn filter(&self, suite: &Suite, pool: Vec<Named>) -> Result<Vec<Named>, BadSelection> {
        let mut extra: Vec<Case> = Vec::new();
        let mut keep = vec![false; pool.len()];
        for filter in &self.filters {
            let mut matched = false;
            let named = parse(filter);
            if let Ok(case) = &named
                && self.excluded_by(case).is_none()
            {
                extra.push(case.clone());
                matched = true;
            }
            for (named, keep) in pool.iter().zip(&mut keep) {
                if self.matches(&named.name, filter) {
                    *keep = true;
                    matched = true;
                }
            }
            if !matched {
                return Err(self.unmatched(suite, filter, named, &pool));
            }
        }
        let kept = pool.into_iter().zip(keep).filter_map(|(named, keep)| keep.then_some(named));
        let extra = extra.into_iter().map(|case| Named { name: case.name(), case });
        let mut chosen: Vec<Named> = kept.chain(extra).collect();
        chosen.sort_by(|a, b| a.case.cmp(&b.case));
        chosen.dedup_by(|a, b| a.case == b.case);
        Ok(chosen)
    }

    fn matches(&self, name: &str, pattern: &str) -> bool {
        if self.exact { name == pattern } else { name.contains(pattern) }
    }

    /// The first restriction that a case does not fit, as on a command line.
    fn excluded_by(&self, case: &Case) -> Option<String> {
        let fits = |fits: bool, option, list: String| (!fits).then(|| format!("{option} {list}"));
        let allows = self.sizes.allows(case.size);
        fits(
            self.primitives.is_empty() || self.primitives.contains(&case.primitive),
            "--primitive",
            join(&self.primitives),
        )
        .or_else(|| fits(self.ops.is_empty() || self.ops.contains(&case.op), "--op", join_ops(&self.ops)))
        .or_else(|| fits(self.dtypes.is_empty() || self.dtypes.contains(&case.dtype), "--dtype", join(&self.dtypes)))
        .or_else(|| (!allows).then(|| self.size_range()))
    }

    fn size_range(&self) -> String {
        let min = self.sizes.min.map(|min| format!("--min-bytes {min}"));
        let max = self.sizes.max.map(|max| format!("--max-bytes {max}"));
        [min, max].into_iter().flatten().collect::<Vec<_>>().join(" ")
    }

    fn no_sizes(&self, suite: &Suite) -> BadSelection {
        let bounds = suite.blocks.iter().map(|block| block.sizes.bounds());
        let (min, max) = bounds.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or((Bytes(u64::MAX), Bytes(0)));
        let asked = match (self.sizes.min, self.sizes.max) {
            (Some(min), _) => format!("at least {min}"),
            (None, Some(max)) => format!("at most {max}"),
            // a block has at least one size of its own, so that a factor alone cannot leave none
            (None, None) => "fitting".to_owned(),
        };
        BadSelection::NoSizes { suite: suite.name.clone(), min, max, asked }
    }

    fn nothing(&self, suite: &Suite) -> BadSelection {
        let mut restrictions = Vec::new();
        if !self.primitives.is_empty() {
            restrictions.push(format!("--primitive {}", join(&self.primitives)));
        }
        if !self.ops.is_empty() {
            restrictions.push(format!("--op {}", join_ops(&self.ops)));
        }
        if !self.dtypes.is_empty() {
            restrictions.push(format!("--dtype {}", join(&self.dtypes)));
        }
        let moves_only = |primitive: &&Primitive| !primitive.unit().reduces();
        let hint = match self.primitives.iter().find(moves_only) {
            Some(primitive) if !self.ops.is_empty() && !self.ops.contains(&None) => {
                format!(": {primitive} has no op, written --op none")
            }
            _ => String::new(),
        };
        BadSelection::Nothing { suite: suite.name.clone(), restrictions: restrictions.join(" "), hint }
    }

    fn unmatched(&self, suite: &Suite, filter: &str, named: Result<Case, NotNamed>, pool: &[Named]) -> BadSelection {
        let filter = filter.to_owned();
        match named {
            Ok(case) => {
                let restriction = self.excluded_by(&case).unwrap_or_default();
                BadSelection::Excluded { filter, restriction }
            }
            Err(NotNamed::Part(why)) => {
                let hint = suggest::hint(&filter, pool.iter().map(|named| (&named.case, named.name.as_str())));
                BadSelection::NotACase { filter, why: format!("{why}{hint}") }
            }
            Err(NotNamed::Shape) => {
                let hint = suggest::hint(&filter, pool.iter().map(|named| (&named.case, named.name.as_str())));
                BadSelection::NoMatch { suite: suite.name.clone(), filter, hint }
            }
        }
    }
}

/// Why a filter is not a full case name.
enum NotNamed {
    /// It has not the parts of one: an ordinary substring.
    Shape,
    /// It has, and one of them is wrong.
    Part(String),
}

/// The case that a filter names in full, under its one name.
fn parse(filter: &str) -> Result<Case, NotNamed> {
    let case: Case = filter.parse().map_err(|e| match e {
        BadName::Shape(_) => NotNamed::Shape,
        other => NotNamed::Part(other.to_string()),
    })?;
    rules::canonical(case).map_err(|misfit: Misfit| NotNamed::Part(misfit.to_string()))
}

fn join<T: Display>(list: &[T]) -> String {
    list.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

fn join_ops(list: &[Option<Op>]) -> String {
    list.iter().map(|op| op.map_or("none", Op::name)).collect::<Vec<_>>().join(",")
}
