// Operators that are straight lines on either side of their kinks.
#pragma once
#include "formula.h"

namespace INFINIOP_ISA {
namespace {

struct short_formula : formula_base { static constexpr bool waits_for_memory = true; };

// max(x, 0), so that NaN and -0 stay; and x <= 0 ? 0 : g, so that a NaN x passes g.
struct relu : short_formula {
    static constexpr const char *name = "relu";
    template <class T, class V> static INFINIOP_INLINE V value(V x, const FormulaParameters &) {
        return at_least(x, 0);
    }
    template <class T, class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &) {
        return select(x <= V{}, V{}, g);
    }
};

// x > 0 ? x : x * negative_slope; and x > 0 ? g : g * negative_slope, so that a NaN x is on the slope's side.
struct leaky_relu : short_formula {
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

// x between two bounds, and g strictly between them, where a NaN x is. S: of the bounds.
template <class V> INFINIOP_INLINE V clamped(V x, scalar<V> low, scalar<V> high) {
    return at_most(at_least(x, low), high);
}
template <class V> INFINIOP_INLINE V inside(V g, V x, scalar<V> low, scalar<V> high) {
    return select((x <= splat<V>(low)) | (x >= splat<V>(high)), V{}, g);
}

struct hardtanh : short_formula {
    static constexpr const char *name = "hardtanh";
    static constexpr bool accepts(const FormulaParameters &p) { return !(p.value[0] > p.value[1]); }
    template <class T, class V> static INFINIOP_INLINE V value(V x, const FormulaParameters &p) {
        return clamped(x, scalar<V>(p.value[0]), scalar<V>(p.value[1]));
    }
    template <class T, class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &p) {
        return inside(g, x, scalar<V>(p.value[0]), scalar<V>(p.value[1]));
    }
};

struct relu6 : short_formula {
    static constexpr const char *name = "relu6";
    template <class T, class V> static INFINIOP_INLINE V value(V x, const FormulaParameters &) {
        return clamped(x, 0, 6);
    }
    template <class T, class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &) {
        return inside(g, x, 0, 6);
    }
};

// relu6(x + 3) / 6; the product with 1/6 is 1 exactly where x + 3 is 6.
template <class V> INFINIOP_INLINE V hard_sigmoid(V x) { return clamped(x + scalar<V>(3), 0, 6) * scalar<V>(1 / 6.0); }

struct hardsigmoid : short_formula {
    static constexpr const char *name = "hardsigmoid";
    template <class T, class V> static INFINIOP_INLINE V value(V x, const FormulaParameters &) {
        return hard_sigmoid(x);
    }
    template <class T, class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &) {
        return inside(g * scalar<V>(1 / 6.0), x, -3, 3);
    }
};

// x relu6(x + 3) / 6, with x from -3 on in the product, so that -inf gives 0. Its derivative is (2 x + 3) / 6 between,
// of which 2 x + 3 is exact around its zero.
struct hardswish : short_formula {
    static constexpr const char *name = "hardswish";
    template <class T, class V> static INFINIOP_INLINE V value(V x, const FormulaParameters &) {
        return at_least(x, -3) * hard_sigmoid(x);
    }
    template <class T, class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &) {
        V between = mul_add(x, splat<V>(2), splat<V>(3)) * scalar<V>(1 / 6.0) * g;
        return select(x <= splat<V>(-3), V{}, select(x >= splat<V>(3), g, between));
    }
};

// x / (1 + |x|), for inf too; and g / (1 + |x|)^2 by two products, neither of which overflows.
struct softsign : short_formula {
    static constexpr const char *name = "softsign";
    template <class T, class V> static INFINIOP_INLINE V value(V x, const FormulaParameters &) {
        V near = clamped(x, scalar<V>(-1e30), scalar<V>(1e30));  // far beyond it is the limit
        return near / (scalar<V>(1) + absolute(near));
    }
    template <class T, class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &) {
        V share = splat<V>(1) / (scalar<V>(1) + absolute(x));
        return g * share * share;
    }
};

}  // namespace
}  // namespace INFINIOP_ISA
