//! Ranks and those who drive them: protocol, worker.

pub mod protocol;
