// Both gradients of convolutions of a few channels to a group, on blocks whose lanes are channels (lanes.h): groups lie
// side by side in a vector, and a channel of each is spread over the lanes of its group while it is multiplied.
#pragma once
#include "stencil.h"

namespace INFINIOP_ISA {
namespace {

// `run` taps side by side, the first of them the last in `from`, and all channels, to `many` pixels: a channel of a
// pixel is spread once for all taps. pixel: elements from pixel to pixel; a vector where there are several taps. whole:
// one group fills the vector.
template <class V, int many, int run, bool whole>
INFINIOP_INLINE void group_taps(const LaneGroups *groups, const scalar<V> *from, int64_t pixel, const scalar<V> *weight,
                                V *sum) {
    constexpr int count = lanes<V>::count;
    const int64_t next = run > 1 ? count : pixel;
    integer<V> lane;
    for (int i = 0; i < count; i++) lane[i] = i / int(groups->channels) * int(groups->channels);
    for (int64_t c = 0; c < groups->channels; c++, weight += groups->apart * count, lane += 1) {
        V factor[run];
#pragma GCC unroll 3
        for (int t = 0; t < run; t++) factor[t] = load<V>(weight + t * count);
#pragma GCC unroll 10
        for (int p = 0; p < many + run - 1; p++) {
            const V value = whole ? splat<V>(from[p * next + c]) : take_lanes(load<V>(from + p * next), lane);
#pragma GCC unroll 3
            for (int t = 0; t < run; t++)
                if (int i = p - (run - 1 - t); i >= 0 && i < many) sum[i] = mul_add(factor[t], value, sum[i]);
        }
    }
}

template <class V, int many, bool whole>
void group_tile(const StencilRows *r, const LaneGroups *groups, const scalar<V> *from, const scalar<V> *weight,
                scalar<V> *to) {
    constexpr int count = lanes<V>::count;
    const int64_t pixel = r->from_pixel * count;
    const bool dense = r->from_pixel == 1;
    V sum[many] = {};
    for (int64_t t = 0, run; t < r->taps; t += run, weight += run * count) {
        const int64_t *at = r->at + t;
        run = dense && t + 1 < r->taps && at[1] == at[0] - 1 ? 2 : 1;
        if (run == 2 && t + 2 < r->taps && at[2] == at[0] - 2) run = 3;
        const scalar<V> *here = from + (at[0] - run + 1) * count;
        if (run == 3) group_taps<V, many, 3, whole>(groups, here, pixel, weight, sum);
        else if (run == 2) group_taps<V, many, 2, whole>(groups, here, pixel, weight, sum);
        else group_taps<V, many, 1, whole>(groups, here, pixel, weight, sum);
    }
#pragma GCC unroll 8
    for (int i = 0; i < many; i++) store(to + i * r->to_pixel * count, sum[i]);
}

template <class V, bool whole> constexpr auto group_tiles() {
    struct {
        decltype(&group_tile<V, 1, whole>) of[9];
    } tiles = {{nullptr, group_tile<V, 1, whole>, group_tile<V, 2, whole>, group_tile<V, 3, whole>,
                group_tile<V, 4, whole>, group_tile<V, 5, whole>, group_tile<V, 6, whole>, group_tile<V, 7, whole>,
                group_tile<V, 8, whole>}};
    return tiles;
}

// Rows are cut into equal tiles; the last one goes back over some pixels where they are not, which changes nothing.
template <class V>
void group_stencil(const StencilRows *r, const LaneGroups *groups, const void *from_, const void *weight, void *to_) {
    typedef scalar<V> S;
    constexpr int count = lanes<V>::count;
    constexpr auto some = group_tiles<V, false>();  // one declaration each: clang deduces two types
    constexpr auto one = group_tiles<V, true>();
    const int64_t tiles = (r->width + 7) / 8, many = tiles ? (r->width + tiles - 1) / tiles : 0;
    const auto tile = groups->channels == count ? one.of[many] : some.of[many];
    for (int64_t y = 0; y < r->rows; y++) {
        const S *from = (const S *)from_ + y * r->from_row * count;
        S *to = (S *)to_ + y * r->to_row * count;
        for (int64_t i = 0; i < tiles; i++) {
            const int64_t first = i + 1 < tiles ? i * many : r->width - many;
            tile(r, groups, from + first * r->from_pixel * count, (const S *)weight, to + first * r->to_pixel * count);
        }
    }
}

#if defined(__AVX512F__)
enum { GROUP_OUTPUTS = 8 };  // channels of g whose sums are in registers at a time
#else
enum { GROUP_OUTPUTS = 4 };
#endif

// The sums of `outputs` channels of g from `first` on, by `taps` taps; in partial sums as stencil_dot_taps has them.
template <class V, int taps, int outputs, bool whole>
void group_dot_taps(const StencilDotRows *r, const LaneGroups *groups, int first, const scalar<V> *g,
                    const scalar<V> *x, const int64_t *at, scalar<V> *sums) {
    typedef scalar<V> S;
    constexpr int count = lanes<V>::count;
    const int64_t together = chained_rows(r->width);
    const int64_t x_pixel = r->x_pixel * count, apart = groups->apart * count;
    const S *start[taps];
    integer<V> lane[outputs];
    for (int t = 0; t < taps; t++) start[t] = x + at[t] * count;
    for (int c = 0; c < outputs; c++)
        for (int i = 0; i < count; i++) lane[c][i] = i / int(groups->channels) * int(groups->channels) + first + c;
    for (int64_t row = 0; row < r->rows; row += together) {
        const int64_t end = r->rows - row < together ? r->rows : row + together;
        V sum[outputs][taps] = {};
        for (int64_t y = row; y < end; y++) {
            const S *values = g + y * r->g_row * count;
            int64_t offset = y * r->x_row * count;
            for (int64_t i = 0; i < r->width; i++, values += count, offset += x_pixel) {
                V pixel[taps];
#pragma GCC unroll 3
                for (int t = 0; t < taps; t++) pixel[t] = load<V>(start[t] + offset);
#pragma GCC unroll 8
                for (int c = 0; c < outputs; c++) {
                    const V factor = whole ? splat<V>(values[first + c]) : take_lanes(load<V>(values), lane[c]);
#pragma GCC unroll 3
                    for (int t = 0; t < taps; t++) sum[c][t] = mul_add(factor, pixel[t], sum[c][t]);
                }
            }
        }
#pragma GCC unroll 8
        for (int c = 0; c < outputs; c++)
#pragma GCC unroll 3
            for (int t = 0; t < taps; t++) {
                S *to = sums + (first + c) * apart + t * count;
                store(to, load<V>(to) + sum[c][t]);
            }
    }
}

template <class V, int outputs, bool whole>
void group_dot(const StencilDotRows *r, const LaneGroups *groups, const scalar<V> *g, const scalar<V> *x,
               scalar<V> *sums) {
    constexpr int count = lanes<V>::count;
    for (int first = 0; first < groups->channels; first += outputs) {
        int64_t t = 0;
        for (; t + 3 <= r->taps; t += 3)
            group_dot_taps<V, 3, outputs, whole>(r, groups, first, g, x, r->at + t, sums + t * count);
        for (; t < r->taps; t++)
            group_dot_taps<V, 1, outputs, whole>(r, groups, first, g, x, r->at + t, sums + t * count);
    }
}

template <class V>
void group_stencil_dot(const StencilDotRows *r, const LaneGroups *groups, const void *g, const void *x, void *sums) {
    typedef scalar<V> S;
    constexpr int count = lanes<V>::count, most = GROUP_OUTPUTS < count ? GROUP_OUTPUTS : count;
    if (groups->channels == count) group_dot<V, most, true>(r, groups, (const S *)g, (const S *)x, (S *)sums);
    else if (groups->channels >= most) group_dot<V, most, false>(r, groups, (const S *)g, (const S *)x, (S *)sums);
    else if (groups->channels == 4) group_dot<V, 4, false>(r, groups, (const S *)g, (const S *)x, (S *)sums);
    else group_dot<V, 2, false>(r, groups, (const S *)g, (const S *)x, (S *)sums);
}

constexpr void fill_group_stencil(KernelTable &table) {
    table.group_stencil[DTYPE_F32] = group_stencil<f32v>;
    table.group_stencil[DTYPE_F64] = group_stencil<f64v>;
    table.group_stencil_dot[DTYPE_F32] = group_stencil_dot<f32v>;
    table.group_stencil_dot[DTYPE_F64] = group_stencil_dot<f64v>;
}

}  // namespace
}  // namespace INFINIOP_ISA
