// Kernels that write contents, compare memory with them, and check guard zones.
//
// All but the guard and fingerprint kernels take (Params, Job, Outcome*). They run on up to 2^20 blocks of THREADS threads, see `grid` in
// mod.rs. Memory is walked in tiles of BATCH vectors a thread, so that as many loads are under way at a time.

#include "job.cuh"
#include "stream.cuh"

#define TILE ((u64)THREADS * BATCH)

#define DEVICE static __device__ __forceinline__
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS, 4)

DEVICE void load(u32 (&words)[4], u64 address)
{
#ifdef __CUDA_ARCH__
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "l"(address));
#else
    memcpy(words, (const void *)address, 16);
#endif
}

DEVICE void store(u64 address, const u32 (&words)[4])
{
#ifdef __CUDA_ARCH__
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(words[0]), "r"(words[1]),
                 "r"(words[2]), "r"(words[3])
                 : "memory");
#else
    memcpy((void *)address, words, 16);
#endif
}

DEVICE u64 load_element(u64 address, u32 width)
{
    switch (width) {
    case 1: return *(const unsigned char *)address;
    case 2: return *(const unsigned short *)address;
    case 4: return *(const u32 *)address;
    default: return *(const u64 *)address;
    }
}

DEVICE void store_element(u64 address, u32 width, u64 value)
{
    switch (width) {
    case 1: *(unsigned char *)address = (unsigned char)value; break;
    case 2: *(unsigned short *)address = (unsigned short)value; break;
    case 4: *(u32 *)address = (u32)value; break;
    default: *(u64 *)address = value;
    }
}

// Records one wrong element. The last place for a sample is kept under a lock, with `first`: an element that is earlier
// than all before it but finds no place takes that one. Few ask for the lock, as only ever earlier elements do.
static __device__ void record(Outcome *out, Sample sample)
{
    enum : u32 { LAST = SAMPLES - 1 };
    volatile u64 *first = &out->first;
    volatile u32 *sampled = &out->sampled;
    u32 place = *sampled < SAMPLES ? atomicAdd(&out->sampled, 1) : (u32)SAMPLES;
    if (place < LAST)
        out->samples[place] = sample;
    for (bool done = false; !done && (place == LAST || sample.index < *first);) {
        u32 state = atomicOr(&out->lock, LOCKED);
        if (state & LOCKED)
            continue;
        __threadfence();
        bool earlier = sample.index < *first;
        if (earlier)
            *first = sample.index;
        if (place >= LAST && (earlier || !(state & TAKEN))) {
            volatile Sample *last = &out->samples[LAST];
            last->index = sample.index;
            last->actual = sample.actual;
            last->expected = sample.expected;
            state = TAKEN;
        }
        __threadfence();
        atomicExch(&out->lock, state);
        done = true;
    }
}

// What the slow path needs to know of a check.
struct Report {
    Outcome *out;
    u64 mask;
    u32 width;
    u32 tolerance;
};

// Compares vectors that differ element by element, and returns how many of `elements` are wrong.
static __device__ __noinline__ u32 report(Report to, uint4 actual, uint4 expected, u64 index, u32 elements)
{
    u64 a[2] = {actual.x | (u64)actual.y << 32, actual.z | (u64)actual.w << 32};
    u64 e[2] = {expected.x | (u64)expected.y << 32, expected.z | (u64)expected.w << 32};
    u32 wrong = 0;
#pragma unroll 1
    for (u32 k = 0; k < elements; k++) {
        u32 byte = k * to.width;
        u64 found = (byte < 8 ? a[0] : a[1]) >> 8 * (byte % 8) & to.mask;
        u64 wanted = (byte < 8 ? e[0] : e[1]) >> 8 * (byte % 8) & to.mask;
        if (!accepts(found, wanted, to.mask, to.tolerance)) {
            record(to.out, Sample{index + k, found, wanted});
            wrong++;
        }
    }
    return wrong;
}

DEVICE u32 report_element(Report to, u64 actual, u64 expected, u64 index)
{
    uint4 a = make_uint4((u32)actual, (u32)(actual >> 32), 0, 0);
    uint4 e = make_uint4((u32)expected, (u32)(expected >> 32), 0, 0);
    return report(to, a, e, index, 1);
}

// Expected values of a reduction or copied inputs, seen by one region.
template <u32 PHASE> struct Stream {
    enum : u32 { phase = PHASE };
    Masked masked;

    DEVICE Stream make(const Params &p, const Job &job)
    {
        return Stream{job.reduced ? masked_reduced(&p) : masked_copy(&p, job.rank)};
    }
    __device__ __forceinline__ Stream fold(u32 upper) const
    {
        return Stream{masked_fold(&masked, upper)};
    }
    // as masked_vector, after `fold`
    __device__ __forceinline__ void vector(u32 w, u32 shift, u32 (&words)[4]) const
    {
        masked_vector(&masked, PHASE, w, shift, words);
    }
    __device__ __forceinline__ void bytes(u32 width, u64 byte, u32 (&words)[4]) const
    {
        masked_bytes(&masked, width, byte, words);
    }
    __device__ __forceinline__ u64 element(u32 width, u64 i) const
    {
        return masked_element(&masked, width, i);
    }
};

// One byte again and again, as in guard zones.
struct Constant {
    enum : u32 { phase = PHASE_VECTOR };
    u32 byte;

    __device__ __forceinline__ Constant fold(u32) const
    {
        return *this;
    }
    __device__ __forceinline__ void vector(u32, u32, u32 (&words)[4]) const
    {
        for (u32 &word : words)
            word = byte * 0x01010101u;
    }
    __device__ __forceinline__ void bytes(u32, u64, u32 (&words)[4]) const
    {
        vector(0, 0, words);
    }
    __device__ __forceinline__ u64 element(u32, u64) const
    {
        return byte;
    }
};

// The elements before and after a region's whole units, one each for the first threads of block 0: at most 15 and 15.
struct Edge {
    bool any;
    u64 k;
};

DEVICE Edge edge(const Split &parts, u64 len)
{
    u32 t = threadIdx.x;
    if (blockIdx.x != 0 || t >= 32)
        return Edge{false, 0};
    if (t < 16)
        return Edge{t < parts.head, t};
    return Edge{t - 16 < parts.tail, len - parts.tail + (t - 16)};
}

// A thread's way over the vectors of a region: tile after tile, in each BATCH vectors that lie THREADS apart.
struct Walk {
    u64 v;     // the first of them
    u64 at;    // its address
    u64 byte;  // its place in the stream
    u64 units; // vectors of the region

    DEVICE Walk start(const Split &parts, const Job &job, u32 width)
    {
        u64 v = (u64)blockIdx.x * TILE + threadIdx.x;
        u64 skipped = parts.head * width + 16 * v;
        return Walk{v, job.ptr + skipped, job.element * width + skipped, parts.units};
    }
    // Whether the tile is whole, and the words of all its vectors have indices with the same upper half.
    __device__ __forceinline__ bool plain() const
    {
        constexpr u32 WORDS = 4 * (BATCH - 1) * THREADS + VECTOR_WORDS;
        return v + (BATCH - 1) * THREADS < units && (u32)(byte >> 2) < 0u - WORDS;
    }
    __device__ __forceinline__ void next()
    {
        u64 stride = gridDim.x * TILE;
        v += stride;
        at += 16 * stride;
        byte += 16 * stride;
    }
};

// Lets what is queued next start, where it was launched so that it may: once all blocks have come here. It must wait for
// the end of this grid itself before it reads what this one writes.
DEVICE void let_go(const Job &job)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (job.early)
        asm volatile("griddepcontrol.launch_dependents;");
#else
    (void)job;
#endif
}

template <class Content> DEVICE void write(const Content &content, u32 width, const Job &job)
{
    let_go(job);
    const Split parts = split(job.ptr, job.len, width, 16);
    const u32 flip = job.action == POISON ? ~0u : 0;
    for (Walk walk = Walk::start(parts, job, width); walk.v < walk.units; walk.next()) {
        if (walk.plain()) {
            const u32 w = (u32)(walk.byte >> 2), shift = 8 * (u32)(walk.byte & 3);
            const Content folded = content.fold((u32)(walk.byte >> 34));
#pragma unroll
            for (u32 u = 0; u < BATCH; u++) {
                u32 words[4];
                folded.vector(w + 4 * u * THREADS, shift, words);
                for (u32 &word : words)
                    word ^= flip;
                store(walk.at + 16 * u * THREADS, words);
            }
            continue;
        }
#pragma unroll 1
        for (u32 u = 0; u < BATCH && walk.v + u * THREADS < walk.units; u++) {
            u32 words[4];
            content.bytes(width, walk.byte + 16 * u * THREADS, words);
            for (u32 &word : words)
                word ^= flip;
            store(walk.at + 16 * u * THREADS, words);
        }
    }
    const Edge e = edge(parts, job.len);
    if (e.any)
        store_element(job.ptr + e.k * width, width, content.element(width, job.element + e.k) ^ (flip ? ~0ull : 0));
}

template <bool NEAR, class Content>
DEVICE void check(const Content &content, u64 mask, u32 width, const Job &job, Outcome *out)
{
    const Split parts = split(job.ptr, job.len, width, 16);
    const u32 one = NEAR ? ones(width) : 0;
    const Report to{out, mask, width, NEAR ? (u32)ULP : 0};
    u64 wrong = 0;
    for (Walk walk = Walk::start(parts, job, width); walk.v < walk.units; walk.next()) {
        if (walk.plain()) {
            u32 actual[BATCH][4];
#pragma unroll
            for (u32 u = 0; u < BATCH; u++)
                load(actual[u], walk.at + 16 * u * THREADS);
            const u32 w = (u32)(walk.byte >> 2), shift = 8 * (u32)(walk.byte & 3);
            const Content folded = content.fold((u32)(walk.byte >> 34));
            u32 found = 0;
#pragma unroll
            for (u32 u = 0; u < BATCH; u++) {
                u32 expected[4];
                folded.vector(w + 4 * u * THREADS, shift, expected);
                found |= differ_vector(Content::phase, actual[u], expected, NEAR, one);
            }
            if (!found)
                continue;
        }
        // a tile that differs or is not plain: one by one
#pragma unroll 1
        for (u32 u = 0; u < BATCH && walk.v + u * THREADS < walk.units; u++) {
            u32 actual[4], expected[4];
            load(actual, walk.at + 16 * u * THREADS);
            content.bytes(width, walk.byte + 16 * u * THREADS, expected);
            if (differ_vector(Content::phase, actual, expected, NEAR, one)) {
                u32 in_vector = 16 >> width_bits(width);
                wrong += report(to, make_uint4(actual[0], actual[1], actual[2], actual[3]),
                                make_uint4(expected[0], expected[1], expected[2], expected[3]),
                                job.index + parts.head + (walk.v + u * THREADS) * in_vector, in_vector);
            }
        }
    }
    const Edge e = edge(parts, job.len);
    if (e.any)
        wrong += report_element(to, load_element(job.ptr + e.k * width, width),
                                content.element(width, job.element + e.k), job.index + e.k);
    if (wrong)
        atomicAdd(&out->wrong, wrong);
}

// The phase of a region's vectors.
DEVICE u32 phase_of_job(const Params &p, const Job &job)
{
    const Split parts = split(job.ptr, job.len, p.width, 16);
    return phase_of(p.width, (job.element + parts.head) * p.width);
}

template <bool NEAR> DEVICE void check_words(const Params &p, const Job &job, Outcome *out)
{
    switch (phase_of_job(p, job)) {
    case PHASE_VECTOR: return check<NEAR>(Stream<PHASE_VECTOR>::make(p, job), p.mask, p.width, job, out);
    case PHASE_WORD: return check<NEAR>(Stream<PHASE_WORD>::make(p, job), p.mask, p.width, job, out);
    default: return check<NEAR>(Stream<PHASE_BYTE>::make(p, job), p.mask, p.width, job, out);
    }
}

KERNEL check_exact(Params p, Job job, Outcome *out)
{
    check_words<false>(p, job, out);
}

KERNEL check_near(Params p, Job job, Outcome *out)
{
    check_words<true>(p, job, out);
}

KERNEL check_exact_8(Params p, Job job, Outcome *out)
{
    check<false>(Stream<PHASE_DOUBLE>::make(p, job), p.mask, 8, job, out);
}

KERNEL check_near_8(Params p, Job job, Outcome *out)
{
    check<true>(Stream<PHASE_DOUBLE>::make(p, job), p.mask, 8, job, out);
}

// Fill and poison.
KERNEL write_stream(Params p, Job job, Outcome *)
{
    switch (phase_of_job(p, job)) {
    case PHASE_VECTOR: return write(Stream<PHASE_VECTOR>::make(p, job), p.width, job);
    case PHASE_WORD: return write(Stream<PHASE_WORD>::make(p, job), p.width, job);
    default: return write(Stream<PHASE_BYTE>::make(p, job), p.width, job);
    }
}

KERNEL write_stream_8(Params p, Job job, Outcome *)
{
    write(Stream<PHASE_DOUBLE>::make(p, job), 8, job);
}

// A guard zone: `len` bytes that must all be `byte`.
KERNEL guard(u64 ptr, u64 len, u32 byte, Outcome *out)
{
    const Job job{ptr, len, 0, 0, 0, 0, CHECK, 0};
    check<false>(Constant{byte & 0xff}, 0xff, 1, job, out);
}

// Adds the fingerprint of `len` elements to `sum`.
KERNEL fingerprint(u64 ptr, u64 len, u32 width, u64 *sum)
{
    u64 own = 0;
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < len; i += (u64)gridDim.x * THREADS)
        own += fingerprint_term(i, load_element(ptr + i * width, width));
    if (own)
        atomicAdd(sum, own);
}

// A rank's inputs to a reduction: fill, poison and check, by words of memory. One division for each thread.
template <u32 WIDTH> struct Inputs;
#define INPUTS(WIDTH, WORD)                                                                                           \
    template <> struct Inputs<WIDTH> {                                                                                \
        typedef WORD Word;                                                                                            \
        DEVICE WORD word(const Params *p, u32 method, u32 rank, u64 i, u32 q, bool aligned)                           \
        {                                                                                                             \
            return input_word_##WIDTH(p, method, rank, i, q, aligned);                                                \
        }                                                                                                             \
        DEVICE u64 element(const Params *p, u32 method, u32 rank, u64 i)                                              \
        {                                                                                                             \
            return share_##WIDTH(p, method, target_##WIDTH(p, i), rank, i, position(p, rank, i));                     \
        }                                                                                                             \
        DEVICE u64 result(const Params *p, u64 i)                                                                     \
        {                                                                                                             \
            return result_##WIDTH(p, i);                                                                              \
        }                                                                                                             \
    };
INPUTS(1, u32)
INPUTS(2, u32)
INPUTS(4, u32)
INPUTS(8, u64)

template <u32 METHOD, u32 WIDTH> DEVICE void inputs(const Params &p, const Job &job, Outcome *out)
{
    let_go(job);
    typedef typename Inputs<WIDTH>::Word Word;
    constexpr u32 PER_WORD = sizeof(Word) / WIDTH;
    const Split parts = split(job.ptr, job.len, WIDTH, sizeof(Word));
    const u64 start = (u64)blockIdx.x * THREADS + threadIdx.x;
    const u32 step = gridDim.x * THREADS;
    const u32 roles = turn(&p, step * PER_WORD);
    const Word flip = job.action == POISON ? ~(Word)0 : 0;
    const u64 first = job.element + parts.head;
    const bool aligned = first % PER_WORD == 0;
    Word *at = (Word *)(job.ptr + parts.head * WIDTH) + start;
    u64 i = first + start * PER_WORD;
    u32 q = position(&p, job.rank, i);
    const Report to{out, p.mask, WIDTH, 0};
    u64 wrong = 0;
    for (u64 w = start; w < parts.units; w += step) {
        Word actual = job.action == CHECK ? *at : 0;
        Word expected = Inputs<WIDTH>::word(&p, METHOD, job.rank, i, q, aligned);
        if (job.action != CHECK)
            *at = expected ^ flip;
        else if (actual != expected)
            wrong += report(to, make_uint4((u32)actual, (u32)((u64)actual >> 32), 0, 0),
                            make_uint4((u32)expected, (u32)((u64)expected >> 32), 0, 0),
                            job.index + (i - job.element), PER_WORD);
        at += step;
        i += step * PER_WORD;
        q = advance(q, roles, p.ranks);
    }
    const Edge e = PER_WORD > 1 ? edge(parts, job.len) : Edge{false, 0};
    if (e.any) {
        u64 address = job.ptr + e.k * WIDTH;
        u64 expected = Inputs<WIDTH>::element(&p, METHOD, job.rank, job.element + e.k);
        if (job.action != CHECK)
            store_element(address, WIDTH, expected ^ (flip ? ~0ull : 0));
        else
            wrong += report_element(to, load_element(address, WIDTH), expected, job.index + e.k);
    }
    if (wrong)
        atomicAdd(&out->wrong, wrong);
}

#define INPUT_KERNEL(NAME, METHOD, WIDTH)                                                                             \
    KERNEL NAME##_##WIDTH(Params p, Job job, Outcome *out)                                                            \
    {                                                                                                                 \
        inputs<METHOD, WIDTH>(p, job, out);                                                                           \
    }
#define INTEGER_KERNELS(NAME, METHOD)                                                                                 \
    INPUT_KERNEL(NAME, METHOD, 1)                                                                                     \
    INPUT_KERNEL(NAME, METHOD, 4)                                                                                     \
    INPUT_KERNEL(NAME, METHOD, 8)
#define FLOAT_KERNELS(NAME, METHOD)                                                                                   \
    INTEGER_KERNELS(NAME, METHOD)                                                                                     \
    INPUT_KERNEL(NAME, METHOD, 2)

INTEGER_KERNELS(int_sum, INT_SUM)
INTEGER_KERNELS(int_prod, INT_PROD)
INTEGER_KERNELS(int_extreme, INT_MIN)
INTEGER_KERNELS(int_avg, INT_AVG)
FLOAT_KERNELS(float_sum, FLOAT_SUM)
FLOAT_KERNELS(float_prod, FLOAT_PROD)
FLOAT_KERNELS(float_extreme, FLOAT_MIN)
FLOAT_KERNELS(float_avg, FLOAT_AVG)

// What is no masked word: special values, and the results of odd scalars. Element by element, and no faster than that.
template <u32 WIDTH> DEVICE void each(const Params &p, const Job &job, Outcome *out)
{
    let_go(job);
    const u64 flip = job.action == POISON ? ~0ull : 0;
    const Report to{out, p.mask, WIDTH, 0};
    u64 wrong = 0;
    for (u64 k = (u64)blockIdx.x * THREADS + threadIdx.x; k < job.len; k += (u64)gridDim.x * THREADS) {
        const u64 address = job.ptr + k * WIDTH, i = job.element + k;
        const u64 expected =
            job.reduced ? Inputs<WIDTH>::result(&p, i) : Inputs<WIDTH>::element(&p, TABLE, job.rank, i);
        if (job.action != CHECK) {
            store_element(address, WIDTH, expected ^ flip);
            continue;
        }
        const u64 actual = load_element(address, WIDTH);
        const bool nan = job.reduced && p.method == TABLE && accepts_special(&p, actual, expected);
        if (actual != expected && !nan)
            wrong += report_element(to, actual, expected, job.index + k);
    }
    if (wrong)
        atomicAdd(&out->wrong, wrong);
}

#define EACH_KERNEL(WIDTH)                                                                                            \
    KERNEL each_##WIDTH(Params p, Job job, Outcome *out)                                                              \
    {                                                                                                                 \
        each<WIDTH>(p, job, out);                                                                                     \
    }
EACH_KERNEL(1)
EACH_KERNEL(2)
EACH_KERNEL(4)
EACH_KERNEL(8)
