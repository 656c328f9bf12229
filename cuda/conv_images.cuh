// Images between forms whose pixels, and whose channels, are neighbours.
#pragma once
#include "conv_geometry.cuh"

namespace INFINIOP_ISA {
namespace {

// A tile of channels by pixels of one sample.
struct ImageTile {
    int64_t n, channel, pixel;
    INFINIOP_INLINE bool is_there(const CudaConvImage &a, int c, int p) const {
        return channel + c < a.channels && pixel + p < a.pixels;
    }
    template <bool in_line> INFINIOP_INLINE T *at(const CudaConvImage &a, const CudaConvView &v, int c, int p) const {
        T *const from = (T *)v.data + n * v.n + (channel + c) * v.channel;
        int64_t rest = pixel + p;
        if constexpr (in_line) {
            return from + rest * v.space[2];
        } else {
            int64_t space[3];
            for (int d = 2; d >= 0; d--) space[d] = take(rest, a.size[d]);
            return from + offset(v, space);
        }
    }
};

// By way of shared memory, [channel][pixel]: both reads and writes go along what is contiguous. All of a thread's reads
// are under way before the first of them is needed; where pixels are not in line there is too much code between them.
template <bool in_line>
INFINIOP_INLINE void copy_image_tile(const CudaConvImage &a, const ImageTile &at,
                                     T (&tile)[CUDA_CONV_COPY_TILE][CUDA_CONV_COPY_TILE + 1]) {
    constexpr int size = CUDA_CONV_COPY_TILE, step = CUDA_CONV_BLOCK / size, together = in_line ? size / step : 1;
    const int lane = threadIdx.x % size, first = threadIdx.x / size;
#pragma unroll 1
    for (int start = first; start < size; start += together * step) {
        T values[together];
#pragma unroll
        for (int i = 0; i < together; i++) {
            const int other = start + i * step, c = a.packs ? lane : other, p = a.packs ? other : lane;
            values[i] = at.is_there(a, c, p) ? *at.at<in_line>(a, a.from, c, p) : T{};
        }
#pragma unroll
        for (int i = 0; i < together; i++) {
            const int other = start + i * step;
            tile[a.packs ? lane : other][a.packs ? other : lane] = values[i];
        }
    }
    __syncthreads();
#pragma unroll 1
    for (int start = first; start < size; start += together * step) {
#pragma unroll
        for (int i = 0; i < together; i++) {
            const int other = start + i * step, c = a.packs ? other : lane, p = a.packs ? lane : other;
            if (at.is_there(a, c, p)) *at.at<in_line>(a, a.to, c, p) = tile[c][p];
        }
    }
}

INFINIOP_INLINE void copy_image_block(const CudaConvImage &a) {
    constexpr int size = CUDA_CONV_COPY_TILE;
    __shared__ T tile[size][size + 1];  // one more against bank conflicts
    ImageTile at;
    at.n = block_number(a.first_block);
    at.channel = take(at.n, a.channel_tiles) * size;
    at.pixel = take(at.n, a.pixel_tiles) * size;
    if (a.in_line) copy_image_tile<true>(a, at, tile);
    else copy_image_tile<false>(a, at, tile);
}

}  // namespace
}  // namespace INFINIOP_ISA
