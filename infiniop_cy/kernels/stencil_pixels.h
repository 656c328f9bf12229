// Depthwise convolutions of pixels whose channels lie side by side, read and written where they lie: for images of
// which memory, not arithmetic, is the limit. Sums have the order of stencil.h.
#pragma once
#include "lanes.h"

namespace INFINIOP_ISA {
namespace {

// `many` pixels of a row, the first n channels of one vector.
template <class T, int many, bool whole>
INFINIOP_INLINE void pixels_tile(const StencilPixels *r, const char *from, const scalar<compute_vector<T>> *weight,
                                 compute_vector<T> bias, int n, bool past, char *to) {
    typedef compute_vector<T> V;
    V sum[many] = {};
    for (int64_t t = 0; t < r->taps; t++) {
        const V factor = load<V>(weight + t * lanes<V>::count);
        const char *here = from + r->at[t];
#pragma GCC unroll 8
        for (int i = 0; i < many; i++) {
            const T *pixel = (const T *)(here + i * r->from_pixel);
            sum[i] = mul_add(factor, whole ? widen_vector(pixel) : widen_some(pixel, 0, n), sum[i]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < many; i++, to += r->to_pixel) {
        const V result = r->bias ? sum[i] + bias : sum[i];
        if (past) narrow_past<T>(to, result);
        else if (whole) narrow_vector((T *)to, result);
        else narrow_some<T>(to, result, n);
    }
}

// `many` pixels of a row, all channels: whole pixels are read and written while they are in the nearest cache.
template <class T, int many>
INFINIOP_INLINE void pixels_block(const StencilPixels *r, const char *from, const scalar<compute_vector<T>> *weight,
                                  bool past, char *to) {
    typedef compute_vector<T> V;
    constexpr int count = lanes<V>::count;
    const scalar<V> *bias = (const scalar<V> *)r->bias;
    int64_t c = 0;
    for (; c + count <= r->channels; c += count, weight += r->weights)
        pixels_tile<T, many, true>(r, from + c * int64_t(sizeof(T)), weight, bias ? load<V>(bias + c) : V{}, count,
                                   past, to + c * int64_t(sizeof(T)));
    if (c < r->channels)
        pixels_tile<T, many, false>(r, from + c * int64_t(sizeof(T)), weight, bias ? load<V>(bias + c) : V{},
                                    int(r->channels - c), false, to + c * int64_t(sizeof(T)));
}

template <class T> void stencil_pixels(const StencilPixels *r, const char *from, const void *weight_, char *to) {
    typedef scalar<compute_vector<T>> S;
    constexpr int many = 8;
    const S *weight = (const S *)weight_;
    const bool past = r->past && (uintptr_t(to) | r->to_row | r->to_pixel | r->channels * sizeof(T)) % 64 == 0;
    int64_t furthest = 0;
    for (int64_t t = 0; t < r->taps; t++) furthest = r->at[t] > furthest ? r->at[t] : furthest;
    for (int64_t y = 0; y < r->rows; y++) {
        const char *row = from + y * r->from_row;
        char *out = to + y * r->to_row;
        int64_t left = r->width;
        for (; left >= many; left -= many, row += many * r->from_pixel, out += many * r->to_pixel) {
            for (int i = many; i < 2 * many; i++)
                for (int64_t c = 0; c < r->channels * int64_t(sizeof(T)); c += 64)
                    prefetch(row + furthest + i * r->from_pixel + c);
            pixels_block<T, many>(r, row, weight, past, out);
        }
        for (; left > 0; left--, row += r->from_pixel, out += r->to_pixel)
            pixels_block<T, 1>(r, row, weight, past, out);
    }
}

constexpr void fill_stencil_pixels(KernelTable &table) {
    table.stencil_pixels[DTYPE_F16] = stencil_pixels<float16>;
    table.stencil_pixels[DTYPE_BF16] = stencil_pixels<bfloat16>;
    table.stencil_pixels[DTYPE_F32] = stencil_pixels<float>;
    table.stencil_pixels[DTYPE_F64] = stencil_pixels<double>;
}

}  // namespace
}  // namespace INFINIOP_ISA
