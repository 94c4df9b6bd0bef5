//! collcheck: acceptance tests for GPU collectives. See `docs/architecture.md` for the house.

pub mod backend;
pub mod case;
pub mod cli;
pub mod evidence;
pub mod fault;
pub mod fleet;
pub mod kernels;
pub mod measure;
pub mod oracle;
pub mod reference;
pub mod report;
pub mod run;
pub mod suite;
pub mod trace;
