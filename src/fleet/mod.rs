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

mod drill;
mod found;
pub mod occasion;
mod part;
mod pass;
pub mod protocol;
pub mod staging;
pub mod team;
mod timing;
pub mod worker;

pub use part::footprint;
