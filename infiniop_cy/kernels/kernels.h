// The whole table for one instruction set; kernels_<isa>.cpp includes this, compiled with that set's flags.
// Constant-initialised: choosing a table runs none of its code.
#pragma once
#include "amx.h"
#include "amx_lines.h"
#include "convert.h"
#include "fixed_point.h"
#include "formulas.h"
#include "gemm.h"
#include "dot2.h"
#include "lanes.h"
#include "parts.h"
#include "group_stencil.h"
#include "spread.h"
#include "stencil.h"
#include "stencil_pixels.h"
#include "table.h"
#include "tap_lines.h"
#include "transpose.h"
#include "vnni.h"
#include "widen_transpose.h"

#define INFINIOP_TEXT_(x) #x
#define INFINIOP_TEXT(x) INFINIOP_TEXT_(x)
#define INFINIOP_JOIN_(a, b) a##b
#define INFINIOP_JOIN(a, b) INFINIOP_JOIN_(a, b)

extern const FormulaTable INFINIOP_FORMULAS(gradient_of, INFINIOP_ISA), INFINIOP_FORMULAS(value_of, INFINIOP_ISA);

namespace INFINIOP_ISA {
namespace {
template <class... Formula> constexpr void fill_formulas(KernelTable &table, formula_list<Formula...>) {
    constexpr int count = sizeof...(Formula);
    static_assert(2 * count <= MAX_FORMULAS, "raise MAX_FORMULAS");
    table.formula_count = 2 * count;
    for (int i = 0; i < count; i++) {
        table.formula[i] = &INFINIOP_FORMULAS(gradient_of, INFINIOP_ISA).formula[i];
        table.formula[count + i] = &INFINIOP_FORMULAS(value_of, INFINIOP_ISA).formula[i];
    }
}

constexpr KernelTable make_table() {
    KernelTable table = {};
    table.isa = INFINIOP_TEXT(INFINIOP_ISA);
    fill_formulas(table, formulas{});
    fill_convert(table);
    fill_lanes(table);
    fill_spread(table);
    fill_stencil(table);
    fill_stencil_pixels(table);
    fill_group_stencil(table);
    fill_tap_lines(table);
    fill_transpose(table);
    fill_widen_transpose(table);
    fill_gemm(table);
    fill_dot2(table);
    fill_vnni(table);
    fill_parts(table);
    fill_amx(table);
    fill_amx_lines(table);
    fill_fixed_point(table);
    return table;
}
constexpr KernelTable table = make_table();
}  // namespace
}  // namespace INFINIOP_ISA

extern const KernelTable INFINIOP_JOIN(infiniop_kernels_, INFINIOP_ISA) = INFINIOP_ISA::table;
