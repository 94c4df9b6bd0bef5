// The kernels themselves on the CPU: every thread of every block in turn. They have no barriers, so any order is right.

#include <cstdint>
#include <cstring>
#include <sys/mman.h>

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

// Any kernel but the guard's and the fingerprint's.
extern "C" void collcheck_launch(void (*kernel)(Params, Job, Outcome *), u32 blocks, const Params *p, const Job *job,
                                 Outcome *out)
{
    launch(kernel, blocks, *p, *job, out);
}

extern "C" void collcheck_launch_guard(u32 blocks, u64 ptr, u64 len, u32 byte, Outcome *out)
{
    launch(guard, blocks, ptr, len, byte, out);
}

extern "C" void collcheck_launch_fingerprint(u32 blocks, u64 ptr, u64 len, u32 width, u64 *sum)
{
    launch(fingerprint, blocks, ptr, len, width, sum);
}

// One block of a grid, for regions that are too large to walk.
extern "C" void collcheck_launch_block(void (*kernel)(Params, Job, Outcome *), u32 blocks, u32 block, const Params *p,
                                       const Job *job, Outcome *out)
{
    gridDim.x = blocks;
    blockIdx.x = block;
    for (threadIdx.x = 0; threadIdx.x < THREADS; threadIdx.x++)
        kernel(*p, *job, out);
}

// Address space that takes memory where it is written to, or 0.
extern "C" u64 collcheck_map(u64 bytes)
{
    void *base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return base == MAP_FAILED ? 0 : (u64)base;
}

extern "C" void collcheck_unmap(u64 base, u64 bytes)
{
    munmap((void *)base, bytes);
}
