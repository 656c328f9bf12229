// Which kernel table runs: the best that this CPU supports, or the one asked for by name.
#include <stdlib.h>
#include <string.h>
#include "table.h"

#if defined(INFINIOP_X86_KERNELS) && defined(__x86_64__) && defined(__linux__)
#define INFINIOP_AMX 1
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

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
#if defined(INFINIOP_AMX)
enum { ARCH_GET_XCOMP_SUPP = 0x1021, ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_TILEDATA = 18 };

bool has_amx() {
    unsigned a, b, c, d;
    unsigned long features = 0;
    return has_avx512() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 1) && (d >> 24 & 1) &&
           syscall(SYS_arch_prctl, ARCH_GET_XCOMP_SUPP, &features) == 0 && (features >> XFEATURE_TILEDATA & 1);
}
#endif
bool has_avx2() {
    // Every CPU with AVX2 and FMA has F16C; old compilers cannot ask for it by name.
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#endif
bool always() { return true; }

const Choice choices[] = {
#if defined(INFINIOP_X86_KERNELS)
#if defined(INFINIOP_AMX)
    {"amx", &infiniop_kernels_avx512, has_amx},
#endif
    {"avx512", &infiniop_kernels_avx512, has_avx512},
    {"avx2", &infiniop_kernels_avx2, has_avx2},
#endif
    {"generic", &infiniop_kernels_generic, always},
};
const char *const names[] = {
#if defined(INFINIOP_X86_KERNELS)
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
#if defined(INFINIOP_X86_KERNELS)
    __builtin_cpu_init();
#endif
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
#if defined(INFINIOP_X86_KERNELS)
    return table && table->dot2.max_vectors && __builtin_cpu_supports("avx512bf16") &&
           (__builtin_cpu_is("amd") || infiniop_forced_isa);
#else
    return false;
#endif
}

bool ask_for_amx() {
#if defined(INFINIOP_AMX)
    return !strcmp(infiniop_isa, "amx") && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_TILEDATA) == 0;
#else
    return false;
#endif
}

}  // namespace

const char *const infiniop_forced_isa = forced_isa();
static const Choice *const chosen = choose(infiniop_forced_isa);
const char *const infiniop_isa = chosen ? chosen->name : nullptr;
const KernelTable *const infiniop_kernels = chosen ? chosen->table : nullptr;
const bool infiniop_dot2 = runs_dot2(infiniop_kernels);

bool infiniop_amx(void) {
    static const bool granted = ask_for_amx();
    return granted;
}
