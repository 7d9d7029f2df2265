/* Matrix products whose sums stay in registers, for matrices that are in the cache. */

#ifndef PSCO_PRODUCTS_H
#define PSCO_PRODUCTS_H

#include <string.h>

#include "vectors.h"

/* Of a product that are in registers at a time: as many as there are registers for. */
enum { ROWS = LANES == 16 ? 8 : 6, COLUMNS = 2 * LANES };

/* What is done with a product: it is written, added to what is there, or 2 to its power written. */
typedef enum { WRITE, ADD, WRITE_POWER } Then;

enum {
    CACHE_LINE = 64 / sizeof(float),
    STRETCH = 32, /* steps of a long sum from question to question */
    AHEAD = 8     /* steps of it that its next numbers are asked for before they are needed */
};

/* Memory that will be needed soon. To ask for a few cache lines of it now and then, while a product
 * is computed, costs nothing; many at a time wait for one another. */
typedef struct {
    const float *row; /* the next, `step` numbers before the one after it */
    int64_t width, step, asked;
    int each, to_write; /* cache lines at a time; whether it will be written, not read */
} Soon;

/* So many rows, in so many questions. */
static inline Soon soon_rows(
    const float *row, int64_t rows, int64_t width, int64_t step, int64_t questions, int to_write) {
    int64_t lines = rows * width / CACHE_LINE;
    return (Soon){row, width, step, 0, (lines + questions - 1) / questions, to_write};
}

/* So many numbers in a row. */
static inline Soon soon_read(const float *from, int64_t size, int64_t questions) {
    return soon_rows(from, 1, size, size, questions, 0);
}

static inline __attribute__((always_inline)) void ask(Soon *soon) {
    for (int i = 0; i < soon->each; i++) {
        const float *line = soon->row + soon->asked;
        if (soon->to_write)
            __builtin_prefetch(line, 1, 2);
        else
            __builtin_prefetch(line, 0, 2);
        soon->asked += CACHE_LINE;
        if (soon->asked < soon->width) continue;
        soon->asked = 0;
        soon->row += soon->step;
    }
}

/* Questions that `any_product` and `sum_product` ask. */
static inline int64_t questions_of(int64_t rows, int64_t columns) {
    return (rows + ROWS - 1) / ROWS * (columns / COLUMNS);
}
static inline int64_t questions_of_sum(int64_t count, int64_t rows, int64_t columns) {
    return (count + STRETCH - 1) / STRETCH * ((rows + ROWS - 1) / ROWS) * (columns / COLUMNS);
}

/* The product a b of (rows, inner) and (inner, columns), stored with so many numbers from a
 * line to the next. Columns are a multiple of COLUMNS, and there are at least ROWS rows. `soon` may
 * be NULL. */
static inline __attribute__((always_inline)) void any_product(
    Then then, int rows, int inner, int columns, const float *a, int64_t a_step, const float *b,
    int64_t b_step, float *c, int64_t c_step, Soon *soon) {
    for (int next = 0; next < rows; next += ROWS) {
        int r = next + ROWS <= rows ? next : rows - ROWS; /* the last ones overlap */
        for (int n = 0; n < columns; n += COLUMNS) {
            vec sum[ROWS][2] = {{{0}}};
            if (soon) ask(soon);
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
                if (r + i < next) continue; /* is there already */
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

/* Store a matrix (rows, columns) by groups of COLUMNS columns, (columns / COLUMNS, rows, COLUMNS):
 * in that order a product reads it from end to end. */
static inline void pack(const float *from, int64_t step, int64_t rows, int64_t columns, float *to) {
    for (int64_t c = 0; c < columns; c += COLUMNS)
        for (int64_t r = 0; r < rows; r++, to += COLUMNS)
            memcpy(to, from + r * step + c, COLUMNS * sizeof(float));
}

/* Do so with the transpose of a matrix (columns, rows), whose rows are a multiple of LANES. */
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

/* Store the transpose of COLUMNS vectors of `size` numbers, times a factor. */
static inline void pack_scaled(const float *vectors, int64_t size, float factor, float *to) {
    pack_transpose(vectors, size, size, COLUMNS, to);
    for (int64_t i = 0; i < COLUMNS * size; i += LANES) store(to + i, load(to + i) * factor);
}

/* A tile of `sum_product`: `tall` rows from c on. */
static inline __attribute__((always_inline)) void sum_tile(
    Then then, int tall, int count, const float *a, int64_t a_step, const float *b, int64_t b_step,
    float *c, int64_t c_step, Soon *soon) {
    vec sum[ROWS][2] = {{{0}}};
    for (int i = 0; then == ADD && i < tall; i++) {
        sum[i][0] = load(c + i * c_step);
        sum[i][1] = load(c + i * c_step + LANES);
    }
    for (int t = 0; t < count; t++, a += a_step, b += b_step) {
        vec left = load(b), right = load(b + LANES);
        if (soon && t % STRETCH == 0) ask(soon);
        /* Both matrices are read by the column, which the processor does not foresee. */
        __builtin_prefetch(a + AHEAD * a_step);
        __builtin_prefetch(b + AHEAD * b_step);
        __builtin_prefetch(b + AHEAD * b_step + COLUMNS - 1);
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

/* The product a^T b of (count, rows) and (count, columns), stored with so many numbers from a line
 * to the next; rows are a multiple of 8. `soon` may be NULL. */
static inline __attribute__((always_inline)) void sum_product(
    Then then, int count, int rows, int columns, const float *a, const float *b, float *c,
    int64_t c_step, Soon *soon) {
    for (int r = 0; r < rows; r += ROWS)
        for (int n = 0; n < columns; n += COLUMNS) {
            float *to = c + r * c_step + n;
            if (r + ROWS <= rows)
                sum_tile(then, ROWS, count, a + r, rows, b + n, columns, to, c_step, soon);
            else if (r + 4 == rows) /* what is left of 8 k rows, where ROWS is 6 */
                sum_tile(then, 4, count, a + r, rows, b + n, columns, to, c_step, soon);
            else
                sum_tile(then, 2, count, a + r, rows, b + n, columns, to, c_step, soon);
        }
}

/* Add up what `all` threads have of `size` numbers, so many numbers apart. */
static inline void add_parts(
    const float *parts, int64_t step, int all, int64_t size, float *sums) {
    for (int64_t i = 0; i < size; i += LANES) {
        vec sum = load(parts + i);
        for (int t = 1; t < all; t++) sum += load(parts + t * step + i);
        store(sums + i, sum);
    }
}

#endif
