// grad_bias[co] = sum over n, o of grad_output[n, co, o], a block per channel and a warp per unit.
#pragma once
#include "conv_direct.cuh"

namespace INFINIOP_ISA {
namespace {

// One unit: lane i sums pixels i, i + 32, ..., then a tree over the lanes.
template <class I> INFINIOP_INLINE S bias_sum(const CudaConv &c, const Unit &unit, const T *g) {
    const CudaConvView &v = c.view[CUDA_CONV_GRAD_OUTPUT];
    int64_t n = unit.flat;
    const I first = I(take(n, c.pixels_out)), end = first + I(unit.length);
    g += n * v.n;
    S sum = 0;
#pragma unroll 8
    for (I p = first + threadIdx.x % CUDA_CONV_WARP; p < end; p += CUDA_CONV_WARP) {
        I o[3], rest = p;
        for (int d = 2; d >= 0; d--) o[d] = take(rest, c.axis[d].size_out, c.axis[d].out);
        sum += to_compute(g[offset(v, o)]);
    }
    return warp_sum(sum);
}

template <class I> INFINIOP_INLINE void grad_bias_channel(const CudaConvGradBias &a) {
    constexpr int warps = CUDA_CONV_BIAS_BLOCK / CUDA_CONV_WARP;
    __shared__ S sums[2][warps];  // two: one is added up while the next is written
    const CudaConv &c = a.conv;
    const int64_t channel = block_number(a.first_block);
    const T *g = data_of<const T>(c, CUDA_CONV_GRAD_OUTPUT) + channel * c.view[CUDA_CONV_GRAD_OUTPUT].channel;
    T *out = data_of<T>(c, CUDA_CONV_GRAD_BIAS) + channel * c.view[CUDA_CONV_GRAD_BIAS].n;
    const int warp = threadIdx.x / CUDA_CONV_WARP;
    S total = threadIdx.x == 0 && c.accumulate ? to_compute(*out) : S(0);
    int buffer = 0;
    for (int64_t first = 0; first < a.units.count; first += warps, buffer ^= 1) {
        if (first + warp < a.units.count) {
            S sum = bias_sum<I>(c, Unit(a.units, first + warp), g);
            if (threadIdx.x % CUDA_CONV_WARP == 0) sums[buffer][warp] = sum;
        }
        __syncthreads();
        if (threadIdx.x == 0)
            for (int i = 0; i < warps && first + i < a.units.count; i++) total += sums[buffer][i];
    }
    if (threadIdx.x == 0) *out = from_compute<T>(total);
}

}  // namespace
}  // namespace INFINIOP_ISA
