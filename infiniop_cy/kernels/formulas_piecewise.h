// Operators that are straight lines on either side of their kinks.
#pragma once
#include "formula.h"

namespace INFINIOP_ISA {
namespace {

// max(x, 0), so that NaN and -0 stay; and x <= 0 ? 0 : g, so that a NaN x passes g.
struct relu : formula_base {
    static constexpr const char *name = "relu";
    template <class T, class V> static INFINIOP_INLINE V value(V x, const FormulaParameters &) {
        return at_least(x, 0);
    }
    template <class T, class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &) {
        return select(x <= V{}, V{}, g);
    }
};

// x > 0 ? x : x * negative_slope; and x > 0 ? g : g * negative_slope, so that a NaN x is on the slope's side.
struct leaky_relu : formula_base {
    static constexpr const char *name = "leaky_relu";
    // The sign of a result tells the sign of its input only where the slope is not negative.
    static constexpr bool accepts(const FormulaParameters &p) { return !(p.value[1] != 0 && p.value[0] < 0); }
    template <class T, class V> static INFINIOP_INLINE V value(V x, const FormulaParameters &p) {
        return gradient<T>(x, x, p);
    }
    template <class T, class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &p) {
        return select(x > V{}, g, g * scalar<V>(p.value[0]));
    }
};

}  // namespace
}  // namespace INFINIOP_ISA
