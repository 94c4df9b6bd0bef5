/* The headers of the kernels as a C library, so that tests compare them with Rust on a machine without a GPU. */

#include <stddef.h>

#include "../job.cuh"
#include "../stream.cuh"

#define FIELD(type, name) offsetof(type, name)

/* Sizes and offsets of the structures that Rust shares, in the order that the test lists them. */
const u64 collcheck_layout[] = {
    sizeof(Params), FIELD(Params, mask), FIELD(Params, target_and), FIELD(Params, target_add),
    FIELD(Params, target_xor), FIELD(Params, sign), FIELD(Params, max_finite), FIELD(Params, sign_flip),
    FIELD(Params, pair_range), FIELD(Params, base), FIELD(Params, target_key), FIELD(Params, split_key),
    FIELD(Params, pair_key), FIELD(Params, width), FIELD(Params, method), FIELD(Params, ranks),
    FIELD(Params, offset), FIELD(Params, stride), FIELD(Params, active), FIELD(Params, owners), FIELD(Params, pairs),
    FIELD(Params, target_bits), FIELD(Params, fraction_bits), FIELD(Params, bias), FIELD(Params, tolerance),
    FIELD(Params, scaled), FIELD(Params, growth), FIELD(Params, skewed),
    FIELD(Params, odd), FIELD(Params, largest), FIELD(Params, table),
    sizeof(Scenario), FIELD(Scenario, first), FIELD(Scenario, second), FIELD(Scenario, others),
    FIELD(Scenario, expected),
    sizeof(Job), FIELD(Job, ptr), FIELD(Job, len), FIELD(Job, index), FIELD(Job, element), FIELD(Job, rank),
    FIELD(Job, reduced), FIELD(Job, action), FIELD(Job, early),
    sizeof(Sample), FIELD(Sample, index), FIELD(Sample, actual), FIELD(Sample, expected),
    sizeof(Outcome), FIELD(Outcome, wrong), FIELD(Outcome, first), FIELD(Outcome, sampled), FIELD(Outcome, lock),
    FIELD(Outcome, samples), THREADS, BATCH, SAMPLES, SCENARIOS,
};
const u64 collcheck_layout_len = sizeof(collcheck_layout) / sizeof(collcheck_layout[0]);

u64 collcheck_input(const Params *p, u32 rank, u64 i)
{
    return input(p, rank, i);
}

u64 collcheck_reduced(const Params *p, u64 i)
{
    return reduced(p, i);
}

u64 collcheck_scalar(const Params *p, u32 rank)
{
    return scalar(p, rank);
}

/* Elements `i` and on as a word of memory, the way that kernels write inputs. */
u64 collcheck_input_word(const Params *p, u32 rank, u64 i)
{
    u32 q = position(p, rank, i);
    switch (p->width) {
    case 1: return input_word_1(p, p->method, rank, i, q, i % 4 == 0);
    case 2: return input_word_2(p, p->method, rank, i, q, i % 2 == 0);
    case 4: return input_word_4(p, p->method, rank, i, q, 1);
    default: return input_word_8(p, p->method, rank, i, q, 1);
    }
}

/* 16 bytes of the expected values, computed for the phase given, or for any phase where that is above the last. */
void collcheck_vector(const Params *p, u32 phase, u64 byte, u32 *out)
{
    Masked m = masked_reduced(p);
    Masked folded = masked_fold(&m, (u32)(byte >> 34));
    if (phase > PHASE_DOUBLE)
        masked_bytes(&m, p->width, byte, out);
    else
        masked_vector(&folded, phase, (u32)(byte >> 2), 8 * (u32)(byte & 3), out);
}

u32 collcheck_phase_of(u32 width, u64 byte)
{
    return phase_of(width, byte);
}

/* Whether a vector differs from what is expected, the way that kernels compare. */
int collcheck_differs(const Params *p, const u32 *actual, const u32 *expected)
{
    u32 phase = p->width == 8 ? PHASE_DOUBLE : PHASE_VECTOR;
    return differ_vector(phase, actual, expected, p->tolerance != 0, ones(p->width)) != 0;
}

int collcheck_accepts(const Params *p, u64 actual, u64 expected)
{
    if (p->method == TABLE)
        return accepts_special(p, actual, expected);
    return accepts(actual, expected, p->mask, p->tolerance);
}
