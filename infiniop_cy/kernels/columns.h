// 16 rows of 16 floats as 16 columns.
#pragma once
#include <stdint.h>

#include "simd.h"

namespace INFINIOP_ISA {
namespace {

#if defined(__AVX512F__)
// Element j of each of 16 rows, in their order: quarters of four rows side by side, then squares of 4 x 4. Loads put
// the quarters in place, which takes half of the shuffles.
__attribute__((noinline)) void columns_of_rows(const char *const *row, __m512 *column) {
    __m512i quarter[4][4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            __m512i all = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)row[r] + j));
            all = _mm512_mask_broadcast_i32x4(all, 0x00F0, _mm_loadu_si128((const __m128i *)row[r + 4] + j));
            all = _mm512_mask_broadcast_i32x4(all, 0x0F00, _mm_loadu_si128((const __m128i *)row[r + 8] + j));
            quarter[j][r] = _mm512_mask_broadcast_i32x4(all, 0xF000, _mm_loadu_si128((const __m128i *)row[r + 12] + j));
        }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        const __m512i *q = quarter[j];
        const __m512i a = _mm512_unpacklo_epi32(q[0], q[1]), b = _mm512_unpackhi_epi32(q[0], q[1]);
        const __m512i c = _mm512_unpacklo_epi32(q[2], q[3]), d = _mm512_unpackhi_epi32(q[2], q[3]);
        column[4 * j] = _mm512_castsi512_ps(_mm512_unpacklo_epi64(a, c));
        column[4 * j + 1] = _mm512_castsi512_ps(_mm512_unpackhi_epi64(a, c));
        column[4 * j + 2] = _mm512_castsi512_ps(_mm512_unpacklo_epi64(b, d));
        column[4 * j + 3] = _mm512_castsi512_ps(_mm512_unpackhi_epi64(b, d));
    }
}
#endif

}  // namespace
}  // namespace INFINIOP_ISA
