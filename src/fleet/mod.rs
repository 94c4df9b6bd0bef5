//! Ranks and those who drive them.
//!
//! The runner speaks to a [`team::Team`] in [`protocol`] messages only; a [`worker`] turns each into calls of its
//! station:
//!
//! ```text
//! worker ── placement by placement
//!   │  opening: one plain launch, checked
//!   │  drill:   what the case's variants add (graph, pipeline)
//!   │  timing, and a last check
//!   v
//! pass ── the steps that all of them share: prepare, poison, produce, launch, collect, agree
//!   │
//!   part ── one call, or each of a group, on its part of the buffers
//!   │
//!   staging ── what a call's buffers hold before and after
//! ```
//!
//! Between worker and station a `recorder` writes every call into the rank's `log`. What does not come back before its
//! [`deadline`], or has lost a rank, is judged by an [`inquest`] over all logs.

pub mod deadline;
mod drill;
mod found;
pub mod inquest;
pub mod launcher;
pub(crate) mod log;
mod nanoseconds;
pub mod occasion;
mod part;
mod pass;
mod place;
pub mod processes;
pub mod protocol;
mod recorder;
pub mod staging;
pub mod team;
mod timing;
pub mod worker;

pub use part::footprint;
