// The operators: each gradient written once, for every CPU and GPU.
//
// To add one: a struct here with its name and gradient, its name in `formulas` at the end, and its row
// in operators.py. g is grad_output, x the forward input, p the row's numeric parameters in order.
#pragma once
#include "math.h"
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
    template <class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &) {
        return select(x <= V{}, V{}, g);
    }
};

// x > 0 ? g : g * negative_slope, so that a NaN x is on the slope's side.
struct leaky_relu_backward : formula_base {
    static constexpr const char *name = "leaky_relu_backward";
    // The sign of a result tells the sign of its input only where the slope is not negative.
    static constexpr bool accepts(const FormulaParameters &p) { return !(p.value[1] != 0 && p.value[0] < 0); }
    template <class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &p) {
        return select(x > V{}, g, g * scalar<V>(p.value[0]));
    }
};

// g * (Phi(x) + x phi(x)). With a = |x| and t = 1 - Phi(a) - a phi(a), the derivative is t for x <= 0 and
// 1 - t for x > 0; t = exp(-a^2/2) * scaled_gelu_tail(a), so that nothing cancels.
struct gelu_backward : formula_base {
    static constexpr const char *name = "gelu_backward";
    template <class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &) {
        typedef scalar<V> S;
        V a = at_most(absolute(x), sizeof(S) == 4 ? S(16) : S(40));  // beyond it t is 0
        double_word<V> exponent = exact_product(a, a * S(-0.5));
        scaled_exp<V> w = exp_of_sum(exponent.hi, exponent.lo);
        V tail = select(x == V{}, splat<V>(S(0.5)), scaled_gelu_tail(a));  // g/2 exactly
        return select(x > V{}, g * (S(1) - w.times(tail)), w.times(tail, g));
    }
};

// The derivative of x sigma(2u), u = sqrt(2/pi) (x + 0.044715 x^3). With a = |x|, y = 2u(a), e = exp(-y) and
// t = e (1 + e - a y') / (1 + e)^2 it is t for x <= 0 and 1 - t for x > 0. y and a y' are double words: one for
// the exponent, the other for the cancellation around the zero at 0.7525.
struct gelu_tanh_backward : formula_base {
    static constexpr const char *name = "gelu_tanh_backward";
    template <class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &) {
        typedef scalar<V> S;
        constexpr double c1 = 1.59576912160573071176;  // 2 sqrt(2/pi)
        constexpr double c3 = 0.07135481627260024878;  // c1 * 0.044715
        constexpr S c1_hi = S(c1), c1_lo = sizeof(S) == 4 ? S(c1 - double(S(c1))) : S(-9.969308809e-17);
        constexpr S c3_hi = S(c3), c3_lo = sizeof(S) == 4 ? S(c3 - double(S(c3))) : S(-6.175149918e-19);
        V a = at_most(absolute(x), sizeof(S) == 4 ? S(11.5) : S(23));  // beyond it t is 0
        double_word<V> square = exact_product(a, a);
        double_word<V> cubic = exact_product(splat<V>(c3_hi), square.hi);  // c3 a^2
        cubic.lo = cubic.lo + (c3_hi * square.lo + c3_lo * square.hi);
        double_word<V> slope = exact_sum(splat<V>(c1_hi), cubic.hi);  // y / a
        slope.lo = slope.lo + (cubic.lo + c1_lo);
        double_word<V> y = exact_product(a, slope.hi);
        y.lo = y.lo + a * slope.lo;
        double_word<V> twice = exact_product(a + a, cubic.hi);  // a y' - y
        double_word<V> ay = exact_sum(y.hi, twice.hi);
        ay.lo = ay.lo + (y.lo + (twice.lo + (a + a) * cubic.lo));
        scaled_exp<V> exponential = exp_of_sum(-y.hi, -y.lo);
        double_word<V> e = exponential.value();
        double_word<V> difference = exact_sum(splat<V>(1), -ay.hi), bracket = exact_sum(difference.hi, e.hi);
        V tail = (bracket.hi + (bracket.lo + (difference.lo + (e.lo - ay.lo)))) / one_plus_squared(e.hi);
        return select(x > V{}, g * (S(1) - exponential.times(tail)), exponential.times(tail, g));
    }
};

// g s (1 - s), s = sigma(x), as e/(1 + e)^2 with e = exp(-|x|): no cancellation, no early 0.
struct sigmoid_backward : formula_base {
    static constexpr const char *name = "sigmoid_backward";
    template <class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &) {
        typedef scalar<V> S;
        scaled_exp<V> e = exp_of_sum(-absolute(x), V{});
        return e.times(S(1) / one_plus_squared(e.times(splat<V>(1))), g);
    }
};

template <class... Formula> struct formula_list {
    static constexpr int count = sizeof...(Formula);
};

using formulas =
    formula_list<relu_backward, leaky_relu_backward, gelu_backward, gelu_tanh_backward, sigmoid_backward>;

}  // namespace
}  // namespace INFINIOP_ISA
