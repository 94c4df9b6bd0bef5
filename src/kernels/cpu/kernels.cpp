// The kernels themselves on the CPU: every thread of every block in turn. They have no barriers, so any order is right.

#include <cstdint>
#include <cstring>

#define __device__
#define __global__
#define __forceinline__
#define __noinline__
#define __launch_bounds__(...)

namespace {
struct Dimensions {
    uint32_t x;
};
Dimensions threadIdx, blockIdx, gridDim;

struct uint4 {
    uint32_t x, y, z, w;
};

uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    return uint4{x, y, z, w};
}

template <class T, class U> T atomicAdd(T *at, U value)
{
    T before = *at;
    *at += value;
    return before;
}

template <class T, class U> T atomicExch(T *at, U value)
{
    T before = *at;
    *at = value;
    return before;
}

uint32_t atomicCAS(uint32_t *at, uint32_t expected, uint32_t value)
{
    uint32_t before = *at;
    if (before == expected)
        *at = value;
    return before;
}

void __threadfence()
{
}
} // namespace

#include "../kernels.cu"

typedef void Kernel(Params, Job, Outcome *);

// Runs one of the kernels above. One launch at a time.
extern "C" void collcheck_launch(Kernel *kernel, u32 blocks, const Params *p, const Job *job, Outcome *out)
{
    gridDim.x = blocks;
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < THREADS; threadIdx.x++)
            kernel(*p, *job, out);
}
