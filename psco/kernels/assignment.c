/* Sinkhorn's rounds in one pass over the matrix each, the first while it is computed.
 *
 * The matrix is stored by keys of the queue, (M, N): a line has the similarities of all N queries
 * to one key. What a round multiplies a line with depends on the line alone, and the sums that the
 * next round starts from are added up right behind it.
 */

#include <omp.h>
#include <string.h>

#include "products.h"

enum {
    PIECE = 4 * ROWS, /* lines that are computed at a time */
    TOGETHER = 4      /* lines that are added up at a time */
};

/* Bring the sum of each line, weighted by u (N,), to 1 / M and add the lines to the sums of the
 * columns (N,). The lines themselves are changed in the last round only, and the sums before it. */
static void settle(
    float *lines, int64_t count, const float *u, float *sums, int64_t M, int64_t N, int64_t last) {
    float v[TOGETHER];
    for (int64_t i = 0; i < count; i++) {
        vec sum = {0};
        for (int64_t n = 0; n < N; n += LANES) sum += load(lines + i * N + n) * load(u + n);
        v[i] = 1 / (M * total(sum));
    }
    if (last) {
        for (int64_t i = 0; i < count; i++)
            for (float *at = lines + i * N; at < lines + (i + 1) * N; at += LANES)
                store(at, load(at) * v[i]);
        return;
    }
    for (int64_t n = 0; n < N; n += LANES) {
        vec sum = load(sums + n);
        for (int64_t i = 0; i < count; i++) sum += load(lines + i * N + n) * v[i];
        store(sums + n, sum);
    }
}

static void settle_all(
    float *lines, int64_t count, const float *u, float *sums, int64_t M, int64_t N, int64_t last) {
    int64_t i = 0;
    for (; i + TOGETHER <= count; i += TOGETHER)
        settle(lines + i * N, TOGETHER, u, sums, M, N, last);
    settle(lines + i * N, count - i, u, sums, M, N, last);
}

/* Write exp(queue keys^T), and run the first round. Keys are (N / COLUMNS, d, COLUMNS), sums are
 * (threads, N) and zero. */
void assignment_begin(
    const float *queue, const float *keys, const float *u, float *plan, float *sums, int64_t last,
    int64_t M, int64_t N, int64_t d, int64_t threads) {
#pragma omp parallel num_threads(threads)
    {
        int me = omp_get_thread_num(), all = omp_get_num_threads();
        int64_t begin = share(M, me, all), size = share(M, me + 1, all) - begin;
        int64_t pieces = (size + PIECE - 1) / PIECE;
        for (int64_t piece = 0; piece < pieces; piece++) {
            int64_t first = begin + share(size, piece, pieces);
            int64_t end = begin + share(size, piece + 1, pieces);
            for (int64_t n = 0; n < N; n += COLUMNS)
                product(end - first, d, COLUMNS, queue + first * d, d, keys + n * d, COLUMNS,
                        plan + first * N + n, N);
            for (float *at = plan + first * N; at < plan + end * N; at += LANES)
                store(at, exponential(load(at)));
            settle_all(plan + first * N, end - first, u, sums + me * N, M, N, last);
        }
    }
}

/* Run one more round. */
void assignment_round(
    float *plan, const float *u, float *sums, int64_t last, int64_t M, int64_t N, int64_t threads) {
#pragma omp parallel num_threads(threads)
    {
        int me = omp_get_thread_num(), all = omp_get_num_threads();
        int64_t begin = share(M, me, all), size = share(M, me + 1, all) - begin;
        settle_all(plan + begin * N, size, u, sums + me * N, M, N, last);
    }
}

/* Give the line (N,) of the largest number of each column, of equal ones the first. */
void assignment_largest(const float *plan, int64_t *lines, int64_t M, int64_t N, int64_t threads) {
    enum { WIDE = 8 * LANES };
#pragma omp parallel for num_threads(threads)
    for (int64_t n = 0; n < N; n += WIDE) {
        int count = (N - n < WIDE ? N - n : WIDE) / LANES;
        vec most[8];
        mask where[8];
        for (int i = 0; i < count; i++) {
            most[i] = load(plan + n + i * LANES);
            where[i] = (mask){0};
        }
        for (int64_t m = 1; m < M; m++)
            for (int i = 0; i < count; i++) {
                vec x = load(plan + m * N + n + i * LANES);
                mask beats = x > most[i];
                most[i] = pick(beats, x, most[i]);
                where[i] = ((int32_t)m & beats) | (where[i] & ~beats);
            }
        for (int i = 0; i < count; i++)
            for (int j = 0; j < LANES; j++) lines[n + i * LANES + j] = where[i][j];
    }
}
