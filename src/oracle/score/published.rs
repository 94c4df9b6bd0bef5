//! The same score of nccl-tests' checker, as it was published beside this oracle's.
