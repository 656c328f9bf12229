// The vector layer: what the formulas need of a register, written once over compiler vector types.
// V is a vector here and a plain float or double in CUDA; S is the scalar inside V.
// Only mul_add and the float16 conversions (dtype.h) know an instruction set.
#pragma once
#include <stdint.h>

#ifdef __CUDACC__
#define INFINIOP_INLINE __device__ __forceinline__
#define INFINIOP_ONCE INFINIOP_INLINE
#else
#define INFINIOP_INLINE inline __attribute__((always_inline))
#define INFINIOP_ONCE inline __attribute__((noinline))  // once a call: code is not repeated for speed
#endif

#if defined(__CUDACC__)  // needs neither
#elif defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace INFINIOP_ISA {
namespace {

#ifdef __CUDACC__
template <class V> struct lanes;
template <> struct lanes<float> {
    typedef float S;
    typedef int32_t I;
    enum { count = 1 };
    static constexpr int32_t magnitude = INT32_MAX;
};
template <> struct lanes<double> {
    typedef double S;
    typedef int64_t I;
    enum { count = 1 };
    static constexpr int64_t magnitude = INT64_MAX;
};
template <class S> struct vector_of { typedef S type; };
#else
#if defined(__AVX512F__)
enum { vector_bytes = 64 };
#elif defined(__AVX2__)
enum { vector_bytes = 32 };
#else
enum { vector_bytes = 16 };
#endif
typedef float f32v __attribute__((vector_size(vector_bytes)));
typedef double f64v __attribute__((vector_size(vector_bytes)));
typedef int32_t i32v __attribute__((vector_size(vector_bytes)));
typedef int64_t i64v __attribute__((vector_size(vector_bytes)));

template <class V> struct lanes;
template <> struct lanes<f32v> {
    typedef float S;
    typedef i32v I;
    enum { count = vector_bytes / 4 };
    static constexpr int32_t magnitude = INT32_MAX;  // all bits but the sign
};
template <> struct lanes<f64v> {
    typedef double S;
    typedef i64v I;
    enum { count = vector_bytes / 8 };
    static constexpr int64_t magnitude = INT64_MAX;
};
template <class S> struct vector_of;
template <> struct vector_of<float> { typedef f32v type; };
template <> struct vector_of<double> { typedef f64v type; };
#endif

template <class V> using scalar = typename lanes<V>::S;
template <class V> using integer = typename lanes<V>::I;

// Minus 0 keeps every number, so that compilers make it one instruction, a load and no sum.
template <class V> INFINIOP_INLINE V splat(scalar<V> s) { return s - V{}; }

template <class To, class From> INFINIOP_INLINE To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From), "bits_as keeps the size");
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}

template <class Mask, class V> INFINIOP_INLINE V select(Mask mask, V yes, V no) { return mask ? yes : no; }

template <class V> INFINIOP_INLINE V absolute(V x) { return bits_as<V>(bits_as<integer<V>>(x) & lanes<V>::magnitude); }

// |v| of x's sign.
template <class V> INFINIOP_INLINE V with_sign_of(V x, V v) {
    typedef integer<V> I;
    return bits_as<V>((bits_as<I>(v) & lanes<V>::magnitude) | (bits_as<I>(x) & ~lanes<V>::magnitude));
}

// a*b + c, fused wherever the hardware fuses.
#if defined(__CUDACC__)
#define INFINIOP_FUSED 1
INFINIOP_INLINE float mul_add(float a, float b, float c) { return fmaf(a, b, c); }
INFINIOP_INLINE double mul_add(double a, double b, double c) { return fma(a, b, c); }
#elif defined(__AVX512F__)
#define INFINIOP_FUSED 1
INFINIOP_INLINE f32v mul_add(f32v a, f32v b, f32v c) { return (f32v)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
INFINIOP_INLINE f64v mul_add(f64v a, f64v b, f64v c) {
    return (f64v)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
}
#elif defined(__AVX2__) && defined(__FMA__)
#define INFINIOP_FUSED 1
INFINIOP_INLINE f32v mul_add(f32v a, f32v b, f32v c) { return (f32v)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
INFINIOP_INLINE f64v mul_add(f64v a, f64v b, f64v c) {
    return (f64v)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
}
#elif defined(__aarch64__)
#define INFINIOP_FUSED 1
INFINIOP_INLINE f32v mul_add(f32v a, f32v b, f32v c) {
    return (f32v)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
INFINIOP_INLINE f64v mul_add(f64v a, f64v b, f64v c) {
    return (f64v)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
}
#else
#define INFINIOP_FUSED 0
template <class V> INFINIOP_INLINE V mul_add(V a, V b, V c) { return a * b + c; }
#endif

// min and max with a bound; a NaN x stays NaN: these instructions return their second operand then.
#if defined(__AVX512F__)
INFINIOP_INLINE f32v at_most(f32v x, float bound) { return (f32v)_mm512_min_ps(_mm512_set1_ps(bound), (__m512)x); }
INFINIOP_INLINE f64v at_most(f64v x, double bound) { return (f64v)_mm512_min_pd(_mm512_set1_pd(bound), (__m512d)x); }
INFINIOP_INLINE f32v at_least(f32v x, float bound) { return (f32v)_mm512_max_ps(_mm512_set1_ps(bound), (__m512)x); }
INFINIOP_INLINE f64v at_least(f64v x, double bound) { return (f64v)_mm512_max_pd(_mm512_set1_pd(bound), (__m512d)x); }
#elif defined(__AVX2__)
INFINIOP_INLINE f32v at_most(f32v x, float bound) { return (f32v)_mm256_min_ps(_mm256_set1_ps(bound), (__m256)x); }
INFINIOP_INLINE f64v at_most(f64v x, double bound) { return (f64v)_mm256_min_pd(_mm256_set1_pd(bound), (__m256d)x); }
INFINIOP_INLINE f32v at_least(f32v x, float bound) { return (f32v)_mm256_max_ps(_mm256_set1_ps(bound), (__m256)x); }
INFINIOP_INLINE f64v at_least(f64v x, double bound) { return (f64v)_mm256_max_pd(_mm256_set1_pd(bound), (__m256d)x); }
#else
template <class V> INFINIOP_INLINE V at_most(V x, scalar<V> bound) {
    return select(x > splat<V>(bound), splat<V>(bound), x);
}
template <class V> INFINIOP_INLINE V at_least(V x, scalar<V> bound) {
    return select(x < splat<V>(bound), splat<V>(bound), x);
}
#endif

// v * 2^n for integral n <= 0, rounded once; elsewhere than with AVX-512, 0 for n below the normal exponents.
#if defined(__AVX512F__)
INFINIOP_INLINE f32v scale(f32v v, f32v n) { return (f32v)_mm512_scalef_ps((__m512)v, (__m512)n); }
INFINIOP_INLINE f64v scale(f64v v, f64v n) { return (f64v)_mm512_scalef_pd((__m512d)v, (__m512d)n); }
#else
template <class V> INFINIOP_INLINE V scale(V v, V n) {
    constexpr int fraction_bits = sizeof(scalar<V>) == 4 ? 23 : 52;
    constexpr scalar<V> low_bits = sizeof(scalar<V>) == 4 ? scalar<V>(0x1.8p23) : scalar<V>(0x1.8p52);
    integer<V> exponent = bits_as<integer<V>>(n + low_bits) << fraction_bits;  // adding puts n into the low bits
    V power = bits_as<V>(exponent + bits_as<integer<V>>(splat<V>(1)));
    return v * select(n < splat<V>(sizeof(scalar<V>) == 4 ? -126 : -1022), V{}, power);
}
#endif

#ifndef __CUDACC__
// Whole vectors at any address.
template <class V> INFINIOP_INLINE V load(const void *p) {
    V v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}
template <class V> INFINIOP_INLINE void store(void *p, V v) { __builtin_memcpy(p, &v, sizeof v); }

// Lane i of the result is lane index[i] of v.
#if defined(__AVX512F__)
INFINIOP_INLINE f32v take_lanes(f32v v, i32v index) { return (f32v)_mm512_permutexvar_ps((__m512i)index, (__m512)v); }
INFINIOP_INLINE f64v take_lanes(f64v v, i64v index) { return (f64v)_mm512_permutexvar_pd((__m512i)index, (__m512d)v); }
#elif defined(__AVX2__)
INFINIOP_INLINE f32v take_lanes(f32v v, i32v index) {
    return (f32v)_mm256_permutevar8x32_ps((__m256)v, (__m256i)index);
}
INFINIOP_INLINE f64v take_lanes(f64v v, i64v index) {  // there are permutations of halves of these lanes only
    const i64v halves = index << 1 | (index << 1 | 1) << 32;
    return (f64v)_mm256_permutevar8x32_epi32((__m256i)v, (__m256i)halves);
}
#else
template <class V> INFINIOP_INLINE V take_lanes(V v, integer<V> index) {
    V taken;
    for (int i = 0; i < lanes<V>::count; i++) taken[i] = v[index[i]];
    return taken;
}
#endif

// Stores past the caches, at multiples of vector_bytes; the caller has to order them (support.h).
template <class V> INFINIOP_INLINE void stream(void *p, V v) {
#if defined(__AVX512F__)
    _mm512_stream_si512((__m512i *)p, bits_as<__m512i>(v));
#elif defined(__AVX2__)
    _mm256_stream_si256((__m256i *)p, bits_as<__m256i>(v));
#elif defined(__SSE2__)
    _mm_stream_si128((__m128i *)p, bits_as<__m128i>(v));
#else
    store(p, v);
#endif
}
INFINIOP_INLINE void prefetch(const char *p) { __builtin_prefetch(p, 0, 3); }
#endif

}  // namespace
}  // namespace INFINIOP_ISA
