"""CUDA sources of the emulation's own tests: what nvcc takes unchanged, too."""

BASIC = r"""
#include <cuda_runtime.h>
#define KERNEL(name, body) extern "C" __global__ void __launch_bounds__(256) name(const Pointers a) { body }
struct Pointers { const float* a; const float* b; float* c; long long n; };
constexpr int tile = 256;

extern "C" __global__ void __launch_bounds__(tile, 2) add(const Pointers a) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < a.n) a.c[i] = fmaf(a.a[i], 2.0f, a.b[i]);
}

namespace inner {
struct Scale { const float* in; float* out; float factor; int n; };
extern "C" __global__ void scale(const __grid_constant__ Scale s) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < s.n; i += gridDim.x * blockDim.x)
    s.out[i] = s.in[i] * s.factor;
}
}

KERNEL(reverse_good, __shared__ float s[tile]; s[threadIdx.x] = a.a[threadIdx.x]; __syncthreads();
       a.c[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];)
KERNEL(reverse_bad, __shared__ float s[tile]; s[threadIdx.x] = a.a[threadIdx.x];
       a.c[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];)
KERNEL(reverse_dynamic, extern __shared__ __align__(16) float d[]; d[threadIdx.x] = a.a[threadIdx.x];
       __syncthreads(); a.c[threadIdx.x] = d[blockDim.x - 1 - threadIdx.x];)
KERNEL(half_written, __shared__ float s[tile]; if (a.n) s[threadIdx.x] = a.a[threadIdx.x];
       a.c[threadIdx.x] = s[threadIdx.x];)
KERNEL(divergent_exit, if (threadIdx.x == 3) return; __syncthreads(); a.c[threadIdx.x] = 1;)
KERNEL(misaligned, reinterpret_cast<float4*>(a.c + 1)[threadIdx.x] = make_float4(1, 2, 3, 4);)
KERNEL(outside_array, __shared__ float s[32]; s[threadIdx.x + a.n] = 1; __syncthreads();
       a.c[threadIdx.x] = s[threadIdx.x];)
KERNEL(trap, if (threadIdx.x == 5) __trap(); a.c[threadIdx.x] = 1;)
KERNEL(lane_missing, if (threadIdx.x % 32 != 7) a.c[threadIdx.x] = __shfl_sync(0xFFFFFFFFu, a.a[threadIdx.x], 0);)
KERNEL(overflow, volatile float big[1 << 17]; big[a.n] = 1; a.c[0] = big[a.n];)
KERNEL(divide, reinterpret_cast<int*>(a.c)[threadIdx.x] = int(threadIdx.x) / int(a.n);)
KERNEL(warp_unsynced, __shared__ float s[tile]; s[threadIdx.x] = a.a[threadIdx.x];
       a.c[threadIdx.x] = s[threadIdx.x ^ 31];)

extern "C" __global__ void divergent_barriers(const Pointers a) {
  if (threadIdx.x < 32) {
    __syncthreads();
    a.c[threadIdx.x] = 1;
  } else {
    __syncthreads();
    a.c[threadIdx.x] = 2;
  }
}

extern "C" __global__ void transpose(const Pointers a) {
  __shared__ float s[32][33];
  const int n = int(a.n), x = blockIdx.x * 32 + threadIdx.x, y0 = blockIdx.y * 32;
  for (int j = threadIdx.y; j < 32; j += blockDim.y)
    if (x < n && y0 + j < n) s[j][threadIdx.x] = a.a[(y0 + j) * n + x];
  __syncthreads();
  const int u = blockIdx.y * 32 + threadIdx.x, v0 = blockIdx.x * 32;
  for (int j = threadIdx.y; j < 32; j += blockDim.y)
    if (u < n && v0 + j < n) a.c[(v0 + j) * n + u] = s[threadIdx.x][j];
}

extern "C" __global__ void shuffles(const Pointers a) {
  const int i = threadIdx.x;
  const double wide = a.a[i] + 0.25;
  a.c[i] = __shfl_sync(0xFFFFFFFFu, a.a[i], 5);
  a.c[i + 32] = __shfl_down_sync(0xFFFFFFFFu, a.a[i], 3);
  a.c[i + 64] = __shfl_up_sync(0xFFFFFFFFu, a.a[i], 3, 16);
  a.c[i + 96] = float(__shfl_xor_sync(0xFFFFFFFFu, wide, 16));
  a.c[i + 128] = float(__ballot_sync(0xFFFFFFFFu, i % 3 == 0) & 0xFFFF);
  a.c[i + 160] = float(__any_sync(0xFFFFFFFFu, i == 31) * 2 + __all_sync(0xFFFFFFFFu, i < 31));
  float sum = a.a[i];
#pragma unroll
  for (int d = 16; d; d >>= 1) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, d);
  a.c[i + 192] = sum;
}

template <int N> __device__ __forceinline__ float block_sum(float v) {
  __shared__ float s[N];
  s[threadIdx.x] = v;
  __syncthreads();
  for (int d = N / 2; d; d >>= 1) {
    if (threadIdx.x < d) s[threadIdx.x] += s[threadIdx.x + d];
    __syncthreads();
  }
  return s[0];
}

extern "C" __global__ void sums(const Pointers a) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  const float sum = block_sum<256>(i < a.n ? a.a[i] : 0.0f);
  if (threadIdx.x == 0) a.c[blockIdx.x] = sum;
}

extern "C" __global__ void subnormal(const Pointers a) { a.c[threadIdx.x] = a.a[threadIdx.x] * 0.5f; }
extern "C" __global__ void two(float* c, int n) { if (int(threadIdx.x) < n) c[threadIdx.x] = 2; }
__global__ void mangled(const Pointers a) { a.c[0] = 1; }
"""

HALVES = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
struct Convert { const float* in; unsigned short* half_out; unsigned short* bfloat_out; const unsigned short* bits;
                 float* half_in; float* bfloat_in; int n; int m; };

extern "C" __global__ void convert(const Convert c) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < c.n) {
    c.half_out[i] = __half_as_ushort(__float2half_rn(c.in[i]));
    c.bfloat_out[i] = __bfloat16_as_ushort(__float2bfloat16_rn(c.in[i]));
  }
  if (i < c.m) {
    c.half_in[i] = __half2float(__ushort_as_half(c.bits[i]));
    c.bfloat_in[i] = __bfloat162float(__ushort_as_bfloat16(c.bits[i]));
  }
}
"""

PRODUCTS = r"""
#include <mma.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
using namespace nvcuda;
struct Product { const void* a; const void* b; void* c; int columns; };

template <class T, class S, class R, int M, int N, int K, class LA, class LB>
__device__ __forceinline__ void product(const Product p) {
  wmma::fragment<wmma::matrix_a, M, N, K, T, LA> a;
  wmma::fragment<wmma::matrix_b, M, N, K, T, LB> b;
  wmma::fragment<wmma::accumulator, M, N, K, R> c;
  wmma::fill_fragment(c, R(0.0f));
  const bool rows = p.columns == 0;
  wmma::load_matrix_sync(a, static_cast<const S*>(p.a), rows ? K : M);
  wmma::load_matrix_sync(b, static_cast<const S*>(p.b), rows ? N : K);
  wmma::mma_sync(c, a, b, c);
  for (int i = 0; i < c.num_elements; ++i) c.x[i] = c.x[i] * R(2.0f);
  wmma::store_matrix_sync(static_cast<R*>(p.c), c, N, wmma::mem_row_major);
}

#define PRODUCT(name, T, S, R, M, N, K)                                                                        \
  extern "C" __global__ void name(const Product p) {                                                           \
    if (p.columns) product<T, S, R, M, N, K, wmma::col_major, wmma::col_major>(p);                             \
    else product<T, S, R, M, N, K, wmma::row_major, wmma::row_major>(p);                                       \
  }
PRODUCT(half_16, __half, __half, float, 16, 16, 16)
PRODUCT(half_half, __half, __half, __half, 16, 16, 16)
PRODUCT(half_32, __half, __half, float, 32, 8, 16)
PRODUCT(half_8, __half, __half, float, 8, 32, 16)
PRODUCT(bfloat_16, __nv_bfloat16, __nv_bfloat16, float, 16, 16, 16)
PRODUCT(bfloat_32, __nv_bfloat16, __nv_bfloat16, float, 32, 8, 16)
PRODUCT(bfloat_8, __nv_bfloat16, __nv_bfloat16, float, 8, 32, 16)
PRODUCT(tf32, wmma::precision::tf32, float, float, 16, 16, 8)
PRODUCT(wide, double, double, double, 8, 8, 4)
"""
