// Less than a vector: the first elements of one, to and from memory. Nothing behind them is read or written.
#pragma once
#include "simd.h"

#ifndef __CUDACC__
namespace INFINIOP_ISA {
namespace {

#if !defined(__AVX512F__)  // which has masks for each of these
// By pieces of 16, 8, 4 and 2 bytes, whichever there are: a loop over elements takes as many steps, and stores under the
// masks of AVX2 take AMD's cores a dozen cycles.
INFINIOP_INLINE uint64_t load_piece(const char *p, int bytes) {  // an even number up to 8
    uint64_t piece = 0;
    if (bytes == 8) __builtin_memcpy(&piece, p, 8);
    else {
        uint32_t word = 0;
        uint16_t half = 0;
        if (bytes & 2) __builtin_memcpy(&half, p + (bytes & 4), 2);
        if (bytes & 4) __builtin_memcpy(&word, p, 4);
        piece = bytes & 4 ? word | uint64_t(half) << 32 : half;
    }
    return piece;
}
INFINIOP_INLINE void store_piece(char *p, uint64_t piece, int bytes) {
    if (bytes == 8) {
        __builtin_memcpy(p, &piece, 8);
        return;
    }
    if (bytes & 4) {
        __builtin_memcpy(p, &piece, 4);
        piece >>= 32, p += 4;
    }
    if (bytes & 2) __builtin_memcpy(p, &piece, 2);
}

typedef uint64_t two_pieces __attribute__((vector_size(16)));

// The first bytes of a vector of 8 or 16, an even number; of a loaded one, the others are zeros.
template <class V> INFINIOP_INLINE V load_bytes(const char *p, int bytes) {
    const int first = bytes < 8 ? bytes : 8;
    if constexpr (sizeof(V) == 8) return bits_as<V>(load_piece(p, first));
    else return bits_as<V>(two_pieces{load_piece(p, first), load_piece(p + first, bytes - first)});
}
template <class V> INFINIOP_INLINE void store_bytes(char *p, V v, int bytes) {
    const int first = bytes < 8 ? bytes : 8;
    if constexpr (sizeof(V) == 8) store_piece(p, bits_as<uint64_t>(v), first);
    else {
        store_piece(p, bits_as<two_pieces>(v)[0], first);
        store_piece(p + first, bits_as<two_pieces>(v)[1], bytes - first);
    }
}
#endif

#if defined(__AVX2__) && !defined(__AVX512F__)
// All ones in the first n of a vector's lanes of `bytes` bytes each.
INFINIOP_INLINE __m256i first_lanes(int n, int bytes) {
    static constexpr int32_t ones[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i *)(ones + 8 - n * bytes / 4));
}
#endif

// The first n elements of 4 or 8 bytes, 0 <= n < the lanes; the others are zeros.
template <class V> INFINIOP_INLINE V load_some(const char *p, int n) {
    constexpr int item = sizeof(V{}[0]);
#if defined(__AVX512F__)
    if constexpr (item == 4) return (V)_mm512_maskz_loadu_epi32(__mmask16((1u << n) - 1), p);
    return (V)_mm512_maskz_loadu_epi64(__mmask8((1u << n) - 1), p);
#elif defined(__AVX2__)
    return (V)_mm256_maskload_epi32((const int *)p, first_lanes(n, item));
#else
    return load_bytes<V>(p, n * item);
#endif
}
template <class V> INFINIOP_INLINE void store_some(char *p, V v, int n) {
    constexpr int item = sizeof(V{}[0]);
#if defined(__AVX512F__)
    if constexpr (item == 4) _mm512_mask_storeu_epi32(p, __mmask16((1u << n) - 1), (__m512i)v);
    else _mm512_mask_storeu_epi64(p, __mmask8((1u << n) - 1), (__m512i)v);
#elif defined(__AVX2__)
    two_pieces half = (two_pieces)_mm256_castsi256_si128((__m256i)v);
    int bytes = n * item;
    if (bytes >= 16) {
        __builtin_memcpy(p, &half, 16);
        half = (two_pieces)_mm256_extracti128_si256((__m256i)v, 1);
        p += 16, bytes -= 16;
    }
    store_bytes(p, half, bytes);
#else
    store_bytes(p, (two_pieces)v, n * item);
#endif
}

// Lanes [from, to) of a vector, and what is loaded of them; the others are zeros.
#if defined(__AVX512F__)
template <class V> using lane_mask = __mmask16;
template <class V> INFINIOP_INLINE lane_mask<V> lanes_between(int64_t from, int64_t to) {
    return __mmask16(((1u << to) - 1) & ~((1u << from) - 1));
}
template <class V> INFINIOP_INLINE V load_lanes(const scalar<V> *p, lane_mask<V> lanes) {
    if constexpr (sizeof(*p) == 8) return (V)_mm512_maskz_loadu_pd(__mmask8(lanes), p);
    else return (V)_mm512_maskz_loadu_ps(lanes, p);
}
template <class V> INFINIOP_INLINE V keep_lanes(V v, lane_mask<V> lanes) {
    if constexpr (sizeof(v[0]) == 8) return (V)_mm512_maskz_mov_pd(__mmask8(lanes), (__m512d)v);
    else return (V)_mm512_maskz_mov_ps(lanes, (__m512)v);
}
#else
template <class V> using lane_mask = integer<V>;
template <class V> INFINIOP_INLINE lane_mask<V> lanes_between(int64_t from, int64_t to) {
    typedef integer<V> I;
    typedef decltype(I{}[0] + I{}[0]) L;
    I lane;
    for (int i = 0; i < lanes<V>::count; i++) lane[i] = i;
    return (lane >= I{} + L(from)) & (lane < I{} + L(to));
}
template <class V> INFINIOP_INLINE V load_lanes(const scalar<V> *p, lane_mask<V> lanes) {
#if defined(__AVX2__)
    if constexpr (sizeof(*p) == 8) return (V)_mm256_maskload_pd(p, (__m256i)lanes);
    else return (V)_mm256_maskload_ps(p, (__m256i)lanes);
#else
    V v = {};
    for (int i = 0; i < int(sizeof(V) / sizeof(*p)); i++)
        if (lanes[i]) v[i] = p[i];
    return v;
#endif
}
template <class V> INFINIOP_INLINE V keep_lanes(V v, lane_mask<V> lanes) {
    return bits_as<V>(bits_as<integer<V>>(v) & lanes);
}
#endif

// n elements of a vector from element `first` on, which is known when this is compiled.
template <class V> INFINIOP_INLINE void store_from(char *p, V v, int first, int n) {
#if defined(__AVX512F__)
    p -= first * sizeof(v[0]);
    if constexpr (sizeof(v[0]) == 4) _mm512_mask_storeu_epi32(p, __mmask16(((1u << n) - 1) << first), (__m512i)v);
    else _mm512_mask_storeu_epi64(p, __mmask8(((1u << n) - 1) << first), (__m512i)v);
#else
    constexpr int count = sizeof(V) / 4;
    const int words = first * int(sizeof(v[0])) / 4;
    i32v index;
    for (int i = 0; i < count; i++) index[i] = (i + words) % count;
    store_some(p, (V)take_lanes((f32v)v, index), n);
#endif
}

}  // namespace
}  // namespace INFINIOP_ISA
#endif
