//! The one engine: plan -> events.

pub mod event;
pub mod plan;
pub mod result;
