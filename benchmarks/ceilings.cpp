// What the machine can do at most; timing.py compiles this for it.
#include <stdint.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif
#if defined(__AMX_BF16__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

// The memory's ceiling: out[i] = g[i] + s * x[i], the stores past the caches.
static void part(const float *g, const float *x, float *out, int64_t n) {
    int64_t i = 0;
    for (; i < n && (uintptr_t)(out + i) % 64; i++) out[i] = g[i] + 3 * x[i];
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16)
        _mm512_stream_ps(out + i, _mm512_fmadd_ps(_mm512_loadu_ps(x + i), _mm512_set1_ps(3), _mm512_loadu_ps(g + i)));
    _mm_sfence();
#elif defined(__AVX__)
    for (; i + 8 <= n; i += 8)
        _mm256_stream_ps(
            out + i, _mm256_add_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(3)), _mm256_loadu_ps(g + i)));
    _mm_sfence();
#endif
    for (; i < n; i++) out[i] = g[i] + 3 * x[i];
}

// n floats, contiguous halves (or quarters ...) to the threads.
extern "C" void triad(const float *g, const float *x, float *out, int64_t n, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; t++) {
        int64_t from = n * t / threads / 16 * 16, to = t + 1 == threads ? n : n * (t + 1) / threads / 16 * 16;
        part(g + from, x + from, out + from, to - from);
    }
}

// The arithmetic's ceiling: `rounds` times 12 independent multiply-adds of whole vectors on each thread. Returns their
// number of floating-point operations.
#if defined(__AVX512F__)
#define KEEP(v) __asm__ volatile("" : "+v"(v))
#elif defined(__SSE2__)
#define KEEP(v) __asm__ volatile("" : "+x"(v))
#else
#define KEEP(v) __asm__ volatile("" : "+w"(v))
#endif
template <class S> static double multiply_add(int64_t rounds, int threads) {
#if defined(__AVX512F__)
    enum { bytes = 64 };
#elif defined(__AVX__)
    enum { bytes = 32 };
#else
    enum { bytes = 16 };
#endif
    typedef S V __attribute__((vector_size(bytes)));
#pragma omp parallel num_threads(threads)
    {
        V sum[12] = {}, factor = V{} + S(0.5);
        for (int64_t i = 0; i < rounds; i++) {
#pragma GCC unroll 12
            for (int j = 0; j < 12; j++) {
                sum[j] = sum[j] * factor + factor;
                KEEP(sum[j]);  // or the compiler computes the limit
            }
        }
    }
    return double(rounds) * 12 * 2 * (bytes / sizeof(S)) * threads;
}
extern "C" double multiply_add_float(int64_t rounds, int threads) { return multiply_add<float>(rounds, threads); }
extern "C" double multiply_add_double(int64_t rounds, int threads) { return multiply_add<double>(rounds, threads); }

// The same for bfloat16 by AMX: four independent products of 16 x 32 by 32 x 16 matrices a round; 0 without AMX.
extern "C" double multiply_add_bfloat16(int64_t rounds, int threads) {
#if defined(__AMX_BF16__) && defined(__linux__)
    if (syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* tile data */)) return 0;
    struct alignas(64) {
        uint8_t palette, reserved[15];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shapes = {};
    shapes.palette = 1;
    for (int i = 0; i < 8; i++) shapes.row_bytes[i] = 64, shapes.rows[i] = 16;
#pragma omp parallel num_threads(threads)
    {
        __asm__ volatile("" ::"m"(shapes));
        _tile_loadconfig(&shapes);
        for (int64_t i = 0; i < rounds; i++) {
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        _tile_release();
    }
    return double(rounds) * 4 * 2 * 16 * 16 * 32 * threads;
#else
    (void)rounds, (void)threads;
    return 0;
#endif
}
