// Transposing copies of 16-bit numbers that become float on the way: the squares of transpose.h, widened as they are
// loaded.
#pragma once
#include "dtype.h"
#include "transpose.h"

namespace INFINIOP_ISA {
namespace {

template <class T>
void widen_transpose(const char *from, int64_t column, char *to, int64_t row, int64_t rows, int64_t columns) {
    typedef compute_vector<T> V;
    typedef scalar<V> S;
    constexpr int count = lanes<V>::count;
    for (int64_t c = 0; c < columns; c += count)
        for (int64_t r = 0; r < rows; r += count) {
            const int many = rows - r < count ? int(rows - r) : count;
            const int wide = columns - c < count ? int(columns - c) : count;
            const char *at = from + c * column + r * int64_t(sizeof(T));
            char *there = to + r * row + c * int64_t(sizeof(S));
            V square[count];
#pragma GCC unroll 16
            for (int i = 0; i < count; i++)
                square[i] = i < wide ? widen_some((const T *)(at + i * column), 0, many) : V{};
            transpose_square<count>(square);
#pragma GCC unroll 16
            for (int i = 0; i < count; i++) {
                if (i >= many) break;
                if (wide < count) store_some(there + i * row, square[i], wide);
                else store(there + i * row, square[i]);
            }
        }
}

constexpr void fill_widen_transpose(KernelTable &table) {
    table.widen_transpose[DTYPE_F16] = widen_transpose<float16>;
    table.widen_transpose[DTYPE_BF16] = widen_transpose<bfloat16>;
    table.widen_transpose[DTYPE_F32] = table.transpose[DTYPE_F32];
    table.widen_transpose[DTYPE_F64] = table.transpose[DTYPE_F64];
}

}  // namespace
}  // namespace INFINIOP_ISA
