// Elementary functions for the formulas. Double-word arithmetic (hi + lo) carries exponents whose
// rounding alone would cost tens of ulp in the tails.
#pragma once
#include "coefficients.h"
#include "simd.h"

namespace INFINIOP_ISA {
namespace {

template <class S> struct float_format;
template <> struct float_format<float> {
    static constexpr int fraction_bits = 23;
    static constexpr float round_magic = 0x1.8p23f;  // adding it leaves the nearest integer in the low bits
    static constexpr float splitter = 4097.0f;       // 2^12 + 1, Veltkamp's constant
    static constexpr float exp_lowest = -126.0f;     // exp of it is far below every subnormal
    static constexpr float ln2_hi = 0.693359375f, ln2_lo = -2.12194440e-4f;
};
template <> struct float_format<double> {
    static constexpr int fraction_bits = 52;
    static constexpr double round_magic = 0x1.8p52;
    static constexpr double splitter = 134217729.0;
    static constexpr double exp_lowest = -790.0;
    static constexpr double ln2_hi = 6.93145751953125e-1, ln2_lo = 1.42860682030941723212e-6;
};

template <class V> using format = float_format<scalar<V>>;

// A value as an unevaluated sum; |lo| is at most half an ulp of hi.
template <class V> struct double_word { V hi, lo; };

template <class V> INFINIOP_INLINE double_word<V> exact_product(V a, V b) {
    V hi = a * b;
#if INFINIOP_FUSED
    return {hi, mul_add(a, b, -hi)};
#else
    V ta = a * format<V>::splitter, tb = b * format<V>::splitter;
    V ah = ta - (ta - a), bh = tb - (tb - b), al = a - ah, bl = b - bh;
    return {hi, ((ah * bh - hi) + ah * bl + al * bh) + al * bl};
#endif
}

// a*b + c rounded about once, for c small beside a*b; mul_add rounds twice where nothing is fused.
template <class V> INFINIOP_INLINE V mul_add_once(V a, V b, V c) {
#if INFINIOP_FUSED
    return mul_add(a, b, c);
#else
    double_word<V> product = exact_product(a, b);
    return product.hi + (product.lo + c);
#endif
}

template <class V> INFINIOP_INLINE double_word<V> exact_sum(V a, V b) {
    V hi = a + b, b_part = hi - a;
    return {hi, (a - (hi - b_part)) + (b - b_part)};
}

// Horner's rule, unrolled; C::name[i] are compile-time constants also in device code.
#define INFINIOP_POLYNOMIAL(name)                                                            \
    template <class V, int i> struct name##_from {                                           \
        static INFINIOP_INLINE V at(V x) {                                                   \
            constexpr scalar<V> c = coefficients<scalar<V>>::name[i];                        \
            if constexpr (i == coefficients<scalar<V>>::name##_degree) return splat<V>(c);   \
            else return mul_add(name##_from<V, i + 1>::at(x), x, splat<V>(c));               \
        }                                                                                    \
    };                                                                                       \
    template <class V> INFINIOP_INLINE V name(V x) { return name##_from<V, 0>::at(x); }
INFINIOP_POLYNOMIAL(exp_tail)
INFINIOP_POLYNOMIAL(gelu_tail)
#undef INFINIOP_POLYNOMIAL

template <class V> INFINIOP_INLINE V nearest_integer(V x) {
    return (x + format<V>::round_magic) - format<V>::round_magic;
}

// 2^n for integral n within the normal exponents: the low bits of n + magic are n.
template <class V> INFINIOP_INLINE V power_of_two(V n) {
    integer<V> biased = bits_as<integer<V>>(n + format<V>::round_magic) << format<V>::fraction_bits;
    return bits_as<V>(biased + bits_as<integer<V>>(splat<V>(1)));
}

// An exponential as (fraction + low) * 2^n, so that a product with it loses no bits to subnormals on the way.
template <class V> struct scaled_exp {
    V fraction, low, n;

    // exp * v * g for |exp * v| of at most about 1: g meets neither a subnormal nor an overflow before the end.
    INFINIOP_INLINE V times(V v, V g) const {
        V half = nearest_integer(n * scalar<V>(0.5));  // two steps: 2^n alone may be out of range
        return mul_add_once(fraction, v, low * v) * power_of_two(half) * g * power_of_two(n - half);
    }
    INFINIOP_INLINE V times(V v) const { return times(v, splat<V>(1)); }
    INFINIOP_INLINE double_word<V> value() const { return {times(splat<V>(1)), low * power_of_two(at_least(n, -100))}; }
};

// exp(hi + lo) for hi <= 0: fraction to half an ulp and a bit, with low to several bits more. Exactly 0 from
// exp_lowest down. NaN stays NaN.
template <class V> INFINIOP_INLINE scaled_exp<V> exp_of_sum(V hi, V lo) {
    typedef scalar<V> S;
    auto vanishes = hi < splat<V>(format<V>::exp_lowest);
    hi = at_least(hi, format<V>::exp_lowest);
    V n = nearest_integer(hi * S(1.44269504088896340736));
    V whole = mul_add(n, splat<V>(-format<V>::ln2_hi), hi);  // exact
    V correction = mul_add(n, splat<V>(-format<V>::ln2_lo), lo);
    V r = whole + correction;
    V rest = mul_add(r * r, exp_tail(r), r);
    V fraction = S(1) + rest;
    V low = (rest - (fraction - S(1))) + (correction - (r - whole));
    return {select(vanishes, V{}, fraction), select(vanishes, V{}, low), n};
}

// (1 - Phi(a) - a phi(a)) exp(a^2/2) for a >= 0, to about two ulp also around its zero at 0.7518, which is
// factored out.
template <class V> INFINIOP_INLINE V scaled_gelu_tail(V a) {
    typedef scalar<V> S;
    typedef coefficients<S> C;
    V s = (a - C::gelu_tail_k) / (a + C::gelu_tail_k);
    V quotient = mul_add(S(1) - s, gelu_tail(s), splat<V>(C::gelu_tail_limit));
    return ((C::gelu_tail_zero_hi - a) + C::gelu_tail_zero_lo) * quotient;
}

}  // namespace
}  // namespace INFINIOP_ISA
