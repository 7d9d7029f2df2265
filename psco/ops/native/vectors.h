/* Vectors of the widest kind that the processor has, by the extensions of GCC and Clang. */

#ifndef PSCO_VECTORS_H
#define PSCO_VECTORS_H

#include <stdint.h>

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif

/* Numbers in memory need no alignment beyond their own. */
typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t mask __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

static inline vec load(const float *from) { return *(const vec *)from; }
static inline void store(float *to, vec v) { *(vec *)to = v; }
static inline vec where(mask m, vec v) { return (vec)((mask)v & m); } /* v or 0 */
static inline vec pick(mask m, vec a, vec b) { return (vec)(((mask)a & m) | ((mask)b & ~m)); }
static inline vec larger(vec a, vec b) { return pick(a > b, a, b); }
static inline vec smaller(vec a, vec b) { return pick(a < b, a, b); }
static inline vec relu(vec v) { return where(~(v < 0), v); } /* keeps what is not a number */
static inline vec filled(float x) { return x - (vec){0}; }

static inline float total(vec v) {
    typedef float quad __attribute__((vector_size(16)));
    union {
        vec all;
        quad parts[LANES / 4];
    } of = {v};
    quad sum = of.parts[0];
    for (int i = 1; i < LANES / 4; i++) sum += of.parts[i];
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

/* 2^x within 2e-7 of it, for |x| <= 125: of the polynomials of degree 5 that are 1 at 0, this is
 * the closest to it in [-1/2, 1/2]. */
static inline vec power_of_two(vec x) {
    const float round = 12582912.0f; /* 1.5 * 2^23: numbers of that size are whole */
    vec shifted = x + round, r = x - (shifted - round);
    vec p = 1.326472724710534e-3f * r + 9.671512688151737e-3f;
    p = p * r + 5.550733743574324e-2f;
    p = p * r + 2.402224208463513e-1f;
    p = p * r + 6.931469775987169e-1f;
    p = p * r + 1.0f;
    return (vec)((mask)p + ((mask)shifted << 23)); /* the whole part goes into the exponent */
}

/* Exchange rows and columns of a square of numbers: as often as LANES can be halved, the upper half
 * of the rows is interleaved with the lower one. */
static inline void transpose(vec m[LANES]) {
    mask low, high;
    for (int i = 0; i < LANES; i++) {
        low[i] = i / 2 + i % 2 * LANES;
        high[i] = low[i] + LANES / 2;
    }
    for (int done = 1; done < LANES; done *= 2) {
        vec t[LANES];
        for (int i = 0; i < LANES / 2; i++) {
            t[2 * i] = __builtin_shuffle(m[i], m[i + LANES / 2], low);
            t[2 * i + 1] = __builtin_shuffle(m[i], m[i + LANES / 2], high);
        }
        for (int i = 0; i < LANES; i++) m[i] = t[i];
    }
}

/* Where the share of thread `me` of `all` in `size` things begins; it ends where the next does. */
static inline int64_t share(int64_t size, int me, int all) { return size * me / all; }

#endif
