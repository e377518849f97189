// What is done to rows between products: copies by index, norm and gate.

// One block per row: output[row] = from[rows[row]]
extern "C" __global__ void gather(const number *from, const u32 *rows, number *output, size_t width) {
    const number *source = from + (size_t)rows[blockIdx.x] * width;
    number *target = output + (size_t)blockIdx.x * width;
    for (size_t i = threadIdx.x; i < width; i += blockDim.x) target[i] = source[i];
}

// One block per row: output[rows[row]] += from[row]; the rows are distinct.
extern "C" __global__ void scatter(const number *from, const u32 *rows, number *output, size_t width) {
    const number *source = from + (size_t)blockIdx.x * width;
    number *target = output + (size_t)rows[blockIdx.x] * width;
    for (size_t i = threadIdx.x; i < width; i += blockDim.x)
        target[i] = __float2bfloat16_rn(__bfloat162float(target[i]) + __bfloat162float(source[i]));
}

// One block per token that occurs. Its rows are order[ends[block - 1]..ends[block]], in the order of the batch.
extern "C" __global__ void embed_back(
    const number *gradient, const u32 *tokens, const u32 *ends, const u32 *order, float *table, size_t width
) {
    u32 first = blockIdx.x == 0 ? 0 : ends[blockIdx.x - 1];
    u32 last = ends[blockIdx.x];
    float *target = table + (size_t)tokens[blockIdx.x] * width;
    for (size_t i = threadIdx.x; i < width; i += blockDim.x) {
        float sum = target[i];
#pragma unroll 8
        for (u32 at = first; at < last; at++) sum += __bfloat162float(gradient[(size_t)order[at] * width + i]);
        target[i] = sum;
    }
}

// One warp per row; the width is even.
extern "C" __global__ void rms_norm(
    const number *input, const number *gain, number *output, size_t rows, size_t width, float epsilon
) {
    size_t row = thread_index() / 32;
    if (row >= rows) return;
    int lane = threadIdx.x % 32, pairs = width / 2;
    const pair *source = (const pair *)(input + row * width);
    float squares = 0;
    for (int i = lane; i < pairs; i += 32) {
        float2 x = __bfloat1622float2(source[i]);
        squares += x.x * x.x + x.y * x.y;
    }
    float factor = rsqrtf(sum_of_warp(squares) / width + epsilon);
    pair *target = (pair *)(output + row * width);
    for (int i = lane; i < pairs; i += 32) {
        float2 x = __bfloat1622float2(source[i]), g = __bfloat1622float2(((const pair *)gain)[i]);
        target[i] = __floats2bfloat162_rn(x.x * factor * g.x, x.y * factor * g.y);
    }
}

// One warp per row in turn. With `to_gain`, each block writes its sum of the gain's gradient: (blocks, width).
extern "C" __global__ void rms_norm_back(
    const number *input, const number *gain, const number *gradient, number *to_input, float *to_gain,
    size_t rows, size_t width, float epsilon, int with_gain
) {
    extern __shared__ float sums[]; // (warps, width)
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, pairs = width / 2;
    float2 *own = (float2 *)(sums + (size_t)warp * width);
    if (with_gain)
        for (int i = lane; i < pairs; i += 32) own[i] = make_float2(0, 0);
    for (size_t row = (size_t)blockIdx.x * warps + warp; row < rows; row += (size_t)gridDim.x * warps) {
        const pair *x_row = (const pair *)(input + row * width), *y_row = (const pair *)(gradient + row * width);
        float squares = 0, along = 0;
        for (int i = lane; i < pairs; i += 32) {
            float2 x = __bfloat1622float2(x_row[i]), y = __bfloat1622float2(y_row[i]);
            float2 g = __bfloat1622float2(((const pair *)gain)[i]);
            squares += x.x * x.x + x.y * x.y;
            along += x.x * y.x * g.x + x.y * y.y * g.y;
        }
        float factor = rsqrtf(sum_of_warp(squares) / width + epsilon);
        along = sum_of_warp(along) * factor * factor / width;
        pair *target = (pair *)(to_input + row * width);
        for (int i = lane; i < pairs; i += 32) {
            float2 x = __bfloat1622float2(x_row[i]), y = __bfloat1622float2(y_row[i]);
            float2 g = __bfloat1622float2(((const pair *)gain)[i]), old = __bfloat1622float2(target[i]);
            target[i] = __floats2bfloat162_rn(
                old.x + factor * (y.x * g.x - x.x * along), old.y + factor * (y.y * g.y - x.y * along)
            );
            if (with_gain) {
                own[i].x += y.x * x.x * factor;
                own[i].y += y.y * x.y * factor;
            }
        }
    }
    if (!with_gain) return;
    __syncthreads();
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        float sum = 0;
        for (int of = 0; of < warps; of++) sum += sums[(size_t)of * width + i];
        to_gain[(size_t)blockIdx.x * width + i] = sum;
    }
}

// output[column] += the sum of the column over all rows
extern "C" __global__ void add_columns(const float *from, float *output, size_t rows, size_t width) {
    size_t column = thread_index();
    if (column >= width) return;
    float sum = 0;
    for (size_t row = 0; row < rows; row++) sum += from[row * width + column];
    output[column] += sum;
}

// output = silu(gate) * up, eight numbers a thread; `hidden` is a multiple of eight.
extern "C" __global__ void gate(const number *both, number *output, size_t rows, size_t hidden) {
    size_t first = thread_index() * 8;
    if (first >= rows * hidden) return;
    size_t row = first / hidden;
    const number *source = both + row * hidden + first; // row * 2 * hidden + column
    eight g = *(const eight *)source, u = *(const eight *)(source + hidden), result;
    for (int i = 0; i < 4; i++) {
        float2 a = __bfloat1622float2(g.pairs[i]), b = __bfloat1622float2(u.pairs[i]);
        result.pairs[i] =
            __floats2bfloat162_rn(a.x / (1 + __expf(-a.x)) * b.x, a.y / (1 + __expf(-a.y)) * b.y);
    }
    *(eight *)(output + first) = result;
}

__device__ __forceinline__ void gate_slopes(float gate, float up, float gradient, float *to_gate, float *to_up) {
    float sigmoid = 1 / (1 + __expf(-gate));
    *to_gate = gradient * up * sigmoid * (1 + gate * (1 - sigmoid));
    *to_up = gradient * gate * sigmoid;
}

// The way back of `gate`.
extern "C" __global__ void gate_back(
    const number *both, const number *gradient, number *to_both, size_t rows, size_t hidden
) {
    size_t first = thread_index() * 8;
    if (first >= rows * hidden) return;
    size_t at = first / hidden * hidden + first;
    eight g = *(const eight *)(both + at), u = *(const eight *)(both + at + hidden);
    eight d = *(const eight *)(gradient + first), to_g, to_u;
    for (int i = 0; i < 4; i++) {
        float2 a = __bfloat1622float2(g.pairs[i]), b = __bfloat1622float2(u.pairs[i]);
        float2 c = __bfloat1622float2(d.pairs[i]), x, y;
        gate_slopes(a.x, b.x, c.x, &x.x, &y.x);
        gate_slopes(a.y, b.y, c.y, &x.y, &y.y);
        to_g.pairs[i] = __floats2bfloat162_rn(x.x, x.y);
        to_u.pairs[i] = __floats2bfloat162_rn(y.x, y.y);
    }
    *(eight *)(to_both + at) = to_g;
    *(eight *)(to_both + at + hidden) = to_u;
}
