// One element from a floating type to any other: floats round to nearest even, floats to integers truncate and saturate
// (NaN gives 0).
#pragma once
#include "dtype.h"

#ifdef __CUDACC__
#include "device_types.cuh"
#endif

namespace INFINIOP_ISA {
namespace {

#ifndef __CUDACC__
// One element to the type it computes in. 16-bit ones take a lane of the vector path: one rounding rule.
INFINIOP_INLINE float to_compute(float v) { return v; }
INFINIOP_INLINE double to_compute(double v) { return v; }
INFINIOP_INLINE float to_compute(bfloat16 v) { return bits_as<float>(uint32_t(v.bits) << 16); }
INFINIOP_INLINE float to_compute(float16 v) {
    float16 lane[lanes<f32v>::count] = {v};
    return widen_vector(lane)[0];
}
template <class T> INFINIOP_INLINE T from_compute(float v) {
    T lane[lanes<f32v>::count];
    narrow_vector(lane, splat<f32v>(v));
    return lane[0];
}
#endif

// double to 16 bits through float must not round twice: round the float to odd first.
INFINIOP_INLINE float round_to_odd(double v) {
    float f = float(v);
    uint32_t bits = bits_as<uint32_t>(f);
    if (double(f) == v || v != v || (bits & 0x7fffffffu) == 0x7f800000u || (bits & 1u)) return f;
    bool away = (double(f) > v) == (v > 0);  // |f| > |v|
    return bits_as<float>(away ? bits - 1 : bits + 1);
}
INFINIOP_INLINE float round_to_odd(float v) { return v; }

template <class T> struct from_value;  // a float or double to T
template <> struct from_value<float> {
    template <class S> static INFINIOP_INLINE float of(S v) { return float(v); }
};
template <> struct from_value<double> {
    template <class S> static INFINIOP_INLINE double of(S v) { return double(v); }
};
template <class T> struct from_value_16 {
    template <class S> static INFINIOP_INLINE T of(S v) { return from_compute<T>(round_to_odd(v)); }
};
template <> struct from_value<float16> : from_value_16<float16> {};
template <> struct from_value<bfloat16> : from_value_16<bfloat16> {};

template <class T> struct from_value_integer {
    template <class S> static INFINIOP_INLINE T of(S v) {
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
template <> struct from_value<bool> {
    template <class S> static INFINIOP_INLINE bool of(S v) { return v != 0; }
};
template <class S_> struct complex { S_ real, imag; };
template <class C> struct from_value<complex<C>> {
    template <class S> static INFINIOP_INLINE complex<C> of(S v) { return {C(v), C(0)}; }
};

}  // namespace
}  // namespace INFINIOP_ISA
