// The optimiser.

// Each block writes the sum of its squares to sums[block].
extern "C" __global__ void square_sum(const float *values, double *sums, size_t length) {
    __shared__ double of_warp[8];
    double sum = 0;
    for (size_t i = thread_index(); i < length; i += (size_t)gridDim.x * blockDim.x)
        sum += (double)values[i] * values[i];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int warp = 1; warp < blockDim.x / 32; warp++) sum += of_warp[warp];
    sums[blockIdx.x] = sum;
}

// AdamW (https://arxiv.org/abs/1711.05101): decay first, then the step, then the copy that products use.
extern "C" __global__ void update(
    float *master, number *weights, float *gradient, float *first, float *second, size_t length, float rate,
    float beta1, float beta2, float epsilon, float decay, float scale, float correction1, float correction2
) {
    for (size_t i = thread_index(); i < length; i += (size_t)gridDim.x * blockDim.x) {
        float g = gradient[i] * scale;
        float m = beta1 * first[i] + (1 - beta1) * g;
        float v = beta2 * second[i] + (1 - beta2) * g * g;
        float w = master[i] * (1 - rate * decay);
        w -= rate * (m / correction1) / (sqrtf(v / correction2) + epsilon);
        first[i] = m;
        second[i] = v;
        master[i] = w;
        weights[i] = __float2bfloat16_rn(w);
        gradient[i] = 0;
    }
}
