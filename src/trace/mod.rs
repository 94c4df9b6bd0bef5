//! Who hangs whom: records of calls, their alignment across ranks, and the verdict. No device and no network.
//!
//! ```text
//! worker -> ring -> calls of a rank \
//! NCCL logs, Flight Recorder -------> incident -> align -> judge -> diagnosis
//! liveness, messages ---------------/
//! ```

pub mod call;
pub mod ring;
