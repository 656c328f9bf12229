// Storage types on a GPU: to the type that they compute in, and back, rounded to nearest even.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "dtype.h"

namespace INFINIOP_ISA {
namespace {

INFINIOP_INLINE float to_compute(float v) { return v; }
INFINIOP_INLINE double to_compute(double v) { return v; }
INFINIOP_INLINE float to_compute(float16 v) { return __half2float(__ushort_as_half(v.bits)); }
INFINIOP_INLINE float to_compute(bfloat16 v) { return __uint_as_float(unsigned(v.bits) << 16); }

template <class T> INFINIOP_INLINE T from_compute(compute_type<T> v) { return v; }
template <> INFINIOP_INLINE float16 from_compute<float16>(float v) { return {__half_as_ushort(__float2half_rn(v))}; }
template <> INFINIOP_INLINE bfloat16 from_compute<bfloat16>(float v) {
    return {__bfloat16_as_ushort(__float2bfloat16_rn(v))};
}

}  // namespace
}  // namespace INFINIOP_ISA
