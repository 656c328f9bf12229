// Both gradients of convolutions of a few channels to a group, on blocks whose lanes are channels (lanes.h): groups lie
// side by side in a vector, and a channel of each is spread over the lanes of its group while it is multiplied; or two
// of bfloat16 by AVX512_BF16, which the upper halves of the lanes hold.
#pragma once
#include "dot2.h"
#include "stencil.h"

namespace INFINIOP_ISA {
namespace {

#if !defined(INFINIOP_DOT2)
#define INFINIOP_DOT2
#endif

// How channels are spread and multiplied: one at a time,
template <class V, bool whole> struct one_channel {
    typedef integer<V> lanes_of;
    static constexpr int channels = 1;
    // The first channel of each lane's group; there is a power of two of them.
    static INFINIOP_INLINE lanes_of first(int in_group) {
        lanes_of lane;
        for (int i = 0; i < lanes<V>::count; i++) lane[i] = (i & -in_group);
        return lane;
    }
    static INFINIOP_INLINE V spread(const scalar<V> *from, int64_t c, lanes_of lane) {
        return whole ? splat<V>(from[c]) : take_lanes(load<V>(from), lane + int(c));
    }
    static INFINIOP_INLINE V add(V factor, V value, V sum) { return mul_add(factor, value, sum); }
};

#if defined(__AVX512F__)
// or a pair, the earlier in the upper half.
struct channel_pair {
    typedef __m512i lanes_of;
    static constexpr int channels = 2;
    static INFINIOP_INLINE lanes_of first(int in_group) {
        alignas(64) uint16_t half[32];
        for (int i = 0; i < 32; i++) half[i] = uint16_t(2 * ((i / 2 & -in_group) + (i % 2 ? 0 : 1)) + 1);
        return _mm512_load_si512(half);
    }
    static INFINIOP_INLINE f32v spread(const float *from, int64_t c, lanes_of half) {
        const __m512i at = _mm512_add_epi16(half, _mm512_set1_epi16(short(2 * c)));
        return (f32v)_mm512_permutexvar_epi16(at, _mm512_loadu_si512(from));
    }
    static INFINIOP_INLINE INFINIOP_DOT2 f32v add(f32v factor, f32v value, f32v sum) {
        return (f32v)_mm512_dpbf16_ps((__m512)sum, (__m512bh)factor, (__m512bh)value);
    }
};
#endif

// Pixels whose sums are in registers at a time: as many chains as hide the time that one addition takes, and more; but
// where no one looks for speed, fewer, which take less room.
#if defined(__AVX512F__)
enum { GROUP_PIXELS = 14 };
#elif defined(INFINIOP_FALLBACK)
enum { GROUP_PIXELS = 4 };
#else
enum { GROUP_PIXELS = 8 };
#endif

// `run` taps that are a pixel apart, the first of them the last in `from`, and all channels, to `many` pixels: a
// channel of a pixel is spread once for all taps. next: elements from pixel to pixel.
template <class V, class Terms, int many, int run>
INFINIOP_INLINE INFINIOP_DOT2 void group_taps(const LaneGroups *groups, typename Terms::lanes_of lane,
                                              const scalar<V> *from, int64_t next, const scalar<V> *weight, V *sum) {
    constexpr int count = lanes<V>::count;
    for (int64_t c = 0; c < groups->channels; c += Terms::channels, weight += Terms::channels * groups->apart * count) {
        V factor[run];
#pragma GCC unroll 3
        for (int t = 0; t < run; t++) factor[t] = load<V>(weight + t * count);
#pragma GCC unroll 16
        for (int p = 0; p < many + run - 1; p++) {
            const V value = Terms::spread(from + p * next, c, lane);
#pragma GCC unroll 3
            for (int t = 0; t < run; t++)
                if (int i = p - (run - 1 - t); i >= 0 && i < many) sum[i] = Terms::add(factor[t], value, sum[i]);
        }
    }
}

template <class V, class Terms, int many>
INFINIOP_DOT2 void group_tile(const StencilRows *r, const LaneGroups *groups, const typename Terms::lanes_of *lane,
                              const scalar<V> *from, const scalar<V> *weight, scalar<V> *to) {
    constexpr int count = lanes<V>::count;
    const int64_t apart = r->from_pixel, pixel = apart * count;
    const bool dense = apart == 1;
    V sum[many] = {};
    for (int64_t t = 0, run; t < r->taps; t += run, weight += run * count) {
        const int64_t *at = r->at + t;
        run = t + 1 < r->taps && at[1] == at[0] - apart ? 2 : 1;
        if (dense && run == 2 && t + 2 < r->taps && at[2] == at[1] - 1) run = 3;
        const scalar<V> *here = from + (at[0] - (run - 1) * apart) * count;
        if (run == 3) group_taps<V, Terms, many, 3>(groups, *lane, here, count, weight, sum);
        else if (run == 2 && dense) group_taps<V, Terms, many, 2>(groups, *lane, here, count, weight, sum);
        else if (run == 2) group_taps<V, Terms, many, 2>(groups, *lane, here, pixel, weight, sum);
        else group_taps<V, Terms, many, 1>(groups, *lane, here, pixel, weight, sum);
    }
#pragma GCC unroll 14
    for (int i = 0; i < many; i++) store(to + i * r->to_pixel * count, sum[i]);
}

template <class V, class Terms> struct group_tiles {
    typedef void (*Tile)(const StencilRows *, const LaneGroups *, const typename Terms::lanes_of *, const scalar<V> *,
                         const scalar<V> *, scalar<V> *);
    static constexpr Tile of[] = {nullptr,
                                  group_tile<V, Terms, 1>,
                                  group_tile<V, Terms, 2>,
                                  group_tile<V, Terms, 3>,
                                  group_tile<V, Terms, 4>,
#if !defined(INFINIOP_FALLBACK)
                                  group_tile<V, Terms, 5>,
                                  group_tile<V, Terms, 6>,
                                  group_tile<V, Terms, 7>,
                                  group_tile<V, Terms, 8>,
#endif
#if defined(__AVX512F__)
                                  nullptr,
                                  group_tile<V, Terms, 10>,
                                  nullptr,
                                  group_tile<V, Terms, 12>,
                                  nullptr,
                                  group_tile<V, Terms, 14>
#endif
    };
};

// Rows are cut into equal tiles, of more than 8 pixels only if even; the last one goes back over some pixels where
// they are not, which changes nothing.
template <class V, class Terms>
void by_group_tiles(const StencilRows *r, const LaneGroups *groups, const void *from_, const void *weight, void *to_) {
    typedef scalar<V> S;
    constexpr int count = lanes<V>::count;
    int64_t tiles = (r->width + GROUP_PIXELS - 1) / GROUP_PIXELS;
    if (tiles == 1 && r->width > 8 && r->width % 2) tiles = 2;
    int64_t many = tiles ? (r->width + tiles - 1) / tiles : 0;
    if (many > 8) many += many % 2;
    const auto tile = group_tiles<V, Terms>::of[many];
    const auto lane = Terms::first(int(groups->channels));
    for (int64_t y = 0; y < r->rows; y++) {
        const S *from = (const S *)from_ + y * r->from_row * count;
        S *to = (S *)to_ + y * r->to_row * count;
        for (int64_t i = 0; i < tiles; i++) {
            const int64_t first = i + 1 < tiles ? i * many : r->width - many;
            tile(r, groups, &lane, from + first * r->from_pixel * count, (const S *)weight,
                 to + first * r->to_pixel * count);
        }
    }
}

template <class V>
void group_stencil(const StencilRows *r, const LaneGroups *groups, const void *from, const void *weight, void *to) {
    if (groups->channels == lanes<V>::count) by_group_tiles<V, one_channel<V, true>>(r, groups, from, weight, to);
    else by_group_tiles<V, one_channel<V, false>>(r, groups, from, weight, to);
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

#if defined(__AVX512F__)
// The same sums as group_dot_taps', of pairs of pixels.
template <int taps, int outputs>
INFINIOP_DOT2 void group_dot_pairs(const StencilDotRows *r, const LaneGroups *groups, int first, const float *g,
                                   const float *x, const int64_t *at, float *sums) {
    const int64_t together = chained_rows(r->width);
    const int64_t x_pixel = r->x_pixel * 16, apart = groups->apart * 16;
    const float *start[taps];
    alignas(64) uint16_t half[32];
    for (int i = 0; i < 32; i++) half[i] = uint16_t(i % 2 ? i : i + 33);  // a lane of the second vector, then the first
    const __m512i same = _mm512_load_si512(half);
    for (int i = 0; i < 32; i++)
        half[i] = uint16_t(2 * ((i / 2 & -int(groups->channels)) + first) + 1 + (i % 2 ? 0 : 32));
    const __m512i spread = _mm512_load_si512(half);
    for (int t = 0; t < taps; t++) start[t] = x + at[t] * 16;
    for (int64_t row = 0; row < r->rows; row += together) {
        const int64_t end = r->rows - row < together ? r->rows : row + together;
        f32v sum[outputs][taps] = {};
        for (int64_t y = row; y < end; y++) {
            const float *values = g + y * r->g_row * 16;
            int64_t offset = y * r->x_row * 16;
            for (int64_t i = 0; i < r->width; i += 2, values += 32, offset += 2 * x_pixel) {
                const __mmask16 second = i + 1 < r->width ? __mmask16(-1) : __mmask16(0);
                __m512bh pixel[taps];
#pragma GCC unroll 3
                for (int t = 0; t < taps; t++)
                    pixel[t] = (__m512bh)_mm512_permutex2var_epi16(
                        _mm512_loadu_si512(start[t] + offset), same,
                        _mm512_maskz_loadu_epi32(second, start[t] + offset + x_pixel));
                const __m512i a = _mm512_loadu_si512(values), b = _mm512_maskz_loadu_epi32(second, values + 16);
#pragma GCC unroll 8
                for (int c = 0; c < outputs; c++) {
                    const __m512i from = _mm512_add_epi16(spread, _mm512_set1_epi16(short(2 * c)));
                    const __m512bh factor = (__m512bh)_mm512_permutex2var_epi16(a, from, b);
#pragma GCC unroll 3
                    for (int t = 0; t < taps; t++)
                        sum[c][t] = (f32v)_mm512_dpbf16_ps((__m512)sum[c][t], factor, pixel[t]);
                }
            }
        }
#pragma GCC unroll 8
        for (int c = 0; c < outputs; c++)
#pragma GCC unroll 3
            for (int t = 0; t < taps; t++) {
                float *to = sums + (first + c) * apart + t * 16;
                store(to, load<f32v>(to) + sum[c][t]);
            }
    }
}

template <int outputs>
void group_pairs(const StencilDotRows *r, const LaneGroups *groups, const float *g, const float *x, float *sums) {
    for (int first = 0; first < groups->channels; first += outputs) {
        int64_t t = 0;
        for (; t + 3 <= r->taps; t += 3) group_dot_pairs<3, outputs>(r, groups, first, g, x, r->at + t, sums + t * 16);
        for (; t < r->taps; t++) group_dot_pairs<1, outputs>(r, groups, first, g, x, r->at + t, sums + t * 16);
    }
}

inline void group_stencil_dot_pairs(const StencilDotRows *r, const LaneGroups *groups, const void *g, const void *x,
                                    void *sums) {
    if (groups->channels >= 4) group_pairs<4>(r, groups, (const float *)g, (const float *)x, (float *)sums);
    else group_pairs<2>(r, groups, (const float *)g, (const float *)x, (float *)sums);
}
#endif

constexpr void fill_group_stencil(KernelTable &table) {
    table.group_stencil[DTYPE_F32] = group_stencil<f32v>;
    table.group_stencil[DTYPE_F64] = group_stencil<f64v>;
    table.group_stencil_dot[DTYPE_F32] = group_stencil_dot<f32v>;
    table.group_stencil_dot[DTYPE_F64] = group_stencil_dot<f64v>;
#if defined(__AVX512F__)
    table.group_stencil[DTYPE_BF16] = by_group_tiles<f32v, channel_pair>;
    table.group_stencil_dot[DTYPE_BF16] = group_stencil_dot_pairs;
#endif
}

}  // namespace
}  // namespace INFINIOP_ISA
