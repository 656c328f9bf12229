// float32 and float16 as sums of bfloat16, for AMX. Needs AVX-512 alone, not AVX512_BF16.
#pragma once
#include <string.h>

#include "columns.h"
#include "dtype.h"
#include "table.h"
#include "transpose.h"

namespace INFINIOP_ISA {
namespace {

#if defined(__AVX512F__)
// The bfloat16 nearest to each number, ties away from zero, in the upper half of 32 bits.
INFINIOP_INLINE __m512i nearest_bfloat16(__m512 x) {
    return _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000)),
                            _mm512_set1_epi32(int(0xFFFF0000u)));
}

// The parts of 16 numbers, largest first, in the upper halves of 32 bits; the lower halves are zeros.
template <class T> struct parts_of;

template <> struct parts_of<float> {
    enum { count = 3 };
    __m512i part[3];
    static INFINIOP_INLINE __m512 load(const char *from, __mmask16 some) { return _mm512_maskz_loadu_ps(some, from); }
    INFINIOP_INLINE void split(__m512 x) {
        part[0] = nearest_bfloat16(x);
        const __m512 rest = _mm512_sub_ps(x, _mm512_castsi512_ps(part[0]));
        part[1] = nearest_bfloat16(rest);
        part[2] = _mm512_castps_si512(_mm512_sub_ps(rest, _mm512_castsi512_ps(part[1])));  // at most 8 bits are left
    }
};

template <> struct parts_of<float16> {
    enum { count = 2 };
    __m512i part[2];
    __mmask16 bad;  // inf and NaN
    static INFINIOP_INLINE __m512 load(const char *from, __mmask16 some) {
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(some, from));
    }
    INFINIOP_INLINE void split(__m512 x) {
        const __m512i sign = _mm512_set1_epi32(INT32_MIN), tiny = _mm512_set1_epi32(0x0D800000);  // 2^-100
        bad = _mm512_cmp_ps_mask(_mm512_abs_ps(x), _mm512_set1_ps(65504), _CMP_NLE_UQ);
        part[0] = nearest_bfloat16(x);
        part[1] = _mm512_castps_si512(_mm512_sub_ps(x, _mm512_castsi512_ps(part[0])));
        if (__builtin_expect(bad, 0)) {
            const __m512i signs = _mm512_and_si512(_mm512_castps_si512(x), sign);
            part[0] = _mm512_mask_or_epi32(part[0], bad, signs, tiny);
            part[1] = _mm512_mask_mov_epi32(part[1], bad, _mm512_setzero_si512());
        }
    }
};

template <> struct parts_of<bfloat16> {
    enum { count = 1 };
    __m512i part[1];
    static INFINIOP_INLINE __m512 load(const char *from, __mmask16 some) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, from)), 16));
    }
    INFINIOP_INLINE void split(__m512 x) { part[0] = _mm512_castps_si512(x); }
};

// The same of 16 lines of numbers, 16 of each, or some; of the lines from `count` on, and of those that are none,
// zeros.
template <class T>
__attribute__((noinline)) void columns_of_lines(const char *from, const int64_t *line, int64_t count, __mmask16 some,
                                                __m512 *column) {
    alignas(64) float staged[16 * 16];
    const bool whole = sizeof(T) == 4 && some == 0xFFFF;
    const char *row[16];
    for (int r = 0; r < 16; r++) {
        const bool there = r < count && line[r] != INT64_MIN;
        row[r] = whole && there ? from + line[r] : (const char *)(staged + 16 * r);
        if (!there) _mm512_store_ps(staged + 16 * r, _mm512_setzero_ps());
        else if (!whole) _mm512_store_ps(staged + 16 * r, parts_of<T>::load(from + line[r], some));
    }
    columns_of_rows(row, column);
}

INFINIOP_INLINE __mmask16 first_channels(int64_t count) {
    return count <= 0 ? 0 : count >= 16 ? 0xFFFF : __mmask16((1u << count) - 1);
}

// What numbers that were taken apart do not fit, in pairs: of their 32 largest parts side by side, `high`.
template <class T> struct Unfit {
    INFINIOP_INLINE void see(const parts_of<T> &, const parts_of<T> &, __m512i) {}
    INFINIOP_INLINE int any() const { return 0; }
};

template <> struct Unfit<float16> {
    int bad = 0;
    INFINIOP_INLINE void see(const parts_of<float16> &x, const parts_of<float16> &y, __m512i) { bad |= x.bad | y.bad; }
    INFINIOP_INLINE int any() const { return bad != 0; }
};

INFINIOP_INLINE short upper_half(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return short(bits >> 16);
}

// The largest parts' magnitudes, less one, so that 0 is the greatest without a sign and the least with one. A number so
// small that its largest part is 0 is left as its smallest one, with bits that no part of a greater number has, and so
// is a NaN that rounding turns into 0.
template <> struct Unfit<float> {
    __m512i most = _mm512_set1_epi16(-1), least = _mm512_set1_epi16(-1), rest = _mm512_setzero_si512();

    INFINIOP_INLINE void see(const parts_of<float> &x, const parts_of<float> &y, __m512i high) {
        const __m512i less_one =
            _mm512_sub_epi16(_mm512_and_si512(high, _mm512_set1_epi16(0x7FFF)), _mm512_set1_epi16(1));
        most = _mm512_max_epi16(most, less_one);
        least = _mm512_min_epu16(least, less_one);
        rest = _mm512_ternarylogic_epi32(rest, x.part[2], y.part[2], 0xFE);  // the union of all three
    }
    INFINIOP_INLINE bool below(float bound) const {
        return _mm512_cmple_epu16_mask(least, _mm512_set1_epi16(upper_half(bound) - 1));
    }
    INFINIOP_INLINE int any() const {
        if (_mm512_cmpge_epi16_mask(most, _mm512_set1_epi16(upper_half(MOST) - 1)) ||
            _mm512_test_epi32_mask(rest, _mm512_set1_epi32(0xFFFF)))
            return UNFIT_FACTOR | UNFIT_GRADIENT;
        return (below(LEAST_FACTOR) ? UNFIT_FACTOR : 0) | (below(LEAST_GRADIENT) ? UNFIT_GRADIENT : 0);
    }
};

// The places of the upper halves of 2 x 16 numbers of 32 bits.
INFINIOP_INLINE __m512i upper_halves() {
    alignas(64) uint16_t upper[32];
    for (int i = 0; i < 32; i++) upper[i] = uint16_t(2 * i + 1);
    return _mm512_load_si512(upper);
}

template <class T>
int part_rows(const char *from, int64_t from_row, char *to, int64_t part, int64_t to_row, int64_t to_next, int64_t rows,
              int64_t before, int64_t count, int64_t width) {
    const __m512i upper = upper_halves();
    Unfit<T> unfit;
    for (int64_t at = 0; at < width; at += 32, to += to_next) {
        const uint64_t inside = bits_between(before - at, before + count - at);
        const __mmask32 all = __mmask32(bits_between(0, width - at));
        const char *source = from + (at - before) * int64_t(sizeof(T));
        for (int64_t r = 0; r < rows; r++) {
            parts_of<T> x, y;
            x.split(x.load(source + r * from_row, __mmask16(inside)));
            y.split(y.load(source + r * from_row + 16 * sizeof(T), __mmask16(inside >> 16)));
#pragma GCC unroll 3
            for (int p = 0; p < parts_of<T>::count; p++) {
                const __m512i both = _mm512_permutex2var_epi16(x.part[p], upper, y.part[p]);
                if (p == 0) unfit.see(x, y, both);
                _mm512_mask_storeu_epi16(to + p * part + r * to_row, all, both);
            }
        }
    }
    return unfit.any();
}

// Two vectors side by side in the halves of 32 bits: part p at to + p * part.
template <class T>
INFINIOP_INLINE void store_halves(__m512 low, __m512 high, char *to, int64_t part, __mmask16 some, Unfit<T> *unfit) {
    parts_of<T> x, y;
    x.split(low);
    y.split(high);
#pragma GCC unroll 3
    for (int p = 0; p < parts_of<T>::count; p++) {
        const __m512i both = _mm512_or_si512(_mm512_srli_epi32(x.part[p], 16), y.part[p]);
        if (p == 0) unfit->see(x, y, both);
        _mm512_mask_storeu_epi32(to + p * part, some, both);
    }
}

template <class T>
int part_row_pairs(const char *from, int64_t from_row, char *to, int64_t part, int64_t rows, int64_t count) {
    Unfit<T> unfit;
    int64_t line[16];
    for (int r = 0; r < 16; r++) line[r] = r * from_row;
    for (int64_t at = 0; at < count; at += 16, from += 16 * sizeof(T), to += 8 * 64) {
        const int pairs = count - at < 16 ? int(count - at + 1) / 2 : 8;
        __m512 pixel[16];
        columns_of_lines<T>(from, line, rows, __mmask16(bits_between(0, count - at)), pixel);
        for (int i = 0; i < pairs; i++)
            store_halves<T>(pixel[2 * i], pixel[2 * i + 1], to + i * 64, part, 0xFFFF, &unfit);
    }
    return unfit.any();
}

template <class T>
int part_planes(const char *low, const char *high, int64_t from_row, char *to, int64_t part, int64_t to_row,
                int64_t rows, int64_t before, int64_t pixels, int64_t width) {
    Unfit<T> unfit;
    for (int64_t at = 0; at < width; at += 16) {
        const __mmask16 inside = __mmask16(bits_between(before - at, before + pixels - at)),
                        all = __mmask16(bits_between(0, width - at)), of_low = low ? inside : 0,
                        of_high = high ? inside : 0;
        const int64_t there = (at - before) * int64_t(sizeof(T));
        const char *a = (low ? low : high) + there, *b = (high ? high : low) + there;
        for (int64_t r = 0; r < rows; r++)
            store_halves<T>(parts_of<T>::load(a + r * from_row, of_low), parts_of<T>::load(b + r * from_row, of_high),
                            to + r * to_row + 4 * at, part, all, &unfit);
    }
    return unfit.any();
}

inline void bfloat16_pixels(const char *from, int64_t column, char *to, int rows, int64_t channels) {
    const __mmask16 inside = first_channels(rows);
    transpose_u32 pair[16];
#pragma GCC unroll 16
    for (int c = 0; c < 16; c++) {
        const char *at = from + 2 * c * column;
        pair[c] = transpose_u32{};
        if (2 * c < channels) pair[c] = (transpose_u32)parts_of<bfloat16>::load(at, inside) >> 16;
        if (2 * c + 1 < channels) pair[c] |= (transpose_u32)parts_of<bfloat16>::load(at + column, inside);
    }
    transpose_square<16>(pair);
    for (int i = 0; i < rows; i++) store(to + i * 64, pair[i]);
}

template <class T>
int part_pixels(const char *from, int64_t column, char *to, int64_t part, int64_t pixels, int64_t channels) {
    Unfit<T> unfit;
    int64_t line[32];
    for (int c = 0; c < 32; c++) line[c] = c * column;
    for (int64_t r = 0; r < pixels; r += 16, from += 16 * sizeof(T), to += 16 * 64) {
        const int rows = pixels - r < 16 ? int(pixels - r) : 16;
        if constexpr (parts_of<T>::count == 1) {
            bfloat16_pixels(from, column, to, rows, channels);
            continue;
        }
        __m512 low[16], high[16];
        columns_of_lines<T>(from, line, channels, first_channels(rows), low);
        columns_of_lines<T>(from, line + 16, channels - 16, first_channels(rows), high);
        for (int i = 0; i < rows; i++) store_halves<T>(low[i], high[i], to + i * 64, part, 0xFFFF, &unfit);
    }
    return unfit.any();
}

template <class T>
int part_lines(const char *from, int64_t step, char *to, int64_t part, int64_t pixels, int64_t channels) {
    if constexpr (parts_of<T>::count == 1) {
        const __mmask32 some = __mmask32(bits_between(0, channels));
        for (int64_t i = 0; i < pixels; i++)
            _mm512_storeu_si512(to + i * 64, _mm512_maskz_loadu_epi16(some, from + i * step));
        return 0;
    }
    const __mmask16 low = first_channels(channels), high = first_channels(channels - 16);
    Unfit<T> unfit;
    for (int64_t i = 0; i < pixels; i++, from += step)
        store_halves<T>(parts_of<T>::load(from, low), parts_of<T>::load(from + 16 * sizeof(T), high), to + i * 64, part,
                        0xFFFF, &unfit);
    return unfit.any();
}

template <class T>
int part_line_pairs(const char *from, int64_t step, char *to, int64_t half, int64_t pairs, int64_t channels) {
    constexpr int64_t AHEAD = 32;  // lines: what comes from memory would be waited for
    Unfit<T> unfit;
    for (int64_t i = 0; i < pairs; i++, from += 2 * step, to += 64)
        for (int64_t c = 0; c < channels; c += 16) {
            const __mmask16 some = first_channels(channels - c);
            const char *at = from + c * int64_t(sizeof(T));
            if (c * int64_t(sizeof(T)) % 64 == 0) {
                _mm_prefetch(at + AHEAD * step, _MM_HINT_T0);
                _mm_prefetch(at + (AHEAD + 1) * step, _MM_HINT_T0);
            }
            char *panel = to + (c / 32 * 2 * parts_of<T>::count + c / 16 % 2) * half;
            store_halves<T>(parts_of<T>::load(at, some), parts_of<T>::load(at + step, some), panel, 2 * half, 0xFFFF,
                            &unfit);
        }
    return unfit.any();
}

template <class T>
int part_columns(const char *from, const int64_t *line, int64_t count, int64_t channels, char *to, int64_t part) {
    const __m512i upper = upper_halves();
    const __mmask16 some = first_channels(channels);
    Unfit<T> unfit;
    __m512 low[16], high[16];
    columns_of_lines<T>(from, line, count, some, low);
    columns_of_lines<T>(from, line + 16, count - 16, some, high);
    for (int64_t c = 0; c < channels; c++) {
        parts_of<T> x, y;
        x.split(low[c]);
        y.split(high[c]);
#pragma GCC unroll 3
        for (int p = 0; p < parts_of<T>::count; p++) {
            const __m512i both = _mm512_permutex2var_epi16(x.part[p], upper, y.part[p]);
            if (p == 0) unfit.see(x, y, both);
            _mm512_storeu_si512(to + p * part + c * 64, both);
        }
    }
    return unfit.any();
}

// A magnitude's bits less those of `least`, as an unsigned number, are above their distance where it lies outside.
inline int any_outside(const char *from, int64_t n, float least) {
    const __m512i magnitude = _mm512_set1_epi32(INT32_MAX), low = _mm512_castps_si512(_mm512_set1_ps(least));
    const __m512i distance = _mm512_sub_epi32(_mm512_castps_si512(_mm512_set1_ps(MOST)), low);
    for (int64_t i = 0; i < n;) {
        const int64_t end = n - i > 4096 ? i + 4096 : n;
        __mmask16 found = 0;
        for (; i < end; i += 16) {
            const __mmask16 some = end - i < 16 ? __mmask16((1u << (end - i)) - 1) : __mmask16(0xFFFF);
            const __m512i x = _mm512_and_si512(_mm512_maskz_loadu_epi32(some, from + 4 * i), magnitude);
            const __mmask16 nonzero = _mm512_test_epi32_mask(x, x);
            found |= _mm512_mask_cmpgt_epu32_mask(nonzero, _mm512_sub_epi32(x, low), distance);
        }
        if (found) return 1;
    }
    return 0;
}

template <class T> constexpr PartKernels part_kernels() {
    return {parts_of<T>::count, part_rows<T>,   part_row_pairs<T>,
            part_planes<T>,     part_pixels<T>, part_lines<T>,
            part_line_pairs<T>, any_outside,    parts_of<T>::count > 1 ? part_columns<T> : nullptr};
}

constexpr void fill_parts(KernelTable &table) {
    table.parts[DTYPE_F32] = part_kernels<float>();
    table.parts[DTYPE_F16] = part_kernels<float16>();
    table.parts[DTYPE_BF16] = part_kernels<bfloat16>();
}
#else
constexpr void fill_parts(KernelTable &) {}
#endif

}  // namespace
}  // namespace INFINIOP_ISA
