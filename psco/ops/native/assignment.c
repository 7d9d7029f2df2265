/* Sinkhorn's rounds in one pass over the matrix each, the first while the matrix is computed.
 *
 * The matrix is stored by keys of the queue, (M, N): a row holds the similarities of all N queries
 * to one key. The factor of a row depends on that row alone, and the sums for the next round are
 * accumulated right after it. N is a multiple of COLUMNS, M of BLOCK.
 */

#include <omp.h>
#include <string.h>

#include "products.h"

enum {
    BLOCK = 64,   /* rows that are computed at a time and share a maximum */
    TOGETHER = 4  /* rows that are summed at a time */
};

int64_t assignment_block(void) { return BLOCK; }

/* Write the factors v that bring the sums of TOGETHER rows, weighted by u (N,), to 1 / M. */
static inline void factors_of(const float *rows, const float *u, int64_t M, int64_t N, float *v) {
    vec sum[TOGETHER] = {{0}};
    for (int64_t n = 0; n < N; n += LANES) {
        vec weight = load(u + n);
#pragma GCC unroll 4
        for (int i = 0; i < TOGETHER; i++) {
            /* The next rows: the sum would wait for memory. */
            __builtin_prefetch(address_of(rows, (TOGETHER + i) * N + n));
            sum[i] += load(rows + i * N + n) * weight;
        }
    }
    for (int i = 0; i < TOGETHER; i++) v[i] = 1 / (M * total(sum[i]));
}

/* Run a round on the rows of a block, which are not changed: add the scaled rows to sums (N,). */
static void add_block(const float *rows, const float *u, float *sums, int64_t M, int64_t N) {
    for (int m = 0; m < BLOCK; m += TOGETHER, rows += TOGETHER * N) {
        float v[TOGETHER];
        factors_of(rows, u, M, N, v);
        for (int64_t n = 0; n < N; n += LANES) {
            vec sum = load(sums + n);
            for (int i = 0; i < TOGETHER; i++) sum += load(rows + i * N + n) * v[i];
            store(sums + n, sum);
        }
    }
}

/* Write 2 ^ (queue keys^T) for the rows of a block, and run the first round on them. */
static void begin_block(
    const float *queue, const float *keys, int64_t d, float *rows, const float *u, float *sums,
    int64_t M, int64_t N) {
    Prefetch next = prefetch_range(address_of(queue, BLOCK * d), BLOCK * d, calls_of(BLOCK, N));
    for (int64_t n = 0; n < N; n += COLUMNS)
        any_product(
            WRITE_POWER, BLOCK, d, COLUMNS, queue, d, keys + n * d, COLUMNS, rows + n, N, &next);
    add_block(rows, u, sums, M, N);
}

/* Run the last round on the rows of a block: write their factors v (BLOCK,), and the maximum of the
 * scaled rows in each column, (N,). */
static void end_block(
    const float *rows, const float *u, float *v, float *most, int64_t M, int64_t N) {
    memset(most, 0, N * sizeof(float));
    for (int m = 0; m < BLOCK; m += TOGETHER, rows += TOGETHER * N, v += TOGETHER) {
        factors_of(rows, u, M, N, v);
        for (int64_t n = 0; n < N; n += LANES) {
            vec x = load(most + n);
            for (int i = 0; i < TOGETHER; i++) x = larger(load(rows + i * N + n) * v[i], x);
            store(most + n, x);
        }
    }
}

/* Write the rows of the maxima of LANES columns from n on; of equal ones the first. */
static void best_rows(
    const float *matrix, const float *v, const float *maxima, int64_t n, int64_t M, int64_t N,
    int64_t *best) {
    vec most = load(maxima + n);
    mask block = {0};
    for (int b = 1; b < M / BLOCK; b++) {
        vec x = load(maxima + b * N + n);
        block = (block & ~(x > most)) | (b & (x > most));
        most = larger(x, most);
    }
    for (int i = 0; i < LANES; i++, n++) {
        int64_t m = (int64_t)block[i] * BLOCK, end = m + BLOCK - 1;
        while (m < end && matrix[m * N + n] * v[m] < most[i]) m++;
        best[n] = m;
    }
}

/* Scratch memory of all threads together, in numbers: packed keys, then factors and sums of each
 * thread. */
int64_t assignment_scratch(int64_t N, int64_t d, int64_t iterations, int64_t threads) {
    return N * (d + (1 + iterations) * threads);
}

/* Write the matrix 2 ^ (scale queue keys^T) and run the rounds on it. Write the factors v (M,) of
 * its rows and, of the scaled rows, the maxima of blocks (M / BLOCK, N) and the best row of each
 * column (N,). Keys are (N, d), d a multiple of LANES; there is at least one round. */
void assignment_plan(
    const float *queue, const float *keys, double scale, float *matrix, float *v, float *maxima,
    int64_t *best, float *scratch, int64_t M, int64_t N, int64_t d, int64_t iterations,
    int64_t threads) {
#pragma omp parallel num_threads(threads)
    {
        int me = omp_get_thread_num(), all = omp_get_num_threads();
        int64_t first = share(M / BLOCK, me, all), end = share(M / BLOCK, me + 1, all);
        float *packed = scratch, *u = packed + N * d, *sums = u + threads * N, *own = u + me * N;
        for (int64_t n = 0; n < N; n++) own[n] = 1;
        for (int64_t round = 0; round < iterations; round++)
            memset(sums + (round * threads + me) * N, 0, N * sizeof(float));
#pragma omp for schedule(static)
        for (int64_t n = 0; n < N; n += COLUMNS)
            pack_scaled(keys + n * d, d, scale, packed + n * d);
        for (int64_t b = first; b < end; b++)
            begin_block(
                queue + b * BLOCK * d, packed, d, matrix + b * BLOCK * N, own, sums + me * N, M, N);
        for (int64_t round = 1; round < iterations; round++) {
            float *before = sums + (round - 1) * threads * N, *now = before + threads * N;
#pragma omp barrier
            for (int64_t n = 0; n < N; n++) {
                float sum = 0;
                for (int t = 0; t < all; t++) sum += before[t * N + n];
                own[n] = 1 / (N * sum);
            }
            /* Alternate the direction: the blocks that were used last are still in the cache. */
            for (int64_t i = 0; round < iterations - 1 && i < end - first; i++) {
                int64_t b = round % 2 ? end - 1 - i : first + i;
                add_block(matrix + b * BLOCK * N, own, now + me * N, M, N);
            }
        }
        for (int64_t b = first; b < end; b++)
            end_block(matrix + b * BLOCK * N, own, v + b * BLOCK, maxima + b * N, M, N);
#pragma omp barrier
#pragma omp for schedule(static)
        for (int64_t n = 0; n < N; n += LANES) best_rows(matrix, v, maxima, n, M, N, best);
    }
}
