// Less than a vector: the first elements of one, to and from memory. Nothing behind them is read or written.
#pragma once
#include "dtype.h"

namespace INFINIOP_ISA {
namespace {

#if defined(__AVX512F__)
// Bits [first, last) of 64, as far as there are such.
INFINIOP_INLINE uint64_t bits_between(int64_t first, int64_t last) {
    if (first < 0) first = 0;
    if (last > 64) last = 64;
    return last <= first ? 0 : ~uint64_t(0) >> (64 - (last - first)) << first;
}

// The first n words of 16 bits of a vector, or of half of one; of a loaded one, the others are zeros.
template <class V> INFINIOP_INLINE V load_words(const char *p, int n) {
    if constexpr (sizeof(V) == 32) return (V)_mm256_maskz_loadu_epi16(__mmask16((1u << n) - 1), p);
    else return (V)_mm512_maskz_loadu_epi16(__mmask32((uint64_t(1) << n) - 1), p);
}
template <class V> INFINIOP_INLINE void store_words(char *p, V v, int n) {
    if constexpr (sizeof(V) == 32) _mm256_mask_storeu_epi16(p, __mmask16((1u << n) - 1), (__m256i)v);
    else _mm512_mask_storeu_epi16(p, __mmask32((uint64_t(1) << n) - 1), (__m512i)v);
}
#else
// By pieces of 16, 8, 4 and 2 bytes, whichever there are: a loop over elements takes as many steps, and stores under
// the masks of AVX2 are slow on AMD's cores.
INFINIOP_INLINE uint64_t load_piece(const char *p, int words) {  // up to 4
    uint64_t piece = 0;
    uint32_t two = 0;
    uint16_t one = 0;
    if (words >= 4) {
        __builtin_memcpy(&piece, p, 8);
        return piece;
    }
    if (words & 1) __builtin_memcpy(&one, p + (words & 2) * 2, 2);
    if (words & 2) __builtin_memcpy(&two, p, 4);
    return words & 2 ? two | uint64_t(one) << 32 : one;
}
INFINIOP_INLINE void store_piece(char *p, uint64_t piece, int words) {
    if (words >= 4) {
        __builtin_memcpy(p, &piece, 8);
        return;
    }
    if (words & 2) {
        __builtin_memcpy(p, &piece, 4);
        piece >>= 32, p += 4;
    }
    if (words & 1) __builtin_memcpy(p, &piece, 2);
}

typedef uint64_t two_pieces __attribute__((vector_size(16)));

INFINIOP_INLINE two_pieces load_pieces(const char *p, int words) {
    return two_pieces{load_piece(p, words), words > 4 ? load_piece(p + 8, words - 4) : 0};
}
INFINIOP_INLINE void store_pieces(char *p, two_pieces v, int words) {
    store_piece(p, v[0], words);
    if (words > 4) store_piece(p + 8, v[1], words - 4);
}

// The first n words of 16 bits of a vector, or of half of one; of a loaded one, the others are zeros.
template <class V> INFINIOP_INLINE V load_words(const char *p, int n) {
    if constexpr (sizeof(V) == 8) return bits_as<V>(load_piece(p, n));
    else if constexpr (sizeof(V) == 16) return bits_as<V>(load_pieces(p, n));
    else {
        struct { two_pieces half[2]; } both = {{load_pieces(p, n), n > 8 ? load_pieces(p + 16, n - 8) : two_pieces{}}};
        return bits_as<V>(both);
    }
}
template <class V> INFINIOP_INLINE void store_words(char *p, V v, int n) {
    if constexpr (sizeof(V) == 8) store_piece(p, bits_as<uint64_t>(v), n);
    else if constexpr (sizeof(V) == 16) store_pieces(p, bits_as<two_pieces>(v), n);
    else {
        struct { two_pieces half[2]; } both = bits_as<decltype(both)>(v);
        if (n < 8) return store_pieces(p, both.half[0], n);
        __builtin_memcpy(p, &both, 16);
        store_pieces(p + 16, both.half[1], n - 8);
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

// The first n elements of 4 or 8 bytes, up to all; the others are zeros.
template <class V> INFINIOP_INLINE V load_some(const char *p, int n) {
    constexpr int item = sizeof(V{}[0]);
#if defined(__AVX512F__)
    if constexpr (item == 4) return (V)_mm512_maskz_loadu_epi32(__mmask16((1u << n) - 1), p);
    return (V)_mm512_maskz_loadu_epi64(__mmask8((1u << n) - 1), p);
#elif defined(__AVX2__)
    return (V)_mm256_maskload_epi32((const int *)p, first_lanes(n, item));
#else
    return load_words<V>(p, n * item / 2);
#endif
}
template <class V> INFINIOP_INLINE void store_some(char *p, V v, int n) {
    constexpr int item = sizeof(V{}[0]);
#if defined(__AVX512F__)
    if constexpr (item == 4) _mm512_mask_storeu_epi32(p, __mmask16((1u << n) - 1), (__m512i)v);
    else _mm512_mask_storeu_epi64(p, __mmask8((1u << n) - 1), (__m512i)v);
#else
    store_words(p, v, n * item / 2);
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
    typedef integer<V> I;
    return bits_as<V>(bits_as<I>(v) & lanes);
}
#endif

#if !defined(__AVX512F__)
// What lies from a byte on, a multiple of 4 that is known when this is compiled.
template <class V> INFINIOP_INLINE V move_to_front(V v, int first_byte) {
    constexpr int count = sizeof(V) / 4;
    i32v index;
    for (int i = 0; i < count; i++) index[i] = (i + first_byte / 4) % count;
    return (V)take_lanes((f32v)v, index);
}
#endif

// n elements of a vector from element `first` on, which is known when this is compiled; of words, an even one.
template <class V> INFINIOP_INLINE void store_from(char *p, V v, int first, int n) {
#if defined(__AVX512F__)
    p -= first * sizeof(v[0]);
    if constexpr (sizeof(v[0]) == 4) _mm512_mask_storeu_epi32(p, __mmask16(((1u << n) - 1) << first), (__m512i)v);
    else _mm512_mask_storeu_epi64(p, __mmask8(((1u << n) - 1) << first), (__m512i)v);
#else
    store_some(p, move_to_front(v, first * int(sizeof(v[0]))), n);
#endif
}
template <class V> INFINIOP_INLINE void store_words_from(char *p, V v, int first, int n) {
#if defined(__AVX512F__)
    _mm512_mask_storeu_epi16(p - 2 * first, __mmask32(((uint64_t(1) << n) - 1) << first), (__m512i)v);
#else
    store_words(p, move_to_front(v, 2 * first), n);
#endif
}

// A vector of elements `first` and on of n, zeros behind them.
template <class T> INFINIOP_INLINE compute_vector<T> widen_some(const T *p, int64_t first, int64_t n) {
    constexpr int count = lanes<compute_vector<T>>::count;
    const int here = n - first < 0 ? 0 : n - first < count ? int(n - first) : count;
    const char *at = (const char *)(p + first);
    if constexpr (sizeof(T) != 2) return load_some<compute_vector<T>>(at, here);
    else if constexpr (is_bfloat16<T>) return widen_bfloat16(load_words<u16v>(at, here));
    else return widen_half(load_words<u16v>(at, here));
}

// The first n of a vector's elements, to storage.
template <class T> INFINIOP_INLINE void narrow_some(char *to, compute_vector<T> v, int n) {
    constexpr int count = lanes<compute_vector<T>>::count;
    if (n == count) return narrow_vector((T *)to, v);
    if constexpr (sizeof(T) != 2) return store_some(to, v, n);
    else {
        alignas(64) T rest[count];
        narrow_vector(rest, v);
        store_words(to, load<u16v>(rest), n);
    }
}

}  // namespace
}  // namespace INFINIOP_ISA
