/* Contents as a stream of bytes, so that memory is written and compared in whole vectors whatever the element type.
 *
 * Expected values and copied inputs are masked random words, the same operation for every op and dtype. A region is a
 * piece of such a stream: its first byte is byte `element * width`. Memory vectors (16 bytes, 16-aligned) begin at any
 * byte of the stream, and a whole region has one of three phases. C99 and CUDA C++, like oracle.cuh. */
#ifndef COLLCHECK_STREAM_CUH
#define COLLCHECK_STREAM_CUH

#include "oracle.cuh"

/* ((random and `keep`) + `add`) xor `flip`, with elements repeated to fill 64 bits. No element carries into the next. */
typedef struct Masked {
    Key key;
    u64 keep;
    u64 add;
    u64 flip;
} Masked;

/* The expected values of a reduction. */
FN Masked masked_reduced(const Params *p)
{
    Masked m = {p->target_key, p->target_and, p->target_add, p->target_xor};
    return m;
}

/* The inputs of `rank` in data movement. */
FN Masked masked_copy(const Params *p, u32 rank)
{
    Masked m = {sub(p->pair_key, rank), ~(u64)0, 0, 0};
    return m;
}

FN u32 masked_mix(const Masked *m, u32 x)
{
    return ((mix(m->key, x) & (u32)m->keep) + (u32)m->add) ^ (u32)m->flip;
}

/* The same stream with a key for words whose index has this upper half. */
FN Masked masked_fold(const Masked *m, u32 upper)
{
    Masked result = *m;
    result.key = fold(m->key, upper);
    return result;
}

/* Word `w` of the stream, for elements of up to 4 bytes. */
FN u32 masked_word(const Masked *m, u64 w)
{
    return masked_mix(m, spread(fold(m->key, (u32)(w >> 32)), (u32)w));
}

/* Words `w` and `w + 1`, `w` even, for elements of 8 bytes. */
FN u64 masked_double(const Masked *folded, u32 w)
{
    u32 x = spread(folded->key, w);
    u64 random = mix(folded->key, x) | (u64)mix(folded->key, x ^ 1) << 32;
    return ((random & folded->keep) + folded->add) ^ folded->flip;
}

/* Element `i`. */
FN u64 masked_element(const Masked *m, u32 width, u64 i)
{
    if (width == 8) {
        Masked folded = masked_fold(m, (u32)(i >> 31));
        return masked_double(&folded, 2 * (u32)i);
    }
    u64 byte = i * width;
    return masked_word(m, byte >> 2) >> 8 * (u32)(byte & 3) & 0xffffffffu >> (32 - 8 * width);
}

/* `low` and `high` shifted right by `shift` below 32 as one number. */
FN u32 funnel(u32 low, u32 high, u32 shift)
{
#ifdef __CUDA_ARCH__
    return __funnelshift_r(low, high, shift);
#else
    return (u32)(((u64)high << 32 | low) >> shift);
#endif
}

/* How the vectors of a region lie in the stream. */
enum {
    PHASE_VECTOR = 0, /* on multiples of 16 bytes: four words share a half-round of the hash */
    PHASE_WORD = 1,   /* on multiples of 4 */
    PHASE_BYTE = 2,   /* anywhere: words are put together from two */
    PHASE_DOUBLE = 3  /* elements of 8 bytes */
};

FN u32 phase_of(u32 width, u64 byte)
{
    if (width == 8)
        return PHASE_DOUBLE;
    return byte % 16 == 0 ? PHASE_VECTOR : byte % 4 == 0 ? PHASE_WORD : PHASE_BYTE;
}

/* Words touched from a vector's first one on. */
enum { VECTOR_WORDS = 5 };

/* The 16 bytes that begin `shift` bits into word `w`, for a region of this phase. The stream is folded for the upper
 * half of the word's index, which must be the same for all VECTOR_WORDS. */
FN void masked_vector(const Masked *folded, u32 phase, u32 w, u32 shift, u32 out[4])
{
    Key key = folded->key;
    if (phase == PHASE_DOUBLE) {
        UNROLL
        for (u32 k = 0; k < 4; k += 2) {
            u64 x = masked_double(folded, w + k);
            out[k] = (u32)x;
            out[k + 1] = (u32)(x >> 32);
        }
    } else if (phase == PHASE_VECTOR) {
        u32 x = spread(key, w);
        UNROLL
        for (u32 k = 0; k < 4; k++)
            out[k] = masked_mix(folded, x ^ k);
    } else if (phase == PHASE_WORD) {
        UNROLL
        for (u32 k = 0; k < 4; k++)
            out[k] = masked_mix(folded, spread(key, w + k));
    } else {
        u32 low = masked_mix(folded, spread(key, w));
        UNROLL
        for (u32 k = 0; k < 4; k++) {
            u32 high = masked_mix(folded, spread(key, w + k + 1));
            out[k] = funnel(low, high, shift);
            low = high;
        }
    }
}

/* The 16 bytes from `byte` on, anywhere. */
FN void masked_bytes(const Masked *m, u32 width, u64 byte, u32 out[4])
{
    u64 w = byte >> 2;
    if (width == 8) {
        for (u32 k = 0; k < 2; k++) {
            u64 x = masked_element(m, 8, (byte >> 3) + k);
            out[2 * k] = (u32)x;
            out[2 * k + 1] = (u32)(x >> 32);
        }
    } else {
        u32 low = masked_word(m, w);
        UNROLL
        for (u32 k = 0; k < 4; k++) {
            u32 high = masked_word(m, w + k + 1);
            out[k] = funnel(low, high, 8 * (u32)(byte & 3));
            low = high;
        }
    }
}

/* The tolerance of Params where it is not 0. */
enum { ULP = 2 };

/* Each element of 4 bytes or less holds 1. */
FN u32 ones(u32 width)
{
    return width == 1 ? 0x01010101u : width == 2 ? 0x00010001u : 1;
}

/* Gathers in `found` how far words differ. With `near` (elements within ULP pass) it is `near_bits` of it that tell.
 *
 * All elements of a word are subtracted at once. Where each is near, each digit of the difference is 0 to 4 and nothing
 * is borrowed. Conversely a small digit means a near element, as expected values keep away from all ones: there is no
 * far element that wraps round to a small digit and so takes from the next. */
FN u32 differ(u32 found, u32 actual, u32 expected, int near, u32 one)
{
    if (!near)
        return found | (actual ^ expected);
    u32 distance = actual - expected + ULP * one;
    return found | distance | (distance + (7 - 2 * ULP) * one);
}

FN u32 near_bits(u32 one)
{
    return ~(7 * one);
}

/* The same for one element of 8 bytes, as two words. */
FN u32 differ_double(u32 found, const u32 actual[2], const u32 expected[2], int near)
{
    u64 a = actual[0] | (u64)actual[1] << 32;
    u64 e = expected[0] | (u64)expected[1] << 32;
    if (!near)
        return found | (actual[0] ^ expected[0]) | (actual[1] ^ expected[1]);
    return found | (a - e + ULP > 2 * ULP ? ~(u32)0 : 0);
}

/* Whether vectors differ: zero if every element passes. */
FN u32 differ_vector(u32 phase, const u32 actual[4], const u32 expected[4], int near, u32 one)
{
    u32 found = 0;
    UNROLL
    for (u32 k = 0; k < 4; k++) {
        if (phase != PHASE_DOUBLE)
            found = differ(found, actual[k], expected[k], near, one);
        else if (k % 2 == 0)
            found = differ_double(found, actual + k, expected + k, near);
    }
    return near && phase != PHASE_DOUBLE ? found & near_bits(one) : found;
}

/* Rust: Plan::accepts. */
FN int accepts(u64 actual, u64 expected, u64 mask, u32 tolerance)
{
    return ((actual - expected + tolerance) & mask) <= 2 * tolerance;
}

/* Whether bits are a NaN. */
FN int is_nan(const Params *p, u64 bits)
{
    return (bits & p->mask & ~p->sign) > p->largest;
}

/* The same for special values: a NaN passes for a NaN. */
FN int accepts_special(const Params *p, u64 actual, u64 expected)
{
    return actual == expected || (is_nan(p, actual) && is_nan(p, expected));
}

/* log2 of a width. */
FN u32 width_bits(u32 width)
{
    return (width > 1) + (width > 2) + (width > 4);
}

/* A region as elements up to the first multiple of `unit` bytes, whole units, and elements after them. */
typedef struct Split {
    u64 head;
    u64 units;
    u64 tail;
} Split;

FN Split split(u64 address, u64 elements, u32 width, u32 unit)
{
    u32 bits = width_bits(width);
    u64 head = ((0 - address) % unit) >> bits;
    if (head > elements)
        head = elements;
    u64 units = ((elements - head) << bits) / unit;
    Split result = {head, units, elements - head - (units * unit >> bits)};
    return result;
}

/* For inputs of reductions, 4 bytes of memory at a time (8 for elements of 8): `4 / width` elements from element `i`,
 * of which the first has position `q`. `aligned` says that `i` begins a word of the stream. */
#define INPUT_WORD(WIDTH)                                                                                             \
    FN u32 input_word_##WIDTH(const Params *p, u32 method, u32 rank, u64 i, u32 q, int aligned)                       \
    {                                                                                                                 \
        Masked m = masked_reduced(p);                                                                                 \
        u64 w = i / (4 / WIDTH);                                                                                      \
        u32 shift = 8 * WIDTH * (u32)(i % (4 / WIDTH));                                                               \
        u32 targets = masked_word(&m, w);                                                                             \
        u32 result = 0;                                                                                               \
        if (!aligned)                                                                                                 \
            targets = funnel(targets, masked_word(&m, w + 1), shift);                                                 \
        UNROLL                                                                                                        \
        for (u32 k = 0; k < 4 / WIDTH; k++) {                                                                         \
            u32 target = targets >> 8 * WIDTH * k & 0xffffffffu >> (32 - 8 * WIDTH);                                  \
            result |= share_##WIDTH(p, method, target, rank, i + k, q) << 8 * WIDTH * k;                              \
            q = advance(q, p->stride, p->ranks);                                                                      \
        }                                                                                                             \
        return result;                                                                                                \
    }
INPUT_WORD(1)
INPUT_WORD(2)
INPUT_WORD(4)
#undef INPUT_WORD

FN u64 input_word_8(const Params *p, u32 method, u32 rank, u64 i, u32 q, int aligned)
{
    Masked m = masked_reduced(p);
    (void)aligned;
    return share_8(p, method, masked_element(&m, 8, i), rank, i, q);
}

#endif
