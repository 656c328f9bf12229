// The kernels of every formula in one direction, for one instruction set: compiled once for each pair, with
// -DINFINIOP_ISA=avx2 -DINFINIOP_DIRECTION=gradient_of and the set's flags, say, so that a build keeps all cores busy.
#include "elementwise.h"

namespace INFINIOP_ISA {
namespace {
template <class... Formula> constexpr FormulaTable make_table(formula_list<Formula...>) {
    return {{kernels_of<INFINIOP_DIRECTION<Formula>>()...}};
}
}  // namespace
}  // namespace INFINIOP_ISA

extern const FormulaTable INFINIOP_FORMULAS(INFINIOP_DIRECTION,
                                            INFINIOP_ISA) = INFINIOP_ISA::make_table(INFINIOP_ISA::formulas{});
