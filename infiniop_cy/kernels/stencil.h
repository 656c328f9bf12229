// One plane under a small kernel, for convolutions of one channel at a time: both gradients on flat planes, where a tap is
// one shift for all pixels and a bit says whether it stays inside the image.
#pragma once
#include "gemm.h"
#include "table.h"

namespace INFINIOP_ISA {
namespace {

template <class V> INFINIOP_INLINE integer<V> inside(uint16_t bits) {
    integer<V> bit;
#pragma GCC unroll 16
    for (int i = 0; i < lanes<V>::count; i++) bit[i] = 1 << i;
    return (bit & bits) != 0;
}

// sum + a * b where the bit is set; elsewhere not even a NaN gets in.
template <class V> INFINIOP_INLINE V add_inside(uint16_t bits, V a, V b, V sum) {
#if defined(__AVX512F__)
    if constexpr (sizeof(scalar<V>) == 4) return (V)_mm512_mask3_fmadd_ps((__m512)a, (__m512)b, (__m512)sum, bits);
    else return (V)_mm512_mask3_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)sum, __mmask8(bits));
#else
    return select(inside<V>(bits), mul_add(a, b, sum), sum);
#endif
}

// Zeros where the bit is not set.
template <class V> INFINIOP_INLINE V load_inside(uint16_t bits, const scalar<V> *p) {
#if defined(__AVX512F__)
    if constexpr (sizeof(scalar<V>) == 4) return (V)_mm512_maskz_loadu_ps(bits, p);
    else return (V)_mm512_maskz_loadu_pd(__mmask8(bits), p);
#else
    return select(inside<V>(bits), load<V>(p), V{});
#endif
}

template <class V>
void stencil(int64_t vectors, const void *from_, const int64_t *shift, const void *weight_, int64_t taps,
             const uint16_t *bits, int64_t bits_row, void *to_, int adding) {
    typedef scalar<V> S;
    constexpr int count = lanes<V>::count, many = 8;
    const S *from = (const S *)from_, *weight = (const S *)weight_;
    S *to = (S *)to_;
    int64_t v = 0;
    for (; v + many <= vectors; v += many) {
        V sum[many];
#pragma GCC unroll 8
        for (int i = 0; i < many; i++) sum[i] = adding ? load<V>(to + (v + i) * count) : V{};
        for (int64_t t = 0; t < taps; t++) {
            V factor = splat<V>(weight[t]);
            const S *at = from + v * count + shift[t];
            const uint16_t *bit = bits + t * bits_row + v;
#pragma GCC unroll 8
            for (int i = 0; i < many; i++) sum[i] = add_inside(bit[i], factor, load<V>(at + i * count), sum[i]);
        }
#pragma GCC unroll 8
        for (int i = 0; i < many; i++) store(to + (v + i) * count, sum[i]);
    }
    for (; v < vectors; v++) {
        V sum = adding ? load<V>(to + v * count) : V{};
        for (int64_t t = 0; t < taps; t++)
            sum = add_inside(bits[t * bits_row + v], splat<V>(weight[t]), load<V>(from + v * count + shift[t]), sum);
        store(to + v * count, sum);
    }
}

template <class V>
void stencil_dot(int64_t vectors, const void *g_, const void *x_, const int64_t *shift, int64_t taps, const uint16_t *bits,
                 int64_t bits_row, void *sums) {
    typedef scalar<V> S;
    constexpr int count = lanes<V>::count;
    const S *g = (const S *)g_, *x = (const S *)x_;
    for (int64_t t = 0; t < taps; t += DOT_ROWS) {
        V sum[DOT_ROWS] = {};
        int64_t at[DOT_ROWS], bit[DOT_ROWS];
        for (int i = 0; i < DOT_ROWS; i++) {
            int64_t tap = t + i < taps ? t + i : t;
            at[i] = shift[tap], bit[i] = tap * bits_row;
        }
        for (int64_t v = 0; v < vectors; v++) {
            V factor = load<V>(g + v * count);
#pragma GCC unroll 9
            for (int i = 0; i < DOT_ROWS; i++)
                sum[i] = mul_add(factor, load_inside<V>(bits[bit[i] + v], x + v * count + at[i]), sum[i]);
        }
        for (int i = 0; i < DOT_ROWS && t + i < taps; i++) ((S *)sums)[t + i] += add_lanes(sum[i]);
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
