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

uint32_t atomicOr(uint32_t *at, uint32_t value)
{
    uint32_t before = *at;
    *at |= value;
    return before;
}

void __threadfence()
{
}
} // namespace

#include "../kernels.cu"

// Calls a kernel as each thread of a grid. One at a time.
template <class... Arguments> static void launch(void (*kernel)(Arguments...), u32 blocks, Arguments... arguments)
{
    gridDim.x = blocks;
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < THREADS; threadIdx.x++)
            kernel(arguments...);
}

// Any kernel but the guard's.
extern "C" void collcheck_launch(void (*kernel)(Params, Job, Outcome *), u32 blocks, const Params *p, const Job *job,
                                 Outcome *out)
{
    launch(kernel, blocks, *p, *job, out);
}

extern "C" void collcheck_launch_guard(u32 blocks, u64 ptr, u64 len, u32 byte, Outcome *out)
{
    launch(guard, blocks, ptr, len, byte, out);
}
