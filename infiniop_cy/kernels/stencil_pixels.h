// Depthwise convolutions of pixels whose channels lie side by side, read and written where they lie: for images of
// which memory, not arithmetic, is the limit. Sums have the order of stencil.h.
#pragma once
#include "lanes.h"
#include "stencil.h"

#include <type_traits>

namespace INFINIOP_ISA {
namespace {

// `many` pixels of a row, `side` vectors of channels; or the first n channels of one. A line of memory is written as a
// whole, since parts of one that go past the caches would be sent one by one.
template <class T, int many, int side, bool whole>
INFINIOP_INLINE void pixels_tile(const StencilPixels *r, const char *from, const scalar<compute_vector<T>> *weight,
                                 const scalar<compute_vector<T>> *bias, int n, bool past, char *to) {
    typedef compute_vector<T> V;
    constexpr int count = lanes<V>::count;
    V sum[many][side] = {};
    for (int64_t t = 0; t < r->taps; t++) {
        V factor[side];
#pragma GCC unroll 4
        for (int j = 0; j < side; j++) factor[j] = load<V>(weight + j * r->weights + t * count);
        const char *here = from + r->at[t];
#pragma GCC unroll 8
        for (int i = 0; i < many; i++) {
            const T *pixel = (const T *)(here + i * r->from_pixel);
#pragma GCC unroll 4
            for (int j = 0; j < side; j++)
                sum[i][j] =
                    mul_add(factor[j], whole ? widen_vector(pixel + j * count) : widen_some(pixel, 0, n), sum[i][j]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < many; i++, to += r->to_pixel)
#pragma GCC unroll 4
        for (int j = 0; j < side; j++) {
            const V result = bias ? sum[i][j] + load<V>(bias + j * count) : sum[i][j];
            T *at = (T *)to + j * count;
            if (past) narrow_past<T>((char *)at, result);
            else if (whole) narrow_vector(at, result);
            else narrow_some<T>((char *)at, result, n);
        }
}

// `many` pixels of a row, all channels: whole pixels are read and written while they are in the nearest cache.
template <class T, int many, int side>
INFINIOP_INLINE void pixels_block(const StencilPixels *r, const char *from, const scalar<compute_vector<T>> *weight,
                                  bool past, char *to) {
    typedef scalar<compute_vector<T>> S;
    constexpr int count = lanes<compute_vector<T>>::count;
    const S *bias = (const S *)r->bias;
    int64_t c = 0;
    auto tile = [&](auto vectors, auto whole) {
        pixels_tile<T, many, vectors.value, whole.value>(r, from + c * int64_t(sizeof(T)), weight,
                                                         bias ? bias + c : nullptr, int(r->channels - c), past,
                                                         to + c * int64_t(sizeof(T)));
        c += vectors.value * count;
        weight += vectors.value * r->weights;
    };
    constexpr std::integral_constant<int, 1> one = {};
    while (c + side * count <= r->channels) tile(std::integral_constant<int, side>(), std::true_type());
    while (side > 1 && c + count <= r->channels) tile(one, std::true_type());
    if (c < r->channels) tile(one, std::false_type());
}

template <class T> void stencil_pixels(const StencilPixels *r, const char *from, const void *weight_, char *to) {
    typedef compute_vector<T> V;
    constexpr int side = sizeof(T) == sizeof(scalar<V>) ? 64 / int(sizeof(V)) : 1, many = 8 / side;
    const scalar<V> *weight = (const scalar<V> *)weight_;
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
            pixels_block<T, many, side>(r, row, weight, past, out);
        }
        for (; left > 0; left--, row += r->from_pixel, out += r->to_pixel)
            pixels_block<T, 1, side>(r, row, weight, past, out);
    }
}

// The products of a row of g with what `taps` taps meet, for a vector of channels. Pixels whose taps are partly outside
// meet zeros there: inf times 0 is NaN, as it is in blocks with packed zeros.
template <int taps>
INFINIOP_INLINE void dot_pixels_row(const StencilDotPixels *r, int64_t y, const char *g, const char *x,
                                    const int64_t *at, const TapInside *inside, f32v (&sum)[taps]) {
    const char *start[taps];
    bool row_inside[taps];
    int64_t begin = 0, end = r->width;
    for (int t = 0; t < taps; t++) {
        start[t] = x + at[t];
        row_inside[t] = y >= inside[t].first_row && y < inside[t].end_row;
        begin = !row_inside[t] ? r->width : begin > inside[t].first ? begin : inside[t].first;
        end = end < inside[t].end ? end : inside[t].end;
    }
    auto some = [&](int64_t i) {
        const f32v factor = load<f32v>((const float *)(g + i * r->g_pixel));
#pragma GCC unroll 9
        for (int t = 0; t < taps; t++) {
            f32v value = {};
            if (row_inside[t] && i >= inside[t].first && i < inside[t].end)
                value = load<f32v>((const float *)(start[t] + i * r->x_pixel));
            sum[t] = mul_add(factor, value, sum[t]);
        }
    };
    int64_t i = 0;
    for (; i < begin && i < r->width; i++) some(i);
    for (int64_t offset = i * r->x_pixel; i < end; i++, offset += r->x_pixel) {
        const f32v factor = load<f32v>((const float *)(g + i * r->g_pixel));
#pragma GCC unroll 9
        for (int t = 0; t < taps; t++) sum[t] = mul_add(factor, load<f32v>((const float *)(start[t] + offset)), sum[t]);
    }
    for (; i < r->width; i++) some(i);
}

template <int taps>
void dot_pixels_taps(const StencilDotPixels *r, const char *g, const char *x, int64_t first, float *sums_) {
    constexpr int count = lanes<f32v>::count;
    const int64_t together = chained_rows(r->width);
    for (int64_t row = 0; row < r->rows; row += together) {
        const int64_t end = r->rows - row < together ? r->rows : row + together;
        for (int64_t v = 0; v < r->vectors; v++) {
            const int64_t channel = v * int64_t(sizeof(f32v));
            float *sums = sums_ + v * r->sums + first * count;
            f32v sum[taps] = {};
            for (int64_t y = row; y < end; y++)
                dot_pixels_row<taps>(r, y, g + y * r->g_row + channel, x + y * r->x_row + channel, r->at + first,
                                     r->inside + first, sum);
#pragma GCC unroll 9
            for (int t = 0; t < taps; t++) store(sums + t * count, load<f32v>(sums + t * count) + sum[t]);
        }
    }
}

inline void stencil_dot_pixels(const StencilDotPixels *r, const char *g, const char *x, void *sums) {
    int64_t first = 0;
    for (; r->taps - first >= DOT_PIXEL_TAPS; first += DOT_PIXEL_TAPS)
        dot_pixels_taps<DOT_PIXEL_TAPS>(r, g, x, first, (float *)sums);
    if (first < r->taps) dot_pixels_taps<DOT_PIXEL_REST>(r, g, x, first, (float *)sums);
}

constexpr void fill_stencil_pixels(KernelTable &table) {
    table.stencil_pixels[DTYPE_F16] = stencil_pixels<float16>;
    table.stencil_pixels[DTYPE_BF16] = stencil_pixels<bfloat16>;
    table.stencil_pixels[DTYPE_F32] = stencil_pixels<float>;
    table.stencil_pixels[DTYPE_F64] = stencil_pixels<double>;
    table.stencil_dot_pixels = stencil_dot_pixels;
}

}  // namespace
}  // namespace INFINIOP_ISA
