// Numbers of 16 bits that lie side by side, or every other one, in either direction, as a vector of them.
#pragma once
#include "transpose.h"

namespace INFINIOP_ISA {
namespace {

#if defined(__AVX512F__)
enum { WORDS = 32 };  // of a vector

INFINIOP_INLINE __m512i count_words() {
    return _mm512_set_epi16(31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9,
                            8, 7, 6, 5, 4, 3, 2, 1, 0);
}

INFINIOP_INLINE __m512i reverse_words(__m512i v) {
    return _mm512_permutexvar_epi16(_mm512_sub_epi16(_mm512_set1_epi16(WORDS - 1), count_words()), v);
}

// Number i is the one i * step numbers from `from` on, for i in [first, last); the others are zeros, and not read.
template <int step> INFINIOP_INLINE __m512i take_words(const char *from, int64_t first, int64_t last) {
    if (step < 0) {  // from the lowest address on
        const int64_t end = last;
        last = WORDS - first, first = WORDS - end, from += 2 * step * (WORDS - 1);
    }
    if (step * step == 1) {
        const __m512i v = _mm512_maskz_loadu_epi16(__mmask32(bits_between(first, last)), from);
        return step > 0 ? v : reverse_words(v);
    }
    const uint64_t wanted = bits_between(2 * first, 2 * last) & 0x5555555555555555u;
    const __m512i order = _mm512_add_epi16(count_words(), count_words());
    return _mm512_permutex2var_epi16(_mm512_maskz_loadu_epi16(__mmask32(wanted), from),
                                     step > 0 ? order : _mm512_sub_epi16(_mm512_set1_epi16(62), order),
                                     _mm512_maskz_loadu_epi16(__mmask32(wanted >> 32), from + 64));
}

template <int step> INFINIOP_INLINE void copy_words(const char *from, char *to, int64_t n) {
    for (int64_t i = 0; i < n; i += WORDS)
        _mm512_mask_storeu_epi16(to + 2 * i, __mmask32(bits_between(0, n - i)),
                                 take_words<step>(from + 2 * step * i, 0, n - i));
}

// To every other number; no other is touched.
INFINIOP_INLINE void spread_words(const char *from, char *to, int64_t n) {
    for (int64_t i = 0; i < n; i += 16) {
        const __m256i v = _mm256_maskz_loadu_epi16(__mmask16(bits_between(0, n - i)), from + 2 * i);
        _mm512_mask_storeu_epi16(to + 4 * i, __mmask32(bits_between(0, 2 * (n - i)) & 0x55555555u),
                                 _mm512_cvtepu16_epi32(v));
    }
}
#endif

}  // namespace
}  // namespace INFINIOP_ISA
