// Images whose channels are neighbours, packed as the kernels that walk over pixels read them, and back.
#pragma once
#include "conv_geometry.cuh"

namespace INFINIOP_ISA {
namespace {

// A tile of channels by pixels of one sample, by way of shared memory: both its reads and its writes go along what is
// contiguous.
INFINIOP_INLINE void copy_image_tile(const CudaConvImage &a) {
    constexpr int size = CUDA_CONV_COPY_TILE, step = CUDA_CONV_BLOCK / size;
    __shared__ T tile[size][size + 1];  // [channel][pixel]; one more against bank conflicts
    const int lane = threadIdx.x % size, first = threadIdx.x / size;
    int64_t n = block_number(a.first_block);
    const int64_t channel = take(n, a.channel_tiles) * size, pixel = take(n, a.pixel_tiles) * size;
    const auto at = [&](const CudaConvView &v, int c, int p) {
        int64_t rest = pixel + p, space[3] = {0, 0, rest};
        if (!a.in_line)
            for (int d = 2; d >= 0; d--) space[d] = take(rest, a.size[d]);
        return (T *)v.data + n * v.n + (channel + c) * v.channel + offset(v, space);
    };
    const auto is_there = [&](int c, int p) { return channel + c < a.channels && pixel + p < a.pixels; };
    for (int i = first; i < size; i += step) {
        const int c = a.packs ? lane : i, p = a.packs ? i : lane;
        if (is_there(c, p)) tile[c][p] = *at(a.from, c, p);
    }
    __syncthreads();
    for (int i = first; i < size; i += step) {
        const int c = a.packs ? i : lane, p = a.packs ? lane : i;
        if (is_there(c, p)) *at(a.to, c, p) = tile[c][p];
    }
}

}  // namespace
}  // namespace INFINIOP_ISA
