// What a formula is: one operator in both directions, each written once, for every CPU and GPU.
//
// A struct with `name`, that of the function; value(x), the function; gradient(g, x), g times its derivative. p are the
// row's numeric parameters in order, or what `prepared` makes of them once for many elements; T is the type that the
// result will be stored in (vector_math.h says what may depend on it).
#pragma once
#include "parameters.h"
#include "vector_math.h"

namespace INFINIOP_ISA {
namespace {

// Parameters that contradict each other, what becomes of parameters, and whether so little is computed that large
// arrays take as long as memory; hidden by a formula that has any.
struct formula_base {
    static constexpr bool waits_for_memory = false;
    static constexpr bool accepts(const FormulaParameters &) { return true; }
    template <class T> static INFINIOP_INLINE FormulaParameters prepared(const FormulaParameters &p) { return p; }
};

// The name of a direction: that of its formula and a suffix.
struct formula_name {
    char text[48];
    constexpr formula_name(const char *name, const char *suffix) : text() {
        int n = 0;
        for (; *name; name++) text[n++] = *name;
        for (; *suffix; suffix++) text[n++] = *suffix;
    }
};

// The directions of a formula, as the kernels apply them: out = value(x), and out = gradient(g, x).
template <class Formula> struct value_of : Formula {
    enum { inputs = 1 };
    static constexpr formula_name name{Formula::name, ""};
    template <class T, class V> static INFINIOP_INLINE V apply(V, V x, const FormulaParameters &p) {
        return Formula::template value<T>(x, p);
    }
};
template <class Formula> struct gradient_of : Formula {
    enum { inputs = 2 };
    static constexpr formula_name name{Formula::name, "_backward"};
    template <class T, class V> static INFINIOP_INLINE V apply(V g, V x, const FormulaParameters &p) {
        return Formula::template gradient<T>(g, x, p);
    }
};

}  // namespace
}  // namespace INFINIOP_ISA
