// One plane under a small kernel, for convolutions of one channel at a time: both gradients on flat planes, where a tap
// is one shift for all pixels and a bit says whether it stays inside the image.
#pragma once
#include "gemm.h"
#include "transpose.h"
#include "table.h"

namespace INFINIOP_ISA {
namespace {

template <class V> INFINIOP_INLINE integer<V> inside(uint16_t bits) {
    integer<V> bit;
#pragma GCC unroll 16
    for (int i = 0; i < lanes<V>::count; i++) bit[i] = 1 << i;
    return (bit & bits) != 0;
}

// sum + a * p where the bit is set; elsewhere not even a NaN gets in, and AVX-512 reads no memory.
template <class V> INFINIOP_INLINE V add_inside(uint16_t bits, V a, const scalar<V> *p, V sum) {
#if defined(__AVX512F__)
    if constexpr (sizeof(scalar<V>) == 4)
        return (V)_mm512_mask3_fmadd_ps((__m512)a, _mm512_maskz_loadu_ps(bits, p), (__m512)sum, bits);
    else
        return (V)_mm512_mask3_fmadd_pd((__m512d)a, _mm512_maskz_loadu_pd(__mmask8(bits), p), (__m512d)sum,
                                        __mmask8(bits));
#else
    return select(inside<V>(bits), mul_add(a, load<V>(p), sum), sum);
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

// Whole vectors but for AVX-512, which stores no more than is inside.
template <class V> INFINIOP_INLINE void store_inside(uint16_t bits, scalar<V> *p, V v) {
#if defined(__AVX512F__)
    if constexpr (sizeof(scalar<V>) == 4) _mm512_mask_storeu_ps(p, bits, (__m512)v);
    else _mm512_mask_storeu_pd(p, __mmask8(bits), (__m512d)v);
#else
    store(p, v);
#endif
}

template <class V> INFINIOP_INLINE uint16_t first_bits(int64_t n) {
    return n >= lanes<V>::count ? uint16_t((1u << lanes<V>::count) - 1) : uint16_t((1u << n) - 1);
}

template <class V>
void stencil(int64_t pixels, const void *from_, const int64_t *shift, const void *weight_, int64_t taps,
             const uint16_t *bits, int64_t bits_row, void *to_, int adding) {
    typedef scalar<V> S;
    constexpr int count = lanes<V>::count, many = 8;
    const S *from = (const S *)from_, *weight = (const S *)weight_;
    S *to = (S *)to_;
    int64_t v = 0;
    for (; (v + many) * count <= pixels; v += many) {
        V sum[many];
#pragma GCC unroll 8
        for (int i = 0; i < many; i++) sum[i] = adding ? load<V>(to + (v + i) * count) : V{};
        for (int64_t t = 0; t < taps; t++) {
            V factor = splat<V>(weight[t]);
            const S *at = from + v * count + shift[t];
            const uint16_t *bit = bits + t * bits_row + v;
#pragma GCC unroll 8
            for (int i = 0; i < many; i++) sum[i] = add_inside(bit[i], factor, at + i * count, sum[i]);
        }
#pragma GCC unroll 8
        for (int i = 0; i < many; i++) store(to + (v + i) * count, sum[i]);
    }
    for (; v * count < pixels; v++) {
        const uint16_t all = first_bits<V>(pixels - v * count);
        V sum = adding ? load_inside<V>(all, to + v * count) : V{};
        for (int64_t t = 0; t < taps; t++)
            sum = add_inside(bits[t * bits_row + v], splat<V>(weight[t]), from + v * count + shift[t], sum);
        store_inside(all, to + v * count, sum);
    }
}

// sums[i] += the lanes of row i, for n rows; the tree of add_lanes.
template <class V> INFINIOP_INLINE void add_row_lanes(const V *row, int64_t n, scalar<V> *sums) {
    constexpr int count = lanes<V>::count;
    if constexpr (count >= DOT_ROWS) {  // all trees at once
        typedef integer<V> I;
        I square[count] = {};
#pragma GCC unroll 9
        for (int i = 0; i < DOT_ROWS; i++) square[i] = bits_as<I>(row[i]);
        transpose_square<count>(square);
        V part[count];
#pragma GCC unroll 16
        for (int i = 0; i < count; i++) part[i] = bits_as<V>(square[i]);
#pragma GCC unroll 4
        for (int width = count / 2; width; width /= 2)
#pragma GCC unroll 8
            for (int i = 0; i < width; i++) part[i] += part[i + width];
        const uint16_t all = first_bits<V>(n);
        store_inside(all, sums, load_inside<V>(all, sums) + part[0]);
    } else {
        for (int64_t i = 0; i < n; i++) sums[i] += add_lanes(row[i]);
    }
}

template <class V>
void stencil_dot(int64_t pixels, const void *g_, const void *x_, const int64_t *shift, int64_t taps,
                 const uint16_t *bits, int64_t bits_row, void *sums) {
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
        for (int64_t v = 0; v * count < pixels; v++) {
            V factor = load_inside<V>(first_bits<V>(pixels - v * count), g + v * count);
#pragma GCC unroll 9
            for (int i = 0; i < DOT_ROWS; i++)
                sum[i] = mul_add(factor, load_inside<V>(bits[bit[i] + v], x + v * count + at[i]), sum[i]);
        }
        add_row_lanes(sum, taps - t < DOT_ROWS ? taps - t : int64_t(DOT_ROWS), (S *)sums + t);
    }
}

constexpr void fill_stencil(KernelTable &table) {
    table.stencil[DTYPE_F32] = stencil<f32v>;
    table.stencil[DTYPE_F64] = stencil<f64v>;
#if defined(__AVX512F__)
    table.stencil_in_place = true;
#endif
    table.stencil_dot[DTYPE_F32] = stencil_dot<f32v>;
    table.stencil_dot[DTYPE_F64] = stencil_dot<f64v>;
}

}  // namespace
}  // namespace INFINIOP_ISA
