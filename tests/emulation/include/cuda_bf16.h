// bfloat16 in software, bit for bit as the device rounds it.
#pragma once
#include "cuda_fp16.h"

struct __nv_bfloat16_raw { unsigned short x; };

namespace emulation_shim {

inline unsigned short float_to_bfloat16(float value) {
  const unsigned bits = __float_as_uint(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return 0x7FFF;  // the device's only NaN
  return (unsigned short)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

}  // namespace emulation_shim

struct __attribute__((aligned(2))) __nv_bfloat16 {
  unsigned short __x;
  __nv_bfloat16() = default;
  __nv_bfloat16(const __nv_bfloat16_raw& raw) : __x(raw.x) {}
  __nv_bfloat16(float value) : __x(emulation_shim::float_to_bfloat16(value)) {}
  __nv_bfloat16(double value) : __x(emulation_shim::float_to_bfloat16(emulation_shim::to_odd(value))) {}
  __nv_bfloat16(int value) : __nv_bfloat16(double(value)) {}
  operator float() const { return __uint_as_float(unsigned(__x) << 16); }
  operator __nv_bfloat16_raw() const { return {__x}; }
};

inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return __nv_bfloat16_raw{bits}; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 h) { return h.__x; }
inline __nv_bfloat16 __float2bfloat16_rn(float value) { return value; }
inline float __bfloat162float(__nv_bfloat16 h) { return h; }
