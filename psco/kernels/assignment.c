/* Sinkhorn's rounds in one pass over the matrix each, the first while it is computed.
 *
 * The matrix is stored by keys of the queue, (M, N): a line has the similarities of all N queries
 * to one key. What a round multiplies a line with depends on the line alone, and what the next
 * round starts from is added up right behind it. N is a multiple of COLUMNS, M one of BLOCK.
 */

#include <omp.h>
#include <string.h>

#include "products.h"

enum {
    BLOCK = 64,   /* lines that are computed at a time, and that have a maximum in common */
    TOGETHER = 4  /* lines that are added up at a time */
};

int64_t assignment_block(void) { return BLOCK; }

/* Give what brings the sums of TOGETHER lines, weighted by u (N,), to 1 / M. */
static void factors_of(const float *lines, const float *u, int64_t M, int64_t N, float *v) {
    for (int i = 0; i < TOGETHER; i++, lines += N) {
        vec sum = {0};
        for (int64_t n = 0; n < N; n += LANES) {
            /* The lines after the next ones: to wait for them takes longer than to add them up. */
            __builtin_prefetch(lines + 2 * TOGETHER * N + n);
            sum += load(lines + n) * load(u + n);
        }
        v[i] = 1 / (M * total(sum));
    }
}

/* Run a round on `count` lines, which stay as they are: what becomes of them is added to sums. */
static void add_lines(
    const float *lines, int64_t count, const float *u, float *sums, int64_t M, int64_t N) {
    for (int64_t m = 0; m < count; m += TOGETHER, lines += TOGETHER * N) {
        float v[TOGETHER];
        factors_of(lines, u, M, N, v);
        for (int64_t n = 0; n < N; n += LANES) {
            vec sum = load(sums + n);
            for (int i = 0; i < TOGETHER; i++) sum += load(lines + i * N + n) * v[i];
            store(sums + n, sum);
        }
    }
}

/* Write 2 ^ (queue keys^T) for `count` lines, and run the first round on them. */
static void begin_lines(
    const float *queue, const float *keys, int64_t d, float *lines, int64_t count, const float *u,
    float *sums, int64_t M, int64_t N) {
    for (int64_t m = 0; m < count; m += BLOCK, lines += BLOCK * N) {
        const float *block = queue + m * d;
        for (int64_t n = 0; n < N; n += COLUMNS)
            any_product(
                WRITE_POWER, BLOCK, d, COLUMNS, block, d, keys + n * d, COLUMNS, lines + n, N);
        for (int64_t i = BLOCK * d; i < 2 * BLOCK * d; i += LANES) __builtin_prefetch(block + i);
        add_lines(lines, BLOCK, u, sums, M, N);
    }
}

/* Run the last round on the lines of a block: write their factors v (BLOCK,), and of each column
 * the largest number that they have when they are multiplied with them, (N,). */
static void end_block(
    const float *lines, const float *u, float *v, float *most, int64_t M, int64_t N) {
    memset(most, 0, N * sizeof(float));
    for (int m = 0; m < BLOCK; m += TOGETHER, lines += TOGETHER * N, v += TOGETHER) {
        factors_of(lines, u, M, N, v);
        for (int64_t n = 0; n < N; n += LANES) {
            vec x = load(most + n);
            for (int i = 0; i < TOGETHER; i++) x = larger(load(lines + i * N + n) * v[i], x);
            store(most + n, x);
        }
    }
}

/* Give the lines of the largest numbers of LANES columns from n on, of equal ones the first. */
static void best_lines(
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

/* Numbers that all threads need together: packed keys, and of each thread factors and sums. */
int64_t assignment_scratch(int64_t N, int64_t d, int64_t iterations, int64_t threads) {
    return N * (d + (1 + iterations) * threads);
}

/* Write the matrix, 2 ^ (scale queue keys^T), and what comes of so many rounds on it: the factors v
 * (M,) of its lines, and with them the maxima (M / BLOCK, N) of blocks and the best line (N,) of
 * each column. Keys are (N, d), d a multiple of LANES. */
void assignment_plan(
    const float *queue, const float *keys, double scale, float *matrix, float *v, float *maxima,
    int64_t *best, float *scratch, int64_t M, int64_t N, int64_t d, int64_t iterations,
    int64_t threads) {
#pragma omp parallel num_threads(threads)
    {
        int me = omp_get_thread_num(), all = omp_get_num_threads();
        int64_t first = share(M / BLOCK, me, all);
        int64_t end = share(M / BLOCK, me + 1, all);
        int64_t begin = first * BLOCK, count = (end - first) * BLOCK;
        float *packed = scratch, *u = packed + N * d, *sums = u + threads * N;
        float *lines = matrix + begin * N, *own = u + me * N;
        for (int64_t n = 0; n < N; n++) own[n] = 1;
        for (int64_t round = 0; round < iterations; round++)
            memset(sums + (round * threads + me) * N, 0, N * sizeof(float));
#pragma omp for schedule(static)
        for (int64_t n = 0; n < N; n += COLUMNS) {
            float *group = packed + n * d;
            pack_transpose(keys + n * d, d, d, COLUMNS, group);
            for (int64_t i = 0; i < COLUMNS * d; i += LANES)
                store(group + i, load(group + i) * (float)scale);
        }
        begin_lines(queue + begin * d, packed, d, lines, count, own, sums + me * N, M, N);
        for (int64_t round = 1; round < iterations; round++) {
            float *before = sums + (round - 1) * threads * N, *now = before + threads * N;
#pragma omp barrier
            for (int64_t n = 0; n < N; n++) {
                float sum = 0;
                for (int t = 0; t < all; t++) sum += before[t * N + n];
                own[n] = 1 / (N * sum);
            }
            if (round < iterations - 1) add_lines(lines, count, own, now + me * N, M, N);
        }
        for (int64_t b = first; b < end; b++)
            end_block(matrix + b * BLOCK * N, own, v + b * BLOCK, maxima + b * N, M, N);
#pragma omp barrier
#pragma omp for schedule(static)
        for (int64_t n = 0; n < N; n += LANES) best_lines(matrix, v, maxima, n, M, N, best);
    }
}
