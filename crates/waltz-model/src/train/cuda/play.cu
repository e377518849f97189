// Generating many sequences at once. Keys and values of a layer lie as (sequences, kv_heads, capacity, HEAD).

// What one layer of decoding knows of its sequences.
struct room {
    int heads, kv_heads;
    size_t capacity;
};

// Keeps keys (turned by their position) and values of every row. Decoding also turns the row's queries in place;
// a prompt's are turned by `attend`. One block per row, one thread per pair of one head in turn.
extern "C" __global__ void keep(
    number *rows, const u32 *sequences, const u32 *positions, const float2 *turns, number *keys, number *values,
    room of, int with_queries
) {
    size_t row = blockIdx.x, sequence = sequences[row], position = positions[row];
    if (position >= of.capacity) return;
    int all = (of.heads + 2 * of.kv_heads) * (HEAD / 2), first = with_queries ? 0 : of.heads * (HEAD / 2);
    pair *source = (pair *)rows + row * all;
    for (int i = first + threadIdx.x; i < all; i += blockDim.x) {
        int head = i / (HEAD / 2), at = i % (HEAD / 2), kept = head - of.heads;
        pair value = source[i];
        if (kept < of.kv_heads) {
            float2 x = __bfloat1622float2(value), turn = turns[position * (HEAD / 2) + at];
            value = __floats2bfloat162_rn(x.x * turn.x - x.y * turn.y, x.x * turn.y + x.y * turn.x);
        }
        if (kept < 0) {
            source[i] = value;
            continue;
        }
        number *to = kept < of.kv_heads ? keys : values;
        size_t line = (sequence * of.kv_heads + kept % of.kv_heads) * of.capacity + position;
        ((pair *)(to + line * HEAD))[at] = value;
    }
}

#define GROUP 8 // lanes that share a key: eight numbers each
#define MOST_HEADS 4 // heads of queries that share keys

// Attention of one new row per sequence. One block per sequence and head of keys; each eight lanes walk their own
// keys with all heads of queries of the group, and what they found is joined at the end.
extern "C" __global__ void __launch_bounds__(128) look_back(
    const number *rows, const u32 *positions, const number *keys, const number *values, number *output, room of
) {
    __shared__ float mosts[16][MOST_HEADS], sums[16][MOST_HEADS], mixes[16][MOST_HEADS][HEAD];
    size_t sequence = blockIdx.x, kv_head = blockIdx.y;
    int group = of.heads / of.kv_heads, walker = threadIdx.x / GROUP, lane = threadIdx.x % GROUP;
    int length = min((size_t)positions[sequence] + 1, of.capacity);
    const number *row = rows + sequence * (of.heads + 2 * of.kv_heads) * HEAD + kv_head * group * HEAD + lane * 8;
    float query[MOST_HEADS][8], mixed[MOST_HEADS][8] = {}, most[MOST_HEADS], sum[MOST_HEADS] = {};
#pragma unroll
    for (int h = 0; h < MOST_HEADS; h++) {
        most[h] = -INFINITY;
        for (int i = 0; i < 8; i++) query[h][i] = h < group ? __bfloat162float(row[h * HEAD + i]) * 0.125f : 0;
    }
    size_t line = (sequence * of.kv_heads + kv_head) * of.capacity;
    // All lanes of a warp walk as long, for the sake of their sums.
    for (int first = 0; first < length; first += 16) {
        int at = first + walker;
        bool inside = at < length;
        eight key = {}, value = {};
        if (inside) {
            key = *(const eight *)(keys + (line + at) * HEAD + lane * 8);
            value = *(const eight *)(values + (line + at) * HEAD + lane * 8);
        }
        float k[8], v[8];
        for (int i = 0; i < 4; i++) {
            float2 x = __bfloat1622float2(key.pairs[i]), y = __bfloat1622float2(value.pairs[i]);
            k[2 * i] = x.x, k[2 * i + 1] = x.y, v[2 * i] = y.x, v[2 * i + 1] = y.y;
        }
#pragma unroll
        for (int h = 0; h < MOST_HEADS; h++) {
            if (h >= group) break;
            float score = 0;
            for (int i = 0; i < 8; i++) score += query[h][i] * k[i];
            for (int step = 4; step > 0; step /= 2) score += __shfl_xor_sync(~0u, score, step);
            if (!inside) continue;
            float high = fmaxf(most[h], score), shrink = __expf(most[h] - high), chance = __expf(score - high);
            most[h] = high;
            sum[h] = sum[h] * shrink + chance;
            for (int i = 0; i < 8; i++) mixed[h][i] = mixed[h][i] * shrink + chance * v[i];
        }
    }
#pragma unroll
    for (int h = 0; h < MOST_HEADS; h++) {
        if (lane == 0) mosts[walker][h] = most[h], sums[walker][h] = sum[h];
        for (int i = 0; i < 8; i++) mixes[walker][h][lane * 8 + i] = mixed[h][i];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < group * HEAD; i += blockDim.x) {
        int h = i / HEAD;
        float high = -INFINITY, total = 0, mix = 0;
        for (int w = 0; w < 16; w++) high = fmaxf(high, mosts[w][h]);
        for (int w = 0; w < 16; w++) {
            float part = __expf(mosts[w][h] - high);
            total += sums[w][h] * part;
            mix += mixes[w][h][i % HEAD] * part;
        }
        output[sequence * of.heads * HEAD + kv_head * group * HEAD + i] = __float2bfloat16_rn(mix / total);
    }
}

// Philox 4x32-10 (https://doi.org/10.1145/2063384.2063405): random numbers by counter and key.
__device__ __forceinline__ uint4 philox(uint4 counter, uint2 key) {
    for (int round = 0; round < 10; round++) {
        u32 high0 = __umulhi(0xD2511F53u, counter.x), low0 = 0xD2511F53u * counter.x;
        u32 high1 = __umulhi(0xCD9E8D57u, counter.z), low1 = 0xCD9E8D57u * counter.z;
        counter = make_uint4(high1 ^ counter.y ^ key.x, low1, high0 ^ counter.w ^ key.y, low0);
        key.x += 0x9E3779B9u, key.y += 0xBB67AE85u;
    }
    return counter;
}

// How tokens are taken: temperature 0 takes the likeliest, and `stop` ends a sequence.
struct dice {
    unsigned long long seed;
    float temperature;
    u32 stop;
};

// Takes one token per sequence. `temperature` x gumbel noise added to the logits and the largest taken is a draw from
// softmax(logits / temperature). Writes the token and its log-probability under softmax(logits) to the next place
// of the sequence's line; nothing where it has stopped.
extern "C" __global__ void __launch_bounds__(1024) take(
    const float *logits, dice with, u32 *current, u32 *positions, u32 *counts, u32 *stopped, u32 *tokens,
    float *log_probabilities, size_t vocabulary, size_t most_tokens
) {
    __shared__ float bests[32];
    __shared__ u32 indices[32];
    u32 sequence = blockIdx.x, count = counts[sequence];
    const float *row = logits + (size_t)sequence * vocabulary;
    float most = -INFINITY, sum = 0, best = -INFINITY;
    u32 index = 0;
    for (u32 i = threadIdx.x * 4; i < vocabulary; i += blockDim.x * 4) {
        uint4 random = philox(
            make_uint4(i / 4, count, sequence, 0), make_uint2((u32)with.seed, (u32)(with.seed >> 32))
        );
        u32 bits[4] = {random.x, random.y, random.z, random.w};
        for (u32 k = 0; k < 4 && i + k < vocabulary; k++) {
            float logit = row[i + k], value = logit;
            join(most, sum, logit, 1);
            if (with.temperature > 0) {
                // Above 0 and up to 1. Small numbers are the draws that win, and floats are finest there; at 1 the
                // noise is minus infinity, which wins nothing. The other way round it would win everything.
                float uniform = (bits[k] + 0.5f) * (1.0f / 4294967296.0f);
                value -= with.temperature * logf(-log1pf(-uniform));
            }
            if (value > best) best = value, index = i + k;
        }
    }
    join_block(most, sum);
    for (int step = 16; step > 0; step /= 2) {
        float other = __shfl_xor_sync(~0u, best, step);
        u32 of_other = __shfl_xor_sync(~0u, index, step);
        if (other > best || (other == best && of_other < index)) best = other, index = of_other;
    }
    if (threadIdx.x % 32 == 0) bests[threadIdx.x / 32] = best, indices[threadIdx.x / 32] = index;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int warp = 1; warp < blockDim.x / 32; warp++)
        if (bests[warp] > best || (bests[warp] == best && indices[warp] < index))
            best = bests[warp], index = indices[warp];
    bool done = stopped[sequence] || count >= most_tokens;
    if (!done) {
        tokens[sequence * most_tokens + count] = index;
        log_probabilities[sequence * most_tokens + count] = row[index] - most - logf(sum);
        counts[sequence] = count + 1;
        positions[sequence]++;
        if (index == with.stop || count + 1 == most_tokens) stopped[sequence] = 1;
    }
    current[sequence] = done ? with.stop : index;
}
