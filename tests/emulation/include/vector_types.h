// int2, float4 and their like, with CUDA's alignments.
#pragma once

#define EMULATION_VECTORS(T, name, align2, align4)                   \
  struct name##1 { T x; };                                           \
  struct __attribute__((aligned(align2))) name##2 { T x, y; };       \
  struct name##3 { T x, y, z; };                                     \
  struct __attribute__((aligned(align4))) name##4 { T x, y, z, w; }; \
  inline name##1 make_##name##1(T x) { return {x}; }                 \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }         \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

#define make_uint3 make_uint3_unused  // uint3 itself comes with the runtime
#define uint3 uint3_unused
EMULATION_VECTORS(unsigned, uint, 8, 16)
#undef uint3
#undef make_uint3
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }

EMULATION_VECTORS(signed char, char, 2, 4)
EMULATION_VECTORS(unsigned char, uchar, 2, 4)
EMULATION_VECTORS(short, short, 4, 8)
EMULATION_VECTORS(unsigned short, ushort, 4, 8)
EMULATION_VECTORS(int, int, 8, 16)
EMULATION_VECTORS(long, long, 16, 16)
EMULATION_VECTORS(unsigned long, ulong, 16, 16)
EMULATION_VECTORS(long long, longlong, 16, 16)
EMULATION_VECTORS(unsigned long long, ulonglong, 16, 16)
EMULATION_VECTORS(float, float, 8, 16)
EMULATION_VECTORS(double, double, 16, 16)
