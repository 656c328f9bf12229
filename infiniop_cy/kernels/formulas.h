// The operators: each gradient written once, for every CPU and GPU.
//
// To add one: a struct here with its name and gradient, its name in `formulas` at the end, and its row
// in operators.py. g is grad_output, x the forward input, p the row's numeric parameters in order, T the type that
// the result will be stored in (vector_math.h says what may depend on it).
#pragma once
#include "vector_math.h"
#include "parameters.h"

namespace INFINIOP_ISA {
namespace {

// Parameters that contradict each other; hidden by a formula that has any.
struct formula_base {
    static constexpr bool accepts(const FormulaParameters &) { return true; }
};

// (1 + e)^2 for 0 <= e <= 1, rounded about once.
template <class V> INFINIOP_INLINE V one_plus_squared(V e) { return mul_add(e, scalar<V>(2) + e, splat<V>(1)); }

// x <= 0 ? 0 : g, so that a NaN x passes g.
struct relu_backward : formula_base {
    static constexpr const char *name = "relu_backward";
    template <class T, class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &) {
        return select(x <= V{}, V{}, g);
    }
};

// x > 0 ? g : g * negative_slope, so that a NaN x is on the slope's side.
struct leaky_relu_backward : formula_base {
    static constexpr const char *name = "leaky_relu_backward";
    // The sign of a result tells the sign of its input only where the slope is not negative.
    static constexpr bool accepts(const FormulaParameters &p) { return !(p.value[1] != 0 && p.value[0] < 0); }
    template <class T, class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &p) {
        return select(x > V{}, g, g * scalar<V>(p.value[0]));
    }
};

// g * (Phi(x) + x phi(x)). With a = |x| and t = 1 - Phi(a) - a phi(a), the derivative is t for x <= 0 and
// 1 - t for x > 0; t = exp(-a^2/2) * scaled_gelu_tail(a), so that nothing cancels.
struct gelu_backward : formula_base {
    static constexpr const char *name = "gelu_backward";
    template <class T, class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &) {
        typedef scalar<V> S;
        typedef constants<V> C;
        V a = at_most(absolute(x), sizeof(S) == 4 ? S(20) : S(56));  // beyond it t*g is 0 for every g
        double_word<V> square = exact_product(a, a);
        split_exponent<V> exponent = split_product(square.hi, splat<V>(C::gelu_exponent_hi));
        if constexpr (!is_narrow<T>) {
            exponent.rest = mul_add(square.lo, splat<V>(C::gelu_exponent_hi), exponent.rest);
            exponent.rest = mul_add(square.hi, splat<V>(C::gelu_exponent_lo), exponent.rest);
        }
        power<T, V> w = exp2<T>(exponent);
        double_word<V> tail = scaled_gelu_tail<T>(a);
        V t = is_narrow<T> ? w.times(tail.hi) : select(x == V{}, splat<V>(S(0.5)), w.times(tail));  // g/2 exactly
        return w.side(x, t, g);
    }
};

// The derivative of x sigma(y), y = c1 x + c3 x^3. With a = |x|, e = exp(-y(a)) and
// t = e (1 + e - a y'(a)) / (1 + e)^2 it is t for x <= 0 and 1 - t for x > 0.
struct gelu_tanh_backward : formula_base {
    static constexpr const char *name = "gelu_tanh_backward";
    template <class T, class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &) {
        typedef scalar<V> S;
        typedef constants<V> C;
        V a = at_most(absolute(x), sizeof(S) == 4 ? S(14) : S(28));  // beyond it t*g is 0 for every g
        double_word<V> square = exact_product(a, a);
        split_exponent<V> exponent;
        V large_slope, small_slope;  // of -y, in powers of two
        if constexpr (is_narrow<T>) {
            exponent = split_product(a, mul_add(square.hi, splat<V>(C::tanh_exponent3_hi),
                                                splat<V>(C::tanh_exponent1_hi + C::tanh_exponent1_lo)));
            large_slope = splat<V>(C::tanh_exponent1_hi);
            small_slope = mul_add(square.hi, splat<V>(3 * C::tanh_exponent3_hi), splat<V>(C::tanh_exponent1_lo));
        } else {
            // -y/a in powers of two, as coarse, of so few bits that coarse - tanh_exponent1_hi is exact, and fine.
            V coarse =
                mul_add(square.hi, splat<V>(C::tanh_exponent3_hi), splat<V>(C::tanh_coarse + C::tanh_exponent1_hi)) -
                C::tanh_coarse;
            V fine = product_minus(square.hi, splat<V>(C::tanh_exponent3_hi), coarse - C::tanh_exponent1_hi);
            V correction = mul_add(square.hi, splat<V>(C::tanh_exponent3_lo), splat<V>(C::tanh_exponent1_lo));
            fine = fine + mul_add(square.lo, splat<V>(C::tanh_exponent3_hi), correction);
            exponent = split_product(a, coarse);
            exponent.rest = mul_add(a, fine, exponent.rest);
            // y' = 3 y/a - 2 c1
            large_slope = mul_add(coarse, splat<V>(3), splat<V>(-2 * C::tanh_exponent1_hi));
            small_slope = mul_add(fine, splat<V>(3), splat<V>(-2 * C::tanh_exponent1_lo));
        }
        power<T, V> e = exp2<T>(exponent);
        // (1 + e - a y') / (1 + e)^2, both sides times log2(e). The large terms cancel around the zero at 0.7525.
        V value = e.value(), scaled = mul_add(value, splat<V>(C::log2e_hi), splat<V>(C::log2e_lo));
        V large = product_minus(a, large_slope, splat<V>(-C::log2e_hi)), small = mul_add(a, small_slope, scaled);
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

// g s (1 - s), s = sigma(x), as e/(1 + e)^2 with e = exp(-|x|): no cancellation, no early 0.
struct sigmoid_backward : formula_base {
    static constexpr const char *name = "sigmoid_backward";
    template <class T, class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &) {
        power<T, V> e = exp_of_minus<T>(at_most(absolute(x), exp_vanishes<V>));
        V value = e.value();
        return e.finish(value / one_plus_squared(value) * g);
    }
};

template <class... Formula> struct formula_list { static constexpr int count = sizeof...(Formula); };

using formulas = formula_list<relu_backward, leaky_relu_backward, gelu_backward, gelu_tanh_backward, sigmoid_backward>;

}  // namespace
}  // namespace INFINIOP_ISA
