// Softmax over a vocabulary, one block per row of logits.

__device__ __forceinline__ void join(float &most, float &sum, float other_most, float other_sum) {
    float high = fmaxf(most, other_most);
    // Both are -inf before the first number: nothing is added.
    if (high == -INFINITY) return;
    sum = sum * __expf(most - high) + other_sum * __expf(other_most - high);
    most = high;
}

// The largest number of all threads of a block and the sum of exp(number - largest), given each thread's own.
__device__ void join_block(float &most, float &sum) {
    __shared__ float mosts[32], sums[32];
    __syncthreads(); // a block may ask twice
    for (int step = 16; step > 0; step /= 2)
        join(most, sum, __shfl_xor_sync(~0u, most, step), __shfl_xor_sync(~0u, sum, step));
    if (threadIdx.x % 32 == 0) mosts[threadIdx.x / 32] = most, sums[threadIdx.x / 32] = sum;
    __syncthreads();
    most = mosts[0], sum = sums[0];
    for (int warp = 1; warp < blockDim.x / 32; warp++) join(most, sum, mosts[warp], sums[warp]);
}

// Four numbers of a row; past its end, where nothing was written, -inf, which adds nothing.
__device__ __forceinline__ void load_four(float *values, const float *row, size_t first, size_t length) {
    if (first + 4 <= length) {
        *(float4 *)values = *(const float4 *)(row + first);
        return;
    }
    for (int k = 0; k < 4; k++) values[k] = first + k < length ? row[first + k] : -INFINITY;
}

// Log-probability of each row's target; with slopes also slope x (target - softmax), the logits' gradient.
// A row has `vocabulary` numbers and lies `stride`, a multiple of eight, after the one before.
extern "C" __global__ void softmax(
    const float *logits, const u32 *targets, const float *slopes, double *log_probabilities, number *gradient,
    size_t vocabulary, size_t stride, int with_gradient
) {
    const float *row = logits + blockIdx.x * stride;
    float most = -INFINITY, sum = 0;
    for (size_t i = threadIdx.x * 4; i < vocabulary; i += blockDim.x * 4) {
        __align__(16) float values[4];
        load_four(values, row, i, vocabulary);
        float high = fmaxf(fmaxf(values[0], values[1]), fmaxf(values[2], values[3])), part = 0;
        for (int k = 0; k < 4; k++) part += __expf(values[k] - high);
        join(most, sum, high, part);
    }
    join_block(most, sum);
    u32 target = targets[blockIdx.x];
    if (threadIdx.x == 0) log_probabilities[blockIdx.x] = (double)(row[target] - most) - log((double)sum);
    if (!with_gradient) return;
    float slope = slopes[blockIdx.x], factor = slope / sum;
    for (size_t i = threadIdx.x * 4; i < stride; i += blockDim.x * 4) {
        __align__(16) float values[4];
        load_four(values, row, i, vocabulary);
        for (int k = 0; k < 4; k++)
            values[k] = (i + k == target ? slope : 0) - factor * __expf(values[k] - most);
        pair *to = (pair *)(gradient + blockIdx.x * stride + i);
        to[0] = __floats2bfloat162_rn(values[0], values[1]);
        to[1] = __floats2bfloat162_rn(values[2], values[3]);
    }
}
