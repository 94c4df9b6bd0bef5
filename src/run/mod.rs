//! The one engine: plan -> events.

mod assemble;
pub mod engine;
pub mod event;
mod known;
mod launches;
pub mod plan;
pub mod result;
