// Both gradients of convolutions of one channel at a time, on blocks whose lanes are channels (lanes.h): a tap is one
// offset for all pixels of a block, and one vector of weights.
#pragma once
#include "simd.h"
#include "table.h"

namespace INFINIOP_ISA {
namespace {

// `many` pixels of a row: their sums stay in registers from tap to tap. One whose last product underflows is -0, and 0
// where taps that meet zeros follow, which stencil_pixels.h leaves out: added to 0 it is 0 in either case.
template <class V, int many>
INFINIOP_INLINE void stencil_tile(const scalar<V> *from, int64_t from_pixel, const int64_t *at, const scalar<V> *weight,
                                  int64_t taps, scalar<V> *to, int64_t to_pixel, StencilSums how) {
    constexpr int count = lanes<V>::count;
    V sum[many];
#pragma GCC unroll 8
    for (int i = 0; i < many; i++) sum[i] = how == STENCIL_ADD_PRODUCTS ? load<V>(to + i * to_pixel) : V{};
    for (int64_t t = 0; t < taps; t++) {
        const V factor = load<V>(weight + t * count);
        const scalar<V> *here = from + at[t] * count;
#pragma GCC unroll 8
        for (int i = 0; i < many; i++) sum[i] = mul_add(factor, load<V>(here + i * from_pixel), sum[i]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < many; i++)
        store(to + i * to_pixel, sum[i] + (how == STENCIL_ADD_SUM ? load<V>(to + i * to_pixel) : V{}));
}

template <class V>
void stencil(const StencilRows *r, const void *from_, const void *weight_, void *to_, StencilSums how) {
    typedef scalar<V> S;
    constexpr int count = lanes<V>::count, many = 8;
    const S *weight = (const S *)weight_;
    const int64_t from_pixel = r->from_pixel * count, to_pixel = r->to_pixel * count, taps = r->taps;
    for (int64_t y = 0; y < r->rows; y++) {
        const S *from = (const S *)from_ + y * r->from_row * count;
        S *to = (S *)to_ + y * r->to_row * count;
        int64_t left = r->width;
        for (; left >= many; left -= many, from += many * from_pixel, to += many * to_pixel)
            stencil_tile<V, many>(from, from_pixel, r->at, weight, taps, to, to_pixel, how);
        switch (left) {
            case 1: stencil_tile<V, 1>(from, from_pixel, r->at, weight, taps, to, to_pixel, how); break;
            case 2: stencil_tile<V, 2>(from, from_pixel, r->at, weight, taps, to, to_pixel, how); break;
            case 3: stencil_tile<V, 3>(from, from_pixel, r->at, weight, taps, to, to_pixel, how); break;
            case 4: stencil_tile<V, 4>(from, from_pixel, r->at, weight, taps, to, to_pixel, how); break;
            case 5: stencil_tile<V, 5>(from, from_pixel, r->at, weight, taps, to, to_pixel, how); break;
            case 6: stencil_tile<V, 6>(from, from_pixel, r->at, weight, taps, to, to_pixel, how); break;
            case 7: stencil_tile<V, 7>(from, from_pixel, r->at, weight, taps, to, to_pixel, how); break;
        }
    }
}

enum { STENCIL_TAPS = 9, STENCIL_CHAIN = 64 };  // sums in registers at a time; pixels of a partial sum, about

// The rows that are summed before their sums are added to what is there.
INFINIOP_INLINE int64_t chained_rows(int64_t width) {
    return width >= STENCIL_CHAIN ? 1 : STENCIL_CHAIN / (width + !width);
}

// `taps` sums at a time, each as several chains of additions where they are few: one would wait for itself.
template <class V, int taps>
void stencil_dot_taps(const StencilDotRows *r, const scalar<V> *g, const scalar<V> *x, const int64_t *at,
                      scalar<V> *sums) {
    typedef scalar<V> S;
    constexpr int count = lanes<V>::count, chains = taps >= 5 ? 1 : taps >= 3 ? 2 : 4;
    const int64_t together = chained_rows(r->width);
    const int64_t x_pixel = r->x_pixel * count;
    const S *start[taps];
    for (int t = 0; t < taps; t++) start[t] = x + at[t] * count;
    for (int64_t first = 0; first < r->rows; first += together) {
        const int64_t end = r->rows - first < together ? r->rows : first + together;
        V sum[chains][taps] = {};
        for (int64_t y = first; y < end; y++) {
            const S *factors = g + y * r->g_row * count;
            int64_t offset = y * r->x_row * count, i = 0;
            for (; i + chains <= r->width; i += chains)
#pragma GCC unroll 4
                for (int c = 0; c < chains; c++, factors += count, offset += x_pixel) {
                    const V factor = load<V>(factors);
#pragma GCC unroll 9
                    for (int t = 0; t < taps; t++) sum[c][t] = mul_add(factor, load<V>(start[t] + offset), sum[c][t]);
                }
            for (; i < r->width; i++, factors += count, offset += x_pixel) {
                const V factor = load<V>(factors);
#pragma GCC unroll 9
                for (int t = 0; t < taps; t++) sum[0][t] = mul_add(factor, load<V>(start[t] + offset), sum[0][t]);
            }
        }
#pragma GCC unroll 9
        for (int t = 0; t < taps; t++) {
            V all = sum[0][t];
#pragma GCC unroll 3
            for (int c = 1; c < chains; c++) all += sum[c][t];
            store(sums + t * count, load<V>(sums + t * count) + all);
        }
    }
}

template <class V> void stencil_dot(const StencilDotRows *r, const void *g_, const void *x_, void *sums_) {
    typedef scalar<V> S;
    const S *g = (const S *)g_, *x = (const S *)x_;
    S *sums = (S *)sums_;
    const int64_t *at = r->at;
    int64_t left = r->taps;
    for (; left >= STENCIL_TAPS; left -= STENCIL_TAPS, at += STENCIL_TAPS, sums += STENCIL_TAPS * lanes<V>::count)
        stencil_dot_taps<V, STENCIL_TAPS>(r, g, x, at, sums);
    switch (left) {
        case 1: return stencil_dot_taps<V, 1>(r, g, x, at, sums);
        case 2: return stencil_dot_taps<V, 2>(r, g, x, at, sums);
        case 3: return stencil_dot_taps<V, 3>(r, g, x, at, sums);
        case 4: return stencil_dot_taps<V, 4>(r, g, x, at, sums);
        case 5: return stencil_dot_taps<V, 5>(r, g, x, at, sums);
        case 6: return stencil_dot_taps<V, 6>(r, g, x, at, sums);
        case 7: return stencil_dot_taps<V, 7>(r, g, x, at, sums);
        case 8: return stencil_dot_taps<V, 8>(r, g, x, at, sums);
    }
}

constexpr void fill_stencil(KernelTable &table) {
    table.stencil[DTYPE_F32] = stencil<f32v>;
    table.stencil[DTYPE_F64] = stencil<f64v>;
    table.stencil_dot[DTYPE_F32] = stencil_dot<f32v>;
    table.stencil_dot[DTYPE_F64] = stencil_dot<f64v>;
}

}  // namespace
}  // namespace INFINIOP_ISA
