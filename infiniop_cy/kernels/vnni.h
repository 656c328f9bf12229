// VNNI packing of bfloat16: two values of one column side by side in 32 bits, as dot products and AMX read them. Needs
// AVX-512 alone, not AVX512_BF16.
#pragma once
#include "table.h"
#include "words.h"

namespace INFINIOP_ISA {
namespace {

#if defined(__AVX512F__)
// At most 16 numbers, each in the lower half of 32 bits; the others are zeros.
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
        const __mmask32 from_low = low ? inside : 0, from_high = high ? inside : 0,
                        all = __mmask32(bits_between(0, width - at));
        const char *a = (low ? low : high) + 2 * (at - before), *b = (high ? high : low) + 2 * (at - before);
        for (int64_t r = 0; r < rows; r++) {
            _mm_prefetch(a + (r + 12) * from_row, _MM_HINT_T0);
            _mm_prefetch(b + (r + 12) * from_row, _MM_HINT_T0);
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

inline void swap_lines(const char *from, int64_t from_row, char *to, int64_t to_row, int64_t rows, int64_t n) {
    for (int64_t at = 0; at < n; at += 32) {
        const __mmask32 inside = __mmask32(bits_between(0, n - at));
        const __mmask16 pairs = __mmask16(bits_between(0, (n - at + 1) / 2));
        for (int64_t r = 0; r < rows; r++)
            _mm512_mask_storeu_epi32(
                to + r * to_row + 2 * at, pairs,
                _mm512_rol_epi32(_mm512_maskz_loadu_epi16(inside, from + r * from_row + 2 * at), 16));
    }
}

// One square of pairs: at most so many rows, and what none of them needs is not computed. column(i): bytes from `from`
// to channel i.
template <bool swapped, int most, class Column>
INFINIOP_INLINE void pairs_square(const char *from, Column column, char *to, int64_t row, int pixels, int channels) {
    const int rows = (pixels + 1) / 2;
    const __mmask32 inside = pixels < 32 ? (1u << pixels) - 1 : ~0u;
    transpose_u32 square[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        square[i] = i < channels ? (transpose_u32)_mm512_rol_epi32(_mm512_maskz_loadu_epi16(inside, from + column(i)),
                                                                   swapped * 16)
                                 : transpose_u32{};
    transpose_square<16>(square);
#pragma GCC unroll 16
    for (int i = 0; i < most; i++) {
        if (i >= rows) break;
        store_some(to + i * row, square[i], channels);
    }
}

// Pairs of pixels; swapped: the earlier one in the upper half.
template <bool swapped, class Column>
INFINIOP_INLINE void pairs_of(const char *from, Column column, char *to, int64_t row, int64_t pixels,
                              int64_t channels) {
    for (int64_t c = 0; c < channels; c += 16)
        for (int64_t r = 0; 2 * r < pixels; r += 16) {
            const int here = pixels - 2 * r < 32 ? int(pixels - 2 * r) : 32;
            const int columns = channels - c < 16 ? int(channels - c) : 16;
            const char *at = from + 4 * r;
            char *there = to + r * row + 4 * c;
            auto of = [column, c](int i) { return column(c + i); };
            if (here <= 8) pairs_square<swapped, 4>(at, of, there, row, here, columns);
            else pairs_square<swapped, 16>(at, of, there, row, here, columns);
        }
}

template <bool swapped>
void pixel_pairs(const char *from, const int64_t *column, char *to, int64_t row, int64_t pixels, int64_t channels) {
    pairs_of<swapped>(from, [column](int64_t c) { return column[c]; }, to, row, pixels, channels);
}

inline void transpose_pairs(const char *from, int64_t column, char *to, int64_t row, int64_t rows, int64_t columns) {
    pairs_of<true>(from, [column](int64_t c) { return c * column; }, to, row, rows, columns);
}

template <int step>
INFINIOP_INLINE void reverse_rows_of(const char *from, int64_t from_row, char *to, int64_t rows, int64_t before,
                                     int64_t pixels, int64_t width) {
    for (int64_t at = (width - 1) / WORDS * WORDS; at >= 0; at -= WORDS) {  // numbers from the end of the row
        const int64_t last = width - 1 - at - before, count = width - at;
        const bool whole = step == 1 && count >= WORDS && last < pixels && last >= WORDS - 1;
        const char *source = from + 2 * step * last;
        char *end = to + 2 * at;
        for (int64_t r = 0; r < rows; r++, source += from_row) {
            end -= 2 * width;
            if (whole) {
                _mm512_storeu_si512(end, reverse_words(_mm512_loadu_si512(source - 2 * (WORDS - 1))));
                continue;
            }
            _mm_prefetch(from + (r + 12) * from_row, _MM_HINT_T0);
            _mm512_mask_storeu_epi16(end, __mmask32(bits_between(0, count)),
                                     take_words<-step>(source, last - pixels + 1, last + 1));
        }
    }
}

inline void reverse_rows(const char *from, int64_t from_row, int64_t step, char *to, int64_t rows, int64_t before,
                         int64_t pixels, int64_t width) {
    if (step == 2) reverse_rows_of<1>(from, from_row, to, rows, before, pixels, width);
    else reverse_rows_of<2>(from, from_row, to, rows, before, pixels, width);
}

// 32 numbers, or as many as there are; the others are zeros.
INFINIOP_INLINE __m512i load_pixels(const char *from, int64_t count) {
    return count >= 32 ? _mm512_loadu_si512(from) : _mm512_maskz_loadu_epi16(__mmask32((1u << count) - 1), from);
}

// Stores the first `count` of 32 numbers, or all.
INFINIOP_INLINE void store_pixels(char *to, __m512i v, int64_t count) {
    if (count >= 32) _mm512_storeu_si512(to, v);
    else _mm512_mask_storeu_epi16(to, __mmask32((1u << count) - 1), v);
}

inline int replace_nonfinite(char *values, int64_t n) {
    const __m512i exponent = _mm512_set1_epi16(0x7F80), sign = _mm512_set1_epi16(int16_t(0x8000));
    const __m512i tiny = _mm512_set1_epi16(0x0D80);  // 2^-100
    int found = 0;
    for (int64_t i = 0; i < n; i += 32) {
        const __m512i v = load_pixels(values + 2 * i, n - i);
        const __mmask32 bad = _mm512_cmpeq_epi16_mask(_mm512_and_si512(v, exponent), exponent);
        if (!bad) continue;
        found = 1;
        store_pixels(values + 2 * i, _mm512_mask_blend_epi16(bad, v, _mm512_or_si512(_mm512_and_si512(v, sign), tiny)),
                     n - i);
    }
    return found;
}

inline void pad_every_other_word(const char *from, int64_t from_row, char *to, int64_t to_row, int64_t rows,
                                 int64_t before, int64_t bytes, int64_t width) {
    for (int64_t at = 0; at < width; at += 2 * WORDS) {
        const __mmask32 all = __mmask32(bits_between(0, (width - at) / 2));
        const char *source = from + 2 * (at - before);
        char *there = to + at;
        for (int64_t r = 0; r < rows; r++, source += from_row, there += to_row)
            _mm512_mask_storeu_epi16(there, all, take_words<2>(source, (before - at) / 2, (before + bytes - at) / 2));
    }
}

constexpr void fill_vnni(KernelTable &table) {
    table.vnni = {zip_rows,        channel_pairs, swap_lines,        {pixel_pairs<false>, pixel_pairs<true>},
                  transpose_pairs, reverse_rows,  replace_nonfinite, pad_every_other_word};
}
#else
constexpr void fill_vnni(KernelTable &) {}
#endif

}  // namespace
}  // namespace INFINIOP_ISA
