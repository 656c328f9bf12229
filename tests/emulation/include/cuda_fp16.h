// float16 in software, bit for bit as the device rounds it.
#pragma once

struct __half_raw { unsigned short x; };

namespace emulation_shim {

inline unsigned short float_to_half(float value) {
  const unsigned bits = __float_as_uint(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return 0x7FFF;                            // the device's only NaN
  if (magnitude >= 0x477FF000) return (unsigned short)(sign | 0x7C00);  // from 65520 on: infinity
  if (magnitude < 0x38800000)  // subnormal: adding 0.5 puts the rounding where it belongs
    return (unsigned short)(sign | (__float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3F000000));
  return (unsigned short)(sign | ((magnitude + 0xFFF + (magnitude >> 13 & 1) - (112u << 23)) >> 13));
}

inline float half_to_float(unsigned short h) {
  const unsigned sign = (h & 0x8000u) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3FF;
  if (exponent == 31) return __uint_as_float(mantissa ? 0x7FFFFFFF : sign | 0x7F800000);
  if (exponent == 0) return __uint_as_float(sign | __float_as_uint(float(mantissa) * 5.9604644775390625e-8f));
  return __uint_as_float(sign | ((h & 0x7FFFu) << 13) + (112u << 23));
}

// A float that rounds onwards as the double would: the lost bits are kept in the last place.
inline float to_odd(double value) {
  const float near = float(value);
  if (double(near) == value || value != value || near - near != 0) return near;
  const float toward_zero = fabs(double(near)) > fabs(value) ? __uint_as_float(__float_as_uint(near) - 1) : near;
  return __uint_as_float(__float_as_uint(toward_zero) | 1);
}

}  // namespace emulation_shim

struct __attribute__((aligned(2))) __half {
  unsigned short __x;
  __half() = default;
  __half(const __half_raw& raw) : __x(raw.x) {}
  __half(float value) : __x(emulation_shim::float_to_half(value)) {}
  __half(double value) : __x(emulation_shim::float_to_half(emulation_shim::to_odd(value))) {}
  __half(int value) : __half(double(value)) {}
  operator float() const { return emulation_shim::half_to_float(__x); }
  operator __half_raw() const { return {__x}; }
};
typedef __half half;

inline __half __ushort_as_half(unsigned short bits) { return __half_raw{bits}; }
inline unsigned short __half_as_ushort(__half h) { return h.__x; }
inline __half __float2half_rn(float value) { return value; }
inline float __half2float(__half h) { return h; }
