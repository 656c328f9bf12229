// One loop for every formula and dtype: widen, compute, narrow. The tail runs through the same vector
// code on a padded buffer, so an element's bits never depend on its position.
#pragma once
#include "dtype.h"
#include "formulas.h"
#include "table.h"

namespace INFINIOP_ISA {
namespace {

template <class Formula, class T, bool accumulate>
INFINIOP_INLINE void elementwise_step(const T *g, const T *x, T *out, const FormulaParameters &p) {
    auto gradient = Formula::gradient(widen(g), widen(x), p);
    if (accumulate) gradient = widen(out) + gradient;
    narrow(out, gradient);
}

template <class Formula, class T, bool accumulate>
void elementwise(const void *g_, const void *x_, void *out_, int64_t n, const FormulaParameters *parameters) {
    constexpr int count = lanes<compute_vector<T>>::count;
    const T *g = (const T *)g_, *x = (const T *)x_;
    T *out = (T *)out_;
    const FormulaParameters p = *parameters;  // out may alias it as far as the compiler knows
    int64_t i = 0;
    for (; i + count <= n; i += count) elementwise_step<Formula, T, accumulate>(g + i, x + i, out + i, p);
    if (i < n) {
        T gt[count] = {}, xt[count] = {}, ot[count] = {};
        size_t bytes = size_t(n - i) * sizeof(T);
        __builtin_memcpy(gt, g + i, bytes);
        __builtin_memcpy(xt, x + i, bytes);
        if (accumulate) __builtin_memcpy(ot, out + i, bytes);
        elementwise_step<Formula, T, accumulate>(gt, xt, ot, p);
        __builtin_memcpy(out + i, ot, bytes);
    }
}

template <class Formula> bool formula_accepts(const FormulaParameters *parameters) {
    return Formula::accepts(*parameters);
}

template <class Formula, class T>
constexpr void fill_dtype(KernelTable &table, int formula, int dtype) {
    table.elementwise[formula][dtype][0] = elementwise<Formula, T, false>;
    table.elementwise[formula][dtype][1] = elementwise<Formula, T, true>;
}

template <class Formula> constexpr void fill_formula(KernelTable &table) {
    int i = table.formula_count++;
    table.formula_name[i] = Formula::name;
    table.formula_accepts[i] = formula_accepts<Formula>;
    fill_dtype<Formula, float16>(table, i, DTYPE_F16);
    fill_dtype<Formula, bfloat16>(table, i, DTYPE_BF16);
    fill_dtype<Formula, float>(table, i, DTYPE_F32);
    fill_dtype<Formula, double>(table, i, DTYPE_F64);
}

template <class... Formula> constexpr void fill_elementwise(KernelTable &table, formula_list<Formula...>) {
    static_assert(sizeof...(Formula) <= MAX_FORMULAS, "raise MAX_FORMULAS");
    (fill_formula<Formula>(table), ...);
}

}  // namespace
}  // namespace INFINIOP_ISA
