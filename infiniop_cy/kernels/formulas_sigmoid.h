// sigma(x) = 1 / (1 + exp(-x)), and what is made of it.
#pragma once
#include "formula.h"

namespace INFINIOP_ISA {
namespace {

// (1 + e)^2 for 0 <= e <= 1, rounded about once.
template <class V> INFINIOP_INLINE V one_plus_squared(V e) { return mul_add(e, scalar<V>(2) + e, splat<V>(1)); }

// g sigma(y) for y of x's sign, e = exp(-|y|), as g/(1 + e) for x > 0 and else near e/(1 + e). near: g, or for an x
// that is g what keeps g e at 0 where that is its limit.
template <class T, class V> INFINIOP_INLINE V times_sigmoid(V x, V g, V near, power<T, V> e) {
    V value = e.value(), quotient = select(x > V{}, g, near * value) / (scalar<V>(1) + value);
    return select(x > V{}, quotient, e.finish(quotient));
}

// sigma(x), and g s (1 - s), s = sigma(x), as e/(1 + e)^2 with e = exp(-|x|): no cancellation, no early 0.
struct sigmoid : formula_base {
    static constexpr const char *name = "sigmoid";
    template <class T, class V> static INFINIOP_INLINE V value(V x, const FormulaParameters &) {
        V one = splat<V>(1);
        return times_sigmoid(x, one, one, exp_of_minus<T>(at_most(absolute(x), exp_vanishes<V>)));
    }
    template <class T, class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &) {
        power<T, V> e = exp_of_minus<T>(at_most(absolute(x), exp_vanishes<V>));
        V value = e.value();
        return e.finish(value / one_plus_squared(value) * g);
    }
};

}  // namespace
}  // namespace INFINIOP_ISA
