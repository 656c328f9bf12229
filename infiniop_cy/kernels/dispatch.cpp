// Which kernel table runs: the best that this CPU supports, or the one asked for by name.
#include <stdlib.h>
#include <string.h>
#include "table.h"

namespace {
struct Choice {
    const char *name;
    const KernelTable *table;
    bool (*supported)();
};

#if defined(INFINIOP_X86_KERNELS)
bool has_avx512() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
}
bool has_avx2() {
    // Every CPU with AVX2 and FMA has F16C; old compilers cannot ask for it by name.
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#endif
bool always() { return true; }

const Choice choices[] = {
#if defined(INFINIOP_X86_KERNELS)
    {"avx512", &infiniop_kernels_avx512, has_avx512},
    {"avx2", &infiniop_kernels_avx2, has_avx2},
#endif
    {"generic", &infiniop_kernels_generic, always},
};
const char *const names[] = {
#if defined(INFINIOP_X86_KERNELS)
    "avx512", "avx2",
#endif
    "generic", nullptr};
}  // namespace

const char *const *infiniop_compiled_isas(void) { return names; }

const char *infiniop_kernels_problem = "";

namespace {
const char *forced_isa() {
    const char *name = getenv("INFINIOP_CY_ISA");
    return name && *name ? name : nullptr;
}

const KernelTable *choose_kernels(const char *forced) {
#if defined(INFINIOP_X86_KERNELS)
    __builtin_cpu_init();
#endif
    for (const Choice &choice : choices) {
        if (forced && strcmp(forced, choice.name) != 0) continue;
        if (choice.supported()) return choice.table;
        infiniop_kernels_problem = "not supported by this CPU";
        if (forced) return nullptr;
    }
    infiniop_kernels_problem = "not compiled into this build";
    return nullptr;
}

bool runs_pairs(const KernelTable *table) {
#if defined(INFINIOP_X86_KERNELS)
    return table && table->pairs.of_channels && __builtin_cpu_supports("avx512bf16");
#else
    return false;
#endif
}
}  // namespace

const char *const infiniop_forced_isa = forced_isa();
const KernelTable *const infiniop_kernels = choose_kernels(infiniop_forced_isa);
const bool infiniop_bfloat16_pairs = runs_pairs(infiniop_kernels);
