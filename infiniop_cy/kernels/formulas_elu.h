// elu and its kin: x, or a multiple of it, for x > 0, and exp(x) - 1 with constants for x <= 0. A NaN x is on that
// side.
#pragma once
#include "formula.h"

namespace INFINIOP_ISA {
namespace {

// alpha (exp(x) - 1) for x <= 0.
struct elu : formula_base {
    static constexpr const char *name = "elu";
    template <class T, class V> static INFINIOP_INLINE V value(V x, const FormulaParameters &p) {
        power<T, V> e = exp_of_minus<T>(at_most(absolute(x), exp_vanishes<V>));
        return select(x > V{}, x, scalar<V>(p.value[0]) * e.minus_one());
    }
    template <class T, class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &p) {
        power<T, V> e = exp_of_minus<T>(at_most(absolute(x), exp_vanishes<V>));
        return select(x > V{}, g, e.finish(e.value() * scalar<V>(p.value[0]) * g));
    }
};

// Klambauer et al., Self-Normalizing Neural Networks (2017).
struct selu : formula_base {
    static constexpr const char *name = "selu";
    static constexpr double alpha = 1.6732632423543772848170429916717, scale = 1.0507009873554804934193349852946;
    template <class T, class V> static INFINIOP_INLINE V value(V x, const FormulaParameters &) {
        power<T, V> e = exp_of_minus<T>(at_most(absolute(x), exp_vanishes<V>));
        return select(x > V{}, x * scalar<V>(scale), scalar<V>(scale * alpha) * e.minus_one());
    }
    template <class T, class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &) {
        power<T, V> e = exp_of_minus<T>(at_most(absolute(x), exp_vanishes<V>));
        return select(x > V{}, g * scalar<V>(scale), e.finish(e.value() * scalar<V>(scale * alpha) * g));
    }
};

// alpha (exp(x / alpha) - 1) for x <= 0; log2(e) / alpha is kept to twice the precision, since it meets large x.
struct celu : formula_base {
    static constexpr const char *name = "celu";
    static constexpr bool accepts(const FormulaParameters &p) { return p.value[0] > 0; }
    template <class T, class V> static INFINIOP_INLINE power<T, V> of(V x, const FormulaParameters &p) {
        V a = at_most(absolute(x), scalar<V>(exp_vanishes<V> * p.value[0]));
        return exp2_of_minus<T>(a, log2e_over<V>(p.value[0]));
    }
    template <class T, class V> static INFINIOP_INLINE V value(V x, const FormulaParameters &p) {
        return select(x > V{}, x, scalar<V>(p.value[0]) * of<T>(x, p).minus_one());
    }
    template <class T, class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &p) {
        power<T, V> e = of<T>(x, p);
        return select(x > V{}, g, e.finish(e.value() * g));
    }
};

}  // namespace
}  // namespace INFINIOP_ISA
