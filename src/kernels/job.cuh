/* What a launch is told and what it tells: the layouts that Rust shares, as in mod.rs. C99 and CUDA C++. */
#ifndef COLLCHECK_JOB_CUH
#define COLLCHECK_JOB_CUH

#include "oracle.cuh"

/* Rust: kernels::Action. */
enum { FILL = 0, POISON = 1, CHECK = 2 };

enum {
    THREADS = 256, /* threads of a block */
    BATCH = 4,     /* vectors that a thread of a check loads at a time */
    SAMPLES = 256
};

/* Rust: kernels::Job, which explains the fields. */
typedef struct Job {
    u64 ptr;
    u64 len;
    u64 index;
    u64 element;
    u32 rank;
    u32 reduced;
    u32 action;
    u32 early;
} Job;

/* Rust: kernels::Sample. */
typedef struct Sample {
    u64 index;
    u64 actual;
    u64 expected;
} Sample;

/* Bits of `Outcome::lock`: someone holds it; the last sample is written. */
enum { LOCKED = 1, TAKEN = 2 };

/* Rust: kernels::Outcome. */
typedef struct Outcome {
    u64 wrong;
    u64 first;
    u32 sampled;
    u32 lock;
    Sample samples[SAMPLES];
} Outcome;

#endif
