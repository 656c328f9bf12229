// Strided copies between dtypes: gathers into compute buffers and scatters out of them, for every tier.
#pragma once
#include "cast.h"
#include "some.h"
#include "table.h"
#include "words.h"

namespace INFINIOP_ISA {
namespace {

// Contiguous runs of a floating-point pair go by vectors; anything else element by element through the
// same conversions, so the bits agree.
template <class From, class To> struct vector_convert { static constexpr bool possible = false; };
template <class T> struct vector_convert<T, compute_type<T>> { static constexpr bool possible = true; };
template <> struct vector_convert<float, float16> { static constexpr bool possible = true; };
template <> struct vector_convert<float, bfloat16> { static constexpr bool possible = true; };

template <class T> INFINIOP_INLINE T read(const char *p) {
    T value;
    __builtin_memcpy(&value, p, sizeof value);
    return value;
}
template <class T> INFINIOP_INLINE void write(char *p, T value) { __builtin_memcpy(p, &value, sizeof value); }

#if defined(__AVX512F__)
// Every second, third or fourth number of 32 bits; no other is read.
template <int step> INFINIOP_INLINE void copy_singles(const char *from, char *to, int64_t n) {
    static_assert(step >= 2 && step <= 4, "a vector of them lies in at most four");
    const uint64_t pattern = step == 2 ? 0x55555555u : step == 3 ? 0x249249249249u : 0x1111111111111111u;
    const __m512i order = _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                                             _mm512_set1_epi32(step));
    for (int64_t i = 0; i < n; i += 16) {
        const uint64_t wanted = pattern & bits_between(0, step * (n - i));
        auto part = [&](int k) {
            return _mm512_maskz_loadu_epi32(__mmask16(wanted >> 16 * k), from + 4 * step * i + 64 * k);
        };
        __m512i v = _mm512_permutex2var_epi32(part(0), order, part(1));  // a permutation counts modulo two vectors
        if constexpr (step == 3) v = _mm512_mask_permutexvar_epi32(v, 0xf800, order, part(2));
        if constexpr (step == 4)
            v = _mm512_mask_blend_epi32(0xff00, v, _mm512_permutex2var_epi32(part(2), order, part(3)));
        _mm512_mask_storeu_epi32(to + 4 * i, __mmask16(bits_between(0, n - i)), v);
    }
}
#endif

template <class T, int step> INFINIOP_INLINE void copy_every(const char *from, T *to, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] = ((const T *)from)[i * step];
}

// Same type: bits move unchanged. Gathers of the steps that views often have are loops of their own, since a compiler
// makes vectors of a step that it knows.
template <class T> void copy(const char *from, int64_t from_stride, char *to, int64_t to_stride, int64_t n) {
    if (to_stride == sizeof(T)) {
        if (from_stride == sizeof(T)) {
            __builtin_memcpy(to, from, size_t(n) * sizeof(T));
            return;
        }
        if (from_stride == 0) return copy_every<T, 0>(from, (T *)to, n);
#if defined(__AVX512F__)
        if constexpr (sizeof(T) == 2) {
            if (from_stride == -2) return copy_words<-1>(from, to, n);
            if (from_stride == 4) return copy_words<2>(from, to, n);
            if (from_stride == -4) return copy_words<-2>(from, to, n);
        }
        if constexpr (sizeof(T) == 4) {
            if (from_stride == 8) return copy_singles<2>(from, to, n);
            if (from_stride == 12) return copy_singles<3>(from, to, n);
            if (from_stride == 16) return copy_singles<4>(from, to, n);
        }
#endif
        if (from_stride == -int64_t(sizeof(T))) return copy_every<T, -1>(from, (T *)to, n);
        if (from_stride == 2 * sizeof(T)) return copy_every<T, 2>(from, (T *)to, n);
        if (from_stride == -2 * int64_t(sizeof(T))) return copy_every<T, -2>(from, (T *)to, n);
    }
    int64_t i = 0;
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 2)
        if (from_stride == 2 && to_stride == 4) return spread_words(from, to, n);
    if constexpr (sizeof(T) == 4)
        if (from_stride == 4 && to_stride == 8)  // every other element, no other touched
            for (; i < n; i += 16) {
                const int here = n - i < 16 ? int(n - i) : 16;
                const __m512i v = _mm512_maskz_loadu_epi32(__mmask16((1u << here) - 1), from + 4 * i);
                const uint32_t some = 0x55555555u & uint32_t((uint64_t(1) << 2 * here) - 1);
                _mm512_mask_storeu_epi32(to + 8 * i, __mmask16(some), _mm512_cvtepu32_epi64(_mm512_castsi512_si256(v)));
                _mm512_mask_storeu_epi32(to + 8 * i + 64, __mmask16(some >> 16),
                                         _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(v, 1)));
            }
#endif
    for (; i < n; i++) write(to + i * to_stride, read<T>(from + i * from_stride));
}

enum { STAGED = 128 };  // elements of 16 bits that are gathered, so as to be converted by vectors

template <class From, class To>
void convert(const char *from, int64_t from_stride, char *to, int64_t to_stride, int64_t n) {
    int64_t i = 0;
    if constexpr (vector_convert<From, To>::possible) {
        if (sizeof(From) == 2 && from_stride != 2 && n > 1) {
            for (int64_t some; i < n; i += some) {
                some = n - i < STAGED ? n - i : int64_t(STAGED);
                uint16_t staged[STAGED];
                copy<uint16_t>(from + i * from_stride, from_stride, (char *)staged, 2, some);
                convert<From, To>((const char *)staged, 2, to + i * to_stride, to_stride, some);
            }
            return;
        }
        if (from_stride == sizeof(From) && to_stride == sizeof(To)) {
            constexpr int count = lanes<compute_vector<From>>::count;
            for (; i + count <= n; i += count) narrow_vector((To *)to + i, widen_vector((const From *)from + i));
            // By a whole vector, which is quicker than single elements.
            if (i < n) narrow_some<To>(to + i * sizeof(To), widen_some((const From *)from, i, n), int(n - i));
            return;
        }
#if defined(__AVX512F__)
        if constexpr (sizeof(To) == 2)
            if (from_stride == sizeof(From) && to_stride == 2 * sizeof(To))  // every other element, no other touched
                for (; i < n; i += 16) {
                    alignas(32) To values[16];
                    const int here = n - i < 16 ? int(n - i) : 16;
                    narrow_vector(values, widen_some((const From *)from, i, n));
                    _mm512_mask_storeu_epi16(to + i * to_stride, 0x55555555u & uint32_t((uint64_t(1) << 2 * here) - 1),
                                             _mm512_cvtepu16_epi32(_mm256_load_si256((const __m256i *)values)));
                }
#endif
    }
    for (; i < n; i++) write(to + i * to_stride, from_value<To>::of(to_compute(read<From>(from + i * from_stride))));
}

template <class From> constexpr void fill_convert_from(ConvertKernel *row) {
    row[DTYPE_F16] = convert<From, float16>;
    row[DTYPE_BF16] = convert<From, bfloat16>;
    row[DTYPE_F32] = convert<From, float>;
    row[DTYPE_F64] = convert<From, double>;
    row[DTYPE_BOOL] = convert<From, bool>;
    row[DTYPE_I8] = convert<From, int8_t>;
    row[DTYPE_I16] = convert<From, int16_t>;
    row[DTYPE_I32] = convert<From, int32_t>;
    row[DTYPE_I64] = convert<From, int64_t>;
    row[DTYPE_U8] = convert<From, uint8_t>;
    row[DTYPE_U16] = convert<From, uint16_t>;
    row[DTYPE_U32] = convert<From, uint32_t>;
    row[DTYPE_U64] = convert<From, uint64_t>;
    row[DTYPE_C64] = convert<From, complex<float>>;
    row[DTYPE_C128] = convert<From, complex<double>>;
}

constexpr void fill_convert(KernelTable &table) {
    fill_convert_from<float16>(table.convert[DTYPE_F16]);
    fill_convert_from<bfloat16>(table.convert[DTYPE_BF16]);
    fill_convert_from<float>(table.convert[DTYPE_F32]);
    fill_convert_from<double>(table.convert[DTYPE_F64]);
    table.convert[DTYPE_F16][DTYPE_F16] = copy<uint16_t>;
    table.convert[DTYPE_BF16][DTYPE_BF16] = copy<uint16_t>;
    table.convert[DTYPE_F32][DTYPE_F32] = copy<uint32_t>;
    table.convert[DTYPE_F64][DTYPE_F64] = copy<uint64_t>;
}

}  // namespace
}  // namespace INFINIOP_ISA
