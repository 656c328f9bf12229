// Elementary functions for the formulas. Double-word arithmetic (hi + lo) carries exponents whose rounding alone would
// cost tens of ulp in the tails, and what else it takes to stay within 4 ulp. Where the result is `narrow`, about to be
// rounded to 16 bits, the low words are left out: they would change nothing.
#pragma once
#include "coefficients.h"
#include "simd.h"

namespace INFINIOP_ISA {
namespace {

template <class V> using constants = coefficients<scalar<V>>;
template <class V, bool narrow> using polynomials = polynomial_coefficients<scalar<V>, narrow>;

// A value as an unevaluated sum; |lo| is at most half an ulp of hi.
template <class V> struct double_word { V hi, lo; };

template <class V> INFINIOP_INLINE double_word<V> exact_product(V a, V b) {
    V hi = a * b;
#if INFINIOP_FUSED
    return {hi, mul_add(a, b, -hi)};
#else
    constexpr scalar<V> splitter = sizeof(scalar<V>) == 4 ? scalar<V>(4097) : scalar<V>(134217729);  // Veltkamp's
    V ta = a * splitter, tb = b * splitter;
    V ah = ta - (ta - a), bh = tb - (tb - b), al = a - ah, bl = b - bh;
    return {hi, ((ah * bh - hi) + ah * bl + al * bh) + al * bl};
#endif
}

// a*b + c rounded about once, where mul_add rounds twice without hardware that fuses.
template <class V> INFINIOP_INLINE V mul_add_once(V a, V b, V c) {
#if INFINIOP_FUSED
    return mul_add(a, b, c);
#else
    double_word<V> product = exact_product(a, b);
    V sum = product.hi + c;
    return sum + (product.lo + ((product.hi - sum) + c));
#endif
}
template <class V> INFINIOP_INLINE V product_minus(V a, V b, V c) { return mul_add_once(a, b, -c); }

// Horner's rule, unrolled; C::name[i] are compile-time constants also in device code.
#define INFINIOP_POLYNOMIAL(name)                                                            \
    template <class V, class C, int i> struct name##_from {                                  \
        static INFINIOP_INLINE V at(V x) {                                                   \
            constexpr scalar<V> c = C::name[i];                                              \
            if constexpr (i == C::name##_degree) return splat<V>(c);                         \
            else if constexpr (i == 0) return mul_add_once(name##_from<V, C, 1>::at(x), x, splat<V>(c)); \
            else return mul_add(name##_from<V, C, i + 1>::at(x), x, splat<V>(c));            \
        }                                                                                    \
    };                                                                                       \
    template <bool narrow, class V> INFINIOP_INLINE V name(V x) {                            \
        return name##_from<V, polynomials<V, narrow>, 0>::at(x);                             \
    }
INFINIOP_POLYNOMIAL(exp2_curve)
INFINIOP_POLYNOMIAL(gelu_tail)
#undef INFINIOP_POLYNOMIAL

// An exponent n + rest: n the integer nearest to a*b, rest the remainder, with what is too small to move n.
template <class V> struct split_exponent { V n, rest; };
template <class V> INFINIOP_INLINE split_exponent<V> split_product(V a, V b) {
    V n = mul_add(a, b, splat<V>(constants<V>::round_magic)) - constants<V>::round_magic;
    return {n, product_minus(a, b, n)};
}

// 2^(n + rest) as (1 + more) * 2^first * 2^left. left is 0 unless the power is nothing beside 1: a product of it with
// a huge gradient so loses no bits to subnormals on the way.
template <class V> struct power {
    V more, first, left;

    INFINIOP_INLINE V value() const { return scale(scalar<V>(1) + more, first); }
    // The power times v, without `left`.
    INFINIOP_INLINE V times(V v) const { return scale(mul_add(more, v, v), first); }
    INFINIOP_INLINE V times(double_word<V> v) const { return scale(v.hi + mul_add_once(more, v.hi, v.lo), first); }
    INFINIOP_INLINE V finish(V product) const { return scale(product, left); }
};
template <bool narrow, class V> INFINIOP_INLINE power<V> exp2(split_exponent<V> e) {
    constexpr scalar<V> lowest = sizeof(scalar<V>) == 4 ? -64 : -512;
    V first = at_least(e.n, lowest);
    V more;
    if constexpr (narrow) more = e.rest * mul_add(e.rest, exp2_curve<narrow>(e.rest), splat<V>(constants<V>::ln2));
    else more = mul_add_once(e.rest, splat<V>(constants<V>::ln2), e.rest * e.rest * exp2_curve<narrow>(e.rest));
    return {more, first, e.n - first};
}

// (1 - Phi(a) - a phi(a)) exp(a^2/2) for a >= 0 as zero * quotient. The zero at 0.7518 is that of a rational number,
// which is near enough for full relative accuracy around it.
template <class V> struct factors { V zero, quotient; };
template <bool narrow, class V> INFINIOP_INLINE factors<V> scaled_gelu_tail(V a) {
    typedef constants<V> C;
    V s = (a - C::gelu_tail_k) / (a + C::gelu_tail_k);
    return {product_minus(a, splat<V>(C::gelu_zero_denominator), splat<V>(C::gelu_zero_numerator)),
            mul_add_once(scalar<V>(1) - s, gelu_tail<narrow>(s), splat<V>(C::gelu_tail_limit))};
}

}  // namespace
}  // namespace INFINIOP_ISA
