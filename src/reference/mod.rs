//! Reference ranges of bandwidth, and how a result is judged by them.
//!
//! Ranges live in golden files ([`golden`], schema `collcheck.golden/1`): one environment a file, one curve an entry. Some
//! are part of the binary, others come with `--reference`. [`References::judge`] picks the entry that fits a case best and
//! compares. Only an entry whose provenance is `measured` can fail a case; what was published elsewhere only warns.
//!
//! [`bless`] makes such a file of results.
//!
//! The format and the rules in full, with the reasons: `docs/references.md`.

mod algorithm;
pub mod bless;
mod checked;
mod choice;
mod curve;
mod embedded;
mod error;
mod facts;
mod fit;
pub mod golden;
mod judge;
mod key;
mod pattern;
mod version;

use std::path::Path;

pub use algorithm::Algorithm;
pub use choice::Choice;
pub use curve::Range;
pub use error::LoadError;
pub use facts::Observed;
pub use golden::{Entry, GoldenFile, Metric, Point, Provenance};
pub use judge::{Judged, Subject, missing_reference};
pub use key::{EnvironmentKey, Nics};
pub use version::NcclRange;

/// All golden files that a run knows.
#[derive(Debug, Clone, Default)]
pub struct References {
    files: Vec<Named>,
}

/// A golden file and where it came from.
#[derive(Debug, Clone)]
struct Named {
    name: String,
    /// Position among the files the user gave, from 1; 0 for those in the binary. Higher goes first.
    priority: usize,
    file: GoldenFile,
}

impl References {
    /// No files: every case is unasserted.
    pub fn none() -> Self {
        References::default()
    }

    /// The files in the binary. An error here is a fault of the build, which the tests rule out.
    pub fn embedded() -> Result<Self, LoadError> {
        let mut references = References::none();
        for (name, text) in embedded::FILES {
            references.push(name, 0, text)?;
        }
        Ok(references)
    }

    /// Adds a file of the user's. It goes before all that were there.
    pub fn load(&mut self, path: &Path) -> Result<(), LoadError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|e| LoadError::Unreadable { file: name.clone(), reason: e.to_string() })?;
        self.add(&name, &text)
    }

    /// Adds the text of a golden file; `name` stands for it in messages. It goes before all that were there.
    pub fn add(&mut self, name: &str, text: &str) -> Result<(), LoadError> {
        let priority = self.files.iter().map(|f| f.priority).max().unwrap_or(0) + 1;
        self.push(name, priority, text)
    }

    fn push(&mut self, name: &str, priority: usize, text: &str) -> Result<(), LoadError> {
        let file = GoldenFile::parse(name, text)?;
        self.files.push(Named { name: name.to_owned(), priority, file });
        Ok(())
    }

    /// The files, with their names.
    pub fn files(&self) -> impl Iterator<Item = (&str, &GoldenFile)> {
        self.files.iter().map(|f| (f.name.as_str(), &f.file))
    }
}
