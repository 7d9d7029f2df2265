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
static inline vec all(float x) { return x - (vec){0}; }

static inline float total(vec v) {
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) v[i] += v[i + half];
    return v[0];
}

/* e^x within 2 units of the last place, for |x| <= 86. */
static inline vec exponential(vec x) {
    const float round = 12582912.0f; /* 1.5 * 2^23: numbers beside it are whole */
    vec shifted = x * 1.44269504f + round, n = shifted - round;
    vec r = x - n * 0.693359375f + n * 2.12194440e-4f; /* x - n log 2 */
    vec p = 1.9875691500e-4f * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    vec e = p * (r * r) + r + 1.0f;
    return (vec)((mask)e + ((mask)shifted << 23)); /* e 2^n */
}

/* The share of `size` things that thread `me` of `all` begins with; it ends where the next begins. */
static inline int64_t share(int64_t size, int me, int all) { return size * me / all; }

#endif
