// Elementary functions for the formulas. T is the type that the result will be stored in. Double-word arithmetic
// (hi + lo) carries exponents whose rounding alone would cost tens of ulp in the tails, and what else it takes to stay
// within 4 ulp. Where T is narrow, of 16 bits, the low words are left out: they would change nothing.
#pragma once
#include "coefficients.h"
#include "dtype.h"

namespace INFINIOP_ISA {
namespace {

template <class V> using constants = coefficients<scalar<V>>;
template <class T> inline constexpr bool is_narrow = sizeof(T) == 2;
// Whether an exponential below float32's normal numbers shows in a product: with a float16 it is 0 in float16.
template <class T> inline constexpr bool wide_range = true;
template <> inline constexpr bool wide_range<float16> = false;

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
#define INFINIOP_POLYNOMIAL(name)                                                                        \
    template <class V, class C, int i> struct name##_from {                                              \
        static INFINIOP_INLINE V at(V x) {                                                               \
            constexpr scalar<V> c = C::name[i];                                                          \
            if constexpr (i == C::name##_degree) return splat<V>(c);                                     \
            else if constexpr (i == 0) return mul_add_once(name##_from<V, C, 1>::at(x), x, splat<V>(c)); \
            else return mul_add(name##_from<V, C, i + 1>::at(x), x, splat<V>(c));                        \
        }                                                                                                \
    };                                                                                                   \
    template <class T, class V> INFINIOP_INLINE V name(V x) {                                            \
        return name##_from<V, polynomial_coefficients<scalar<V>, is_narrow<T>>, 0>::at(x);               \
    }
INFINIOP_POLYNOMIAL(exp2_curve)
INFINIOP_POLYNOMIAL(gelu_tail)
INFINIOP_POLYNOMIAL(normal_tail)
INFINIOP_POLYNOMIAL(normal_tail_rest)
INFINIOP_POLYNOMIAL(log1p_curve)
#undef INFINIOP_POLYNOMIAL

// An exponent n + rest: n the integer nearest to a*b, rest the remainder, with what is too small to move n.
template <class V> struct split_exponent { V n, rest; };
template <class V> INFINIOP_INLINE split_exponent<V> split_product(V a, V b) {
    V n = mul_add(a, b, splat<V>(constants<V>::round_magic)) - constants<V>::round_magic;
    return {n, product_minus(a, b, n)};
}

// v * 2^n rounded once, subnormal results included. Where scale() ends at the normal exponents, what is beyond them
// goes first: exactly, unless the result is 0 anyway.
template <class T, class V> INFINIOP_INLINE V scale_down(V v, V n) {
#if !defined(__AVX512F__)
    if constexpr (wide_range<T>) {
        const V last = at_least(n, scalar<V>(sizeof(scalar<V>) == 4 ? -126 : -1022));
        return scale(scale(v, n - last), last);
    }
#endif
    return scale(v, n);
}

// 2^(n + rest) as (1 + more) * 2^first * 2^left. left is 0 unless the power is nothing beside 1: a product of it with
// a huge gradient so loses no bits to subnormals on the way.
template <class T, class V> struct power {
    V more, first, left;

    INFINIOP_INLINE V value() const { return scale(scalar<V>(1) + more, first); }
    // The power less 1, without `left`: relative accuracy around 0 too.
    INFINIOP_INLINE V minus_one() const {
        V whole = scale(splat<V>(1), first);
        return mul_add(more, whole, whole - scalar<V>(1));
    }
    // The power times v, without `left`.
    INFINIOP_INLINE V times(V v) const { return scale(mul_add(more, v, v), first); }
    INFINIOP_INLINE V times(double_word<V> v) const { return scale(v.hi + mul_add_once(more, v.hi, v.lo), first); }
    INFINIOP_INLINE V finish(V product) const {
        if constexpr (wide_range<T>) return scale_down<T>(product, left);
        else return product;
    }
    // The two sides of a gelu: g * (1 - t) for x > 0, else g * t, where t lacks `left`.
    INFINIOP_INLINE V side(V x, V t, V g) const {
        V other = scalar<V>(1) - t;
        if constexpr (wide_range<T>) return select(x > V{}, g * other, finish(t * g));
        else return g * select(x > V{}, other, t);
    }
};
// 2^rest - 1.
template <class T, class V> INFINIOP_INLINE V exp2_less_one(V rest) {
    if constexpr (is_narrow<T>) return rest * mul_add(rest, exp2_curve<T>(rest), splat<V>(constants<V>::ln2));
    else return mul_add_once(rest, splat<V>(constants<V>::ln2), rest * rest * exp2_curve<T>(rest));
}
template <class V> inline constexpr scalar<V> lowest_first = sizeof(scalar<V>) == 4 ? -64 : -512;
template <class T, class V> INFINIOP_INLINE power<T, V> exp2(split_exponent<V> e) {
    V first = e.n;
    if constexpr (wide_range<T>) first = at_least(e.n, lowest_first<V>);
    return {exp2_less_one<T>(e.rest), first, e.n - first};
}

// exp(-a) for a from 0 to where its product with any number is 0. No factor of the power is 0 there: an infinite
// gradient stays infinite, where 0 would make it NaN.
template <class T, class V>
inline constexpr scalar<V> exp_vanishes = sizeof(scalar<V>) == 8 ? 1480
                                          : wide_range<T>        ? 200
                                                                 : 87;
template <class T, class V> INFINIOP_INLINE power<T, V> exp_of_minus(V a) {
    typedef constants<V> C;
    split_exponent<V> exponent = split_product(a, splat<V>(-C::log2e_hi));
    if constexpr (!is_narrow<T>) exponent.rest = mul_add(a, splat<V>(-C::log2e_lo), exponent.rest);
    return exp2<T>(exponent);
}

// log2(e) * factor and log2(e) / divisor, to twice the precision of a vector's elements.
template <class V> INFINIOP_INLINE double_word<V> log2e_times(double factor) {
    typedef constants<V> C;
    if constexpr (sizeof(scalar<V>) == 4) {
        double rate = factor * coefficients<double>::log2e_hi;
        float hi = float(rate);
        return {splat<V>(hi), splat<V>(float(rate - double(hi)))};
    } else {
        double_word<V> product = exact_product(splat<V>(factor), splat<V>(C::log2e_hi));
        return {product.hi, mul_add(splat<V>(factor), splat<V>(C::log2e_lo), product.lo)};
    }
}
template <class V> INFINIOP_INLINE double_word<V> log2e_over(double divisor) {
    typedef constants<V> C;
    if constexpr (sizeof(scalar<V>) == 4) {
        double rate = coefficients<double>::log2e_hi / divisor;
        float hi = float(rate);
        return {splat<V>(hi), splat<V>(float(rate - double(hi)))};
    } else {
        V d = splat<V>(divisor), hi = splat<V>(C::log2e_hi) / d;
        V rest = mul_add_once(-hi, d, splat<V>(C::log2e_hi)) + C::log2e_lo;
        return {hi, rest / d};
    }
}

// The power of two that brings a number, at least 0, near 1, as far as a vector's elements reach.
template <class S> INFINIOP_INLINE double power_to_one(double number) {
    constexpr int most = sizeof(S) == 4 ? 126 : 1022;
    int exponent = int(bits_as<int64_t>(number) >> 52 & 0x7ff) - 1023;
    exponent = exponent < most ? exponent : most;
    exponent = exponent > -most ? exponent : -most;
    return bits_as<double>(int64_t(1023 - exponent) << 52);
}

// exp(-rate a), with the rate in powers of 2, for a from 0 to where its product with anything is 0.
template <class T, class V> INFINIOP_INLINE power<T, V> exp2_of_minus(V a, double_word<V> rate) {
    split_exponent<V> exponent = split_product(a, -rate.hi);
    if constexpr (!is_narrow<T>) exponent.rest = mul_add(a, -rate.lo, exponent.rest);
    return exp2<T>(exponent);
}

// log(1 + z) for 0 <= z <= 1.
template <class T, class V> INFINIOP_INLINE V log1p(V z) {
    V s = z / (scalar<V>(2) + z), square = s * s;
    return mul_add(s * square, log1p_curve<T>(square), s + s);
}

// The exponent of exp(-a^2/2) in powers of two, and exp(-a^2/2).
template <class T, class V> INFINIOP_INLINE split_exponent<V> minus_half_square(V a) {
    typedef constants<V> C;
    double_word<V> square = exact_product(a, a);
    split_exponent<V> exponent = split_product(square.hi, splat<V>(C::gelu_exponent_hi));
    if constexpr (!is_narrow<T>) {
        exponent.rest = mul_add(square.lo, splat<V>(C::gelu_exponent_hi), exponent.rest);
        exponent.rest = mul_add(square.hi, splat<V>(C::gelu_exponent_lo), exponent.rest);
    }
    return exponent;
}
template <class T, class V> INFINIOP_INLINE power<T, V> exp_of_minus_half_square(V a) {
    return exp2<T>(minus_half_square<T>(a));
}

// a (1 - Phi(a)) exp(a^2/2) for a >= 0, as p / (slope p + m) with polynomials p/a and m: for large a this nears
// 1/slope, and what p lost by rounding cancels.
template <class T, class V> INFINIOP_INLINE V scaled_normal_tail(V a) {
    typedef polynomial_coefficients<scalar<V>, is_narrow<T>> C;
    V p = mul_add_once(a, splat<V>(C::normal_tail[0]), a * a * normal_tail_from<V, C, 1>::at(a));
    return p / mul_add_once(p, splat<V>(C::normal_tail_slope), normal_tail_rest<T>(a));
}

// (1 - Phi(a) - a phi(a)) exp(a^2/2) for a >= 0. Its zero at 0.7518 is factored out, as that of a rational number,
// which is near enough for full relative accuracy around it.
template <class T, class V> INFINIOP_INLINE double_word<V> scaled_gelu_tail(V a) {
    typedef constants<V> C;
    constexpr scalar<V> k = polynomial_coefficients<scalar<V>, is_narrow<T>>::gelu_tail_k;
    V zero = product_minus(a, splat<V>(C::gelu_zero_denominator), splat<V>(C::gelu_zero_numerator));
    V r = splat<V>(k) / (a + k), p = gelu_tail<T>(r), limit = splat<V>(C::gelu_tail_limit);
    V quotient = mul_add_once(r, p, limit);
    if constexpr (is_narrow<T>) return {zero * quotient, V{}};
    double_word<V> product = exact_product(zero, quotient);
    return {product.hi, mul_add(zero, mul_add_once(r, p, limit - quotient), product.lo)};
}

}  // namespace
}  // namespace INFINIOP_ISA
