//! The host backend: ranks are threads of this machine, and collectives run over shared memory.

mod algorithms;
mod arithmetic;
mod channel;
mod memory;
mod transport;
mod wait;
