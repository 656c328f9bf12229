// bfloat16 by AVX512_BF16: the dot product of two pairs an instruction, each product added as a fused multiply-add
// would, in float. Subnormals count as zeros.
#pragma once
#include "simd.h"
#include "table.h"

namespace INFINIOP_ISA {
namespace {

#if defined(__AVX512F__)
#define INFINIOP_DOT2 __attribute__((target("avx512bf16")))

// Sums to the first columns of rows of bfloat16, as gemm's put_rows.
template <int rows, int vectors>
INFINIOP_INLINE INFINIOP_DOT2 void put_narrow_rows(__m512 (&sum)[rows][vectors], const BatchReduce &steps, char *c,
                                                   int64_t c_row, bool past) {
    const __m512 least = _mm512_set1_ps(0x1p-126f);  // the instruction that rounds counts subnormals as 0
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) {
            const int64_t left = steps.columns - j * 16;
            char *to = c + 2 * (i * c_row + j * 16);
            __m512 value = _mm512_add_ps(_mm512_setzero_ps(), sum[i][j]);
            if (steps.bias) {
                value = _mm512_add_ps(value, _mm512_loadu_ps((const float *)steps.bias + j * 16));
                value = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(_mm512_abs_ps(value), least, _CMP_NLT_UQ), value);
            }
            const __m256i narrow = (__m256i)_mm512_cvtneps_pbh(value);
            if (past && left >= 16) _mm256_stream_si256((__m256i *)to, narrow);
            else if (left > 0)
                _mm256_mask_storeu_epi16(to, left < 16 ? __mmask16((1u << left) - 1) : __mmask16(-1), narrow);
        }
}

template <int rows, int vectors>
INFINIOP_DOT2 void gemm_dot2(const BatchReduce *steps, const void *a_, const int64_t *indirection, const void *b_,
                             void *c_, int64_t c_row, int end) {
    const bool accumulate = end == GEMM_CHAIN;
    float *c = (float *)c_;
    __m512 sum[rows][vectors];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++)
            sum[i][j] = accumulate ? _mm512_loadu_ps(c + i * c_row + j * 16) : _mm512_setzero_ps();
    int64_t at[rows];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) at[i] = indirection[i];
    const int64_t depth = steps->depth, a_step = steps->a_step, b_step = steps->b_step;
    for (int64_t s = 0; s < steps->count; s++) {
        const uint16_t *a = (const uint16_t *)a_ + steps->a_offset[s];
        const uint32_t *b = (const uint32_t *)b_ + steps->b_offset[s];
        for (int64_t k = 0; k < depth; k++, a += a_step, b += b_step) {
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
    if (end >= GEMM_PUT) return put_narrow_rows<rows, vectors>(sum, *steps, (char *)c_, c_row, end == GEMM_PUT_PAST);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) {
            float *to = c + i * c_row + j * 16;
            // A negative sum that is subnormal has become -0, and what is behind an odd row, times its 0, decides
            // whether it stays that: added to 0 it is 0, whatever is there.
            _mm512_storeu_ps(to, _mm512_add_ps(accumulate ? _mm512_setzero_ps() : _mm512_loadu_ps(to), sum[i][j]));
        }
}

constexpr void fill_dot2(KernelTable &table) {
    table.dot2 = {
        16,
        4,
        {{}, {8, 1, gemm_dot2<8, 1>}, {8, 2, gemm_dot2<8, 2>}, {8, 3, gemm_dot2<8, 3>}, {6, 4, gemm_dot2<6, 4>}},
        {4, 6, gemm_dot2<4, 6>},
        {1, 8, gemm_dot2<1, 8>}};
}
#else
constexpr void fill_dot2(KernelTable &) {}
#endif

}  // namespace
}  // namespace INFINIOP_ISA
