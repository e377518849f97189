// What encoders of BERT's family need: layer norm, GELU, and attention of every token to all of its sequence, by heads
// of 32.
//
// Attention is not much of an encoder's work, so that it is simple: a thread owns one row, whose numbers stay in
// registers, and goes through the others, which its block brings into shared memory as floats, 64 at a time.

// One warp per row; the width is even.
extern "C" __global__ void layer_norm(
    const number *input, const number *gain, const number *bias, number *output, size_t rows, size_t width,
    float epsilon
) {
    size_t row = thread_index() / 32;
    if (row >= rows) return;
    int lane = threadIdx.x % 32, pairs = width / 2;
    const pair *source = (const pair *)(input + row * width);
    float sum = 0, squares = 0;
    for (int i = lane; i < pairs; i += 32) {
        float2 x = __bfloat1622float2(source[i]);
        sum += x.x + x.y;
    }
    float mean = sum_of_warp(sum) / width;
    for (int i = lane; i < pairs; i += 32) {
        float2 x = __bfloat1622float2(source[i]);
        squares += (x.x - mean) * (x.x - mean) + (x.y - mean) * (x.y - mean);
    }
    float factor = rsqrtf(sum_of_warp(squares) / width + epsilon);
    pair *target = (pair *)(output + row * width);
    for (int i = lane; i < pairs; i += 32) {
        float2 x = __bfloat1622float2(source[i]), g = __bfloat1622float2(((const pair *)gain)[i]);
        float2 b = __bfloat1622float2(((const pair *)bias)[i]);
        target[i] = __floats2bfloat162_rn((x.x - mean) * factor * g.x + b.x, (x.y - mean) * factor * g.y + b.y);
    }
}

// One warp per row in turn. With `with_norm`, each block writes its sums of the gradients of gain and bias:
// (blocks, width) each.
extern "C" __global__ void layer_norm_back(
    const number *input, const number *gain, const number *gradient, number *to_input, float *to_gain,
    float *to_bias, size_t rows, size_t width, float epsilon, int with_norm
) {
    extern __shared__ float sums[]; // (warps, 2, width)
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, pairs = width / 2;
    float2 *own_gain = (float2 *)(sums + (size_t)warp * 2 * width), *own_bias = own_gain + pairs;
    if (with_norm)
        for (int i = lane; i < 2 * pairs; i += 32) own_gain[i] = make_float2(0, 0);
    for (size_t row = (size_t)blockIdx.x * warps + warp; row < rows; row += (size_t)gridDim.x * warps) {
        const pair *x_row = (const pair *)(input + row * width), *y_row = (const pair *)(gradient + row * width);
        float sum = 0, squares = 0, slopes = 0, along = 0;
        for (int i = lane; i < pairs; i += 32) {
            float2 x = __bfloat1622float2(x_row[i]);
            sum += x.x + x.y;
        }
        float mean = sum_of_warp(sum) / width;
        for (int i = lane; i < pairs; i += 32) {
            float2 x = __bfloat1622float2(x_row[i]), y = __bfloat1622float2(y_row[i]);
            float2 g = __bfloat1622float2(((const pair *)gain)[i]);
            x.x -= mean, x.y -= mean;
            squares += x.x * x.x + x.y * x.y;
            slopes += y.x * g.x + y.y * g.y;
            along += x.x * y.x * g.x + x.y * y.y * g.y;
        }
        float factor = rsqrtf(sum_of_warp(squares) / width + epsilon);
        slopes = sum_of_warp(slopes) / width;
        along = sum_of_warp(along) * factor * factor / width;
        pair *target = (pair *)(to_input + row * width);
        for (int i = lane; i < pairs; i += 32) {
            float2 x = __bfloat1622float2(x_row[i]), y = __bfloat1622float2(y_row[i]);
            float2 g = __bfloat1622float2(((const pair *)gain)[i]);
            x.x -= mean, x.y -= mean;
            target[i] = __floats2bfloat162_rn(
                factor * (y.x * g.x - slopes - x.x * along), factor * (y.y * g.y - slopes - x.y * along)
            );
            if (with_norm) {
                own_gain[i].x += y.x * x.x * factor;
                own_gain[i].y += y.y * x.y * factor;
                own_bias[i].x += y.x;
                own_bias[i].y += y.y;
            }
        }
    }
    if (!with_norm) return;
    __syncthreads();
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        float of_gain = 0, of_bias = 0;
        for (int of = 0; of < warps; of++) {
            of_gain += sums[(size_t)of * 2 * width + i];
            of_bias += sums[((size_t)of * 2 + 1) * width + i];
        }
        to_gain[(size_t)blockIdx.x * width + i] = of_gain;
        to_bias[(size_t)blockIdx.x * width + i] = of_bias;
    }
}

#define ROOT_HALF 0.70710678f
// One over the root of two pi.
#define DENSITY 0.39894228f

__device__ __forceinline__ float bent(float x) {
    return 0.5f * x * (1 + erff(x * ROOT_HALF));
}

__device__ __forceinline__ float bent_slope(float x) {
    return 0.5f + 0.5f * erff(x * ROOT_HALF) + x * DENSITY * __expf(-0.5f * x * x);
}

// Two numbers a thread; the length is even.
extern "C" __global__ void gelu(const number *input, number *output, size_t pairs) {
    size_t i = thread_index();
    if (i >= pairs) return;
    float2 x = __bfloat1622float2(((const pair *)input)[i]);
    ((pair *)output)[i] = __floats2bfloat162_rn(bent(x.x), bent(x.y));
}

// The way back of `gelu`.
extern "C" __global__ void gelu_back(const number *input, const number *gradient, number *to_input, size_t pairs) {
    size_t i = thread_index();
    if (i >= pairs) return;
    float2 x = __bfloat1622float2(((const pair *)input)[i]), y = __bfloat1622float2(((const pair *)gradient)[i]);
    ((pair *)to_input)[i] = __floats2bfloat162_rn(y.x * bent_slope(x.x), y.y * bent_slope(x.y));
}

#define NARROW 32
// One over the root of the head's width, in units of log2, so that exp2 gives the chances.
#define NARROW_ROOT 0.17677670f
#define NARROW_SCALE (NARROW_ROOT * LOG2E)

__device__ __forceinline__ void load_row(float *to, const number *from) {
#pragma unroll
    for (int i = 0; i < NARROW / 8; i++) {
        eight part = ((const eight *)from)[i];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float2 x = __bfloat1622float2(part.pairs[k]);
            to[8 * i + 2 * k] = x.x, to[8 * i + 2 * k + 1] = x.y;
        }
    }
}

__device__ __forceinline__ void write_row(number *to, const float *from, float factor) {
#pragma unroll
    for (int i = 0; i < NARROW / 8; i++) {
        eight part;
#pragma unroll
        for (int k = 0; k < 4; k++)
            part.pairs[k] = __floats2bfloat162_rn(from[8 * i + 2 * k] * factor, from[8 * i + 2 * k + 1] * factor);
        ((eight *)to)[i] = part;
    }
}

// Brings `count` rows of one head into shared memory, a row by each thread.
__device__ __forceinline__ void load_rows(float (*to)[NARROW], const number *from, size_t stride, int count) {
    if (threadIdx.x < count) load_row(to[threadIdx.x], from + threadIdx.x * stride);
}

__device__ __forceinline__ float dot(const float *a, const float *b) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < NARROW; i++) sum += a[i] * b[i];
    return sum;
}

__device__ __forceinline__ void add_scaled(float *to, const float *from, float factor) {
#pragma unroll
    for (int i = 0; i < NARROW; i++) to[i] += factor * from[i];
}

// One block per tile of queries and head, one thread per query. A row of `rows` is queries, keys and values. `sums`
// (heads, rows) keeps log2 of the sum of each row's exp2(score).
extern "C" __global__ void __launch_bounds__(TILE) attend_all(
    const number *rows, const tile *tiles, number *output, float *sums, shape of
) {
    __shared__ __align__(16) float keys[TILE][NARROW], values[TILE][NARROW];
    tile own = tiles[blockIdx.x];
    size_t width = (size_t)of.heads * NARROW, stride = 3 * width, head = (size_t)blockIdx.y * NARROW;
    size_t row = own.first + (size_t)own.block * TILE + threadIdx.x;
    bool inside = own.block * TILE + threadIdx.x < own.length;
    float query[NARROW] = {}, mixed[NARROW] = {}, most = -INFINITY, sum = 0;
    if (inside) load_row(query, rows + row * stride + head);
    for (u32 first = 0; first < own.length; first += TILE) {
        int here = min((int)(own.length - first), TILE);
        const number *from = rows + (own.first + (size_t)first) * stride + head;
        __syncthreads();
        load_rows(keys, from + width, stride, here);
        load_rows(values, from + 2 * width, stride, here);
        __syncthreads();
        for (int key = 0; key < here; key++) {
            float score = dot(query, keys[key]) * NARROW_SCALE;
            if (score > most) {
                float shrink = exp2f(most - score);
                most = score;
                sum *= shrink;
#pragma unroll
                for (int i = 0; i < NARROW; i++) mixed[i] *= shrink;
            }
            float chance = exp2f(score - most);
            sum += chance;
            add_scaled(mixed, values[key], chance);
        }
    }
    if (!inside) return;
    sums[blockIdx.y * of.rows + row] = most + log2f(sum);
    write_row(output + row * width + head, mixed, 1 / sum);
}

// The gradient of queries, and in `alongs` (heads, rows) each row's output times its gradient. One thread per query.
extern "C" __global__ void __launch_bounds__(TILE) attend_all_back_queries(
    const number *rows, const tile *tiles, const number *output, const number *gradient, const float *sums,
    float *alongs, number *to_rows, shape of
) {
    __shared__ __align__(16) float keys[TILE][NARROW], values[TILE][NARROW];
    tile own = tiles[blockIdx.x];
    size_t width = (size_t)of.heads * NARROW, stride = 3 * width, head = (size_t)blockIdx.y * NARROW;
    size_t row = own.first + (size_t)own.block * TILE + threadIdx.x;
    bool inside = own.block * TILE + threadIdx.x < own.length;
    float query[NARROW] = {}, slope[NARROW] = {}, result[NARROW] = {}, sum = 0, along = 0;
    if (inside) {
        load_row(query, output + row * width + head);
        load_row(slope, gradient + row * width + head);
        along = dot(query, slope);
        sum = sums[blockIdx.y * of.rows + row];
        alongs[blockIdx.y * of.rows + row] = along;
        load_row(query, rows + row * stride + head);
    }
    for (u32 first = 0; first < own.length; first += TILE) {
        int here = min((int)(own.length - first), TILE);
        const number *from = rows + (own.first + (size_t)first) * stride + head;
        __syncthreads();
        load_rows(keys, from + width, stride, here);
        load_rows(values, from + 2 * width, stride, here);
        __syncthreads();
        for (int key = 0; key < here; key++) {
            float chance = exp2f(dot(query, keys[key]) * NARROW_SCALE - sum);
            add_scaled(result, keys[key], chance * (dot(slope, values[key]) - along));
        }
    }
    if (inside) write_row(to_rows + row * stride + head, result, NARROW_ROOT);
}

// The gradients of keys and values. One block per tile of keys and head, one thread per key.
extern "C" __global__ void __launch_bounds__(TILE) attend_all_back_keys(
    const number *rows, const tile *tiles, const number *gradient, const float *sums, const float *alongs,
    number *to_rows, shape of
) {
    __shared__ __align__(16) float queries[TILE][NARROW], slopes[TILE][NARROW];
    __shared__ float sum[TILE], along[TILE];
    tile own = tiles[blockIdx.x];
    size_t width = (size_t)of.heads * NARROW, stride = 3 * width, head = (size_t)blockIdx.y * NARROW;
    size_t row = own.first + (size_t)own.block * TILE + threadIdx.x;
    bool inside = own.block * TILE + threadIdx.x < own.length;
    float key[NARROW] = {}, value[NARROW] = {}, to_key[NARROW] = {}, to_value[NARROW] = {};
    if (inside) {
        load_row(key, rows + row * stride + width + head);
        load_row(value, rows + row * stride + 2 * width + head);
    }
    for (u32 first = 0; first < own.length; first += TILE) {
        int here = min((int)(own.length - first), TILE);
        size_t from = own.first + (size_t)first;
        __syncthreads();
        load_rows(queries, rows + from * stride + head, stride, here);
        load_rows(slopes, gradient + from * width + head, width, here);
        if (threadIdx.x < here) {
            sum[threadIdx.x] = sums[blockIdx.y * of.rows + from + threadIdx.x];
            along[threadIdx.x] = alongs[blockIdx.y * of.rows + from + threadIdx.x];
        }
        __syncthreads();
        for (int query = 0; query < here; query++) {
            float chance = exp2f(dot(queries[query], key) * NARROW_SCALE - sum[query]);
            add_scaled(to_value, slopes[query], chance);
            add_scaled(to_key, queries[query], chance * (dot(slopes[query], value) - along[query]));
        }
    }
    if (!inside) return;
    write_row(to_rows + row * stride + width + head, to_key, NARROW_ROOT);
    write_row(to_rows + row * stride + 2 * width + head, to_value, 1);
}
