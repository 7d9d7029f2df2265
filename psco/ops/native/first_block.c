/* The first block of a network: 3 x 3 convolution of images with few channels, ReLU and pooling.
 *
 * Normalisation is folded into the filters, (P + 1, D) for patches of P = 9 C numbers; the last row
 * is added to each channel. An image is copied once, with a border of zeros. After that a window of
 * the pooling stays in registers from its pixels to its maximum. Images are (N, C, H, W) of even
 * sides, the output is (N, H / 2, W / 2, D), D a multiple of COLUMNS.
 */

#include <omp.h>
#include <string.h>

#include "products.h"

enum { WINDOWS = LANES == 16 ? 2 : 1 }; /* in registers at a time */

typedef struct {
    int64_t C, H, W, D, taps;  /* of images; channels of the map; 9 C */
    int64_t step, plane;       /* numbers from a row, and from a channel, to the next */
} Shape;

static Shape shape_of(int64_t C, int64_t H, int64_t W, int64_t D) {
    int64_t step = W + 2 + LANES; /* a vector that begins in a row ends in it */
    return (Shape){C, H, W, D, 9 * C, step, (H + 2) * step};
}

/* Scratch memory of each thread, in numbers: an image with its border, and the moments. */
int64_t first_block_scratch(int64_t C, int64_t H, int64_t W) {
    Shape s = shape_of(C, H, W, 0);
    return C * s.plane + (s.taps + 1) * (s.taps + 1);
}

static void copy_image(const Shape *s, const float *image, float *padded) {
    memset(padded, 0, s->C * s->plane * sizeof(float));
    for (int64_t c = 0; c < s->C; c++)
        for (int64_t i = 0; i < s->H; i++)
            memcpy(padded + c * s->plane + (i + 1) * s->step + 1, image + (c * s->H + i) * s->W,
                   s->W * sizeof(float));
}

/* The offset of number k of a patch from its upper left one. */
static int64_t offset_of(const Shape *s, int64_t k) {
    return k / 9 * s->plane + k % 9 / 3 * s->step + k % 3;
}

/* Add the products of the numbers of all patches of an image to sums (P + 1, P + 1). Only the lower
 * triangle is written: row k up to column k, and the sums of the numbers in row P. */
static void add_moments(const Shape *s, const float *padded, float *sums) {
    enum { AT_ONCE = 9 };
    const int64_t size = s->taps + 1;
    vec inside = {0}; /* 1 in the lanes of the last vector that belong to the row */
    for (int64_t n = 0; n < LANES; n++) inside[n] = n <= (s->W - 1) % LANES;
    for (int64_t k = 0; k < s->taps; k++)
        for (int64_t l = 0; l <= k; l += AT_ONCE) {
            const float *a = padded + offset_of(s, k), *b[AT_ONCE];
            int count = k + 1 - l < AT_ONCE ? k + 1 - l : AT_ONCE;
            vec sum[AT_ONCE] = {{0}}, alone = {0};
            for (int m = 0; m < AT_ONCE; m++) b[m] = padded + offset_of(s, m < count ? l + m : k);
            for (int64_t i = 0; i < s->H; i++)
                for (int64_t j = 0; j < s->W; j += LANES) {
                    int64_t at = i * s->step + j;
                    vec x = load(a + at);
                    if (j + LANES > s->W) x *= inside;
                    alone += x;
#pragma GCC unroll 9
                    for (int m = 0; m < AT_ONCE; m++) sum[m] += x * load(b[m] + at);
                }
            for (int m = 0; m < count; m++) sums[k * size + l + m] += total(sum[m]);
            if (l == 0) sums[s->taps * size + k] += total(alone);
        }
}

/* The map at the four places of `count` adjacent windows, for two vectors of channels. */
static inline __attribute__((always_inline)) void map_of(
    const Shape *s, const float *window, const float *filters, int count, vec y[WINDOWS][4][2]) {
    for (int w = 0; w < count; w++)
        for (int p = 0; p < 4; p++) {
            y[w][p][0] = load(filters + s->taps * s->D);
            y[w][p][1] = load(filters + s->taps * s->D + LANES);
        }
    for (int64_t c = 0; c < s->C; c++, window += s->plane)
        for (int k = 0; k < 9; k++, filters += s->D) {
            const float *x = window + k / 3 * s->step + k % 3;
            vec left = load(filters), right = load(filters + LANES);
            for (int w = 0; w < count; w++)
                for (int p = 0; p < 4; p++) {
                    float at = x[2 * w + p / 2 * s->step + p % 2];
                    y[w][p][0] += at * left;
                    y[w][p][1] += at * right;
                }
        }
}

static inline __attribute__((always_inline)) void pool_windows(
    const Shape *s, const float *window, const float *filters, int count, float *out) {
    for (int64_t c = 0; c < s->D; c += COLUMNS) {
        vec y[WINDOWS][4][2];
        map_of(s, window, filters + c, count, y);
        for (int w = 0; w < count; w++)
            for (int v = 0; v < 2; v++) {
                vec upper = larger(y[w][0][v], y[w][1][v]), lower = larger(y[w][2][v], y[w][3][v]);
                store(out + w * s->D + c + v * LANES, relu(larger(upper, lower)));
            }
    }
}

/* Add the patches at the places that won the pooling, times the upstream gradient, to won
 * (P + 1, D). */
static inline __attribute__((always_inline)) void windows_back(
    const Shape *s, const float *window, const float *filters, int count, const float *out,
    const float *gradient, float *won) {
    for (int64_t c = 0; c < s->D; c += COLUMNS) {
        vec y[WINDOWS][4][2], all_g[2] = {{0}};
        map_of(s, window, filters + c, count, y);
        for (int w = 0; w < count; w++)
            for (int v = 0; v < 2; v++) {
                int64_t at = w * s->D + c + v * LANES;
                vec left = where(load(out + at) > 0, load(gradient + at));
                vec upper = larger(y[w][0][v], y[w][1][v]), lower = larger(y[w][2][v], y[w][3][v]);
                vec most = larger(upper, lower);
                all_g[v] += left;
                for (int p = 0; p < 4; p++) {
                    mask first = y[w][p][v] == most;
                    y[w][p][v] = where(first, left);
                    left = where(~first, left);
                }
            }
        float *sum = won + c;
        const float *plane = window;
        for (int64_t n = 0; n < s->C; n++, plane += s->plane)
            for (int k = 0; k < 9; k++, sum += s->D) {
                const float *x = plane + k / 3 * s->step + k % 3;
                vec left = load(sum), right = load(sum + LANES);
                for (int w = 0; w < count; w++)
                    for (int p = 0; p < 4; p++) {
                        float at = x[2 * w + p / 2 * s->step + p % 2];
                        left += at * y[w][p][0];
                        right += at * y[w][p][1];
                    }
                store(sum, left);
                store(sum + LANES, right);
            }
        for (int v = 0; v < 2; v++)
            store(sum + v * LANES, load(sum + v * LANES) + all_g[v]);
    }
}

/* Add the moments of the patches, as `add_moments` has them, to (threads, P + 1, P + 1). */
void first_block_moments(
    const float *images, double *moments, float *scratch, int64_t N, int64_t C, int64_t H,
    int64_t W, int64_t threads) {
    const Shape s = shape_of(C, H, W, 0);
    const int64_t size = (s.taps + 1) * (s.taps + 1);
#pragma omp parallel num_threads(threads)
    {
        int me = omp_get_thread_num(), all = omp_get_num_threads();
        float *padded = scratch + me * first_block_scratch(C, H, W), *sums = padded + C * s.plane;
        for (int64_t n = share(N, me, all); n < share(N, me + 1, all); n++) {
            copy_image(&s, images + n * C * H * W, padded);
            memset(sums, 0, size * sizeof(float));
            add_moments(&s, padded, sums);
            for (int64_t k = 0; k < size; k++) moments[me * size + k] += sums[k];
        }
    }
}

/* Write the pooled map. */
void first_block_forward(
    const float *images, const float *filters, float *out, float *scratch, int64_t N, int64_t C,
    int64_t H, int64_t W, int64_t D, int64_t threads) {
    const Shape s = shape_of(C, H, W, D);
#pragma omp parallel num_threads(threads)
    {
        int me = omp_get_thread_num(), all = omp_get_num_threads();
        float *padded = scratch + me * first_block_scratch(C, H, W);
        for (int64_t n = share(N, me, all); n < share(N, me + 1, all); n++) {
            copy_image(&s, images + n * C * H * W, padded);
            for (int64_t i = 0; i < H; i += 2) {
                const float *row = padded + i * s.step;
                float *to = out + (n * H / 2 + i / 2) * (W / 2) * D;
                int64_t j = 0;
                for (; j + 2 * WINDOWS <= W; j += 2 * WINDOWS, to += WINDOWS * D)
                    pool_windows(&s, row + j, filters, WINDOWS, to);
                for (; j < W; j += 2, to += D) pool_windows(&s, row + j, filters, 1, to);
            }
        }
    }
}

/* Add the gradient of the filters, from the upstream gradient of `out`, to won (threads, P + 1,
 * D). */
void first_block_backward(
    const float *images, const float *filters, const float *out, const float *gradient, float *won,
    float *scratch, int64_t N, int64_t C, int64_t H, int64_t W, int64_t D, int64_t threads) {
    const Shape s = shape_of(C, H, W, D);
#pragma omp parallel num_threads(threads)
    {
        int me = omp_get_thread_num(), all = omp_get_num_threads();
        float *padded = scratch + me * first_block_scratch(C, H, W);
        float *mine = won + me * (s.taps + 1) * D;
        for (int64_t n = share(N, me, all); n < share(N, me + 1, all); n++) {
            copy_image(&s, images + n * C * H * W, padded);
            for (int64_t i = 0; i < H; i += 2) {
                const float *row = padded + i * s.step;
                int64_t at = (n * H / 2 + i / 2) * (W / 2) * D, j = 0;
                for (; j + 2 * WINDOWS <= W; j += 2 * WINDOWS, at += WINDOWS * D)
                    windows_back(&s, row + j, filters, WINDOWS, out + at, gradient + at, mine);
                for (; j < W; j += 2, at += D)
                    windows_back(&s, row + j, filters, 1, out + at, gradient + at, mine);
            }
        }
    }
}
