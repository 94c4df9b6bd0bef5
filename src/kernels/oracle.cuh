/* The oracle's arithmetic, the second time: bit for bit what src/oracle is in Rust.
 *
 * The common subset of C99 and CUDA C++, so that the tests compile it for the CPU. Names follow the Rust side; what
 * differs is where work is shared between the elements of a word. stream.cuh turns elements into bytes of memory. */
#ifndef COLLCHECK_ORACLE_CUH
#define COLLCHECK_ORACLE_CUH

#ifdef __CUDACC__
#define FN static __host__ __device__ __forceinline__
#define UNROLL _Pragma("unroll")
typedef unsigned int u32;
typedef unsigned long long u64;
#else
#include <stdint.h>
#include <string.h>
#define FN static inline
#define UNROLL
typedef uint32_t u32;
typedef uint64_t u64;
#endif

/* Rust: oracle::Method. */
enum {
    COPY = 0,
    INT_SUM = 1,
    INT_PROD = 2,
    INT_MIN = 3,
    INT_MAX = 4,
    INT_AVG = 5,
    FLOAT_SUM = 6,
    FLOAT_PROD = 7,
    FLOAT_MIN = 8,
    FLOAT_MAX = 9,
    FLOAT_AVG = 10,
    TABLE = 11
};

/* Rust: special::SCENARIOS. */
enum { SCENARIOS = 16 };

/* A stream of random words. */
typedef struct Key {
    u32 a;
    u32 b;
} Key;

/* Rust: special::Scenario, which explains the fields. */
typedef struct Scenario {
    u64 first;
    u64 second;
    u64 others;
    u64 expected;
} Scenario;

/* Rust: oracle::Params, which explains the fields. */
typedef struct Params {
    u64 mask;
    u64 target_and;
    u64 target_add;
    u64 target_xor;
    u64 sign;
    u64 max_finite;
    u64 sign_flip;
    u64 pair_range;
    u64 base;
    Key target_key;
    Key split_key;
    Key pair_key;
    u32 width;
    u32 method;
    u32 ranks;
    u32 offset;
    u32 stride;
    u32 active;
    u32 owners;
    u32 pairs;
    u32 target_bits;
    u32 fraction_bits;
    int bias;
    u32 tolerance;
    u32 scaled;
    u32 growth;
    u32 skewed;
    u32 odd;
    u64 largest;
    Scenario table[SCENARIOS];
} Params;

/* Rust: oracle::fingerprint::term. */
FN u64 fingerprint_term(u64 index, u64 bits)
{
    u64 z = bits + (index + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* 64 for zero. */
FN u32 leading_zeros_64(u64 x)
{
#ifdef __CUDA_ARCH__
    return (u32)__clzll((long long)x);
#else
    return x ? (u32)__builtin_clzll(x) : 64;
#endif
}

FN u32 high_32(u32 x, u32 y)
{
    return (u32)((u64)x * y >> 32);
}

FN u64 high_64(u64 x, u64 y)
{
#ifdef __CUDA_ARCH__
    return __umul64hi(x, y);
#else
    __extension__ typedef unsigned __int128 u128;
    return (u64)((u128)x * y >> 64);
#endif
}

/* Bits of the nearest float, ties to even. */
FN u32 float_bits(u64 x)
{
#ifdef __CUDA_ARCH__
    return __float_as_uint(__ull2float_rn(x));
#else
    float value = (float)x;
    u32 bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
#endif
}

/* The whole number that a float's bits stand for. */
FN u64 float_integer(u32 bits)
{
#ifdef __CUDA_ARCH__
    return __float2ull_rn(__uint_as_float(bits));
#else
    float value;
    memcpy(&value, &bits, sizeof value);
    return (u64)value;
#endif
}

/* The same two for doubles. */
FN u64 double_bits(u64 x)
{
#ifdef __CUDA_ARCH__
    return (u64)__double_as_longlong(__ull2double_rn(x));
#else
    double value = (double)x;
    u64 bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
#endif
}

FN u64 double_integer(u64 bits)
{
#ifdef __CUDA_ARCH__
    return __double2ull_rn(__longlong_as_double((long long)bits));
#else
    double value;
    memcpy(&value, &bits, sizeof value);
    return (u64)value;
#endif
}

/* The key for the words whose index has this upper half: where that is known, the rest of the hash is in 32 bits. */
FN Key fold(Key key, u32 upper)
{
    Key result = {key.a ^ upper * 0x9e3779b1u, key.b};
    return result;
}

/* The first half-round of word `w`. Words that differ in their low two bits only differ in the same bits here. */
FN u32 spread(Key folded, u32 w)
{
    u32 x = w ^ folded.a;
    return x ^ x >> 16;
}

/* The rest. The key's second half is shifted apart from the data, as it is the same for many words. */
FN u32 mix(Key key, u32 x)
{
    x *= 0x7feb352du;
    x = x ^ x >> 15 ^ (key.b ^ key.b >> 15);
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

/* Rust: hash::word. */
FN u32 word(Key key, u64 w)
{
    return mix(key, spread(fold(key, (u32)(w >> 32)), (u32)w));
}

/* Rust: hash::sub. */
FN Key sub(Key key, u32 k)
{
    Key result = {key.a + k * 0x9e3779b9u, key.b ^ k * 0x85ebca6bu};
    return result;
}

/* Words `2 d` and `2 d + 1`, in memory order. */
FN u64 double_word(Key key, u64 d)
{
    u32 x = spread(fold(key, (u32)(d >> 31)), 2 * (u32)d);
    return mix(key, x) | (u64)mix(key, x ^ 1) << 32;
}

/* `step` roles on; both below `ranks`. */
FN u32 advance(u32 position, u32 step, u32 ranks)
{
    u32 sum = position + step;
    return sum >= ranks ? sum - ranks : sum;
}

/* The role of `rank` at element `i`: a 64-bit division, so loops use `advance`. */
FN u32 position(const Params *p, u32 rank, u64 i)
{
    return (u32)((rank + i % p->ranks * p->stride + p->offset) % p->ranks);
}

/* By how much the role of a rank turns from one element to one `elements` on. */
FN u32 turn(const Params *p, u32 elements)
{
    return (u32)((u64)(elements % p->ranks) * p->stride % p->ranks);
}

/* A rank's mulsum scalar for integers. */
FN u64 scale_odd(u32 rank)
{
    return (u64)(rank % 61) * 2 + 3;
}

/* The exponent of a rank's mulsum scalar for floats: 1, -1, 2 in turn. */
FN int scale_exponent(u32 rank)
{
    u32 turn = rank % 3;
    return turn == 0 ? 1 : turn == 1 ? -1 : 2;
}

/* The scalar of `rank` for mulsum, as bits of the dtype. */
FN u64 scalar(const Params *p, u32 rank)
{
    if (p->fraction_bits != 0) {
        u64 power = (u64)(p->bias + scale_exponent(rank)) << p->fraction_bits;
        /* three times a power of two is half as much again as the next one */
        return p->odd ? power + ((u64)3 << (p->fraction_bits - 1)) : power;
    }
    return scale_odd(rank) & p->mask;
}

/* The nearest integer with at most `bits` significant bits, ties to even. */
FN u64 round_to(u64 value, u32 bits)
{
    u32 length = 64 - leading_zeros_64(value);
    if (length <= bits)
        return value;
    u32 shift = length - bits;
    u64 quotient = value >> shift;
    u64 rest = value & (((u64)1 << shift) - 1);
    u64 half = (u64)1 << (shift - 1);
    u64 up = rest > half || (rest == half && (quotient & 1));
    return (quotient + up) << shift;
}

#define WIDTH 8
#include "methods.cuh"
#undef WIDTH
#define WIDTH 4
#include "methods.cuh"
#undef WIDTH
#define WIDTH 2
#include "methods.cuh"
#undef WIDTH
#define WIDTH 1
#include "methods.cuh"
#undef WIDTH

/* Rust: Plan::reduced. */
FN u64 reduced(const Params *p, u64 i)
{
    switch (p->width) {
    case 1: return reduced_1(p, i);
    case 2: return reduced_2(p, i);
    case 4: return reduced_4(p, i);
    default: return reduced_8(p, i);
    }
}

/* Rust: Plan::input. */
FN u64 input(const Params *p, u32 rank, u64 i)
{
    u32 q = position(p, rank, i);
    switch (p->width) {
    case 1: return share_1(p, p->method, target_1(p, i), rank, i, q);
    case 2: return share_2(p, p->method, target_2(p, i), rank, i, q);
    case 4: return share_4(p, p->method, target_4(p, i), rank, i, q);
    default: return share_8(p, p->method, target_8(p, i), rank, i, q);
    }
}

#endif
