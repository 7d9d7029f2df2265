/* Crop boxes out of images and resize them, one box at a time in the cache. */

#include <omp.h>
#include <string.h>

#include "products.h"

static int64_t padded(int64_t size) { return (size + COLUMNS - 1) / COLUMNS * COLUMNS; }
static int64_t at_least_rows(int64_t size) { return size < ROWS ? ROWS : size; }

/* Scratch memory of each thread, in numbers: pixels, weights of columns, resized rows, a line. */
int64_t crop_scratch(int64_t H, int64_t W, int64_t size) {
    return at_least_rows(H) * W + (W + at_least_rows(H) + 1) * padded(size);
}

/* Weights of a stretch of pixels: for each of `size` outputs the first pixel and `taps` weights. */
typedef struct { const int64_t *first; const float *weights; int64_t taps, size; } Stretch;

static Stretch stretch_of(
    const int64_t *first, const float *weights, int64_t length, int64_t taps, int64_t size) {
    return (Stretch){first + (length - 1) * size, weights + (length - 1) * size * taps, taps, size};
}

/* Expand the weights of a stretch of `length` pixels to a matrix (length, padded(size)). */
static void spread(Stretch s, int64_t length, float unit, float *matrix) {
    int64_t step = padded(s.size);
    memset(matrix, 0, length * step * sizeof(float));
    for (int64_t j = 0; j < s.size; j++)
        for (int64_t k = 0; k < s.taps && s.first[j] + k < length; k++)
            matrix[(s.first[j] + k) * step + j] = unit * s.weights[j * s.taps + k];
}

static inline vec within_unit(vec v) { return smaller(larger(v, filled(0)), filled(1)); }

/* Images are bytes, if `bytes`, or floats, with any strides (`_step`, in pixels). Boxes are (B, 4):
 * top, left, height, width, inside the image. For rows, `row_first` (H, size) and `row_weights` (H,
 * size, row_taps) are the weights of stretches of 1, 2, ..., H pixels, first pixels at least 0; for
 * columns likewise with W. Write (B, C, size, size). */
void crop_resize(
    const void *images, const int64_t *boxes, const int64_t *row_first, const float *row_weights,
    int64_t row_taps, const int64_t *column_first, const float *column_weights,
    int64_t column_taps, float *out, float *scratch, int64_t bytes, int64_t image_step,
    int64_t channel_step, int64_t row_step, int64_t column_step, int64_t B, int64_t C, int64_t H,
    int64_t W, int64_t size, int64_t threads) {
    const int64_t step = padded(size);
#pragma omp parallel num_threads(threads)
    {
        int me = omp_get_thread_num(), all = omp_get_num_threads();
        float *pixels = scratch + me * crop_scratch(H, W, size);
        float *matrix = pixels + at_least_rows(H) * W, *between = matrix + W * step;
        float *line = between + at_least_rows(H) * step;
        for (int64_t b = share(B, me, all); b < share(B, me + 1, all); b++) {
            const int64_t *box = boxes + 4 * b, height = box[2], width = box[3];
            Stretch rows = stretch_of(row_first, row_weights, height, row_taps, size);
            Stretch columns = stretch_of(column_first, column_weights, width, column_taps, size);
            spread(columns, width, bytes ? 1 / 255.0f : 1, matrix);
            for (int64_t c = 0; c < C; c++) {
                int64_t corner = b * image_step + c * channel_step;
                corner += box[0] * row_step + box[1] * column_step;
                for (int64_t i = 0; i < height; i++)
                    for (int64_t j = 0; j < width; j++) {
                        int64_t at = corner + i * row_step + j * column_step;
                        pixels[i * width + j] =
                            bytes ? ((const uint8_t *)images)[at] : ((const float *)images)[at];
                    }
                int64_t lines = at_least_rows(height);
                product(lines, width, step, pixels, width, matrix, step, between, step);
                for (int64_t n = 0; n < height * step; n += LANES)
                    store(between + n, within_unit(load(between + n)));
                for (int64_t i = 0; i < size; i++) {
                    const float *weights = rows.weights + i * rows.taps;
                    const float *from = between + rows.first[i] * step;
                    int64_t taps = height - rows.first[i];
                    if (taps > rows.taps) taps = rows.taps;
                    for (int64_t n = 0; n < step; n += LANES) {
                        vec sum = {0};
                        for (int64_t k = 0; k < taps; k++)
                            sum += weights[k] * load(from + k * step + n);
                        store(line + n, within_unit(sum));
                    }
                    memcpy(out + ((b * C + c) * size + i) * size, line, size * sizeof(float));
                }
            }
        }
    }
}
