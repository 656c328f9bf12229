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
template <class T> inline constexpr bool is_bfloat16 = false;
template <> inline constexpr bool is_bfloat16<bfloat16> = true;
template <class T> using compute_type = typename storage<T>::compute;
template <class T> using compute_vector = typename vector_of<compute_type<T>>::type;

#ifndef __CUDACC__
typedef uint32_t u32v __attribute__((vector_size(vector_bytes)));
typedef uint16_t u16v __attribute__((vector_size(vector_bytes / 2)));  // as many lanes as an f32v

INFINIOP_INLINE u32v join(u16v first, u16v second) {
#if defined(__AVX512F__)  // gcc 12 goes through memory otherwise
    return (u32v)_mm512_inserti64x4(_mm512_castsi256_si512((__m256i)first), (__m256i)second, 1);
#elif defined(__AVX2__)
    return (u32v)_mm256_inserti128_si256(_mm256_castsi128_si256((__m128i)first), (__m128i)second, 1);
#else
    struct { u16v half[2]; } both = {{first, second}};
    return bits_as<u32v>(both);
#endif
}

// A register of stored elements, widened: one vector in the compute type, or two where it is twice as wide. Which
// element is in which part does not matter between widen and narrow.
template <class T> struct register_of { static constexpr int count = vector_bytes / sizeof(T); };
template <class V, int n> struct parts {
    static constexpr int count = n;
    V part[n];
};
template <class T> using widened = parts<compute_vector<T>, sizeof(compute_type<T>) / sizeof(T)>;

INFINIOP_INLINE widened<float> widen(const float *p) { return {{load<f32v>(p)}}; }
INFINIOP_INLINE widened<double> widen(const double *p) { return {{load<f64v>(p)}}; }
// bfloat16 is the upper half of a float32: even elements to one part and odd to the other need no shuffle.
INFINIOP_INLINE widened<bfloat16> widen(const bfloat16 *p) {
    u32v pairs = load<u32v>(p);
    return {{bits_as<f32v>(pairs << 16), bits_as<f32v>(pairs & 0xffff0000u)}};
}

// Rounds to nearest even, for a NaN whose lower half is 0: so are those of bfloat16, and those that arithmetic makes.
INFINIOP_INLINE u32v bfloat16_in_upper_half(f32v v) {
    u32v up = bits_as<u32v>(v) + 0x8000u;
#if defined(__AVX512F__)  // gcc 12 takes an instruction more for the comparison
    __m512i bits = (__m512i)up;
    __mmask16 halfway = _mm512_testn_epi32_mask(bits, _mm512_set1_epi32(0xffff));
    return (u32v)_mm512_mask_and_epi32(bits, halfway, bits, _mm512_set1_epi32(int(0xfffeffffu)));  // to even
#else
    return select((up & 0xffffu) == 0, up & 0xfffeffffu, up);  // halfway: to even
#endif
}
// Rounds likewise, and any NaN becomes quiet.
INFINIOP_INLINE u32v any_bfloat16_in_upper_half(f32v v) {
    return select(v != v, bits_as<u32v>(v) | 0x400000u, bfloat16_in_upper_half(v));
}

#if defined(__AVX512F__)
INFINIOP_INLINE f32v widen_half(u16v h) { return (f32v)_mm512_cvtph_ps((__m256i)h); }
INFINIOP_INLINE u16v narrow_half(f32v v) {
    return (u16v)_mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#elif defined(__F16C__)
INFINIOP_INLINE f32v widen_half(u16v h) { return (f32v)_mm256_cvtph_ps((__m128i)h); }
INFINIOP_INLINE u16v narrow_half(f32v v) { return (u16v)_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT); }
#else
INFINIOP_INLINE f32v widen_half(u16v half) {
    u32v h = __builtin_convertvector(half, u32v), magnitude = h & 0x7fffu;
    u32v scaled = bits_as<u32v>(bits_as<f32v>(magnitude << 13) * 0x1p112f);  // subnormals come out right too
    u32v special = scaled | 0x7f800000u;
    return bits_as<f32v>(select(magnitude >= 0x7c00u, special, scaled) | ((h & 0x8000u) << 16));
}
INFINIOP_INLINE u16v narrow_half(f32v v) {
    u32v bits = bits_as<u32v>(v), magnitude = bits & 0x7fffffffu;
    u32v normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
    // 0.5f has the ulp of float16's subnormals: the addition rounds to them.
    u32v subnormal = bits_as<u32v>(bits_as<f32v>(magnitude) + 0.5f) - 0x3f000000u;
    u32v special = select(magnitude > 0x7f800000u, u32v{} + 0x7e00u, u32v{} + 0x7c00u);
    u32v h = select(magnitude < 0x38800000u, subnormal, normal);
    h = select(magnitude >= 0x47800000u, special, h);
    return __builtin_convertvector(h | ((bits >> 16) & 0x8000u), u16v);
}
#endif
INFINIOP_INLINE widened<float16> widen(const float16 *p) {
    return {{widen_half(load<u16v>(p)), widen_half(load<u16v>(p + lanes<f32v>::count))}};
}

// One vector, elements in order.
INFINIOP_INLINE f32v widen_vector(const float *p) { return load<f32v>(p); }
INFINIOP_INLINE f64v widen_vector(const double *p) { return load<f64v>(p); }
INFINIOP_INLINE f32v widen_vector(const float16 *p) { return widen_half(load<u16v>(p)); }
#if defined(__AVX512F__)
// gcc makes several instructions of what is one.
INFINIOP_INLINE u32v widen_words(u16v v) { return (u32v)_mm512_cvtepu16_epi32((__m256i)v); }
INFINIOP_INLINE u16v narrow_words(u32v v) { return (u16v)_mm512_cvtepi32_epi16((__m512i)v); }
#else
INFINIOP_INLINE u32v widen_words(u16v v) { return __builtin_convertvector(v, u32v); }
INFINIOP_INLINE u16v narrow_words(u32v v) { return __builtin_convertvector(v, u16v); }
#endif
INFINIOP_INLINE f32v widen_bfloat16(u16v v) { return bits_as<f32v>(widen_words(v) << 16); }
INFINIOP_INLINE f32v widen_vector(const bfloat16 *p) { return widen_bfloat16(load<u16v>(p)); }
INFINIOP_INLINE void narrow_vector(float *p, f32v v) { store(p, v); }
INFINIOP_INLINE void narrow_vector(double *p, f64v v) { store(p, v); }
INFINIOP_INLINE void narrow_vector(float16 *p, f32v v) { store(p, narrow_half(v)); }
INFINIOP_INLINE void narrow_vector(bfloat16 *p, f32v v) { store(p, narrow_words(any_bfloat16_in_upper_half(v) >> 16)); }

template <class T> INFINIOP_INLINE compute_vector<T> narrow(parts<compute_vector<T>, 1> v) { return v.part[0]; }
template <class T> INFINIOP_INLINE u32v narrow(parts<f32v, 2> v) {
    if constexpr (is_bfloat16<T>) {
        return (bfloat16_in_upper_half(v.part[0]) >> 16) | (bfloat16_in_upper_half(v.part[1]) & 0xffff0000u);
    } else {
        return join(narrow_half(v.part[0]), narrow_half(v.part[1]));
    }
}
#endif  // __CUDACC__

}  // namespace
}  // namespace INFINIOP_ISA
