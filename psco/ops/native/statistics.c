/* The running statistics of a BatchNorm layer: three small vectors, a call instead of four. */

#include <stdint.h>

/* Move them towards mean and (biased) variance, (size,), of a batch of `count` numbers each. */
void remember_statistics(
    const float *mean, const float *variance, float *running_mean, float *running_variance,
    int64_t *batches, double momentum, int64_t count, int64_t size) {
    const float rate = momentum, unbiased = (double)count / (count - 1);
    for (int64_t i = 0; i < size; i++) {
        running_mean[i] += rate * (mean[i] - running_mean[i]);
        running_variance[i] += rate * (unbiased * variance[i] - running_variance[i]);
    }
    ++*batches;
}
