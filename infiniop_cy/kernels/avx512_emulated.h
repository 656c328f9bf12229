// AVX-512 on CPUs that have AVX2 only, to test its kernels, not to time them: SIMDe (github.com/simd-everywhere/simde)
// puts functions in the place of Intel's intrinsics, and here are those that it lacks. Included before all else when
// INFINIOP_CY_EMULATE_AVX512=1 (setup.py). What a mask excludes is neither read nor written, as by the CPU. Products of
// bfloat16 (AVX512_BF16) are there, too, which count subnormal numbers as 0, whatever the CPU is told.
#pragma once
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <math.h>
#include <simde/x86/avx2.h>
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>
#include <stdint.h>
#include <string.h>

#define __AVX512F__ 1
#define __AVX512BW__ 1
#define __AVX512DQ__ 1
#define __AVX512VL__ 1

namespace avx512_emulated {

template <class E, class V> struct Elements {
    static constexpr int count = sizeof(V) / sizeof(E);
    E of[count];

    Elements() : of{} {}
    explicit Elements(V v) { memcpy(of, &v, sizeof v); }
    V vector() const {
        V v;
        memcpy(&v, of, sizeof v);
        return v;
    }
};

template <class V, class E> V load(uint64_t mask, const void *p) {
    Elements<E, V> v;
    for (int i = 0; i < v.count; i++)
        if (mask >> i & 1) memcpy(&v.of[i], (const char *)p + i * sizeof(E), sizeof(E));
    return v.vector();
}

template <class E, class V> void store(void *p, uint64_t mask, V value) {
    const Elements<E, V> v(value);
    for (int i = 0; i < v.count; i++)
        if (mask >> i & 1) memcpy((char *)p + i * sizeof(E), &v.of[i], sizeof(E));
}

// Each element by a function of one.
template <class To, class From, class VTo, class VFrom, class F> VTo map(VFrom value, F f) {
    const Elements<From, VFrom> v(value);
    Elements<To, VTo> to;
    for (int i = 0; i < (v.count < to.count ? v.count : to.count); i++) to.of[i] = f(v.of[i]);
    return to.vector();
}

template <class E, class V, class F> uint64_t mask_where(V a, V b, F f) {
    const Elements<E, V> x(a), y(b);
    uint64_t mask = 0;
    for (int i = 0; i < x.count; i++) mask |= uint64_t(f(x.of[i], y.of[i])) << i;
    return mask;
}

template <class V> __m256 half(V v, int number) {
    __m256 h;
    memcpy(&h, (const char *)&v + 32 * number, 32);
    return h;
}

template <class V, class Half> V join(Half first, Half second) {
    V v;
    memcpy(&v, &first, sizeof first);
    memcpy((char *)&v + sizeof first, &second, sizeof second);
    return v;
}

inline __m512 widen_half(__m256i h) {
    return join<__m512>(_mm256_cvtph_ps(_mm256_castsi256_si128(h)), _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1)));
}
inline __m256i narrow_half(__m512 v) {
    return join<__m256i>(_mm256_cvtps_ph(half(v, 0), 0), _mm256_cvtps_ph(half(v, 1), 0));
}

inline int64_t to_integer(double x) { return x != x || fabs(x) >= 0x1p63 ? INT64_MIN : int64_t(nearbyint(x)); }

// x 2^floor(n), rounded once. SIMDe's takes subnormal x for 0, which the CPU does where it is told to.
template <class E> E scaled(E x, E n) {
    if (n != n) return n;
    return scalbln(x, long(floor(n < -9999 ? E(-9999) : n > 9999 ? E(9999) : n)));
}
template <class E, class V> V scale(V x, V n) {
    Elements<E, V> values(x);
    const Elements<E, V> exponents(n);
    for (int i = 0; i < values.count; i++) values.of[i] = scaled(values.of[i], exponents.of[i]);
    return values.vector();
}

inline float flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }
inline float widened(uint16_t bits) {
    const uint32_t word = uint32_t(bits) << 16;
    float x;
    memcpy(&x, &word, sizeof x);
    return flushed(x);
}
inline uint16_t narrowed(float x) {
    uint32_t word;
    x = flushed(x);
    memcpy(&word, &x, sizeof word);
    if (x != x) return uint16_t(word >> 16 | 0x40);
    return uint16_t((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

// The upper product of each pair is added first, and both are as by a fused multiply-add.
inline __m512 dot_bfloat16(__m512 sum, __m512i a, __m512i b) {
    Elements<float, __m512> sums(sum);
    const Elements<uint16_t, __m512i> x(a), y(b);
    for (int i = 0; i < 32; i++) {
        float &of = sums.of[i / 2];
        of = flushed(fmaf(widened(x.of[i ^ 1]), widened(y.of[i ^ 1]), flushed(of)));
    }
    return sums.vector();
}

}  // namespace avx512_emulated

#define _mm256_mask_storeu_epi16(p, m, v) avx512_emulated::store<uint16_t>(p, m, v)
#define _mm512_mask_storeu_epi8(p, m, v) avx512_emulated::store<uint8_t>(p, m, v)
#define _mm512_mask_storeu_epi16(p, m, v) avx512_emulated::store<uint16_t>(p, m, v)
#define _mm512_mask_storeu_epi32(p, m, v) avx512_emulated::store<uint32_t>(p, m, v)
#define _mm512_mask_storeu_epi64(p, m, v) avx512_emulated::store<uint64_t>(p, m, v)
#define _mm512_stream_si512(p, v) avx512_emulated::store<uint64_t>(p, 0xff, v)
#define _mm256_maskz_loadu_epi16(m, p) avx512_emulated::load<__m256i, uint16_t>(m, p)
#define _mm512_maskz_loadu_epi8(m, p) avx512_emulated::load<__m512i, uint8_t>(m, p)
#define _mm512_maskz_loadu_epi16(m, p) avx512_emulated::load<__m512i, uint16_t>(m, p)
#define _mm512_maskz_loadu_epi32(m, p) avx512_emulated::load<__m512i, uint32_t>(m, p)
#define _mm512_maskz_loadu_epi64(m, p) avx512_emulated::load<__m512i, uint64_t>(m, p)
#define _mm512_maskz_loadu_ps(m, p) avx512_emulated::load<__m512, uint32_t>(m, p)
#define _mm512_maskz_loadu_pd(m, p) avx512_emulated::load<__m512d, uint64_t>(m, p)
#define _mm512_cvtepi32_epi16(v) avx512_emulated::map<uint16_t, uint32_t, __m256i>(v, [](uint32_t x) { return x; })
#define _mm512_cvtepu16_epi32(v) avx512_emulated::map<uint32_t, uint16_t, __m512i>(v, [](uint16_t x) { return x; })
#define _mm512_cvtepu32_epi64(v) avx512_emulated::map<uint64_t, uint32_t, __m512i>(v, [](uint32_t x) { return x; })
#define _mm512_cvtepi64_pd(v) avx512_emulated::map<double, int64_t, __m512d>(v, [](int64_t x) { return double(x); })
#define _mm512_cvtpd_epi64(v) avx512_emulated::map<int64_t, double, __m512i>(v, avx512_emulated::to_integer)
#define _mm512_cvtpd_ps(v) avx512_emulated::map<float, double, __m256>(v, [](double x) { return float(x); })
#define _mm512_cvtps_pd(v) avx512_emulated::map<double, float, __m512d>(v, [](float x) { return double(x); })
#define _mm512_cvtph_ps(h) avx512_emulated::widen_half(h)
#define _mm512_cvtps_ph(v, mode) avx512_emulated::narrow_half(v)
#define _mm512_scalef_ps(v, n) avx512_emulated::scale<float>(v, n)
#define _mm512_scalef_pd(v, n) avx512_emulated::scale<double>(v, n)
#define _mm512_extractf32x8_ps(v, number) avx512_emulated::half(v, number)
#define _mm512_cmpeq_epi16_mask(a, b) \
    __mmask32(avx512_emulated::mask_where<uint16_t>(a, b, [](uint16_t x, uint16_t y) { return x == y; }))
#define _mm512_testn_epi32_mask(a, b) \
    __mmask16(avx512_emulated::mask_where<uint32_t>(a, b, [](uint32_t x, uint32_t y) { return !(x & y); }))
#define _mm512_mask_cmpgt_epu32_mask(m, a, b) \
    __mmask16((m) & avx512_emulated::mask_where<uint32_t>(a, b, [](uint32_t x, uint32_t y) { return x > y; }))
#define _mm512_dpbf16_ps(sum, a, b) avx512_emulated::dot_bfloat16(sum, a, b)
#define _mm512_cvtneps_pbh(v) avx512_emulated::map<uint16_t, float, __m256i>(v, avx512_emulated::narrowed)
#define _mm512_cvtne2ps_pbh(high, low) avx512_emulated::join<__m512i>(_mm512_cvtneps_pbh(low), _mm512_cvtneps_pbh(high))
#define __m512bh __m512i
