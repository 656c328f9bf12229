// elu and its kin: x, or a multiple of it, for x > 0, and exp(x) - 1 with constants for x <= 0, where -0 stays -0. A
// NaN x is on that side.
#pragma once
#include "formula.h"

namespace INFINIOP_ISA {
namespace {

// alpha (exp(x) - 1) for x <= 0.
struct elu : formula_base {
    static constexpr const char *name = "elu";
    template <class T, class V> static INFINIOP_INLINE V value(V x, const FormulaParameters &p) {
        power<T, V> e = exp_of_minus<T>(at_most(absolute(x), exp_vanishes<T, V>));
        return select(x >= V{}, x, scalar<V>(p.value[0]) * e.minus_one());
    }
    // A small alpha meets g, and a large one the power, so that only a result leaves the range. Next to the end of the
    // range g takes a factor of 2, since the power times alpha may be on its way from beyond.
    template <class T> static INFINIOP_ONCE FormulaParameters prepared(const FormulaParameters &p) {
        const double alpha = p.value[0], size = alpha < 0 ? -alpha : alpha;
        constexpr double huge = sizeof(compute_type<T>) == 4 ? 0x1p126 : 0x1p1022;
        const bool small = size < 1, large = size >= huge;
        const double of_power = small ? 1 : large ? alpha / 2 : alpha, of_g = small ? alpha : large ? 2 : 1;
        // Powers below the normal numbers, which float16 does without, show with such an alpha: there they are taken as
        // 2^lift times as large.
        const double lift = !wide_range<T> && size > 0x1p64 ? 43 : 0;
        return {{alpha, lift > 0 ? of_power * 0x1p-43 : of_power, of_g, lift}};
    }
    template <class T, class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &p) {
        typedef scalar<V> S;
        const S of_power = S(p.value[1]), of_g = S(p.value[2]), lift = wide_range<T> ? S(0) : S(p.value[3]);
        V a = at_most(absolute(x), exp_vanishes<T, V> + lift * constants<V>::ln2);
        power<T, V> e = exp_of_minus<T>(a);
        if constexpr (!wide_range<T>) e.first = e.first + lift;
        return select(x > V{}, g, e.finish(e.times(splat<V>(of_power)) * (of_g * g)));
    }
};

// Klambauer et al., Self-Normalizing Neural Networks (2017).
struct selu : formula_base {
    static constexpr const char *name = "selu";
    static constexpr double alpha = 1.6732632423543772848170429916717, scale = 1.0507009873554804934193349852946;
    template <class T, class V> static INFINIOP_INLINE V value(V x, const FormulaParameters &) {
        power<T, V> e = exp_of_minus<T>(at_most(absolute(x), exp_vanishes<T, V>));
        return select(x >= V{}, x * scalar<V>(scale), scalar<V>(scale * alpha) * e.minus_one());
    }
    template <class T, class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &) {
        power<T, V> e = exp_of_minus<T>(at_most(absolute(x), exp_vanishes<T, V>));
        return select(x > V{}, g * scalar<V>(scale), e.finish(e.value() * scalar<V>(scale * alpha) * g));
    }
};

// alpha (exp(x / alpha) - 1) for x <= 0; log2(e) / alpha is kept to twice the precision, since it meets large x.
struct celu : formula_base {
    static constexpr const char *name = "celu";
    static constexpr bool accepts(const FormulaParameters &p) { return p.value[0] > 0; }
    // alpha; where x ends that gives x itself; and a power of two and its product with alpha, near 1, where the double
    // word of the inverse and the largest |x| have all their bits. An alpha that the compute type does not hold is
    // infinite: as large that x / alpha is nothing.
    template <class T> static INFINIOP_ONCE FormulaParameters prepared(const FormulaParameters &p) {
        typedef compute_type<T> S;
        constexpr bool single = sizeof(S) == 4;
        const double alpha = p.value[0], unit = power_to_one<S>(alpha);
        const bool infinite = S(alpha) > (single ? S(0x1.fffffep127) : S(0x1.fffffffffffffp1023));
        // Nearer to 0 a large alpha's function is x, to the last bit, while x / alpha may lose some.
        const double near = alpha > 1 ? double(S(alpha)) * (single ? -0x1p-26 : -0x1p-55) : 0;
        return {{alpha, near, unit, infinite ? (single ? 0x1p40 : 0x1p80) : alpha * unit}};
    }
    template <class T, class V> static INFINIOP_INLINE power<T, V> of(V x, const FormulaParameters &p) {
        typedef scalar<V> S;
        V a = at_most(absolute(x) * S(p.value[2]), S(exp_vanishes<T, V> * p.value[3]));
        return exp2_of_minus<T>(a, log2e_over<V>(p.value[3]));
    }
    template <class T, class V> static INFINIOP_INLINE V value(V x, const FormulaParameters &p) {
        const scalar<V> alpha = scalar<V>(p.value[0]), near = scalar<V>(p.value[1]);
        return select(x >= splat<V>(near), x, alpha * of<T>(x, p).minus_one());
    }
    template <class T, class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &p) {
        power<T, V> e = of<T>(x, p);
        return select(x > V{}, g, e.finish(e.value() * g));
    }
};

}  // namespace
}  // namespace INFINIOP_ISA
