//! The host backend: ranks are threads of this machine, and collectives run over shared memory.

mod arithmetic;
