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
static inline vec larger(vec a, vec b) { return (vec)(((mask)a & (a > b)) | ((mask)b & ~(a > b))); }

/* The share of `size` things that thread `me` of `all` begins with; it ends where the next begins. */
static inline int64_t share(int64_t size, int me, int all) { return size * me / all; }

#endif
