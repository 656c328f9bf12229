// nvcuda::wmma on the host: fragments are spread over the lanes, a product is computed by the last lane to come.
#pragma once
#include "cuda_bf16.h"

namespace nvcuda {
namespace wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32 {};
}  // namespace precision

namespace detail {

template <class T> struct Storage { typedef T type; };
template <> struct Storage<precision::tf32> { typedef float type; };

template <class T, class U> constexpr bool same = false;
template <class T> constexpr bool same<T, T> = true;

template <class T, int M, int N, int K>
constexpr bool shape_exists = same<T, precision::tf32> ? (M == 16 && N == 16 && K == 8)
                              : same<T, double>        ? (M == 8 && N == 8 && K == 4)
                                                       : K == 16 && M * N == 256 && (M == 16 || M == 8 || M == 32);

template <class Use, int M, int N, int K> struct Extent;
template <int M, int N, int K> struct Extent<matrix_a, M, N, K> { static constexpr int rows = M, columns = K; };
template <int M, int N, int K> struct Extent<matrix_b, M, N, K> { static constexpr int rows = K, columns = N; };
template <int M, int N, int K> struct Extent<accumulator, M, N, K> { static constexpr int rows = M, columns = N; };

// What the multiplier sees of an element: float16 and bfloat16 exactly, of a float the upper 19 bits.
inline float factor(__half x) { return x; }
inline float factor(__nv_bfloat16 x) { return x; }
inline float factor(float x) { return __uint_as_float(__float_as_uint(x) & 0xFFFFE000u); }
inline double factor(double x) { return x; }

// sum[n] += a[k] * b[k][n] over k, as tensor cores were found to add (M. Fasi et al., "Numerical behavior of NVIDIA
// tensor cores", PeerJ Computer Science 7, 2021): products are exact; a few of them and the sum so far are aligned to
// the largest of their exponents, what is then below 24 bits is cut off, and so is what their sum has below. The first
// generation takes four at a time and keeps no further bit; later ones take more and keep more, so that this is the
// worst of them.
constexpr int at_a_time = 4;

inline float toward_zero(double v) {
  const float near = float(v);
  return fabs(double(near)) > fabs(v) ? __uint_as_float(__float_as_uint(near) - 1) : near;
}

template <int K, int N>
inline void add_products(const float* a, const float (*b)[N], float* sum) {
  for (int n = 0; n < N; ++n)
    for (int k = 0; k < K; k += at_a_time) {
      double terms[at_a_time + 1], largest = fabs(double(sum[n])), plain = sum[n];
      terms[at_a_time] = sum[n];
      for (int i = 0; i < at_a_time; ++i) {
        terms[i] = double(a[k + i]) * b[k + i][n];
        plain += terms[i];
        largest = fmax(largest, fabs(terms[i]));
      }
      if (!(largest > 0) || plain - plain != 0) {  // zeros, or something infinite or NaN
        sum[n] = float(plain);
        continue;
      }
      // the place of the last of 24 bits, and what to multiply by to make it 1; neither over- nor underflows
      const unsigned long long exponent = emulation_bits<unsigned long long>(largest) & 0x7FF0000000000000u;
      const double last = emulation_bits<double>(exponent - (23ull << 52));
      const double scale = emulation_bits<double>((2046ull << 52) - (exponent - (23ull << 52)));
      double total = 0;
      for (double term : terms) total += double((long long)(term * scale));
      sum[n] = toward_zero(total * last);
    }
}

template <int K, int N>
inline void add_products(const double* a, const double (*b)[N], double* sum) {
  for (int k = 0; k < K; ++k)
    for (int n = 0; n < N; ++n) sum[n] = __builtin_fma(a[k], b[k][n], sum[n]);
}

}  // namespace detail

template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
  static constexpr bool exists = detail::same<Use, accumulator>
                                     ? (detail::same<T, float> || detail::same<T, __half> || detail::same<T, double>)
                                     : (detail::same<T, __half> || detail::same<T, __nv_bfloat16> ||
                                        detail::same<T, precision::tf32> || detail::same<T, double>) &&
                                           detail::shape_exists<T, M, N, K>;
  static_assert(exists, "no such fragment");
  typedef typename detail::Storage<T>::type element_type, storage_element_type;
  static constexpr int rows = detail::Extent<Use, M, N, K>::rows, columns = detail::Extent<Use, M, N, K>::columns;
  static constexpr int num_elements = rows * columns / 32, num_storage_elements = num_elements;
  element_type x[num_elements];
};

namespace detail {

// Element i of a lane: which place that is, no program may rely on.
template <class F> inline int place(int i, int lane) { return i * 32 + lane; }

template <class F, class T>
inline void check(const T* p, unsigned stride) {
  const bool good = reinterpret_cast<size_t>(p) % 32 == 0 && stride * sizeof(T) % 16 == 0;
  if (!good) emulation_fault(716, "a wmma pointer off 32 bytes, or a leading dimension off 16 bytes");
}

template <class F, class T>
inline void load(F& f, const T* p, unsigned stride, bool by_rows) {
  check<F>(p, stride);
  for (int i = 0; i < F::num_elements; ++i) {
    const int at = place<F>(i, int(emulation_lane)), row = at / F::columns, column = at % F::columns;
    f.x[i] = by_rows ? p[size_t(row) * stride + column] : p[size_t(column) * stride + row];
  }
}

template <class D, class A, class B, class C> struct Operands {
  D* d;
  const A* a;
  const B* b;
  const C* c;
};

template <class D, class A, class B, class C>
void multiply(void* const* lanes, unsigned mask) {
  if (mask != 0xFFFFFFFFu) emulation_fault(719, "a warp of fewer than 32 lanes at mma_sync");
  typedef decltype(factor(A().x[0])) Number;
  constexpr int M = A::rows, K = A::columns, N = B::columns;
  Number a[M][K], b[K][N], sum[M][N];
  for (int l = 0; l < 32; ++l) {
    const auto& o = *static_cast<Operands<D, A, B, C>*>(lanes[l]);
    for (int i = 0; i < A::num_elements; ++i) (&a[0][0])[place<A>(i, l)] = factor(o.a->x[i]);
    for (int i = 0; i < B::num_elements; ++i) (&b[0][0])[place<B>(i, l)] = factor(o.b->x[i]);
    for (int i = 0; i < C::num_elements; ++i) (&sum[0][0])[place<C>(i, l)] = Number(o.c->x[i]);
  }
  for (int m = 0; m < M; ++m) add_products<K, N>(a[m], b, sum[m]);
  for (int l = 0; l < 32; ++l) {
    const auto& o = *static_cast<Operands<D, A, B, C>*>(lanes[l]);
    for (int i = 0; i < D::num_elements; ++i) o.d->x[i] = (&sum[0][0])[place<D>(i, l)];
  }
}

}  // namespace detail

template <int M, int N, int K, class T, class Layout, class Use>
inline void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& f, const typename detail::Storage<T>::type* p,
                             unsigned stride) {
  detail::load(f, p, stride, detail::same<Layout, row_major>);
}

template <int M, int N, int K, class T>
inline void load_matrix_sync(fragment<accumulator, M, N, K, T>& f, const T* p, unsigned stride, layout_t layout) {
  detail::load(f, p, stride, layout == mem_row_major);
}

template <int M, int N, int K, class T>
inline void store_matrix_sync(T* p, const fragment<accumulator, M, N, K, T>& f, unsigned stride, layout_t layout) {
  typedef fragment<accumulator, M, N, K, T> F;
  detail::check<F>(p, stride);
  for (int i = 0; i < F::num_elements; ++i) {
    const int at = detail::place<F>(i, int(emulation_lane)), row = at / F::columns, column = at % F::columns;
    p[layout == mem_row_major ? size_t(row) * stride + column : size_t(column) * stride + row] = f.x[i];
  }
}

template <class Use, int M, int N, int K, class T, class Layout, class V>
inline void fill_fragment(fragment<Use, M, N, K, T, Layout>& f, const V& value) {
  for (auto& x : f.x) x = typename detail::Storage<T>::type(value);
}

template <int M, int N, int K, class TA, class LA, class TB, class LB, class TD, class TC>
inline void mma_sync(fragment<accumulator, M, N, K, TD>& d, const fragment<matrix_a, M, N, K, TA, LA>& a,
                     const fragment<matrix_b, M, N, K, TB, LB>& b, const fragment<accumulator, M, N, K, TC>& c,
                     int line = __builtin_LINE()) {
  static_assert(detail::same<TA, TB>, "a and b of different types");
  typedef fragment<matrix_a, M, N, K, TA, LA> A;
  typedef fragment<matrix_b, M, N, K, TB, LB> B;
  typedef fragment<accumulator, M, N, K, TC> C;
  typedef fragment<accumulator, M, N, K, TD> D;
  detail::Operands<D, A, B, C> mine{&d, &a, &b, &c};
  emulation_warp(0xFFFFFFFFu, line, &mine, detail::multiply<D, A, B, C>);
}

// Rounds to the nearest of ten mantissa bits, ties away from zero.
inline float __float_to_tf32(float x) {
  const unsigned bits = __float_as_uint(x);
  if ((bits & 0x7F800000) == 0x7F800000) return (bits & 0x7FFFFF) ? __uint_as_float(0x7FFFFFFF) : x;
  return __uint_as_float((bits + 0x1000) & 0xFFFFE000u);
}

}  // namespace wmma
}  // namespace nvcuda
