// bfloat16 by AVX512_BF16: two products an instruction, each added as a fused multiply-add would, in float. Subnormals count
// as zeros.
#pragma once
#include "gemm.h"
#include "transpose.h"

namespace INFINIOP_ISA {
namespace {

#if defined(__AVX512F__)
#define INFINIOP_PAIRS __attribute__((target("avx512bf16")))

template <int rows, int vectors>
INFINIOP_PAIRS void gemm_pairs(const GemmSteps *steps, const void *a_, const int64_t *row, const void *b_, void *c_,
                               int64_t c_row, int chain) {
    float *c = (float *)c_;
    __m512 sum[rows][vectors];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++)
            sum[i][j] = chain ? _mm512_loadu_ps(c + i * c_row + j * 16) : _mm512_setzero_ps();
    int64_t at[rows];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) at[i] = row[i];
    const int64_t length = steps->length, a_step = steps->a_step, b_step = steps->b_step;
    for (int64_t s = 0; s < steps->segments; s++) {
        const uint16_t *a = (const uint16_t *)a_ + steps->a_segment[s];
        const uint32_t *b = (const uint32_t *)b_ + steps->b_segment[s];
        for (int64_t k = 0; k < length; k++, a += a_step, b += b_step) {
            __m512bh column[vectors];
#pragma GCC unroll 8
            for (int j = 0; j < vectors; j++) column[j] = (__m512bh)_mm512_loadu_si512(b + j * 16);
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++) {
                int32_t pair;
                __builtin_memcpy(&pair, a + at[i], sizeof pair);
                __m512bh factor = (__m512bh)_mm512_set1_epi32(pair);
#pragma GCC unroll 8
                for (int j = 0; j < vectors; j++) sum[i][j] = _mm512_dpbf16_ps(sum[i][j], factor, column[j]);
            }
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) {
            float *to = c + i * c_row + j * 16;
            _mm512_storeu_ps(to, chain ? sum[i][j] : _mm512_add_ps(_mm512_loadu_ps(to), sum[i][j]));
        }
}

INFINIOP_INLINE __m512i widen_pixels(const char *from, int pixels) {
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(__mmask16((1u << pixels) - 1), from));
}

inline void zip_rows(const char *low, const char *high, int64_t from_row, char *to, int64_t to_row, int64_t rows,
                     int64_t before, int64_t pixels, int64_t width) {
    alignas(64) uint16_t order[32];
    for (int i = 0; i < 32; i++) order[i] = uint16_t(i / 2 + i % 2 * 32);
    const __m512i first = _mm512_load_si512(order), second = _mm512_add_epi16(first, _mm512_set1_epi16(16));
    for (int64_t at = 0; at < width; at += 32) {
        const __mmask32 inside = __mmask32(bits_between(before - at, before + pixels - at));
        const __mmask32 from_low = low ? inside : 0, from_high = high ? inside : 0, all = __mmask32(bits_between(0, width - at));
        const char *a = (low ? low : high) + 2 * (at - before), *b = (high ? high : low) + 2 * (at - before);
        for (int64_t r = 0; r < rows; r++) {
            const __m512i x = _mm512_maskz_loadu_epi16(from_low, a + r * from_row);
            const __m512i y = _mm512_maskz_loadu_epi16(from_high, b + r * from_row);
            char *out = to + r * to_row + 4 * at;
            _mm512_mask_storeu_epi32(out, __mmask16(all), _mm512_permutex2var_epi16(x, first, y));
            _mm512_mask_storeu_epi32(out + 64, __mmask16(all >> 16), _mm512_permutex2var_epi16(x, second, y));
        }
    }
}

inline void channel_pairs(const char *from, int64_t column, char *to, const int64_t *place, int64_t pixels,
                          int64_t channels) {
    for (int64_t c = 0; c < channels; c += 32)
        for (int64_t r = 0; r < pixels; r += 16) {
            const int rows = pixels - r < 16 ? int(pixels - r) : 16;
            const int pairs = channels - c < 32 ? int(channels - c + 1) / 2 : 16;
            transpose_u32 square[16];
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++) {
                const char *at = from + (c + 2 * i) * column + 2 * r;
                __m512i pair = _mm512_setzero_si512();
                if (i < pairs) {
                    pair = _mm512_slli_epi32(widen_pixels(at, rows), 16);
                    if (c + 2 * i + 1 < channels) pair = _mm512_or_si512(pair, widen_pixels(at + column, rows));
                }
                square[i] = (transpose_u32)pair;
            }
            transpose_square<16>(square);
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++) {
                if (i >= rows) break;
                store_some(to + place[r + i] + 2 * c, square[i], pairs);
            }
        }
}

// swapped: the earlier pixel in the upper half.
template <bool swapped>
void pixel_pairs(const char *from, const int64_t *column, char *to, int64_t row, int64_t pixels, int64_t channels) {
    for (int64_t c = 0; c < channels; c += 16)
        for (int64_t r = 0; 2 * r < pixels; r += 16) {
            const int here = pixels - 2 * r < 32 ? int(pixels - 2 * r) : 32, rows = (here + 1) / 2;
            const int columns = channels - c < 16 ? int(channels - c) : 16;
            const __mmask32 inside = here < 32 ? (1u << here) - 1 : ~0u;
            transpose_u32 square[16];
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++)
                square[i] = i < columns ? (transpose_u32)_mm512_rol_epi32(
                                              _mm512_maskz_loadu_epi16(inside, from + column[c + i] + 4 * r), swapped * 16)
                                        : transpose_u32{};
            transpose_square<16>(square);
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++) {
                if (i >= rows) break;
                store_some(to + (r + i) * row + 4 * c, square[i], columns);
            }
        }
}

// 32 numbers, or as many as there are; the others are zeros.
INFINIOP_INLINE __m512i load_pixels(const char *from, int64_t count) {
    return count >= 32 ? _mm512_loadu_si512(from) : _mm512_maskz_loadu_epi16(__mmask32((1u << count) - 1), from);
}

inline int has_nonfinite(const char *values, int64_t n) {
    const __m512i exponent = _mm512_set1_epi16(0x7F80);
    __mmask32 found = 0;
    for (int64_t i = 0; i < n; i += 32)
        found |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(load_pixels(values + 2 * i, n - i), exponent), exponent);
    return found != 0;
}

constexpr void fill_pairs(KernelTable &table) {
    table.pairs = {{{}, {8, 1, gemm_pairs<8, 1>}, {8, 2, gemm_pairs<8, 2>}, {8, 3, gemm_pairs<8, 3>},
                    {6, 4, gemm_pairs<6, 4>}}, {4, 6, gemm_pairs<4, 6>}, {1, 8, gemm_pairs<1, 8>},
                   zip_rows, channel_pairs, {pixel_pairs<false>, pixel_pairs<true>}, has_nonfinite};
}
#else
constexpr void fill_pairs(KernelTable &) {}
#endif

}  // namespace
}  // namespace INFINIOP_ISA
