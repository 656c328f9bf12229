// The matrix micro-kernel and the sum, for float and double: register tiles of mr rows by vectors.
#pragma once
#include "simd.h"
#include "table.h"

namespace INFINIOP_ISA {
namespace {

// Rows by vectors of accumulators that fill the register file without spilling.
#if defined(__AVX512F__)
enum { gemm_rows = 8, gemm_vectors = 3 };
#elif defined(__AVX2__)
enum { gemm_rows = 6, gemm_vectors = 2 };
#else
enum { gemm_rows = 4, gemm_vectors = 2 };
#endif

template <class V, bool by_rows>
void gemm(int64_t k, const void *a_, int64_t a_row, const void *b_, void *c_, int64_t c_row, int chain) {
    typedef scalar<V> S;
    constexpr int count = lanes<V>::count;
    const S *a = (const S *)a_, *b = (const S *)b_;
    S *c = (S *)c_;
    V sum[gemm_rows][gemm_vectors];
#pragma GCC unroll 8
    for (int i = 0; i < gemm_rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < gemm_vectors; j++) sum[i][j] = chain ? load<V>(c + i * c_row + j * count) : V{};
    for (int64_t p = 0; p < k; p++, a += by_rows ? 1 : gemm_rows, b += gemm_vectors * count) {
        V column[gemm_vectors];
#pragma GCC unroll 4
        for (int j = 0; j < gemm_vectors; j++) column[j] = load<V>(b + j * count);
#pragma GCC unroll 8
        for (int i = 0; i < gemm_rows; i++) {
            V row = splat<V>(by_rows ? a[i * a_row] : a[i]);
#pragma GCC unroll 4
            for (int j = 0; j < gemm_vectors; j++) sum[i][j] = mul_add(row, column[j], sum[i][j]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < gemm_rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < gemm_vectors; j++) {
            S *at = c + i * c_row + j * count;
            store(at, chain ? sum[i][j] : load<V>(at) + sum[i][j]);
        }
}

// Sixteen partial sums whatever the vector width, then a fixed tree.
template <class S> double sum(const void *values_, int64_t n) {
    const S *values = (const S *)values_;
    S part[16] = {};
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 16; j++) part[j] += values[i + j];
    for (int j = 0; i < n; i++, j++) part[j] += values[i];
    for (int width = 8; width; width /= 2)
        for (int j = 0; j < width; j++) part[j] += part[j + width];
    return part[0];
}

constexpr void fill_gemm(KernelTable &table) {
    table.gemm[DTYPE_F32] = {gemm_rows, gemm_vectors * lanes<f32v>::count, lanes<f32v>::count, gemm<f32v, false>,
                             gemm<f32v, true>};
    table.gemm[DTYPE_F64] = {gemm_rows, gemm_vectors * lanes<f64v>::count, lanes<f64v>::count, gemm<f64v, false>,
                             gemm<f64v, true>};
    table.sum[DTYPE_F32] = sum<float>;
    table.sum[DTYPE_F64] = sum<double>;
}

}  // namespace
}  // namespace INFINIOP_ISA
