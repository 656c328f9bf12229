// Transposing copies of 16-bit numbers that become float on the way: the squares of transpose.h, widened as they are
// loaded.
#pragma once
#include "dtype.h"
#include "transpose.h"

namespace INFINIOP_ISA {
namespace {

template <class T> struct widened_column {
    typedef compute_vector<T> vector;
    static constexpr int item = sizeof(T);
    static INFINIOP_INLINE vector whole(const char *p) { return widen_vector((const T *)p); }
    static INFINIOP_INLINE vector some(const char *p, int n) { return widen_some((const T *)p, 0, n); }
};

constexpr void fill_widen_transpose(KernelTable &table) {
    table.widen_transpose[DTYPE_F16] = transpose<transpose_block<widened_column<float16>>>;
    table.widen_transpose[DTYPE_BF16] = transpose<transpose_block<widened_column<bfloat16>>>;
    table.widen_transpose[DTYPE_F32] = table.transpose[DTYPE_F32];
    table.widen_transpose[DTYPE_F64] = table.transpose[DTYPE_F64];
}

}  // namespace
}  // namespace INFINIOP_ISA
