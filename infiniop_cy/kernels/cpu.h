// What this CPU has and this system saves of it, asked of both directly: the compilers' own __builtin_cpu_supports
// needs a run-time library that not every system links, and knows names that depend on the compiler's age.
#pragma once
#include <stdint.h>

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#define INFINIOP_AMX 1
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace {
struct CpuFeatures {
    bool avx2 = false;         // AVX2, FMA and F16C
    bool avx512 = false;       // AVX-512 F, BW, DQ and VL, besides
    bool avx512_bf16 = false;  // dot products of bfloat16, besides
    bool amx = false;          // tiles of bfloat16, besides; a process has to ask for them, too
    bool amd = false;
};

// The register states that the system saves when it changes threads.
inline uint64_t saved_states() {
    uint32_t low, high;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low | uint64_t(high) << 32;
}

#if defined(INFINIOP_AMX)
enum { ARCH_GET_XCOMP_SUPP = 0x1021, ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_TILEDATA = 18 };

inline bool system_saves_tiles() {
    unsigned long features = 0;
    return syscall(SYS_arch_prctl, ARCH_GET_XCOMP_SUPP, &features) == 0 && (features >> XFEATURE_TILEDATA & 1);
}

#if defined(INFINIOP_EMULATED_AMX)
inline bool system_grants_tiles() { return true; }
#else
inline bool system_grants_tiles() { return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_TILEDATA) == 0; }
#endif
#else
inline bool system_saves_tiles() { return false; }
#endif

// The states of AVX-512, besides those of AVX. macOS names them only after a thread's first use, which it allows.
inline bool saves_avx512(uint64_t states) {
#if defined(__APPLE__)
    (void)states;
    return true;
#else
    return (states & 0xe0) == 0xe0;
#endif
}

inline CpuFeatures ask_cpu() {
    CpuFeatures cpu;
    unsigned a, b, c, d, highest, ignored;
    const auto bit = [](unsigned word, int number) { return word >> number & 1; };
    if (!__get_cpuid(0, &highest, &b, &c, &d) || highest < 7) return cpu;
    cpu.amd = b == 0x68747541 && d == 0x69746e65 && c == 0x444d4163;  // "AuthenticAMD"
    __get_cpuid(1, &a, &b, &c, &d);
    const unsigned osxsave = bit(c, 27), avx = bit(c, 28), fma = bit(c, 12), f16c = bit(c, 29);
    const uint64_t states = osxsave ? saved_states() : 0;
    if (!avx || (states & 6) != 6) return cpu;
    __get_cpuid_count(7, 0, &a, &b, &c, &d);
    cpu.avx2 = bit(b, 5) && fma && f16c;
    cpu.avx512 = cpu.avx2 && saves_avx512(states) && bit(b, 16) && bit(b, 17) && bit(b, 30) && bit(b, 31);
    cpu.amx = cpu.avx512 && bit(d, 22) && bit(d, 24) && system_saves_tiles();
    if (a >= 1) {
        __get_cpuid_count(7, 1, &a, &ignored, &c, &d);
        cpu.avx512_bf16 = cpu.avx512 && bit(a, 5);
    }
#if defined(INFINIOP_EMULATED_AVX512)
    cpu.avx512 = cpu.avx512_bf16 = cpu.avx2;  // of avx512_emulated.h
#endif
#if defined(INFINIOP_EMULATED_AMX)
    cpu.amx = cpu.avx512;  // of tiles.h, on what is then taken for one of Intel's cores
    cpu.amd = false;
#endif
    return cpu;
}
}  // namespace
#endif
