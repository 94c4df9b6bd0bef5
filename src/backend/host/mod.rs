//! The host backend: ranks are threads of this machine, and collectives run over shared memory.

mod arithmetic;
mod channel;
mod memory;
mod transport;
mod wait;
