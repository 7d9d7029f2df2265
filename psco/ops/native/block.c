/* A block of 3 x 3 convolution, statistics and 2 x 2 max pooling, forward and backward.
 *
 * Convolution is that of Winograd, F(2 x 2, 3 x 3) in the letters of Lavin and Gray (2016): a tile
 * of 2 x 2 outputs Y comes from 4 x 4 inputs d and filters g as
 *
 *     Y = A^T [ (G g G^T) . (B^T d B) ] A,
 *
 * so that, over all channels, sixteen matrix products replace nine with four times their rows. Two
 * things make it pay here: tiles are processed in pieces that stay in the second-level cache from
 * the first transform to the last, and a tile is a window of the pooling, so that the output of the
 * last transform is summed and pooled in registers.
 *
 * The backward pass uses the transposes: with dM = A dY A^T, the gradient of the filters is
 * G^T [ sum over tiles of (B^T d B) dM ] G, that of the inputs B [ (G g G^T) dM ] B^T.
 *
 * Images are (N, H, W, C), maps (N, H, W, D); a side has half as many tiles as pixels, rounded up.
 * Transformed matrices are (16, rows, columns). C and D are multiples of COLUMNS.
 */

#include <omp.h>
#include <string.h>

#include "products.h"

enum { PIECE = 7 * ROWS }; /* tiles per piece */

/* Scratch memory of each thread, in numbers. */
int64_t block_scratch(int64_t C, int64_t D) { return 16 * PIECE * (C + D) + 2 * C + 2 * D; }

typedef struct {
    int64_t H, W, C, D;    /* sides and channels of images, channels of the map */
    int64_t rows, columns; /* of tiles */
    int64_t pooled_rows, pooled_columns;
} Shape;

static Shape shape_of(int64_t H, int64_t W, int64_t C, int64_t D, int64_t ceil) {
    return (Shape){H, W, C, D, (H + 1) / 2, (W + 1) / 2, (H + ceil) / 2, (W + ceil) / 2};
}

/* The image of a tile, and the row and column of its first output. */
typedef struct { int64_t image, row, column; } Tile;

static Tile tile_at(const Shape *s, int64_t number) {
    int64_t place = number % (s->rows * s->columns);
    int64_t row = place / s->columns, column = place % s->columns;
    return (Tile){number / (s->rows * s->columns), 2 * row, 2 * column};
}

/* The offsets of a tile's four outputs in a map (N, H, W, D); -1 beyond the edge. */
static void places_of(const Shape *s, Tile t, int64_t places[4]) {
    for (int k = 0; k < 4; k++) {
        int64_t row = t.row + k / 2, column = t.column + k % 2;
        int inside = row < s->H && column < s->W;
        places[k] = inside ? ((t.image * s->H + row) * s->W + column) * s->D : -1;
    }
}

/* The offset of a tile in the pooled map; -1 where pooling drops it. */
static int64_t pooled_place(const Shape *s, Tile t) {
    int64_t row = t.row / 2, column = t.column / 2;
    if (row >= s->pooled_rows || column >= s->pooled_columns) return -1;
    return ((t.image * s->pooled_rows + row) * s->pooled_columns + column) * s->D;
}

/* The sixteen inputs of a tile; `outside` replaces those beyond the edge of the image. */
static void inputs_of(const Shape *s, Tile t, float *images, float *outside, float *inputs[16]) {
    for (int k = 0; k < 16; k++) {
        int64_t row = t.row + k / 4 - 1, column = t.column + k % 4 - 1;
        int inside = row >= 0 && row < s->H && column >= 0 && column < s->W;
        inputs[k] = inside ? images + ((t.image * s->H + row) * s->W + column) * s->C : outside;
    }
}

/* V = B^T d B of `count` tiles: (16, PIECE, C). */
static void transform_inputs(
    const Shape *s, const float *images, int64_t first, int count, float *zeros, float *V) {
    const int64_t step = PIECE * s->C;
    for (int t = 0; t < count; t++) {
        float *inputs[16];
        inputs_of(s, tile_at(s, first + t), (float *)images, zeros, inputs);
        for (int64_t c = 0; c < s->C; c += LANES) {
            vec e[4][4];
            for (int j = 0; j < 4; j++) {
                vec d0 = load(inputs[j] + c), d1 = load(inputs[4 + j] + c);
                vec d2 = load(inputs[8 + j] + c), d3 = load(inputs[12 + j] + c);
                e[0][j] = d0 - d2;
                e[1][j] = d1 + d2;
                e[2][j] = d2 - d1;
                e[3][j] = d1 - d3;
            }
            float *v = V + t * s->C + c;
            for (int i = 0; i < 4; i++, v += 4 * step) {
                store(v, e[i][0] - e[i][2]);
                store(v + step, e[i][1] + e[i][2]);
                store(v + 2 * step, e[i][2] - e[i][1]);
                store(v + 3 * step, e[i][1] - e[i][3]);
            }
        }
    }
}

/* Y = A^T M A of `count` tiles, M (16, PIECE, D): stored if `map` is not NULL, pooled, and added to
 * the sums (2, D) of values and squares. */
static void transform_outputs(
    const Shape *s, const float *M, int64_t first, int count, float *map, float *pooled,
    float *sums) {
    const int64_t step = PIECE * s->D;
    for (int t = 0; t < count; t++) {
        Tile tile = tile_at(s, first + t);
        int64_t places[4], window = pooled_place(s, tile);
        places_of(s, tile, places);
        for (int64_t c = 0; c < s->D; c += LANES) {
            vec e[2][4], y[4];
            const float *m = M + t * s->D + c;
            for (int j = 0; j < 4; j++, m += step) {
                vec m1 = load(m + 4 * step), m2 = load(m + 8 * step);
                e[0][j] = load(m) + m1 + m2;
                e[1][j] = m1 - m2 - load(m + 12 * step);
            }
            for (int i = 0; i < 2; i++) {
                y[2 * i] = e[i][0] + e[i][1] + e[i][2];
                y[2 * i + 1] = e[i][1] - e[i][2] - e[i][3];
            }
            vec sum = load(sums + c), squares = load(sums + s->D + c), most = y[0];
            for (int k = 0; k < 4; k++) {
                if (places[k] < 0) continue;
                sum += y[k];
                squares += y[k] * y[k];
                most = larger(y[k], most);
                if (map) store(map + places[k] + c, y[k]);
            }
            store(sums + c, sum);
            store(sums + s->D + c, squares);
            if (window >= 0) store(pooled + window + c, most);
        }
    }
}

/* dM = A dY A^T of `count` tiles: (16, PIECE, D). The gradient of a map y is slope y + offset, plus
 * g where y is the first in its window that equals the pooled value. */
static void transform_gradients(
    const Shape *s, const float *map, const float *pooled, const float *g, const float *slope,
    const float *offset, int64_t first, int count, float *dM) {
    const int64_t step = PIECE * s->D;
    for (int t = 0; t < count; t++) {
        Tile tile = tile_at(s, first + t);
        int64_t places[4], window = pooled_place(s, tile);
        places_of(s, tile, places);
        for (int64_t c = 0; c < s->D; c += LANES) {
            vec left = {0}, most = {0}, d[4], e[4][2];
            if (window >= 0) left = load(g + window + c), most = load(pooled + window + c);
            for (int k = 0; k < 4; k++) {
                d[k] = (vec){0};
                if (places[k] < 0) continue;
                vec y = load(map + places[k] + c);
                mask won = y == most;
                d[k] = load(slope + c) * y + load(offset + c) + where(won, left);
                left = where(~won, left);
            }
            for (int j = 0; j < 2; j++) {
                e[0][j] = d[j];
                e[1][j] = d[j] + d[2 + j];
                e[2][j] = d[j] - d[2 + j];
                e[3][j] = -d[2 + j];
            }
            float *m = dM + t * s->D + c;
            for (int i = 0; i < 4; i++, m += 4 * step) {
                store(m, e[i][0]);
                store(m + step, e[i][0] + e[i][1]);
                store(m + 2 * step, e[i][0] - e[i][1]);
                store(m + 3 * step, -e[i][1]);
            }
        }
    }
}

/* Add B dV B^T of `count` tiles, dV (16, PIECE, C), to the gradient of the images. */
static void add_to_inputs(
    const Shape *s, const float *dV, int64_t first, int count, float *d_images, float *unused) {
    const int64_t step = PIECE * s->C, size = s->H * s->W * s->C;
    for (int t = 0; t < count; t++) {
        float *inputs[16];
        Tile tile = tile_at(s, first + t);
        if (tile.row == 0 && tile.column == 0) /* the first of an image */
            memset(d_images + tile.image * size, 0, size * sizeof(float));
        inputs_of(s, tile, d_images, unused, inputs);
        for (int64_t c = 0; c < s->C; c += LANES) {
            vec e[4][4];
            const float *v = dV + t * s->C + c;
            for (int j = 0; j < 4; j++, v += step) {
                vec v0 = load(v), v1 = load(v + 4 * step), v2 = load(v + 8 * step);
                vec v3 = load(v + 12 * step);
                e[0][j] = v0;
                e[1][j] = v1 - v2 + v3;
                e[2][j] = v1 + v2 - v0;
                e[3][j] = -v3;
            }
            for (int i = 0; i < 4; i++) {
                float **to = inputs + 4 * i;
                store(to[0] + c, load(to[0] + c) + e[i][0]);
                store(to[1] + c, load(to[1] + c) + e[i][1] - e[i][2] + e[i][3]);
                store(to[2] + c, load(to[2] + c) + e[i][1] + e[i][2] - e[i][0]);
                store(to[3] + c, load(to[3] + c) - e[i][3]);
            }
        }
    }
}

/* The tiles of a thread and its memory: matrices (16, PIECE, channels), a pixel of zeros, a pixel
 * that is written and never read, and two numbers per channel of the map. */
typedef struct { int64_t begin, end; float *V, *M, *zeros, *unused, *few; } Work;

static Work own_work(const Shape *s, int64_t N, float *scratch) {
    int me = omp_get_thread_num(), all = omp_get_num_threads();
    const int64_t tiles = s->rows * s->columns;
    Work w = {.begin = share(N, me, all) * tiles, .end = share(N, me + 1, all) * tiles};
    w.V = scratch + me * block_scratch(s->C, s->D);
    w.M = w.V + 16 * PIECE * s->C;
    w.zeros = w.M + 16 * PIECE * s->D;
    w.unused = w.zeros + s->C;
    w.few = w.unused + s->C;
    memset(w.zeros, 0, s->C * sizeof(float));
    return w;
}

/* The tiles of a piece, and the rows of its products; rows beyond the count are not used. */
static int count_from(const Work *w, int64_t first) {
    return w->end - first < PIECE ? w->end - first : PIECE;
}
static int rows_of(int count) { return count < ROWS ? ROWS : count; }

/* U is (16, C, D). Write the map if it is not NULL, the pooled map, and the sums of values and
 * squares by thread, (threads, 2, D); `scratch` is (threads, block_scratch(C, D)). */
void block_forward(
    const float *images, const float *U, float *map, float *pooled, double *sums, float *scratch,
    int64_t N, int64_t H, int64_t W, int64_t C, int64_t D, int64_t ceil, int64_t threads) {
    const Shape s = shape_of(H, W, C, D, ceil);
#pragma omp parallel num_threads(threads)
    {
        const Work w = own_work(&s, N, scratch);
        double *mine = sums + omp_get_thread_num() * 2 * D;
        for (int64_t first = w.begin; first < w.end; first += PIECE) {
            int count = count_from(&w, first), rows = rows_of(count);
            transform_inputs(&s, images, first, count, w.zeros, w.V);
            for (int k = 0; k < 16; k++) {
                float *v = w.V + k * PIECE * C, *m = w.M + k * PIECE * D;
                product(rows, C, D, v, C, U + k * C * D, D, m, D);
            }
            memset(w.few, 0, 2 * D * sizeof(float)); /* the sums of a piece */
            transform_outputs(&s, w.M, first, count, map, pooled, w.few);
            for (int64_t c = 0; c < 2 * D; c++) mine[c] += w.few[c];
        }
    }
}

/* U is (16, D, C), the transpose of the above; g includes the factor of the normalisation. Write
 * the gradient of the images if it is not NULL, and add to that of U, (threads, 16, C, D). */
void block_backward(
    const float *images, const float *U, const float *map, const float *pooled, const float *g,
    const float *slope, const float *offset, float *d_images, float *d_U, float *scratch,
    int64_t N, int64_t H, int64_t W, int64_t C, int64_t D, int64_t ceil, int64_t threads) {
    const Shape s = shape_of(H, W, C, D, ceil);
#pragma omp parallel num_threads(threads)
    {
        const Work w = own_work(&s, N, scratch);
        float *mine = d_U + omp_get_thread_num() * 16 * C * D;
        for (int64_t first = w.begin; first < w.end; first += PIECE) {
            int count = count_from(&w, first), rows = rows_of(count);
            transform_inputs(&s, images, first, count, w.zeros, w.V);
            transform_gradients(&s, map, pooled, g, slope, offset, first, count, w.M);
            for (int k = 0; k < 16; k++) {
                float *v = w.V + k * PIECE * C, *m = w.M + k * PIECE * D;
                sum_product(ADD, count, C, D, v, m, mine + k * C * D, D, NULL);
                if (d_images) product(rows, D, C, m, D, U + k * C * D, C, v, C);
            }
            if (d_images) add_to_inputs(&s, w.V, first, count, d_images, w.unused);
        }
    }
}
