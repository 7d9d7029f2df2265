/* The contrast of queries with keys, with its gradient, without storing the logits.
 *
 * The loss of a query q is log(sum over keys k of e^(q k / tau)) - q t / tau, where t is its
 * target; its gradient is (mean of the keys, weighted by their exponentials, - t) / tau. The result
 * is the mean over queries. Exponentials are used in two sums only, so those of a block of keys
 * never leave the cache. Keys are (M, d), queries and targets (N, d); M is a multiple of BLOCK, N
 * and d are multiples of COLUMNS.
 */

#include <math.h>
#include <omp.h>
#include <string.h>

#include "products.h"

enum { BLOCK = 64 }; /* keys */

int64_t contrast_block(void) { return BLOCK; }

/* Scratch memory of all threads together, in numbers: losses and packed queries, then the partial
 * sums and the exponentials of a block of each thread. */
int64_t contrast_scratch(int64_t N, int64_t d, int64_t threads) {
    return N * (1 + d + (d + 1 + BLOCK) * threads);
}

/* Add the exponentials of a block of keys to sums (N,), and the keys times their exponentials to
 * weighted (N, d). */
static void add_keys(
    const float *keys, const float *packed, int64_t N, int64_t d, float *weighted, float *sums,
    float *powers) {
    Prefetch next = prefetch_range(address_of(keys, BLOCK * d), BLOCK * d, calls_of(BLOCK, N));
    for (int64_t n = 0; n < N; n += COLUMNS)
        any_product(
            WRITE_POWER, BLOCK, d, COLUMNS, keys, d, packed + n * d, COLUMNS, powers + n, N, &next);
    for (int64_t n = 0; n < N; n += LANES) {
        vec sum = load(sums + n);
        for (int m = 0; m < BLOCK; m++) sum += load(powers + m * N + n);
        store(sums + n, sum);
    }
    sum_product(ADD, BLOCK, N, d, powers, keys, weighted, d, NULL);
}

/* Turn the weighted sum of the keys into the gradient of a query's loss; return the loss. With
 * `own` its target is one more key. */
static float end_query(
    const float *query, const float *target, float scale, int64_t own, int64_t N, int64_t d,
    float sum, float *weighted) {
    vec product = {0};
    for (int64_t i = 0; i < d; i += LANES) product += load(query + i) * load(target + i);
    float logit = scale * total(product), near = own ? exp2f(logit) : 0;
    float factor = scale * (float)M_LN2 / N; /* 1 / (tau N) */
    sum += near;
    for (int64_t i = 0; i < d; i += LANES) {
        vec t = load(target + i);
        store(weighted + i, ((load(weighted + i) + near * t) / sum - t) * factor);
    }
    return (log2f(sum) - logit) * (float)M_LN2;
}

/* Write the mean loss and its gradient (N, d). `scale` is 1 / (tau log 2), for powers of two; with
 * `own` a query's target is one more of its keys. */
void contrast_keys(
    const float *queries, const float *targets, const float *keys, double scale, int64_t own,
    float *loss, float *gradient, float *scratch, int64_t N, int64_t M, int64_t d,
    int64_t threads) {
    float *losses = scratch, *packed = losses + N, *parts = packed + N * d;
    const int64_t step = N * (d + 1 + BLOCK);
#pragma omp parallel num_threads(threads)
    {
        int all = omp_get_num_threads();
        float *weighted = parts + omp_get_thread_num() * step, *sums = weighted + N * d;
        memset(weighted, 0, N * (d + 1) * sizeof(float));
#pragma omp for schedule(static)
        for (int64_t n = 0; n < N; n += COLUMNS)
            pack_scaled(queries + n * d, d, scale, packed + n * d);
#pragma omp for schedule(static)
        for (int64_t m = 0; m < M; m += BLOCK)
            add_keys(keys + m * d, packed, N, d, weighted, sums, sums + N);
#pragma omp for schedule(static)
        for (int64_t n = 0; n < N; n++) {
            const float *query = queries + n * d, *target = targets + n * d;
            float sum = 0, *mine = gradient + n * d;
            for (int t = 0; t < all; t++) sum += parts[t * step + N * d + n];
            add_parts(parts + n * d, step, all, d, mine);
            losses[n] = end_query(query, target, scale, own, N, d, sum, mine);
        }
    }
    double sum = 0;
    for (int64_t n = 0; n < N; n++) sum += losses[n];
    *loss = sum / N;
}
