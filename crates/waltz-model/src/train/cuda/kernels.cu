// Everything that runs on the GPU besides cuBLAS: one unit, so that one image holds all kernels.
//
// Matrices lie row by row. Numbers are bf16, sums are f32. No kernel adds with atomics: every sum runs in an order
// that depends on the sizes alone, so that the same step gives the same bits.

#include <cuda_bf16.h>

typedef __nv_bfloat16 number;
typedef __nv_bfloat162 pair;
typedef unsigned int u32;

// Eight numbers, the widest load there is.
struct __align__(16) eight {
    pair pairs[4];
};

__device__ __forceinline__ float sum_of_warp(float value) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
    return value;
}

__device__ __forceinline__ size_t thread_index() {
    return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}

#include "rows.cu"
#include "attention.cu"
#include "loss.cu"
#include "update.cu"
#include "encoder.cu"
#include "play.cu"
