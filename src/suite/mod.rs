//! Suites: which cases to run.
