//! Readers of what other programs leave behind. They take any bytes, and never more for granted than the text says.

pub mod nccl_log;
pub mod ras;
