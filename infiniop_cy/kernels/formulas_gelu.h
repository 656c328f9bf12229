// The two forms of gelu.
#pragma once
#include "formulas_sigmoid.h"

namespace INFINIOP_ISA {
namespace {

// x Phi(x): with a = |x| and t = a (1 - Phi(a)) = exp(-a^2/2) scaled_normal_tail(a) it is -t for x <= 0 and x - t for
// x > 0. Its derivative is Phi(x) + x phi(x). With t = 1 - Phi(a) - a phi(a) it is t for x <= 0 and 1 - t
// for x > 0; t = exp(-a^2/2) * scaled_gelu_tail(a), so that nothing cancels.
struct gelu : formula_base {
    static constexpr const char *name = "gelu";
    template <class T, class V> static INFINIOP_INLINE V value(V x, const FormulaParameters &) {
        typedef scalar<V> S;
        V a = at_most(absolute(x), sizeof(S) == 4 ? S(15) : S(40));  // beyond it t is 0
        split_exponent<V> exponent = minus_half_square<T>(a);
        V tail = scaled_normal_tail<T>(a), t = mul_add_once(exp2_less_one<T>(exponent.rest), tail, tail);
        return at_least(x, S(-0.0)) - scale_down<T>(t, exponent.n);  // 0 of x's sign
    }
    template <class T, class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &) {
        typedef scalar<V> S;
        // Beyond it t*g is 0 for every finite g.
        V a = at_most(absolute(x), sizeof(S) == 8 ? S(56) : wide_range<T> ? S(20) : S(13));
        power<T, V> w = exp_of_minus_half_square<T>(a);
        double_word<V> tail = scaled_gelu_tail<T>(a);
        V t = is_narrow<T> ? w.times(tail.hi) : select(x == V{}, splat<V>(S(0.5)), w.times(tail));  // g/2 exactly
        return w.side(x, t, g);
    }
};

// x sigma(y), y = c1 x + c3 x^3; with a = |x| and e = exp(-y(a)) that is x/(1 + e) for x > 0 and x e/(1 + e) for x <=
// 0. With t = e (1 + e - a y'(a)) / (1 + e)^2 its derivative is t for x <= 0 and 1 - t for x > 0.
struct gelu_tanh : formula_base {
    static constexpr const char *name = "gelu_tanh";

    // -y(a) in powers of two, and its slope as a sum.
    template <class V> struct inner {
        split_exponent<V> exponent;
        V large_slope, small_slope;
    };
    template <class T, class V> static INFINIOP_INLINE inner<V> inner_of(V a) {
        typedef constants<V> C;
        double_word<V> square = exact_product(a, a);
        if constexpr (is_narrow<T>)
            return {split_product(a, mul_add(square.hi, splat<V>(C::tanh_exponent3_hi),
                                             splat<V>(C::tanh_exponent1_hi + C::tanh_exponent1_lo))),
                    splat<V>(C::tanh_exponent1_hi),
                    mul_add(square.hi, splat<V>(3 * C::tanh_exponent3_hi), splat<V>(C::tanh_exponent1_lo))};
        // -y/a in powers of two, as coarse, of so few bits that coarse - tanh_exponent1_hi is exact, and fine.
        V coarse = mul_add(square.hi, splat<V>(C::tanh_exponent3_hi), splat<V>(C::tanh_coarse + C::tanh_exponent1_hi)) -
                   C::tanh_coarse;
        V fine = product_minus(square.hi, splat<V>(C::tanh_exponent3_hi), coarse - C::tanh_exponent1_hi);
        V correction = mul_add(square.hi, splat<V>(C::tanh_exponent3_lo), splat<V>(C::tanh_exponent1_lo));
        fine = fine + mul_add(square.lo, splat<V>(C::tanh_exponent3_hi), correction);
        split_exponent<V> exponent = split_product(a, coarse);
        exponent.rest = mul_add(a, fine, exponent.rest);
        // y' = 3 y/a - 2 c1
        return {exponent, mul_add(coarse, splat<V>(3), splat<V>(-2 * C::tanh_exponent1_hi)),
                mul_add(fine, splat<V>(3), splat<V>(-2 * C::tanh_exponent1_lo))};
    }

    template <class T, class V> static INFINIOP_INLINE V value(V x, const FormulaParameters &) {
        typedef scalar<V> S;
        constexpr S end = sizeof(S) == 4 ? S(14) : S(28);  // beyond it x e is 0
        V near = at_least(x, -end);
        return times_sigmoid(x, x, near, exp2<T>(inner_of<T>(at_most(absolute(near), end)).exponent));
    }

    template <class T, class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &) {
        typedef scalar<V> S;
        typedef constants<V> C;
        // Beyond it t*g is 0 for every finite g.
        V a = at_most(absolute(x), sizeof(S) == 8 ? S(28) : wide_range<T> ? S(14) : S(9));
        inner<V> y = inner_of<T>(a);
        power<T, V> e = exp2<T>(y.exponent);
        // (1 + e - a y') / (1 + e)^2, both sides times log2(e). The large terms cancel around the zero at 0.7525.
        V value = e.value(), scaled = mul_add(value, splat<V>(C::log2e_hi), splat<V>(C::log2e_lo));
        V large = product_minus(a, y.large_slope, splat<V>(-C::log2e_hi)), small = mul_add(a, y.small_slope, scaled);
        V bracket = large + small, denominator = mul_add(scaled, S(2) + value, splat<V>(C::log2e_hi));
        V quotient = bracket / denominator;
        if constexpr (is_narrow<T>) return e.side(x, value * quotient, g);
        // What the quotient lacks, by the roundings of the division and of bracket; reciprocal is within 10 %.
        V rest = mul_add_once(-quotient, denominator, bracket) + (small - (bracket - large));
        V reciprocal = mul_add(value, splat<V>(S(0.62) * C::ln2), splat<V>(S(-1.37) * C::ln2));
        reciprocal = mul_add(value, reciprocal, splat<V>(C::ln2));
        return e.side(x, e.times({quotient, rest * reciprocal}), g);
    }
};

}  // namespace
}  // namespace INFINIOP_ISA
