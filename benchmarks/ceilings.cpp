// What the machine can do at most; timing.py compiles this for it.
#include <stdint.h>
#if defined(__SSE2__)
#include <immintrin.h>
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
        _mm256_stream_ps(out + i, _mm256_add_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(3)),
                                                _mm256_loadu_ps(g + i)));
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
