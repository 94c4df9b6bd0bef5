/* What a rank holds, for elements of WIDTH bytes: included by oracle.cuh once for each width.
 *
 * Elements of up to 4 bytes are computed in 32 bits, which makes filling fast. Arithmetic that wraps is the same modulo
 * 2^32, and nothing else passes 32 bits but in averages (the tests compare with Rust, which uses 64). Both branches of a
 * choice draw from one stream picked beforehand: neighbouring threads have different roles, and would else hash twice. */

#define JOIN2(name, width) name##_##width
#define JOIN(name, width) JOIN2(name, width)
#define W(name) JOIN(name, WIDTH)

#if WIDTH == 8
#define NUM u64
#define BITS 64
#define HIGH high_64
#define NEWTON_STEPS 5
#else
#define NUM u32
#define BITS 32
#define HIGH high_32
#define NEWTON_STEPS (WIDTH == 4 ? 4 : WIDTH == 2 ? 3 : 2)
#endif
#define MASK ((NUM) ~(NUM)0 >> (BITS - 8 * WIDTH))
#define SIGN ((NUM)1 << (8 * WIDTH - 1))
/* Known where there is one floating-point type of this width. */
#define FRACTION_BITS(p) (WIDTH == 8 ? 52 : WIDTH == 4 ? 23 : (p)->fraction_bits)

/* Element `i` of a stream. */
FN NUM W(element)(Key key, u64 i)
{
#if WIDTH == 8
    return double_word(key, i);
#else
    return word(key, i / (4 / WIDTH)) >> 8 * WIDTH * (u32)(i % (4 / WIDTH)) & MASK;
#endif
}

/* A random number for element `i`. */
FN NUM W(draw)(Key key, u64 i)
{
#if WIDTH == 8
    return double_word(key, i);
#else
    return word(key, i);
#endif
}

/* The inverse of an odd number; each step doubles the number of right bits, from 3. */
FN NUM W(inverse)(NUM odd)
{
    NUM x = odd;
    UNROLL
    for (int step = 0; step < NEWTON_STEPS; step++)
        x *= 2 - odd * x;
    return x;
}

/* `count` units of the power of two with exponent field `unit_field`; `count` fits the significand, and so converts to
 * the processor's own type and from that to the one wanted without rounding. */
FN NUM W(compose)(u64 count, NUM unit_field, u32 fraction_bits)
{
#if WIDTH == 8
    return (double_bits(count) >> (52 - fraction_bits)) + ((unit_field - 1023) << fraction_bits);
#else
    return (float_bits(count) >> (23 - fraction_bits)) + ((unit_field - 127) << fraction_bits);
#endif
}

/* The nearest whole number that fits the significand. */
FN u64 W(round)(u64 value, u32 fraction_bits)
{
    (void)fraction_bits;
#if WIDTH == 8
    return double_integer(double_bits(value));
#elif WIDTH == 4
    return float_integer(float_bits(value));
#else
    return round_to(value, fraction_bits + 1);
#endif
}

/* The target of element `i`: the result, but for special values and odd scalars. */
FN NUM W(target)(const Params *p, u64 i)
{
    NUM random = W(element)(p->target_key, i);
    return (((random & (NUM)p->target_and) + (NUM)p->target_add) ^ (NUM)p->target_xor) & MASK;
}

/* Rust: oracle::tripled. */
FN NUM W(tripled)(NUM bits, u32 fraction_bits)
{
    NUM hidden = (NUM)1 << fraction_bits;
    NUM three = 3 * ((bits & (hidden - 1)) | hidden);
    NUM places = three >= 4 * hidden ? 2 : 1;
    return (bits & ~(hidden - 1)) + (places << fraction_bits) + (three >> places) - hidden;
}

/* Rust: Plan::scenario. */
FN const Scenario *W(scenario)(const Params *p, u64 i)
{
    return &p->table[(u32)W(element)(p->target_key, i) % SCENARIOS];
}

/* Rust: Plan::special. */
FN NUM W(special)(const Params *p, u64 i, u32 q)
{
    const Scenario *s = W(scenario)(p, i);
    return (NUM)(q == 0 ? s->first : q == p->ranks / 2 ? s->second : s->others);
}

/* Results that are not their targets. */
FN NUM W(result)(const Params *p, u64 i)
{
    if (p->method == TABLE)
        return (NUM)W(scenario)(p, i)->expected;
    return W(tripled)(W(target)(p, i), FRACTION_BITS(p)) & MASK;
}

/* The expected value at element `i`. */
FN NUM W(reduced)(const Params *p, u64 i)
{
    return p->method == TABLE || p->odd ? W(result)(p, i) : W(target)(p, i);
}

/* The stream that position `q` draws from: one for those who share the target, one for each pair behind them. */
FN Key W(stream)(const Params *p, u32 q)
{
    Key pair = sub(p->pair_key, (q - p->owners) / 2);
    return q < p->owners ? p->split_key : pair;
}

FN NUM W(int_sum)(const Params *p, NUM target, u32 rank, u64 i, u32 q)
{
    NUM random = W(draw)(W(stream)(p, q), i) | 1;
    NUM share;
    if (q >= p->owners) {
        share = (q - p->owners) % 2 ? (NUM)0 - random : random;
    } else if (p->owners == 1) {
        share = target;
    } else {
        NUM first = random & MASK;
        if (first == target)
            first ^= 2;
        share = q == 0 ? first : target - first;
    }
    if (p->scaled)
        share *= W(inverse)((NUM)scale_odd(rank));
    return share & MASK;
}

FN NUM W(int_prod)(const Params *p, NUM target, u64 i, u32 q)
{
    NUM factor = (W(draw)(W(stream)(p, q), i) | 1) & MASK;
    int owner = q < p->owners;
    if (owner ? factor == 1 || factor == target : (factor * factor & MASK) == 1)
        factor ^= 2;
    NUM inverse = W(inverse)(factor);
    NUM share;
    if (!owner)
        share = (q - p->owners) % 2 ? inverse : factor;
    else if (p->owners == 1)
        share = target;
    else
        share = q == 1 ? factor : target * inverse;
    return share & MASK;
}

FN NUM W(int_extreme)(const Params *p, NUM target, u64 i, u32 q)
{
    NUM flip = (NUM)p->sign_flip;
    NUM key = target ^ flip;
    int min = p->method == INT_MIN;
    NUM distance = 1 + HIGH(W(draw)(sub(p->pair_key, q), i), min ? MASK - key : key);
    NUM loser = (min ? key + distance : key - distance) ^ flip;
    return q == 0 ? target : loser & MASK;
}

FN NUM W(int_avg)(const Params *p, NUM target, u64 i, u32 q)
{
    if (p->target_and == 0)
        return q < p->pair_range;
    NUM n = p->ranks;
    NUM opposite = (NUM)p->pair_range;
    int negative = (target & (NUM)p->sign_flip) != 0;
    NUM size = negative ? (0 - target) & MASK : target;
    NUM share = size;
    if (size == 0 && opposite == 0) {
        share = q != 0;
        return (p->sign_flip != 0 && W(draw)(p->split_key, i) & 1 ? 0 - share : share) & MASK;
    }
    if (q >= p->owners) {
        /* Rust: deviation. */
        NUM least = 1;
        NUM range = size > n ? size - n : 0;
        if (opposite >= n && (opposite - n) / 2 >= size) {
            least = size + n;
            range = opposite - 2 * size - n + 1;
        } else if (size == 1) {
            least = 0;
            range = 2;
        } else if (size <= n) {
            NUM same = size > 0 ? size - 1 : 0;
            NUM apart = opposite > size ? opposite - size : 0;
            range = same > apart ? same : apart;
        }
        NUM c = least + HIGH(W(draw)(sub(p->pair_key, (q - p->owners) / 2), i), range);
        if (c == size && size > 1)
            c = 0;
        share = (q - p->owners) % 2 ? share - c : share + c;
    }
    if (q == 0) {
        int coin = (int)(W(draw)(p->split_key, i) & 1);
        if (size == 0)
            share = coin && p->sign_flip != 0 ? share - (n - 1) : share + (n - 1);
        else if (coin && size <= (NUM)p->base)
            share += n - 1;
    }
    return (negative ? 0 - share : share) & MASK;
}

FN NUM W(float_sum)(const Params *p, NUM target, u32 rank, u64 i, u32 q)
{
    u32 fraction_bits = FRACTION_BITS(p);
    NUM hidden = (NUM)1 << fraction_bits;
    NUM units = ((target & (hidden - 1)) | hidden) >> (fraction_bits + 1 - p->target_bits);
    NUM unit_field = ((target & ~SIGN) >> fraction_bits) - (p->target_bits - 1) + p->growth;
    NUM count = 1 + HIGH(W(draw)(W(stream)(p, q), i), (NUM)p->pair_range);
    NUM negative = target & SIGN;
    if (q < p->owners) {
        if (p->owners == 1)
            count = units;
        else if (q == 0)
            count += units;
        else
            negative ^= SIGN;
    } else {
        if (p->owners == 1 && count == units)
            count = count % (NUM)p->pair_range + 1;
        if ((q - p->owners) % 2)
            negative ^= SIGN;
    }
    NUM bits = W(compose)(count, unit_field, fraction_bits);
    if (p->scaled)
        bits -= (NUM)scale_exponent(rank) << fraction_bits;
    return q < p->active ? bits | negative : 0;
}

FN NUM W(float_prod)(const Params *p, NUM target, u64 i, u32 q)
{
    u32 fraction_bits = FRACTION_BITS(p);
    NUM one = (NUM)p->bias << fraction_bits;
    u32 sign_pairs = (p->ranks - p->owners) / 2 - p->pairs;
    int owner = q < p->owners;
    if (sign_pairs % 2)
        target ^= SIGN;
    if (p->owners == 1 && q == 0)
        return target;
    NUM random = W(draw)(W(stream)(p, q), i);
    u32 second = owner ? q == 0 : (q - p->owners) % 2;
    u32 minus = (u32)random & 1;
    if (q >= p->owners + 2 * p->pairs)
        return minus != second ? one | SIGN : one;
    NUM change = (1 + HIGH(random, (NUM)p->pair_range)) << fraction_bits;
    NUM magnitude = q == 0 ? target : one;
    NUM bits = ((u32)random >> 1 & 1) != second ? magnitude + change : magnitude - change;
    return minus ? bits ^ SIGN : bits;
}

FN NUM W(float_extreme)(const Params *p, NUM target, u64 i, u32 q)
{
    NUM largest = (NUM)p->max_finite;
    NUM smallest = (NUM)1 << FRACTION_BITS(p);
    NUM codes = largest - smallest + 1;
    NUM magnitude = target & ~SIGN;
    NUM place = target & SIGN ? largest - magnitude : codes + magnitude - smallest;
    int min = p->method == FLOAT_MIN;
    NUM range = min ? 2 * codes - 1 - place : place;
    NUM distance = 1 + HIGH(W(draw)(sub(p->pair_key, q), i), range);
    NUM loser = min ? place + distance : place - distance;
    NUM bits = loser < codes ? SIGN | (largest - loser) : loser - codes + smallest;
    return q == 0 ? target : bits;
}

/* Rust: average::part. The products need 64 bits for any width. */
FN NUM W(float_avg)(const Params *p, NUM target, u32 q)
{
    if (q != 0 && !(p->owners == 2 && q == p->ranks / 2))
        return 0;
    u32 fraction_bits = FRACTION_BITS(p);
    NUM magnitude = target & ~SIGN;
    NUM hidden = (NUM)1 << fraction_bits;
    u64 total = (u64)((magnitude & (hidden - 1)) | hidden) * p->ranks;
    NUM unit_field = (magnitude >> fraction_bits) - fraction_bits;
    u64 count = p->owners == 1 ? total : total / 2 + (p->skewed ? total / 16 : 0);
    count = W(round)(count, fraction_bits);
    if (q != 0)
        count = W(round)(total - count, fraction_bits);
    return (target & SIGN) | W(compose)(count, unit_field, fraction_bits);
}

/* What `rank` at position `q` holds of `target` at element `i`. */
FN NUM W(share)(const Params *p, u32 method, NUM target, u32 rank, u64 i, u32 q)
{
    switch (method) {
    case INT_SUM: return W(int_sum)(p, target, rank, i, q);
    case INT_PROD: return W(int_prod)(p, target, i, q);
    case INT_MIN:
    case INT_MAX: return W(int_extreme)(p, target, i, q);
    case INT_AVG: return W(int_avg)(p, target, i, q);
    case FLOAT_SUM: return W(float_sum)(p, target, rank, i, q);
    case FLOAT_PROD: return W(float_prod)(p, target, i, q);
    case FLOAT_MIN:
    case FLOAT_MAX: return W(float_extreme)(p, target, i, q);
    case FLOAT_AVG: return W(float_avg)(p, target, q);
    case TABLE: return W(special)(p, i, q);
    default: return W(element)(sub(p->pair_key, rank), i);
    }
}

#undef JOIN2
#undef JOIN
#undef W
#undef NUM
#undef BITS
#undef HIGH
#undef NEWTON_STEPS
#undef MASK
#undef SIGN
#undef FRACTION_BITS
