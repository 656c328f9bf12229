// Device functions that concern one thread alone, as far as the kernels use them.
#pragma once

inline void __trap() { emulation_fault(719, "__trap"); }

#define EMULATION_MIN_MAX(T)                       \
  inline T min(T a, T b) { return b < a ? b : a; } \
  inline T max(T a, T b) { return a < b ? b : a; }
EMULATION_MIN_MAX(int)
EMULATION_MIN_MAX(unsigned)
EMULATION_MIN_MAX(long)
EMULATION_MIN_MAX(long long)
#undef EMULATION_MIN_MAX

template <class To, class From>
inline To emulation_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
inline unsigned __float_as_uint(float x) { return emulation_bits<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return emulation_bits<float>(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
