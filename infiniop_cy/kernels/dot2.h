// bfloat16 by AVX512_BF16: the dot product of two pairs an instruction, each product added as a fused multiply-add
// would, in float. Subnormals count as zeros.
#pragma once
#include "simd.h"
#include "table.h"

namespace INFINIOP_ISA {
namespace {

#if defined(__AVX512F__)
#if defined(INFINIOP_EMULATED_AVX512)
#define INFINIOP_DOT2
#else
#define INFINIOP_DOT2 __attribute__((target("avx512bf16")))
#endif

// A sum as one that is added to 0, which has no -0, and then (biased) to the bias.
template <bool biased> INFINIOP_INLINE INFINIOP_DOT2 __m512 ended(__m512 sum, const BatchReduce &steps, int vector) {
    __m512 value = _mm512_add_ps(_mm512_setzero_ps(), sum);
    if (!biased) return value;
    value = _mm512_add_ps(value, _mm512_loadu_ps((const float *)steps.bias + vector * 16));
    const __m512 least = _mm512_set1_ps(0x1p-126f);  // the instruction that rounds counts subnormals as 0
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(_mm512_abs_ps(value), least, _CMP_NLT_UQ), value);
}

// Sums to the first columns of rows of bfloat16, as gemm's put_rows; two vectors are rounded at a time, and go past the
// caches as a line. What is written is found out once for all rows: those of few steps take little longer to multiply.
template <bool biased, bool past, int rows, int vectors>
INFINIOP_INLINE INFINIOP_DOT2 void put_narrow_rows(__m512 (&sum)[rows][vectors], const BatchReduce &steps, char *c,
                                                   int64_t c_row) {
    constexpr int pairs = vectors / 2;
    const int64_t columns = steps.columns;
    __mmask32 written[pairs + 1];
#pragma GCC unroll 12
    for (int j = 0; j <= pairs; j++) {
        const int64_t left = columns - j * 32;
        written[j] = left >= 32 ? __mmask32(-1) : left > 0 ? (__mmask32(1) << left) - 1 : __mmask32(0);
    }
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++, c += 2 * c_row) {
#pragma GCC unroll 12
        for (int j = 0; j < pairs; j++) {
            const __m512i narrow = (__m512i)_mm512_cvtne2ps_pbh(ended<biased>(sum[i][2 * j + 1], steps, 2 * j + 1),
                                                                ended<biased>(sum[i][2 * j], steps, 2 * j));
            if (past) _mm512_stream_si512((__m512i *)(c + 64 * j), narrow);
            else _mm512_mask_storeu_epi16(c + 64 * j, written[j], narrow);
        }
        if (vectors % 2)
            _mm256_mask_storeu_epi16(
                c + 64 * pairs, (__mmask16)written[pairs],
                (__m256i)_mm512_cvtneps_pbh(ended<biased>(sum[i][vectors - 1], steps, vectors - 1)));
    }
}

template <int rows, int vectors>
INFINIOP_INLINE INFINIOP_DOT2 void put_narrow_rows(__m512 (&sum)[rows][vectors], const BatchReduce &steps, char *c,
                                                   int64_t c_row, bool past) {
    if (vectors % 2 == 0 && past)
        return steps.bias ? put_narrow_rows<true, true>(sum, steps, c, c_row)
                          : put_narrow_rows<false, true>(sum, steps, c, c_row);
    return steps.bias ? put_narrow_rows<true, false>(sum, steps, c, c_row)
                      : put_narrow_rows<false, false>(sum, steps, c, c_row);
}

template <int rows, int vectors>
INFINIOP_DOT2 void gemm_dot2(const BatchReduce *steps, const void *a_, const int64_t *indirection, const void *b_,
                             void *c_, int64_t c_row, int end) {
    const bool accumulate = end == GEMM_CHAIN;
    float *c = (float *)c_;
    __m512 sum[rows][vectors];
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 12
        for (int j = 0; j < vectors; j++)
            sum[i][j] = accumulate ? _mm512_loadu_ps(c + i * c_row + j * 16) : _mm512_setzero_ps();
    int64_t at[rows];
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) at[i] = indirection[i];
    const int64_t depth = steps->depth, a_step = steps->a_step, b_step = steps->b_step;
    for (int64_t s = 0; s < steps->count; s++) {
        const uint16_t *a = (const uint16_t *)a_ + steps->a_offset[s];
        const uint32_t *b = (const uint32_t *)b_ + steps->b_offset[s];
        for (int64_t k = 0; k < depth; k++, a += a_step, b += b_step) {
            __m512bh column[vectors];
#pragma GCC unroll 12
            for (int j = 0; j < vectors; j++) column[j] = (__m512bh)_mm512_loadu_si512(b + j * 16);
#pragma GCC unroll 12
            for (int i = 0; i < rows; i++) {
                int32_t pair;
                __builtin_memcpy(&pair, a + at[i], sizeof pair);
                __m512bh factor = (__m512bh)_mm512_set1_epi32(pair);
#pragma GCC unroll 12
                for (int j = 0; j < vectors; j++) sum[i][j] = _mm512_dpbf16_ps(sum[i][j], factor, column[j]);
            }
        }
    }
    if (end >= GEMM_PUT) return put_narrow_rows(sum, *steps, (char *)c_, c_row, end == GEMM_PUT_PAST);
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 12
        for (int j = 0; j < vectors; j++) {
            float *to = c + i * c_row + j * 16;
            // A negative sum that is subnormal has become -0, and what is behind an odd row, times its 0, decides
            // whether it stays that: added to 0 it is 0, whatever is there.
            const __m512 own = _mm512_add_ps(_mm512_setzero_ps(), sum[i][j]);
            _mm512_storeu_ps(to, accumulate ? own : _mm512_add_ps(_mm512_loadu_ps(to), own));
        }
}

constexpr void fill_dot2(KernelTable &table) {
    table.dot2 = {
        16,
        4,
        {{}, {12, 1, gemm_dot2<12, 1>}, {8, 2, gemm_dot2<8, 2>}, {8, 3, gemm_dot2<8, 3>}, {6, 4, gemm_dot2<6, 4>}},
        4,
        {4, 6, gemm_dot2<4, 6>},
        {1, 8, gemm_dot2<1, 8>}};
}
#else
constexpr void fill_dot2(KernelTable &) {}
#endif

}  // namespace
}  // namespace INFINIOP_ISA
