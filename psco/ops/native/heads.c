/* Two linear layers with BatchNorm and ReLU between them, one panel of hidden units at a time.
 *
 * Between the two layers each hidden unit is independent of the others. So a panel of PANEL units
 * stays in the cache for all of its work: forward the first product, the statistics, normalisation
 * and ReLU, and its part of the second product; backward likewise.
 *
 * x is (N, a), the weights are (h, a) and (o, h), the output is (N, o); h is a multiple of PANEL, a
 * and o are multiples of COLUMNS, and N is at least ROWS. Normalised units are stored by panels,
 * (h / PANEL, N, PANEL).
 */

#include <math.h>
#include <omp.h>
#include <string.h>

#include "products.h"

enum { PANEL = 64, VECTORS = PANEL / LANES };

int64_t mlp_panel(void) { return PANEL; }

/* Scratch memory of each thread, in numbers: its part of the output, and its panels. */
int64_t mlp_scratch(int64_t N, int64_t a, int64_t o) {
    return N * (a > o ? a : o) + PANEL * (2 * N + a + o);
}

/* The product a b of (rows, inner) and a packed matrix (inner, columns). */
static inline __attribute__((always_inline)) void packed_product(
    Then then, int64_t rows, int64_t inner, int64_t columns, const float *a, const float *b,
    float *c, Prefetch ahead) {
    for (int64_t n = 0; n < columns; n += COLUMNS)
        any_product(
            then, rows, inner, COLUMNS, a, inner, b + n * inner, COLUMNS, c + n, columns, &ahead);
}

/* Normalise units (N, PANEL) in place; write mean and biased variance. */
static void normalise(float *units, int64_t N, float eps, float *mean, float *variance) {
    vec sum[VECTORS] = {{0}}, squares[VECTORS] = {{0}}, rate[VECTORS];
    for (int64_t n = 0; n < N * PANEL; n += PANEL)
        for (int v = 0; v < VECTORS; v++) sum[v] += load(units + n + v * LANES);
    for (int v = 0; v < VECTORS; v++) sum[v] /= (float)N;
    for (int64_t n = 0; n < N * PANEL; n += PANEL)
        for (int v = 0; v < VECTORS; v++) {
            vec away = load(units + n + v * LANES) - sum[v];
            squares[v] += away * away;
        }
    for (int v = 0; v < VECTORS; v++) {
        squares[v] /= (float)N;
        for (int i = 0; i < LANES; i++) rate[v][i] = 1 / sqrtf(squares[v][i] + eps);
        store(mean + v * LANES, sum[v]);
        store(variance + v * LANES, squares[v]);
    }
    for (int64_t n = 0; n < N * PANEL; n += PANEL)
        for (int v = 0; v < VECTORS; v++) {
            float *at = units + n + v * LANES;
            store(at, (load(at) - sum[v]) * rate[v]);
        }
}

/* relu(scale units + shift), (N, PANEL). */
static void activate(
    const float *units, const float *scale, const float *shift, int64_t N, float *active) {
    for (int64_t n = 0; n < N * PANEL; n += PANEL)
        for (int c = 0; c < PANEL; c += LANES) {
            vec y = load(scale + c) * load(units + n + c) + load(shift + c);
            store(active + n + c, relu(y));
        }
}

/* Turn the gradient of active units (N, PANEL) into that of the units before normalisation; write
 * the gradients of scale and shift. */
static void normalise_back(
    float *gradient, const float *units, const float *active, const float *scale,
    const float *variance, float eps, int64_t N, float *d_scale, float *d_shift) {
    vec sum[VECTORS] = {{0}}, along[VECTORS] = {{0}}, factor[VECTORS];
    for (int64_t n = 0; n < N * PANEL; n += PANEL)
        for (int v = 0; v < VECTORS; v++) {
            int64_t at = n + v * LANES;
            vec g = where(load(active + at) > 0, load(gradient + at));
            sum[v] += g;
            along[v] += g * load(units + at);
            store(gradient + at, g);
        }
    for (int v = 0; v < VECTORS; v++) {
        store(d_shift + v * LANES, sum[v]);
        store(d_scale + v * LANES, along[v]);
        for (int i = 0, c = v * LANES; i < LANES; i++, c++)
            factor[v][i] = scale[c] / sqrtf(variance[c] + eps);
        sum[v] /= (float)N;
        along[v] /= (float)N;
    }
    for (int64_t n = 0; n < N * PANEL; n += PANEL)
        for (int v = 0; v < VECTORS; v++) {
            int64_t at = n + v * LANES;
            vec g = load(gradient + at) - sum[v] - along[v] * load(units + at);
            store(gradient + at, factor[v] * g);
        }
}

/* Write units, mean and variance (h,), and the output; `scratch` is (threads, mlp_scratch). */
void mlp_forward(
    const float *x, const float *first, const float *scale, const float *shift, const float *second,
    double eps, float *units, float *mean, float *variance, float *out, float *scratch, int64_t N,
    int64_t a, int64_t h, int64_t o, int64_t threads) {
    const int64_t step = mlp_scratch(N, a, o);
#pragma omp parallel num_threads(threads)
    {
        float *part = scratch + omp_get_thread_num() * step, *active = part + N * (a > o ? a : o);
        float *in = active + N * PANEL, *down = in + PANEL * a;
        memset(part, 0, N * o * sizeof(float));
#pragma omp for schedule(static)
        for (int64_t k = 0; k < h; k += PANEL) {
            float *mine = units + k * N;
            Prefetch of_second = prefetch_rows(second + k, o, PANEL, h, calls_of(N, PANEL), 0);
            Prefetch next_first =
                prefetch_range(address_of(first, (k + PANEL) * a), PANEL * a, calls_of(N, o));
            pack_transpose(first + k * a, a, a, PANEL, in);
            packed_product(WRITE, N, a, PANEL, x, in, mine, of_second);
            normalise(mine, N, eps, mean + k, variance + k);
            activate(mine, scale + k, shift + k, N, active);
            pack_transpose(second + k, h, PANEL, o, down);
            packed_product(ADD, N, PANEL, o, active, down, part, next_first);
        }
#pragma omp for schedule(static)
        for (int64_t n = 0; n < N; n++)
            add_parts(scratch + n * o, step, omp_get_num_threads(), o, out + n * o);
    }
}

/* Write the gradients of both weights, of scale and shift and, if it is not NULL, of x; `gradient`
 * is the upstream gradient. */
void mlp_backward(
    const float *x, const float *first, const float *scale, const float *shift, const float *second,
    double eps, const float *units, const float *variance, const float *gradient, float *d_x,
    float *d_first, float *d_scale, float *d_shift, float *d_second, float *scratch, int64_t N,
    int64_t a, int64_t h, int64_t o, int64_t threads) {
    const int64_t step = mlp_scratch(N, a, o);
#pragma omp parallel num_threads(threads)
    {
        float *part = scratch + omp_get_thread_num() * step, *active = part + N * (a > o ? a : o);
        float *g = active + N * PANEL, *in = g + N * PANEL, *down = in + PANEL * a;
        memset(part, 0, N * a * sizeof(float));
#pragma omp for schedule(static)
        for (int64_t k = 0; k < h; k += PANEL) {
            const float *mine = units + k * N;
            Prefetch of_first = prefetch_range(first + k * a, PANEL * a, calls_of(N, PANEL));
            Prefetch next_d_second = prefetch_rows(
                address_of(d_second, k + PANEL), o, PANEL, h, calls_of_sum(N, PANEL, a), 1);
            Prefetch next_units =
                prefetch_range(address_of(mine, PANEL * N), PANEL * N, calls_of(N, a));
            activate(mine, scale + k, shift + k, N, active);
            sum_product(WRITE, N, o, PANEL, gradient, active, d_second + k, h, NULL);
            pack(second + k, h, o, PANEL, down);
            packed_product(WRITE, N, o, PANEL, gradient, down, g, of_first);
            normalise_back(
                g, mine, active, scale + k, variance + k, eps, N, d_scale + k, d_shift + k);
            sum_product(WRITE, N, PANEL, a, g, x, d_first + k * a, a, &next_d_second);
            if (!d_x) continue;
            pack(first + k * a, a, PANEL, a, in);
            packed_product(ADD, N, PANEL, a, g, in, part, next_units);
        }
#pragma omp for schedule(static)
        for (int64_t n = 0; n < (d_x ? N : 0); n++)
            add_parts(scratch + n * a, step, omp_get_num_threads(), a, d_x + n * a);
    }
}
