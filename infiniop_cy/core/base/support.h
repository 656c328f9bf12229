// What the core needs of the platform: checked arithmetic, OpenMP or its absence, fork, floating-point state.
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#else
static inline int omp_get_max_threads(void) { return 1; }
static inline int omp_get_thread_num(void) { return 0; }
#endif

#if defined(__x86_64__) || defined(_M_X64)
#include <xmmintrin.h>
#endif

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

// The checked arithmetic returns 1 where the result does not fit.
static inline int mul_overflows(int64_t a, int64_t b, int64_t *result) { return __builtin_mul_overflow(a, b, result); }
static inline int add_overflows(int64_t a, int64_t b, int64_t *result) { return __builtin_add_overflow(a, b, result); }

static inline const char *compiler_name(void) {
#if defined(__clang__)
    return "clang " __clang_version__;
#elif defined(__GNUC__)
    return "gcc " __VERSION__;
#else
    return "unknown";
#endif
}

// Returns OpenMP's version as yyyymm, 0 without OpenMP.
static inline int openmp_version(void) {
#ifdef _OPENMP
    return _OPENMP;
#else
    return 0;
#endif
}

// A forked child inherits OpenMP's bookkeeping but none of its threads; a parallel region there can hang.
static int in_forked_child = 0;
static void mark_forked_child(void) { in_forked_child = 1; }
#if defined(__unix__) || defined(__APPLE__)
__attribute__((constructor)) static void install_fork_guard(void) { pthread_atfork(NULL, NULL, mark_forked_child); }
#endif

// Kernels run in the default rounding mode with subnormals on, whatever another library has set on this
// thread, and leave the mode and the exception flags as they were.
static inline uint64_t enter_float_state(void) {
#if defined(__x86_64__) || defined(_M_X64)
    uint32_t saved = _mm_getcsr();
    _mm_setcsr(0x1f80);
    return saved;
#elif defined(__aarch64__)
    uint64_t mode, flags;
    __asm__ volatile("mrs %0, fpcr\n\tmrs %1, fpsr\n\tmsr fpcr, xzr" : "=r"(mode), "=r"(flags) : : "memory");
    return mode | flags << 32;
#else
    return 0;
#endif
}
static inline void leave_float_state(uint64_t saved) {
#if defined(__x86_64__) || defined(_M_X64)
    _mm_setcsr((uint32_t)saved);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0\n\tmsr fpsr, %1" : : "r"(saved & 0xffffffffu), "r"(saved >> 32) : "memory");
#else
    (void)saved;
#endif
}

// In debug builds, bytes between two pieces of scratch, which nobody may write.
#ifdef NDEBUG
enum { SCRATCH_CANARY = 0 };
#else
enum { SCRATCH_CANARY = 64 };
#endif
static inline void put_canary(char *at) { memset(at, 0xA5, SCRATCH_CANARY); }
static inline void check_canary(const char *at) {
    for (int i = 0; i < SCRATCH_CANARY; i++)
        if (at[i] != char(0xA5)) abort();
}

// Asks for a line that will be read, into the second level of the caches.
static inline void prefetch_line(const char *p) {
#if defined(_MSC_VER) && !defined(__clang__)
    (void)p;
#else
    __builtin_prefetch(p, 0, 2);
#endif
}

// Orders stores past the caches before all that follows. It is called once per thread, since it waits for memory.
static inline void finish_streams(void) {
#if defined(__x86_64__) || defined(_M_X64)
    _mm_sfence();
#endif
}
