// Numbers as multiples of a power of two that all of them share, in int64: sums of these are exact, so that their order
// does not matter. What must be known before, the largest magnitude; the way there; and the way back, which rounds
// once. All of it is the same on every instruction set.
#pragma once
#include "dtype.h"
#include "table.h"

namespace INFINIOP_ISA {
namespace {

// Bytes between what is computed and what is asked for: streams of shards are taken in turns.
enum { GRID_PREFETCH_BYTES = 2048 };

typedef int16_t i16v __attribute__((vector_size(vector_bytes)));
template <class I> struct vector_of_integers;
template <> struct vector_of_integers<int16_t> { typedef i16v type; };
template <> struct vector_of_integers<int32_t> { typedef i32v type; };
template <> struct vector_of_integers<int64_t> { typedef i64v type; };

// ---- the largest magnitude. Those of one type are ordered as their bits are: numbers, inf, NaN.

// The largest magnitude of n numbers, and the lowest of them as integers: where one is -0, that is it.
template <class I> struct magnitudes {
    typedef typename vector_of_integers<I>::type V;
    V largest = V{}, lowest = V{};
    INFINIOP_INLINE void take(V bits, I most) {
        const V magnitude = bits & (V{} + std_max), taken = magnitude > (V{} + most) ? V{} : magnitude;
        largest = taken > largest ? taken : largest;
        lowest = bits < lowest ? bits : lowest;
    }
    static constexpr I std_max = I((uint64_t(1) << (8 * sizeof(I) - 1)) - 1);
};

// Of those whose bits are at most `most`. Zeros fill up the last vector, which change neither.
template <class I>
__attribute__((noinline)) void find_magnitudes(const I *from, int64_t n, I most, struct Magnitudes *found) {
    typedef typename magnitudes<I>::V V;
    constexpr int count = sizeof(V) / sizeof(I);
    magnitudes<I> all;
    int64_t i = 0;
    for (; i + count <= n; i += count) {
        prefetch((const char *)(from + i) + GRID_PREFETCH_BYTES);
        all.take(load<V>(from + i), most);
    }
    I rest[count] = {};
    if (i < n) __builtin_memcpy(rest, from + i, size_t(n - i) * sizeof(I));
    all.take(load<V>(rest), most);
    for (int j = 0; j < count; j++) {
        if (all.largest[j] > found->largest) found->largest = all.largest[j];
        if (all.lowest[j] == -magnitudes<I>::std_max - 1) found->minus_zero = 1;
    }
}

template <class I, int64_t inf> void scan(const void *from, int64_t n, struct Magnitudes *found) {
    struct Magnitudes here = {};
    find_magnitudes((const I *)from, n, magnitudes<I>::std_max, &here);
    if (here.largest >= inf) {  // rare: a second look, at the numbers alone
        found->nonfinite = 1;
        here.largest = 0;
        find_magnitudes((const I *)from, n, I(inf - 1), &here);
    }
    found->minus_zero |= here.minus_zero;
    if (here.largest > found->largest) found->largest = here.largest;
}

// ---- to the grid

// What is beyond +-bound becomes it, and NaN one of them: with these instructions the second operand.
INFINIOP_INLINE f64v clamp(f64v x, f64v bound) {
#if defined(__AVX512F__)
    return (f64v)_mm512_max_pd(_mm512_min_pd((__m512d)x, (__m512d)bound), (__m512d)-bound);
#elif defined(__AVX2__)
    return (f64v)_mm256_max_pd(_mm256_min_pd((__m256d)x, (__m256d)bound), (__m256d)-bound);
#elif defined(__SSE2__)
    return (f64v)_mm_max_pd(_mm_min_pd((__m128d)x, (__m128d)bound), (__m128d)-bound);
#else
    x = x < bound ? x : bound;
    return x > -bound ? x : -bound;
#endif
}

// Numbers of at most 2^62 to the nearest integer, ties to even, from where they are `prescale` times as large.
#if defined(__AVX512DQ__)
constexpr double prescale = 1;
INFINIOP_INLINE i64v nearest_integer(f64v x) { return (i64v)_mm512_cvtpd_epi64((__m512d)x); }
#else
// A multiple of 2^32, which is even, so that rounding goes by the rest, of at most 2^31: adding 1.5 * 2^52 puts either
// into the low bits of a double.
constexpr double prescale = 0x1p-32;
INFINIOP_INLINE i64v nearest_integer(f64v x) {
    const f64v low_bits = splat<f64v>(0x1.8p52), high = x + low_bits;
    const f64v low = mul_add(x - (high - low_bits), splat<f64v>(0x1p32), low_bits);
    return (bits_as<i64v>(high) << 32) + (bits_as<i64v>(low) - bits_as<i64v>(low_bits));
}
#endif

typedef float half_f32v __attribute__((vector_size(vector_bytes / 2)));

INFINIOP_INLINE parts<f64v, 1> to_doubles(f64v v) { return {{v}}; }
INFINIOP_INLINE parts<f64v, 2> to_doubles(f32v v) {
#if defined(__AVX512F__)
    return {{(f64v)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)v)),
             (f64v)_mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)v, 1))}};
#elif defined(__AVX2__)
    return {{(f64v)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)v)),
             (f64v)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)v, 1))}};
#else
    struct halves { half_f32v part[2]; } of = bits_as<halves>(v);
    return {{__builtin_convertvector(of.part[0], f64v), __builtin_convertvector(of.part[1], f64v)}};
#endif
}

template <class T>
INFINIOP_INLINE void add_step(const T *from, int64_t *to, f64v scale, f64v then_scale, f64v most) {
    const auto doubles = to_doubles(widen_vector(from));
    for (int i = 0; i < doubles.count; i++) {
        f64v x = doubles.part[i] * scale;
        if (sizeof(T) == 8) x *= then_scale;
        int64_t *at = to + i * lanes<f64v>::count;
        store(at, load<i64v>(at) + nearest_integer(clamp(x, most)));
    }
}

template <class T> void add_to_grid(const void *from_, int64_t *to, int64_t n, const struct Grid *grid) {
    constexpr int count = lanes<compute_vector<T>>::count;
    const f64v scale = splat<f64v>(grid->scale[0] * prescale), then_scale = splat<f64v>(grid->scale[1]),
               most = splat<f64v>(grid->most * prescale);
    const T *from = (const T *)from_;
    int64_t i = 0;
    for (; i + count <= n; i += count) {
        prefetch((const char *)(from + i) + GRID_PREFETCH_BYTES);
        add_step(from + i, to + i, scale, then_scale, most);
    }
    if (i < n) {
        T rest[count] = {};
        int64_t sums[count] = {};
        __builtin_memcpy(rest, from + i, size_t(n - i) * sizeof(T));
        __builtin_memcpy(sums, to + i, size_t(n - i) * sizeof(int64_t));
        add_step(rest, sums, scale, then_scale, most);
        __builtin_memcpy(to + i, sums, size_t(n - i) * sizeof(int64_t));
    }
}

// ---- and back

// Rounded once: 0 has no sign.
INFINIOP_INLINE f64v to_double(i64v n) {
#if defined(__AVX512DQ__)
    return (f64v)_mm512_cvtepi64_pd((__m512i)n);
#else
    // The halves in the low bits of doubles of 2^84 and 2^52; only the last sum rounds.
    typedef uint64_t u64v __attribute__((vector_size(vector_bytes)));
    const u64v high = ((u64v)n >> 32) ^ 0x4530000080000000u, low = ((u64v)n & 0xffffffffu) | 0x4330000000000000u;
    return (bits_as<f64v>(high) - (0x1p84 + 0x1p63 + 0x1p52)) + bits_as<f64v>(low);
#endif
}

// The bits in `dropped`, which are the lowest, rounded away to odd: a later rounding to fewer bits does not see that.
INFINIOP_INLINE i64v to_odd(i64v n, int64_t dropped) { return (n | ((n & dropped) + dropped)) & ~dropped; }

// |n| <= 2^62 as a double that rounds to the same float32 as n.
INFINIOP_INLINE f64v to_double_for_float(i64v n) {
    typedef uint64_t u64v __attribute__((vector_size(vector_bytes)));
    const i64v large = (i64v)(((u64v)n + (uint64_t(1) << 53)) >> 54 != 0);  // those that a double does not hold
    return to_double((n & ~large) | (to_odd(n, (1 << 11) - 1) & large));
}

INFINIOP_INLINE f32v to_floats(f64v low, f64v high) {
#if defined(__AVX512F__)
    return (f32v)_mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps((__m512d)low)),
                                    _mm512_cvtpd_ps((__m512d)high), 1);
#elif defined(__AVX2__)
    return (f32v)_mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps((__m256d)low)),
                                      _mm256_cvtpd_ps((__m256d)high), 1);
#else
    struct {
        half_f32v part[2];
    } of = {{__builtin_convertvector(low, half_f32v), __builtin_convertvector(high, half_f32v)}};
    return bits_as<f32v>(of);
#endif
}

INFINIOP_INLINE void store_step(const int64_t *from, double *to, double unit, int64_t) {
    store(to, to_double(load<i64v>(from)) * unit);
}
INFINIOP_INLINE void store_step(const int64_t *from, float *to, double unit, int64_t dropped) {
    const f64v low = to_double_for_float(load<i64v>(from)) * unit,
               high = to_double_for_float(load<i64v>(from + lanes<f64v>::count)) * unit;
    store(to, to_floats(bits_as<f64v>(to_odd(bits_as<i64v>(low), dropped)),
                        bits_as<f64v>(to_odd(bits_as<i64v>(high), dropped))));
}

template <class T> void from_grid(const int64_t *from, void *to_, int64_t n, double unit, int odd) {
    constexpr int count = lanes<compute_vector<T>>::count;
    // What a double has more than a float. Numbers that are subnormal as float have none of these bits.
    const int64_t dropped = odd ? (1 << 29) - 1 : 0;
    T *to = (T *)to_;
    int64_t i = 0;
    for (; i + count <= n; i += count) {
        prefetch((const char *)(from + i) + GRID_PREFETCH_BYTES);
        store_step(from + i, to + i, unit, dropped);
    }
    if (i < n) {
        int64_t sums[count] = {};
        T rest[count];
        __builtin_memcpy(sums, from + i, size_t(n - i) * sizeof(int64_t));
        store_step(sums, rest, unit, dropped);
        __builtin_memcpy(to + i, rest, size_t(n - i) * sizeof(T));
    }
}

constexpr void fill_fixed_point(KernelTable &table) {
    table.scan[DTYPE_F16] = scan<int16_t, 0x7c00>;
    table.scan[DTYPE_BF16] = scan<int16_t, 0x7f80>;
    table.scan[DTYPE_F32] = scan<int32_t, 0x7f800000>;
    table.scan[DTYPE_F64] = scan<int64_t, int64_t(0x7ff) << 52>;
    table.add_to_grid[DTYPE_F16] = add_to_grid<float16>;
    table.add_to_grid[DTYPE_BF16] = add_to_grid<bfloat16>;
    table.add_to_grid[DTYPE_F32] = add_to_grid<float>;
    table.add_to_grid[DTYPE_F64] = add_to_grid<double>;
    table.from_grid[DTYPE_F32] = from_grid<float>;
    table.from_grid[DTYPE_F64] = from_grid<double>;
}

}  // namespace
}  // namespace INFINIOP_ISA
