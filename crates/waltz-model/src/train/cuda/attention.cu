// Causal attention over packed sequences, heads of 64, by tiles of 64 queries and 64 keys
// (https://arxiv.org/abs/2307.08691): the scores of a tile live in registers, never in memory.
//
// The way back computes the scores anew, once per tile of keys for their gradients and once per tile of queries for
// theirs, so that no two blocks add to one place. A warp owns 16 rows of its block's tile. Products are
// `mma.m16n8k16`; in its result a thread holds numbers 2t and 2t + 1 of rows g and g + 8 of every 8 columns, where
// g is its lane / 4 and t its lane % 4: just the pairs that rotation turns.

#define HEAD 64
#define TILE 64
#define THREADS 128

// A tile of one sequence: its rows begin at `first + block * TILE`.
struct tile {
    u32 first, length, block, unused;
};

// What all kernels of attention share. A row of `turned` is queries and keys after rotation; a row of `rows` is
// queries, keys and values as they came.
struct shape {
    size_t rows;
    int heads, kv_heads;
};

// Where eight numbers of a row lie in a tile in shared memory: turned about so that no two rows of a load collide.
__device__ __forceinline__ int place(int row, int chunk) {
    return row * HEAD + ((chunk ^ (row & 7)) << 3);
}

__device__ __forceinline__ u32 address(const number *shared) {
    return (u32)__cvta_generic_to_shared(shared);
}

__device__ __forceinline__ void load_tile(number *tile, const number *from, size_t stride, int count) {
    for (int i = threadIdx.x; i < TILE * 8; i += THREADS) {
        int row = i / 8, chunk = i % 8;
        uint4 value = make_uint4(0, 0, 0, 0);
        if (row < count) value = *(const uint4 *)(from + row * stride + chunk * 8);
        *(uint4 *)(tile + place(row, chunk)) = value;
    }
}

// Left factor: 16 rows from `row` on, 16 numbers from 16 * step on.
__device__ __forceinline__ void left(u32 *a, const number *tile, int row, int step) {
    int lane = threadIdx.x % 32;
    u32 from = address(tile + place(row + (lane & 15), 2 * step + (lane >> 4)));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(from));
}

// Right factor, 16 columns that are rows of the tile, from `row` on; 16 numbers from 16 * step on.
__device__ __forceinline__ void right_rows(u32 *b, const number *tile, int row, int step) {
    int lane = threadIdx.x % 32;
    u32 from = address(tile + place(row + (lane & 7) + ((lane >> 4) << 3), 2 * step + ((lane >> 3) & 1)));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                 : "r"(from));
}

// Right factor, 16 columns from 8 * chunk on; the sum runs over 16 rows of the tile from `row` on.
__device__ __forceinline__ void right_columns(u32 *b, const number *tile, int row, int chunk) {
    int lane = threadIdx.x % 32;
    u32 from = address(tile + place(row + (lane & 15), chunk + (lane >> 4)));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                 : "r"(from));
}

__device__ __forceinline__ void multiply(float *c, const u32 *a, const u32 *b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ u32 packed(float low, float high) {
    pair both = __floats2bfloat162_rn(low, high);
    return *(u32 *)&both;
}

// Sixteen columns of a result as the left factor of the next product.
__device__ __forceinline__ void as_left(u32 *a, float (*c)[4]) {
    a[0] = packed(c[0][0], c[0][1]);
    a[1] = packed(c[0][2], c[0][3]);
    a[2] = packed(c[1][0], c[1][1]);
    a[3] = packed(c[1][2], c[1][3]);
}

// c (16 rows of `a`, COLUMNS * 8 rows of `b` from `column` on) = a x b^T
template <int COLUMNS>
__device__ __forceinline__ void scores(float (*c)[4], const number *a, int row, const number *b, int column) {
    for (int i = 0; i < COLUMNS; i++) c[i][0] = c[i][1] = c[i][2] = c[i][3] = 0;
#pragma unroll
    for (int step = 0; step < HEAD / 16; step++) {
        u32 x[4], y[4];
        left(x, a, row, step);
#pragma unroll
        for (int i = 0; i < COLUMNS; i += 2) {
            right_rows(y, b, column + 8 * i, step);
            multiply(c[i], x, y);
            multiply(c[i + 1], x, y + 2);
        }
    }
}

// sum (16 rows, HEAD) += c (16 rows, COLUMNS * 8) x b (rows of the tile from `row` on)
template <int COLUMNS>
__device__ __forceinline__ void add_mixed(float (*sum)[4], float (*c)[4], const number *b, int row) {
#pragma unroll
    for (int step = 0; step < COLUMNS / 2; step++) {
        u32 x[4], y[4];
        as_left(x, c + 2 * step);
#pragma unroll
        for (int i = 0; i < HEAD / 8; i += 2) {
            right_columns(y, b, row + 16 * step, i);
            multiply(sum[i], x, y);
            multiply(sum[i + 1], x, y + 2);
        }
    }
}

// Writes 16 rows of a result as numbers, turned back by the rows' positions where a table is given.
__device__ __forceinline__ void write(
    float (*c)[4], number *to, size_t stride, int count, float factor, const float2 *turns, int position
) {
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    for (int half = 0; half < 2; half++) {
        int row = g + 8 * half;
        if (row >= count) continue;
#pragma unroll
        for (int i = 0; i < HEAD / 8; i++) {
            float x = c[i][2 * half] * factor, y = c[i][2 * half + 1] * factor;
            if (turns) {
                float2 turn = turns[(size_t)(position + row) * (HEAD / 2) + 4 * i + t];
                float turned = x * turn.x + y * turn.y;
                y = y * turn.x - x * turn.y;
                x = turned;
            }
            *(pair *)(to + row * stride + 8 * i + 2 * t) = __floats2bfloat162_rn(x, y);
        }
    }
}

// Queries and keys of every row, turned by its position. One thread turns eight numbers.
extern "C" __global__ void turn(
    const number *rows, const u32 *positions, const float2 *turns, number *turned, shape of
) {
    int chunks = (of.heads + of.kv_heads) * (HEAD / 8);
    size_t index = thread_index();
    if (index >= of.rows * chunks) return;
    size_t row = index / chunks;
    int chunk = index % chunks;
    size_t stride = (size_t)(of.heads + 2 * of.kv_heads) * HEAD;
    eight value = *(const eight *)(rows + row * stride + chunk * 8);
    const float2 *angles = turns + (size_t)positions[row] * (HEAD / 2) + chunk % 8 * 4;
    for (int i = 0; i < 4; i++) {
        float2 x = __bfloat1622float2(value.pairs[i]), turn = angles[i];
        value.pairs[i] = __floats2bfloat162_rn(x.x * turn.x - x.y * turn.y, x.x * turn.y + x.y * turn.x);
    }
    *(eight *)(turned + row * chunks * 8 + chunk * 8) = value;
}

#define LOG2E 1.44269504f
// Scores in units of log2, so that exp2 gives the chances.
#define SCALE (0.125f * LOG2E)

// One block per tile of queries and head. `sums` (heads, rows) keeps log2 of the sum of each row's exp2(score).
extern "C" __global__ void __launch_bounds__(THREADS) attend(
    const number *turned, const number *rows, const tile *tiles, number *output, float *sums, shape of
) {
    __shared__ __align__(128) number queries[TILE * HEAD], keys[TILE * HEAD], values[TILE * HEAD];
    tile own = tiles[blockIdx.x];
    int head = blockIdx.y, kv_head = head / (of.heads / of.kv_heads);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    size_t stride = (size_t)(of.heads + of.kv_heads) * HEAD, row_stride = stride + (size_t)of.kv_heads * HEAD;
    size_t first = own.first + (size_t)own.block * TILE;
    int count = min((int)(own.length - own.block * TILE), TILE);
    load_tile(queries, turned + first * stride + head * HEAD, stride, count);
    float mixed[8][4] = {}, most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
    for (int block = 0; block <= own.block; block++) {
        size_t from = own.first + (size_t)block * TILE;
        int here = min((int)(own.length - block * TILE), TILE);
        __syncthreads();
        load_tile(keys, turned + from * stride + (of.heads + kv_head) * HEAD, stride, here);
        load_tile(values, rows + from * row_stride + (of.heads + of.kv_heads + kv_head) * HEAD, row_stride, here);
        __syncthreads();
        float c[8][4];
        scores<8>(c, queries, 16 * warp, keys, 0);
        if (block == own.block)
            for (int i = 0; i < 8; i++)
                for (int k = 0; k < 4; k++)
                    if (8 * i + 2 * t + (k & 1) > 16 * warp + g + 8 * (k >> 1)) c[i][k] = -INFINITY;
        for (int half = 0; half < 2; half++) {
            float high = most[half];
            for (int i = 0; i < 8; i++) high = fmaxf(high, fmaxf(c[i][2 * half], c[i][2 * half + 1]) * SCALE);
            high = fmaxf(high, __shfl_xor_sync(~0u, high, 1));
            high = fmaxf(high, __shfl_xor_sync(~0u, high, 2));
            float shrink = exp2f(most[half] - high);
            most[half] = high;
            sum[half] *= shrink;
            for (int i = 0; i < 8; i++)
                for (int k = 2 * half; k < 2 * half + 2; k++) {
                    c[i][k] = exp2f(c[i][k] * SCALE - high);
                    sum[half] += c[i][k];
                    mixed[i][k] *= shrink;
                }
        }
        add_mixed<8>(mixed, c, values, 0);
    }
    for (int half = 0; half < 2; half++) {
        sum[half] += __shfl_xor_sync(~0u, sum[half], 1);
        sum[half] += __shfl_xor_sync(~0u, sum[half], 2);
        int row = 16 * warp + g + 8 * half;
        if (t == 0 && row < count) sums[head * of.rows + first + row] = most[half] + log2f(sum[half]);
        for (int i = 0; i < 8; i++)
            for (int k = 2 * half; k < 2 * half + 2; k++) mixed[i][k] /= sum[half];
    }
    size_t width = (size_t)of.heads * HEAD;
    number *to = output + (first + 16 * warp) * width + head * HEAD;
    write(mixed, to, width, count - 16 * warp, 1, 0, 0);
}

// sums (heads, rows): each row's output times its gradient, head by head. One warp per row and head.
extern "C" __global__ void along(const number *output, const number *gradient, float *sums, shape of) {
    size_t index = thread_index() / 32;
    if (index >= of.rows * of.heads) return;
    size_t at = index * (HEAD / 2) + threadIdx.x % 32;
    float2 x = __bfloat1622float2(((const pair *)output)[at]), y = __bfloat1622float2(((const pair *)gradient)[at]);
    float sum = sum_of_warp(x.x * y.x + x.y * y.y);
    if (threadIdx.x % 32 == 0) sums[index % of.heads * of.rows + index / of.heads] = sum;
}

// The gradient of queries. One block per tile of queries and head.
extern "C" __global__ void __launch_bounds__(THREADS) attend_back_queries(
    const number *turned, const number *rows, const tile *tiles, const number *gradient, const float *sums,
    const float *alongs, const float2 *turns, number *to_rows, shape of
) {
    __shared__ __align__(128) number queries[TILE * HEAD], slopes[TILE * HEAD], keys[TILE * HEAD], values[TILE * HEAD];
    tile own = tiles[blockIdx.x];
    int head = blockIdx.y, kv_head = head / (of.heads / of.kv_heads);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    size_t stride = (size_t)(of.heads + of.kv_heads) * HEAD, row_stride = stride + (size_t)of.kv_heads * HEAD;
    size_t width = (size_t)of.heads * HEAD, first = own.first + (size_t)own.block * TILE;
    int count = min((int)(own.length - own.block * TILE), TILE);
    load_tile(queries, turned + first * stride + head * HEAD, stride, count);
    load_tile(slopes, gradient + first * width + head * HEAD, width, count);
    float sum[2], along[2], result[8][4] = {};
    for (int half = 0; half < 2; half++) {
        int row = 16 * warp + g + 8 * half;
        // Rows past the end attend to nothing.
        sum[half] = row < count ? sums[head * of.rows + first + row] : INFINITY;
        along[half] = row < count ? alongs[head * of.rows + first + row] : 0;
    }
    for (int block = 0; block <= own.block; block++) {
        size_t from = own.first + (size_t)block * TILE;
        int here = min((int)(own.length - block * TILE), TILE);
        __syncthreads();
        load_tile(keys, turned + from * stride + (of.heads + kv_head) * HEAD, stride, here);
        load_tile(values, rows + from * row_stride + (of.heads + of.kv_heads + kv_head) * HEAD, row_stride, here);
        __syncthreads();
#pragma unroll
        for (int part = 0; part < TILE; part += 32) {
            float c[4][4], d[4][4];
            scores<4>(c, queries, 16 * warp, keys, part);
            scores<4>(d, slopes, 16 * warp, values, part);
            for (int i = 0; i < 4; i++)
                for (int k = 0; k < 4; k++) {
                    bool seen = block < own.block || part + 8 * i + 2 * t + (k & 1) <= 16 * warp + g + 8 * (k >> 1);
                    float chance = seen ? exp2f(c[i][k] * SCALE - sum[k >> 1]) : 0;
                    c[i][k] = chance * (d[i][k] - along[k >> 1]);
                }
            add_mixed<4>(result, c, keys, part);
        }
    }
    number *to = to_rows + (first + 16 * warp) * row_stride + head * HEAD;
    write(result, to, row_stride, count - 16 * warp, 0.125f, turns, own.block * TILE + 16 * warp);
}

// The gradients of keys and values. One block per tile of keys and head of keys; it goes through all queries that
// see them, head by head. Everything is transposed: rows are keys, columns are queries.
extern "C" __global__ void __launch_bounds__(THREADS) attend_back_keys(
    const number *turned, const number *rows, const tile *tiles, const number *gradient, const float *sums,
    const float *alongs, const float2 *turns, number *to_rows, shape of
) {
    __shared__ __align__(128) number queries[TILE * HEAD], slopes[TILE * HEAD], keys[TILE * HEAD], values[TILE * HEAD];
    __shared__ float sum[TILE], along[TILE];
    tile own = tiles[blockIdx.x];
    int kv_head = blockIdx.y, group = of.heads / of.kv_heads;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    size_t stride = (size_t)(of.heads + of.kv_heads) * HEAD, row_stride = stride + (size_t)of.kv_heads * HEAD;
    size_t width = (size_t)of.heads * HEAD, first = own.first + (size_t)own.block * TILE;
    int count = min((int)(own.length - own.block * TILE), TILE);
    load_tile(keys, turned + first * stride + (of.heads + kv_head) * HEAD, stride, count);
    load_tile(values, rows + first * row_stride + (of.heads + of.kv_heads + kv_head) * HEAD, row_stride, count);
    float to_keys[8][4] = {}, to_values[8][4] = {};
    for (int head = kv_head * group; head < (kv_head + 1) * group; head++)
        for (int block = own.block; block * TILE < own.length; block++) {
            size_t from = own.first + (size_t)block * TILE;
            int here = min((int)(own.length - block * TILE), TILE);
            __syncthreads();
            load_tile(queries, turned + from * stride + head * HEAD, stride, here);
            load_tile(slopes, gradient + from * width + head * HEAD, width, here);
            if (threadIdx.x < TILE) {
                bool inside = threadIdx.x < here;
                // Queries past the end see nothing.
                sum[threadIdx.x] = inside ? sums[head * of.rows + from + threadIdx.x] : INFINITY;
                along[threadIdx.x] = inside ? alongs[head * of.rows + from + threadIdx.x] : 0;
            }
            __syncthreads();
#pragma unroll
            for (int part = 0; part < TILE; part += 32) {
                float c[4][4], d[4][4];
                scores<4>(c, keys, 16 * warp, queries, part);
                scores<4>(d, values, 16 * warp, slopes, part);
                for (int i = 0; i < 4; i++)
                    for (int k = 0; k < 4; k++) {
                        int query = part + 8 * i + 2 * t + (k & 1);
                        bool seen = block > own.block || query >= 16 * warp + g + 8 * (k >> 1);
                        c[i][k] = seen ? exp2f(c[i][k] * SCALE - sum[query]) : 0;
                        d[i][k] = c[i][k] * (d[i][k] - along[query]);
                    }
                add_mixed<4>(to_values, c, slopes, part);
                add_mixed<4>(to_keys, d, queries, part);
            }
        }
    number *to = to_rows + (first + 16 * warp) * row_stride + (of.heads + kv_head) * HEAD;
    int left = count - 16 * warp;
    write(to_keys, to, row_stride, left, 0.125f, turns, own.block * TILE + 16 * warp);
    write(to_values, to + of.kv_heads * HEAD, row_stride, left, 1, 0, 0);
}
