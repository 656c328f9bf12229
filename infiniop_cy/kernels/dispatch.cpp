// Which kernel table runs: the best that this CPU supports, or the one asked for by name.
#include <stdlib.h>
#include <string.h>
#include "cpu.h"
// What is declared there is what a library of the kernels shows; everything else is compiled with -fvisibility=hidden.
#pragma GCC visibility push(default)
#include "table.h"
#pragma GCC visibility pop

namespace {
struct Choice {
    const char *name;
    const KernelTable *table;
    bool (*supported)();
};

#if defined(__x86_64__)
const CpuFeatures &cpu() {
    static const CpuFeatures features = ask_cpu();
    return features;
}
#if defined(INFINIOP_AMX)
bool has_amx() { return cpu().amx; }
#endif
bool has_avx512() { return cpu().avx512; }
bool has_avx2() { return cpu().avx2; }
bool has_avx512_bf16() { return cpu().avx512_bf16; }
#else
bool has_avx512_bf16() { return false; }
#endif
bool always() { return true; }

const Choice choices[] = {
#if defined(__x86_64__)
#if defined(INFINIOP_AMX)
    {"amx", &infiniop_kernels_avx512, has_amx},
#endif
    {"avx512", &infiniop_kernels_avx512, has_avx512},
    {"avx2", &infiniop_kernels_avx2, has_avx2},
#endif
    {"generic", &infiniop_kernels_generic, always},
};
const char *const names[] = {
#if defined(__x86_64__)
#if defined(INFINIOP_AMX)
    "amx",
#endif
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

const Choice *choose(const char *forced) {
    for (const Choice &choice : choices) {
        if (forced && strcmp(forced, choice.name) != 0) continue;
        if (choice.supported()) return &choice;
        infiniop_kernels_problem = "not supported by this CPU";
        if (forced) return nullptr;
    }
    infiniop_kernels_problem = "not compiled into this build";
    return nullptr;
}

// Intel's cores do these at half the rate of float32 products, AMD's at twice: on Intel's only where avx512 is asked
// for.
bool runs_dot2(const KernelTable *table) {
#if defined(__x86_64__)
    return table && table->dot2.max_vectors && infiniop_avx512_bf16 && (cpu().amd || infiniop_forced_isa);
#else
    return false;
#endif
}

bool ask_for_amx() {
#if defined(INFINIOP_AMX)
    return !strcmp(infiniop_isa, "amx") && system_grants_tiles();
#else
    return false;
#endif
}

}  // namespace

const char *const infiniop_forced_isa = forced_isa();
static const Choice *const chosen = choose(infiniop_forced_isa);
const char *const infiniop_isa = chosen ? chosen->name : nullptr;
const KernelTable *const infiniop_kernels = chosen ? chosen->table : nullptr;
const bool infiniop_avx512_bf16 = has_avx512_bf16();
const bool infiniop_dot2 = runs_dot2(infiniop_kernels);

bool infiniop_amx(void) {
    static const bool granted = ask_for_amx();
    return granted;
}
