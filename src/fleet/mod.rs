//! Ranks and those who drive them.
//!
//! The runner speaks to a [`team::Team`] in [`protocol`] messages only; a [`worker`] turns each into calls of its
//! station, with buffers laid out by [`staging`].

pub mod protocol;
pub mod staging;
pub mod team;
pub mod worker;
