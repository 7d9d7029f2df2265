/* Vectors as wide as the processor has them, by the vector extensions of GCC and Clang. */

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

/* In memory, numbers are aligned to their own size and no further. */
typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t mask __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint32_t bits __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

static inline vec load(const float *from) { return *(const vec *)from; }
static inline void store(float *to, vec v) { *(vec *)to = v; }
static inline vec where(mask m, vec v) { return (vec)((mask)v & m); } /* v or 0 */
static inline vec pick(mask m, vec a, vec b) { return (vec)(((mask)a & m) | ((mask)b & ~m)); }
static inline vec larger(vec a, vec b) { return pick(a > b, a, b); }
static inline vec smaller(vec a, vec b) { return pick(a < b, a, b); }
static inline vec relu(vec v) { return where(~(v < 0), v); } /* keeps NaN */
static inline vec filled(float x) { return x - (vec){0}; }

/* The sum of all lanes. */
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

/* 2^x with a relative error below 2e-7, for |x| <= 125. On [-1/2, 1/2] it is the minimax polynomial
 * of degree 5 among those that are 1 at 0. Outside the range the result is arbitrary. */
static inline vec power_of_two(vec x) {
    const float round = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number */
    vec shifted = x + round, r = x - (shifted - round);
    vec p = 1.326472724710534e-3f * r + 9.671512688151737e-3f;
    p = p * r + 5.550733743574324e-2f;
    p = p * r + 2.402224208463513e-1f;
    p = p * r + 6.931469775987169e-1f;
    p = p * r + 1.0f;
    return (vec)((bits)p + ((bits)shifted << 23)); /* add the whole part to the exponent */
}

/* Interleave the lanes of a and b from lane `first` on, LANES / 2 of each. */
static inline vec interleave(vec a, vec b, int first) {
#ifdef __clang__ /* has no __builtin_shuffle; it turns this loop into a shuffle */
    vec both = a;
    for (int i = 0; i < LANES; i++) both[i] = i % 2 ? b[first + i / 2] : a[first + i / 2];
    return both;
#else
    mask places = {0};
    for (int i = 0; i < LANES; i++) places[i] = first + i / 2 + i % 2 * LANES;
    return __builtin_shuffle(a, b, places);
#endif
}

/* Transpose a square of numbers: interleave the upper half of the rows with the lower half, log2 of
 * LANES times. */
static inline void transpose(vec m[LANES]) {
    for (int done = 1; done < LANES; done *= 2) {
        vec t[LANES];
        for (int i = 0; i < LANES / 2; i++) {
            t[2 * i] = interleave(m[i], m[i + LANES / 2], 0);
            t[2 * i + 1] = interleave(m[i], m[i + LANES / 2], LANES / 2);
        }
        for (int i = 0; i < LANES; i++) m[i] = t[i];
    }
}

/* The address `offset` numbers after `from`, to prefetch: it may be past the end of the array,
 * where C allows no pointer. */
static inline const void *address_of(const float *from, int64_t offset) {
    return (const void *)((uintptr_t)from + (uintptr_t)offset * sizeof(float));
}

/* The first of `size` items that thread `me` of `all` processes; it stops at the first of the next
 * thread. */
static inline int64_t share(int64_t size, int me, int all) { return size * me / all; }

#endif
