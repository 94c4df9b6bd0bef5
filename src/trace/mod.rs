//! Who hangs whom: records of calls, their alignment across ranks, and the verdict. No device and no network.
//!
//! ```text
//! worker -> ring -> calls of a rank \
//! NCCL logs, Flight Recorder -------> incident -> align, p2p -> waits, shift -> judge -> diagnosis
//! liveness, messages ---------------/
//! ```
//!
//! # Known limitations
//!
//! - Of two ranks, or two equal halves, that differ, only the calls before or after can tell which is wrong. Where they
//!   do not, both are named.
//! - A rank that skipped one of many equal calls shows only at the end, as one call too few, like a rank that is busy
//!   elsewhere: both classes are given, and the step is not.
//! - Roots and reductions that differ are B.order: the classes have no name of their own for them.

mod advice;
mod align;
pub mod call;
pub mod incident;
pub mod judge;
pub(crate) mod messages;
mod p2p;
mod pattern;
pub mod ring;
mod shift;
pub(crate) mod text;
pub mod verdict;
mod waits;

pub use incident::{Communicator, Incident, Liveness, RankEvidence, Setup};
pub use judge::judge;
pub use verdict::{Class, Diagnosis, Evidence, Verdict};
