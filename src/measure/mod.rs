//! Timing and statistics.

pub mod bandwidth;
pub mod stats;
