/* SGD on all weights of a network in one go: their tensors are many and mostly small. */

#include <omp.h>

#include "vectors.h"

/* The numbers from `first` to `end` of a tensor that fall to a thread, if all tensors were one. */
typedef struct {
    int64_t first, end;
} Part;

static Part part_of(int64_t before, int64_t size, int64_t total, int me, int all) {
    int64_t first = share(total, me, all) - before, end = share(total, me + 1, all) - before;
    return (Part){first < 0 ? 0 : first, end > size ? size : end};
}

/* A step of SGD: m = momentum m + g + decay w, and w -= rate m, with tensors of so many numbers. */
void sgd_step(
    float *const *weights, const float *const *gradients, float *const *momenta,
    const int64_t *sizes, int64_t count, double rate, double momentum, double decay,
    int64_t threads) {
    int64_t total = 0;
    for (int64_t i = 0; i < count; i++) total += sizes[i];
#pragma omp parallel num_threads(threads)
    {
        int me = omp_get_thread_num(), all = omp_get_num_threads();
        for (int64_t i = 0, before = 0; i < count; before += sizes[i++]) {
            Part part = part_of(before, sizes[i], total, me, all);
            float *w = weights[i], *m = momenta[i];
            const float *g = gradients[i];
#pragma omp simd
            for (int64_t n = part.first; n < part.end; n++) {
                m[n] = (float)momentum * m[n] + (g[n] + (float)decay * w[n]);
                w[n] -= (float)rate * m[n];
            }
        }
    }
}
