// The list of operators. To add one: a struct in one of these files, its name in `formulas`, and its row in
// operators.py.
#pragma once
#include "formulas_elu.h"
#include "formulas_gelu.h"
#include "formulas_piecewise.h"
#include "formulas_sigmoid.h"

namespace INFINIOP_ISA {
namespace {

template <class... Formula> struct formula_list {};

using formulas = formula_list<relu, leaky_relu, gelu, gelu_tanh, sigmoid, silu, tanh, softplus, elu, selu, celu, mish,
                              hardswish, hardsigmoid, hardtanh, relu6, log_sigmoid, softsign, quick_gelu>;

}  // namespace
}  // namespace INFINIOP_ISA
