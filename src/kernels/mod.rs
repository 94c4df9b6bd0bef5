//! The CUDA kernels: sources, the PTX built of them, and what launches need to know.
