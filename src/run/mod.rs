//! The one engine: plan -> events.

pub mod assemble;
pub mod engine;
pub mod event;
mod explain;
mod known;
mod launches;
pub mod path;
pub mod plan;
mod ras;
pub mod result;
