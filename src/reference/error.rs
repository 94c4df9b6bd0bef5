//! Why a golden file cannot be used. Exit code 2.

/// A golden file that is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// It could not be read at all.
    #[error("{file}: {reason}")]
    Unreadable {
        /// The file.
        file: String,
        /// What the system said.
        reason: String,
    },
    /// It is not JSON, or not what `collcheck.golden/1` allows.
    #[error("{file}:{line}:{column}: {reason}")]
    Broken {
        /// The file.
        file: String,
        /// Counted from 1: the value in question, or the end of the object it is in.
        line: usize,
        /// Counted from 1.
        column: usize,
        /// What is wrong and what was expected.
        reason: String,
    },
}

impl LoadError {
    pub(super) fn broken(file: &str, error: &serde_json::Error) -> Self {
        let text = error.to_string();
        let position = format!(" at line {} column {}", error.line(), error.column());
        LoadError::Broken {
            file: file.to_owned(),
            line: error.line(),
            column: error.column(),
            reason: text.strip_suffix(&position).unwrap_or(&text).to_owned(),
        }
    }
}
