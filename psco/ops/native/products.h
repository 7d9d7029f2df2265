/* Matrix products with their sums in registers, for matrices that fit in the cache. */

#ifndef PSCO_PRODUCTS_H
#define PSCO_PRODUCTS_H

#include <string.h>

#include "vectors.h"

/* A tile of a product: as many sums as there are registers for. */
enum { ROWS = LANES == 16 ? 8 : 6, COLUMNS = 2 * LANES };

/* What happens to a product: store it, add it to what is there, or store 2 to its power. */
typedef enum { WRITE, ADD, WRITE_POWER } Then;

enum {
    CACHE_LINE = 64 / sizeof(float), /* in numbers */
    STRETCH = 32,                    /* steps of a long sum between two prefetches */
    AHEAD = 8                        /* steps by which a long sum prefetches its own operands */
};

/* Rows of memory that will be needed soon. A few cache lines prefetched now and then during a
 * product cost nothing; many at a time stall on one another. */
typedef struct {
    uintptr_t row;       /* the address of the current row */
    int64_t width, step; /* of a row, and from a row to the next, in numbers */
    int64_t done;        /* numbers of the current row that were prefetched */
    int lines, to_write; /* cache lines per call; whether the memory will be written */
} Prefetch;

/* `rows` rows from `row` on, prefetched in `calls` calls. The memory may be past the end of the
 * array: a prefetch never faults. */
static inline Prefetch prefetch_rows(
    const void *row, int64_t rows, int64_t width, int64_t step, int64_t calls, int to_write) {
    int64_t lines = rows * width / CACHE_LINE;
    return (Prefetch){(uintptr_t)row, width, step, 0, (int)((lines + calls - 1) / calls), to_write};
}

/* `size` numbers in a row, to be read. */
static inline Prefetch prefetch_range(const void *from, int64_t size, int64_t calls) {
    return prefetch_rows(from, 1, size, size, calls, 0);
}

static inline __attribute__((always_inline)) void prefetch_next(Prefetch *ahead) {
    for (int i = 0; i < ahead->lines; i++) {
        const void *line = (const void *)(ahead->row + (uintptr_t)ahead->done * sizeof(float));
        if (ahead->to_write)
            __builtin_prefetch(line, 1, 2);
        else
            __builtin_prefetch(line, 0, 2);
        ahead->done += CACHE_LINE;
        if (ahead->done < ahead->width) continue;
        ahead->done = 0;
        ahead->row += (uintptr_t)ahead->step * sizeof(float);
    }
}

/* How often `any_product` and `sum_product` call `prefetch_next`. */
static inline int64_t calls_of(int64_t rows, int64_t columns) {
    return (rows + ROWS - 1) / ROWS * (columns / COLUMNS);
}
static inline int64_t calls_of_sum(int64_t count, int64_t rows, int64_t columns) {
    return (count + STRETCH - 1) / STRETCH * ((rows + ROWS - 1) / ROWS) * (columns / COLUMNS);
}

/* The product a b of (rows, inner) and (inner, columns). Steps are the numbers from a row to the
 * next. Columns are a multiple of COLUMNS; there are at least ROWS rows. `ahead` may be NULL. */
static inline __attribute__((always_inline)) void any_product(
    Then then, int rows, int inner, int columns, const float *a, int64_t a_step, const float *b,
    int64_t b_step, float *c, int64_t c_step, Prefetch *ahead) {
    for (int next = 0; next < rows; next += ROWS) {
        int r = next + ROWS <= rows ? next : rows - ROWS; /* the last tiles overlap */
        for (int n = 0; n < columns; n += COLUMNS) {
            vec sum[ROWS][2] = {{{0}}};
            if (ahead) prefetch_next(ahead);
            for (int k = 0; k < inner; k++) {
                const float *line = b + k * b_step + n;
                vec left = load(line), right = load(line + LANES);
#pragma GCC unroll 8
                for (int i = 0; i < ROWS; i++) {
                    sum[i][0] += a[(r + i) * a_step + k] * left;
                    sum[i][1] += a[(r + i) * a_step + k] * right;
                }
            }
#pragma GCC unroll 8
            for (int i = 0; i < ROWS; i++) {
                float *to = c + (r + i) * c_step + n;
                if (r + i < next) continue; /* already stored */
                for (int j = 0; j < 2; j++, to += LANES) {
                    vec x = sum[i][j];
                    if (then == ADD) x += load(to);
                    if (then == WRITE_POWER) x = power_of_two(x);
                    store(to, x);
                }
            }
        }
    }
}

static inline void product(
    int rows, int inner, int columns, const float *a, int64_t a_step, const float *b,
    int64_t b_step, float *c, int64_t c_step) {
    any_product(WRITE, rows, inner, columns, a, a_step, b, b_step, c, c_step, NULL);
}

/* Pack a matrix (rows, columns) into panels of COLUMNS columns, (columns / COLUMNS, rows, COLUMNS):
 * a product reads it in that order. */
static inline void pack(const float *from, int64_t step, int64_t rows, int64_t columns, float *to) {
    for (int64_t c = 0; c < columns; c += COLUMNS)
        for (int64_t r = 0; r < rows; r++, to += COLUMNS)
            memcpy(to, from + r * step + c, COLUMNS * sizeof(float));
}

/* Pack the transpose of a matrix (columns, rows); rows are a multiple of LANES. */
static inline void pack_transpose(
    const float *from, int64_t step, int64_t rows, int64_t columns, float *to) {
    for (int64_t c = 0; c < columns; c += COLUMNS)
        for (int64_t r = 0; r < rows; r += LANES, to += LANES * COLUMNS)
            for (int half = 0; half < COLUMNS; half += LANES) {
                vec square[LANES];
                for (int i = 0; i < LANES; i++)
                    square[i] = load(from + (c + half + i) * step + r);
                transpose(square);
                for (int i = 0; i < LANES; i++) store(to + i * COLUMNS + half, square[i]);
            }
}

/* Pack the transpose of COLUMNS vectors of `size` numbers, times a factor. */
static inline void pack_scaled(const float *vectors, int64_t size, float factor, float *to) {
    pack_transpose(vectors, size, size, COLUMNS, to);
    for (int64_t i = 0; i < COLUMNS * size; i += LANES) store(to + i, load(to + i) * factor);
}

/* A tile of `sum_product`: `tall` rows from c on. */
static inline __attribute__((always_inline)) void sum_tile(
    Then then, int tall, int count, const float *a, int64_t a_step, const float *b, int64_t b_step,
    float *c, int64_t c_step, Prefetch *ahead) {
    vec sum[ROWS][2] = {{{0}}};
    for (int i = 0; then == ADD && i < tall; i++) {
        sum[i][0] = load(c + i * c_step);
        sum[i][1] = load(c + i * c_step + LANES);
    }
    for (int t = 0; t < count; t++, a += a_step, b += b_step) {
        vec left = load(b), right = load(b + LANES);
        if (ahead && t % STRETCH == 0) prefetch_next(ahead);
        /* Both matrices are read by the column; the hardware prefetcher does not follow that. */
        __builtin_prefetch(address_of(a, AHEAD * a_step));
        __builtin_prefetch(address_of(b, AHEAD * b_step));
        __builtin_prefetch(address_of(b, AHEAD * b_step + COLUMNS - 1));
#pragma GCC unroll 8
        for (int i = 0; i < tall; i++) {
            sum[i][0] += a[i] * left;
            sum[i][1] += a[i] * right;
        }
    }
    for (int i = 0; i < tall; i++) {
        store(c + i * c_step, sum[i][0]);
        store(c + i * c_step + LANES, sum[i][1]);
    }
}

/* The product a^T b of (count, rows) and (count, columns). `c_step` is the numbers from a row of c
 * to the next; rows are a multiple of 8. `ahead` may be NULL. */
static inline __attribute__((always_inline)) void sum_product(
    Then then, int count, int rows, int columns, const float *a, const float *b, float *c,
    int64_t c_step, Prefetch *ahead) {
    for (int r = 0; r < rows; r += ROWS)
        for (int n = 0; n < columns; n += COLUMNS) {
            float *to = c + r * c_step + n;
            if (r + ROWS <= rows)
                sum_tile(then, ROWS, count, a + r, rows, b + n, columns, to, c_step, ahead);
            else if (r + 4 == rows) /* the rest of a multiple of 8, where ROWS is 6 */
                sum_tile(then, 4, count, a + r, rows, b + n, columns, to, c_step, ahead);
            else
                sum_tile(then, 2, count, a + r, rows, b + n, columns, to, c_step, ahead);
        }
}

/* Add up the parts of `all` threads, `size` numbers each, `step` numbers apart. */
static inline void add_parts(
    const float *parts, int64_t step, int all, int64_t size, float *sums) {
    for (int64_t i = 0; i < size; i += LANES) {
        vec sum = load(parts + i);
        for (int t = 1; t < all; t++) sum += load(parts + t * step + i);
        store(sums + i, sum);
    }
}

#endif
