// The whole table for one instruction set; kernels_<isa>.cpp includes this, compiled with that set's flags.
// Constant-initialised: choosing a table runs none of its code.
#pragma once
#include "amx.h"
#include "convert.h"
#include "elementwise.h"
#include "gemm.h"
#include "dot2.h"
#include "lanes.h"
#include "parts.h"
#include "group_stencil.h"
#include "stencil.h"
#include "table.h"
#include "tap_lines.h"
#include "transpose.h"
#include "vnni.h"
#include "widen_transpose.h"

#define INFINIOP_TEXT_(x) #x
#define INFINIOP_TEXT(x) INFINIOP_TEXT_(x)
#define INFINIOP_JOIN_(a, b) a##b
#define INFINIOP_JOIN(a, b) INFINIOP_JOIN_(a, b)

namespace INFINIOP_ISA {
namespace {
constexpr KernelTable make_table() {
    KernelTable table = {};
    table.isa = INFINIOP_TEXT(INFINIOP_ISA);
    fill_elementwise(table, formulas{});
    fill_convert(table);
    fill_lanes(table);
    fill_stencil(table);
    fill_group_stencil(table);
    fill_tap_lines(table);
    fill_transpose(table);
    fill_widen_transpose(table);
    fill_gemm(table);
    fill_dot2(table);
    fill_vnni(table);
    fill_parts(table);
    fill_amx(table);
    return table;
}
constexpr KernelTable table = make_table();
}  // namespace
}  // namespace INFINIOP_ISA

extern const KernelTable INFINIOP_JOIN(infiniop_kernels_, INFINIOP_ISA) = INFINIOP_ISA::table;
