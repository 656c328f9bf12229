// Strided copies between dtypes: gathers into compute buffers and scatters out of them, for every tier.
#pragma once
#include "dtype.h"
#include "table.h"

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

// One element to the type it computes in. 16-bit ones take a lane of the vector path: one rounding rule.
INFINIOP_INLINE float to_compute(float v) { return v; }
INFINIOP_INLINE double to_compute(double v) { return v; }
INFINIOP_INLINE float to_compute(bfloat16 v) { return bits_as<float>(uint32_t(v.bits) << 16); }
INFINIOP_INLINE float to_compute(float16 v) {
    float16 lane[lanes<f32v>::count] = {v};
    return widen_vector(lane)[0];
}

template <class T> struct from_value;  // a float or double to T
template <> struct from_value<float> { template <class S> static float of(S v) { return float(v); } };
template <> struct from_value<double> { template <class S> static double of(S v) { return double(v); } };

// double to 16 bits through float must not round twice: round the float to odd first.
INFINIOP_INLINE float round_to_odd(double v) {
    float f = float(v);
    uint32_t bits = bits_as<uint32_t>(f);
    if (double(f) == v || v != v || (bits & 0x7fffffffu) == 0x7f800000u || (bits & 1u)) return f;
    bool away = (double(f) > v) == (v > 0);  // |f| > |v|
    return bits_as<float>(away ? bits - 1 : bits + 1);
}
INFINIOP_INLINE float round_to_odd(float v) { return v; }

template <class T> struct from_value_16 {
    template <class S> static T of(S v) {
        T lane[lanes<f32v>::count];
        narrow_vector(lane, splat<f32v>(round_to_odd(v)));
        return lane[0];
    }
};
template <> struct from_value<float16> : from_value_16<float16> {};
template <> struct from_value<bfloat16> : from_value_16<bfloat16> {};

template <class T> struct from_value_integer {
    template <class S> static T of(S v) {
        constexpr bool is_signed = T(-1) < T(0);
        constexpr T highest = is_signed ? T((uint64_t(1) << (8 * sizeof(T) - 1)) - 1) : T(-1);
        constexpr T lowest = is_signed ? T(-highest - 1) : T(0);
        if (v != v) return 0;
        if (v >= S(highest)) return highest;  // S(highest) is a power of two where it is not exact
        if (v <= S(lowest)) return lowest;
        return T(v);
    }
};
template <> struct from_value<int8_t> : from_value_integer<int8_t> {};
template <> struct from_value<int16_t> : from_value_integer<int16_t> {};
template <> struct from_value<int32_t> : from_value_integer<int32_t> {};
template <> struct from_value<int64_t> : from_value_integer<int64_t> {};
template <> struct from_value<uint8_t> : from_value_integer<uint8_t> {};
template <> struct from_value<uint16_t> : from_value_integer<uint16_t> {};
template <> struct from_value<uint32_t> : from_value_integer<uint32_t> {};
template <> struct from_value<uint64_t> : from_value_integer<uint64_t> {};
template <> struct from_value<bool> { template <class S> static bool of(S v) { return v != 0; } };
template <class S_> struct complex { S_ real, imag; };
template <class C> struct from_value<complex<C>> {
    template <class S> static complex<C> of(S v) { return {C(v), C(0)}; }
};

template <class From, class To>
void convert(const char *from, int64_t from_stride, char *to, int64_t to_stride, int64_t n) {
    int64_t i = 0;
    if constexpr (vector_convert<From, To>::possible) {
        if (from_stride == sizeof(From) && to_stride == sizeof(To)) {
            constexpr int count = lanes<compute_vector<From>>::count;
            for (; i + count <= n; i += count) narrow_vector((To *)to + i, widen_vector((const From *)from + i));
        }
    }
    for (; i < n; i++)
        write(to + i * to_stride, from_value<To>::of(to_compute(read<From>(from + i * from_stride))));
}

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
        if (from_stride == -int64_t(sizeof(T))) return copy_every<T, -1>(from, (T *)to, n);
        if (from_stride == 2 * sizeof(T)) return copy_every<T, 2>(from, (T *)to, n);
    }
    for (int64_t i = 0; i < n; i++) write(to + i * to_stride, read<T>(from + i * from_stride));
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
