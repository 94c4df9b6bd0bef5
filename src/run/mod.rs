//! The one engine: plan -> events.

mod assemble;
pub mod engine;
pub mod event;
mod known;
mod launches;
pub mod path;
pub mod plan;
pub mod result;
