//! Timing and statistics.
