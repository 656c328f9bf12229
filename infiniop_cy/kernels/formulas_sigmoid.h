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

// x sigma(rate x), e = exp(-rate |x|), and g times its derivative: with y = rate |x| and t = e (1 + e - y) / (1 + e)^2
// that is t for x <= 0 and 1 - t for x > 0.
template <class T, class V> INFINIOP_INLINE V swish(V x, V near, power<T, V> e) { return times_sigmoid(x, x, near, e); }
// bracket: 1 + e - y.
template <class T, class V> INFINIOP_INLINE V swish_gradient(V g, V x, V bracket, power<T, V> e) {
    return e.side(x, e.times(bracket / one_plus_squared(e.value())), g);
}

// sigma(x), and g s (1 - s), s = sigma(x), as e/(1 + e)^2 with e = exp(-|x|): no cancellation, no early 0.
struct sigmoid : formula_base {
    static constexpr const char *name = "sigmoid";
    template <class T, class V> static INFINIOP_INLINE V value(V x, const FormulaParameters &) {
        V one = splat<V>(1);
        return times_sigmoid(x, one, one, exp_of_minus<T>(at_most(absolute(x), exp_vanishes<T, V>)));
    }
    template <class T, class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &) {
        power<T, V> e = exp_of_minus<T>(at_most(absolute(x), exp_vanishes<T, V>));
        V value = e.value();
        return e.finish(value / one_plus_squared(value) * g);
    }
};

struct silu : formula_base {
    static constexpr const char *name = "silu";
    template <class T, class V> static INFINIOP_INLINE V value(V x, const FormulaParameters &) {
        V near = at_least(x, -exp_vanishes<T, V>);
        return swish(x, near, exp_of_minus<T>(at_most(absolute(near), exp_vanishes<T, V>)));
    }
    template <class T, class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &) {
        V a = at_most(absolute(x), exp_vanishes<T, V>);
        power<T, V> e = exp_of_minus<T>(a);
        return swish_gradient(g, x, (scalar<V>(1) - a) + e.value(), e);  // 1 - a is exact around the zero
    }
};

// 1.702, and what it lacks in the type.
template <class S> inline constexpr S quick_gelu_rate = S(1.702);
template <class S> inline constexpr S quick_gelu_rate_lo =
    sizeof(S) == 4 ? S(-2.193450927734375e-8) : S(4.263256414560601e-17);
// Where exp(-1.702 a) vanishes.
template <class T, class V>
inline constexpr scalar<V> quick_gelu_end = exp_vanishes<T, V> / quick_gelu_rate<scalar<V>>;

// x sigma(1.702 x), Hendrycks and Gimpel's approximation to gelu.
struct quick_gelu : formula_base {
    static constexpr const char *name = "quick_gelu";
    template <class T, class V> static INFINIOP_INLINE power<T, V> of(V a) {
        double_word<V> exponent = log2e_times<V>(1.702);
        if constexpr (sizeof(scalar<V>) == 8)
            exponent.lo = exponent.lo + quick_gelu_rate_lo<double> * constants<V>::log2e_hi;
        return exp2_of_minus<T>(a, exponent);
    }
    template <class T, class V> static INFINIOP_INLINE V value(V x, const FormulaParameters &) {
        V near = at_least(x, -quick_gelu_end<T, V>), a = at_most(absolute(near), quick_gelu_end<T, V>);
        return swish(x, near, of<T>(a));
    }
    template <class T, class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &) {
        typedef scalar<V> S;
        V a = at_most(absolute(x), quick_gelu_end<T, V>);
        power<T, V> e = of<T>(a);
        V bracket = mul_add_once(a, splat<V>(-quick_gelu_rate<S>), splat<V>(1)) +
                    mul_add(a, splat<V>(-quick_gelu_rate_lo<S>), e.value());
        return swish_gradient(g, x, bracket, e);
    }
};

// With m = exp(-2 |x|) - 1, -m / (2 + m) of x's sign; and g 4 e / (1 + e)^2, e = exp(-2 |x|).
struct tanh : formula_base {
    static constexpr const char *name = "tanh";
    template <class T, class V> static INFINIOP_INLINE V value(V x, const FormulaParameters &) {
        V a = at_most(absolute(x), exp_vanishes<T, V> / 2), m = exp_of_minus<T>(a + a).minus_one();
        V quotient = m / (scalar<V>(2) + m);
        return with_sign_of(x, quotient);
    }
    template <class T, class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &) {
        V a = at_most(absolute(x), exp_vanishes<T, V> / 2);
        power<T, V> e = exp_of_minus<T>(a + a);
        V value = e.value();
        return e.finish(scalar<V>(4) * value / one_plus_squared(value) * g);
    }
};

// log(1 + exp(beta x)) / beta, which is x where beta x > threshold: log(1 + e) / beta with e = exp(-|beta x|), and x
// where beta x > 0. Its derivative is sigma(beta x), or 1. beta log2(e) is kept to twice the precision.
struct softplus : formula_base {
    static constexpr const char *name = "softplus";
    // beta; the threshold; a power of two, and |beta| over it, near 1, where the double word of that and the largest
    // |x| have all their bits.
    template <class T> static INFINIOP_ONCE FormulaParameters prepared(const FormulaParameters &p) {
        typedef compute_type<T> S;
        constexpr double most = sizeof(S) == 4 ? 0x1p190 : 0x1.fffffffffffffp1023;  // where any x is far from 0
        const double beta = p.value[0], size = beta < 0 ? -beta : beta, rate = size > most ? most : size;
        const double unit = power_to_one<S>(rate);
        return {{beta, p.value[1], power_to_one<S>(unit), rate * unit}};
    }
    // e for |x| up to what brings its exponent to `end`.
    template <class T, class V> static INFINIOP_INLINE power<T, V> of(V x, const FormulaParameters &p, double end) {
        typedef scalar<V> S;
        V a = at_most(absolute(x) * S(p.value[2]), S(end / p.value[3]));
        return exp2_of_minus<T>(a, log2e_times<V>(p.value[3]));
    }
    template <class T, class V> static INFINIOP_INLINE V value(V x, const FormulaParameters &p) {
        const scalar<V> beta = scalar<V>(p.value[0]);
        // However small beta is, 0 over it is 0 only where e is 0 in every type.
        power<T, V> e = of<T>(x, p, exp_vanishes<scalar<V>, V>);
        V y = x * beta, rest = e.finish(log1p<T>(e.value())) / beta;
        V sum = select(y > V{}, x + rest, rest);  // y may overflow
        return select(y > splat<V>(scalar<V>(p.value[1])), x, sum);
    }
    template <class T, class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &p) {
        V y = x * scalar<V>(p.value[0]);
        power<T, V> e = of<T>(x, p, exp_vanishes<T, V>);
        return select(y > splat<V>(scalar<V>(p.value[1])), g, times_sigmoid(y, g, g, e));
    }
};

// The lesser of x and 0, less log(1 + e), e = exp(-|x|); its derivative is sigma(-x).
struct log_sigmoid : formula_base {
    static constexpr const char *name = "log_sigmoid";
    template <class T, class V> static INFINIOP_INLINE V value(V x, const FormulaParameters &) {
        power<T, V> e = exp_of_minus<T>(at_most(absolute(x), exp_vanishes<T, V>));
        V rest = log1p<T>(e.value());
        return select(x > V{}, -e.finish(rest), x - rest);
    }
    template <class T, class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &) {
        return times_sigmoid(-x, g, g, exp_of_minus<T>(at_most(absolute(x), exp_vanishes<T, V>)));
    }
};

// x tanh(log(1 + exp(x))). With e = exp(-|x|) the tanh is e (e + 2) / d, d = e (e + 2) + 2, for x <= 0, and
// m / (m + 2 e^2), m = 1 + 2 e, for x >= 0. With d the denominator the derivative is
// e (4 (1 + x) + e (6 + 4 x + e (4 + e))) / d^2 for x <= 0 and (m d + 4 x e^2 (1 + e)) / d^2 for x > 0, where nothing
// cancels.
struct mish : formula_base {
    static constexpr const char *name = "mish";
    template <class T, class V> static INFINIOP_INLINE V value(V x, const FormulaParameters &) {
        typedef scalar<V> S;
        V near = at_least(x, -exp_vanishes<T, V>);
        power<T, V> power_of = exp_of_minus<T>(at_most(absolute(near), exp_vanishes<T, V>));
        V e = power_of.value(), over = select(x < V{}, e + S(2), mul_add(e, splat<V>(2), splat<V>(1)));
        V under = select(x < V{}, mul_add(e, over, splat<V>(2)), mul_add(e * e, splat<V>(2), over));
        V share = over / under;
        return select(x < V{}, power_of.finish(power_of.times(near * share)), x * share);
    }
    template <class T, class V> static INFINIOP_INLINE V gradient(V g, V x, const FormulaParameters &) {
        typedef scalar<V> S;
        V a = at_most(absolute(x), exp_vanishes<T, V>);
        power<T, V> power_of = exp_of_minus<T>(a);
        V e = power_of.value(), square = e * e, m = mul_add(e, splat<V>(2), splat<V>(1)), two = e + S(2);
        V right = mul_add(square, splat<V>(2), m), left = mul_add(e, two, splat<V>(2));
        V above = mul_add(m, right, S(4) * a * (square * (e + S(1))));
        V below = mul_add(e, mul_add(e, e + S(4), mul_add(a, splat<V>(-4), splat<V>(6))), (S(1) - a) * S(4));
        V denominator = select(x > V{}, right, left), whole = denominator * denominator;
        V slope = select(x > V{}, above, below) / whole, lost = {};
        if constexpr (!is_narrow<T>) {  // what left, its square and the quotient lost
            V of_left = mul_add(e, e - (two - S(2)), mul_add_once(e, two, S(2) - left));
            V of_square = mul_add(of_left + of_left, left, product_minus(left, left, whole));
            lost = (mul_add_once(-slope, whole, below) - slope * of_square) / whole;
        }
        double_word<V> exact = {slope, lost};
        return select(x > V{}, slope * g, power_of.finish(power_of.times(exact) * g));
    }
};

}  // namespace
}  // namespace INFINIOP_ISA
