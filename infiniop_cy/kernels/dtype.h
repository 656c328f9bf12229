// Storage types: how each is laid out, what it computes in, and its conversion to and from a vector.
#pragma once
#include "simd.h"

namespace INFINIOP_ISA {
namespace {

struct float16 { uint16_t bits; };
struct bfloat16 { uint16_t bits; };

template <class T> struct storage { typedef T compute; };
template <> struct storage<float16> { typedef float compute; };
template <> struct storage<bfloat16> { typedef float compute; };
template <class T> using compute_type = typename storage<T>::compute;
template <class T> using compute_vector = typename vector_of<compute_type<T>>::type;

#ifndef __CUDACC__
typedef uint32_t u32v __attribute__((vector_size(vector_bytes)));
typedef uint16_t u16v __attribute__((vector_size(vector_bytes / 2)));  // as many lanes as an f32v

INFINIOP_INLINE u16v load_u16(const void *p) {
    u16v v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}
INFINIOP_INLINE void store_u16(void *p, u16v v) { __builtin_memcpy(p, &v, sizeof v); }

INFINIOP_INLINE f32v widen(const float *p) { return load<f32v>(p); }
INFINIOP_INLINE f64v widen(const double *p) { return load<f64v>(p); }
INFINIOP_INLINE void narrow(float *p, f32v v) { store(p, v); }
INFINIOP_INLINE void narrow(double *p, f64v v) { store(p, v); }

INFINIOP_INLINE f32v widen(const bfloat16 *p) {
    return bits_as<f32v>(__builtin_convertvector(load_u16(p), u32v) << 16);
}
INFINIOP_INLINE void narrow(bfloat16 *p, f32v v) {
    u32v bits = bits_as<u32v>(v);
    u32v nearest_even = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    u32v quiet_nan = (bits >> 16) | 0x40u;
    store_u16(p, __builtin_convertvector(select(v != v, quiet_nan, nearest_even), u16v));
}

#if defined(__AVX512F__)
INFINIOP_INLINE f32v widen(const float16 *p) { return (f32v)_mm512_cvtph_ps((__m256i)load_u16(p)); }
INFINIOP_INLINE void narrow(float16 *p, f32v v) {
    store_u16(p, (u16v)_mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#elif defined(__F16C__)
INFINIOP_INLINE f32v widen(const float16 *p) { return (f32v)_mm256_cvtph_ps((__m128i)load_u16(p)); }
INFINIOP_INLINE void narrow(float16 *p, f32v v) {
    store_u16(p, (u16v)_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
}
#else
INFINIOP_INLINE f32v widen(const float16 *p) {
    u32v h = __builtin_convertvector(load_u16(p), u32v), magnitude = h & 0x7fffu;
    u32v scaled = bits_as<u32v>(bits_as<f32v>(magnitude << 13) * 0x1p112f);  // subnormals come out right too
    u32v special = scaled | 0x7f800000u;
    return bits_as<f32v>(select(magnitude >= 0x7c00u, special, scaled) | ((h & 0x8000u) << 16));
}
INFINIOP_INLINE void narrow(float16 *p, f32v v) {
    u32v bits = bits_as<u32v>(v), magnitude = bits & 0x7fffffffu;
    u32v normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
    // 0.5f has the ulp of float16's subnormals: the addition rounds to them.
    u32v subnormal = bits_as<u32v>(bits_as<f32v>(magnitude) + 0.5f) - 0x3f000000u;
    u32v special = select(magnitude > 0x7f800000u, u32v{} + 0x7e00u, u32v{} + 0x7c00u);
    u32v h = select(magnitude < 0x38800000u, subnormal, normal);
    h = select(magnitude >= 0x47800000u, special, h);
    store_u16(p, __builtin_convertvector(h | ((bits >> 16) & 0x8000u), u16v));
}
#endif
#endif  // __CUDACC__

}  // namespace
}  // namespace INFINIOP_ISA
