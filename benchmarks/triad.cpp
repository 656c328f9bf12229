// The memory's ceiling: out[i] = g[i] + s * x[i], the stores past the caches. bench.py compiles it for this machine.
#include <stdint.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

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
