// Sums of products for float and double: matrix micro-kernels of rows by vectors, dot products, and sums of rows.
#pragma once
#include "some.h"
#include "table.h"
#include "transpose.h"

namespace INFINIOP_ISA {
namespace {

// Sums to the first columns of rows; as sums that are added to 0, which has no -0, but by GEMM_PUT_CHAIN. What is
// written is found out once for all rows: those of few steps take little longer to multiply.
template <bool biased, class V, int rows, int vectors>
INFINIOP_INLINE void put_rows(V (&sum)[rows][vectors], const BatchReduce &steps, scalar<V> *c, int64_t c_row, int end) {
    constexpr int count = lanes<V>::count;
    const int64_t columns = steps.columns;
    const bool whole = columns >= vectors * count, past = end == GEMM_PUT_PAST;
    const V zero = splat<V>(end == GEMM_PUT_CHAIN ? scalar<V>(-0.0) : scalar<V>(0));
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) {
            scalar<V> *to = c + i * c_row + j * count;
            V value = zero + sum[i][j];
            if (biased) value = value + load<V>((const scalar<V> *)steps.bias + j * count);
            if (whole && past) stream(to, value);
            else if (whole || columns >= (j + 1) * count) store(to, value);
            else store_some((char *)to, value, columns > j * count ? int(columns % count) : 0);
        }
}

// Adds the products of all steps to sum. asks: whether what steps->a_ahead and b_ahead say is asked for meanwhile.
template <bool asks, class V, int rows, int vectors>
INFINIOP_INLINE void add_steps(const BatchReduce *steps, const scalar<V> *a_, const int64_t (&at)[rows],
                               const scalar<V> *b_, V (&sum)[rows][vectors]) {
    typedef scalar<V> S;
    constexpr int count = lanes<V>::count;
    const int64_t depth = steps->depth, a_step = steps->a_step, b_step = steps->b_step;
    const int64_t a_ahead = asks ? steps->a_ahead : 0, b_ahead = asks ? steps->b_ahead : 0;
    // Counted from the first row, which needs no index then: compilers lead a pointer through it anyway, and would find
    // the others' from that in every step.
    int64_t from_first[rows];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) from_first[i] = at[i] - at[0];
    for (int64_t s = 0; s < steps->count; s++) {
        const S *a = a_ + steps->a_offset[s] + at[0], *b = b_ + steps->b_offset[s];
        for (int64_t k = 0; k < depth; k++, a += a_step, b += b_step) {
            if (asks) __builtin_prefetch(a + a_ahead);
            if (b_ahead) {
                const S *soon = b + b_ahead;
#pragma GCC unroll 8
                for (int j = 0; j < vectors; j++) __builtin_prefetch(soon + j * count);
            }
            V column[vectors];
#pragma GCC unroll 8
            for (int j = 0; j < vectors; j++) column[j] = load<V>(b + j * count);
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++) {
                V factor = splat<V>(i ? a[from_first[i]] : *a);
#pragma GCC unroll 8
                for (int j = 0; j < vectors; j++) sum[i][j] = mul_add(factor, column[j], sum[i][j]);
            }
        }
    }
}

// A register tile that asks, and adds to c: a function of its own, since what is asked for takes registers.
template <class V, int rows, int vectors>
[[gnu::noinline]] void gemm_asking(const BatchReduce *steps, const scalar<V> *a, const int64_t *indirection,
                                   const scalar<V> *b, scalar<V> *c, int64_t c_row) {
    constexpr int count = lanes<V>::count;
    V sum[rows][vectors];
    int64_t at[rows];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        at[i] = indirection[i];
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) sum[i][j] = load<V>(c + i * c_row + j * count);
    }
    add_steps<true, V>(steps, a, at, b, sum);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) store(c + i * c_row + j * count, sum[i][j]);
}

template <class V, int rows, int vectors>
void gemm(const BatchReduce *steps, const void *a_, const int64_t *indirection, const void *b_, void *c_, int64_t c_row,
          int end) {
    typedef scalar<V> S;
    const bool accumulate = end == GEMM_CHAIN;
    constexpr int count = lanes<V>::count;
    S *c = (S *)c_;
    constexpr bool narrow = rows == 1 && vectors <= GEMM_VECTORS;  // for few numbers, without a bias or what is ahead
    if constexpr (!narrow)
        if (accumulate && (steps->a_ahead || steps->b_ahead))
            return gemm_asking<V, rows, vectors>(steps, (const S *)a_, indirection, (const S *)b_, c, c_row);
    V sum[rows][vectors];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) sum[i][j] = accumulate ? load<V>(c + i * c_row + j * count) : V{};
    int64_t at[rows];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) at[i] = indirection[i];
    add_steps<false, V>(steps, (const S *)a_, at, (const S *)b_, sum);
    if (end >= GEMM_PUT)
        return !narrow && steps->bias ? put_rows<true>(sum, *steps, c, c_row, end)
                                      : put_rows<false>(sum, *steps, c, c_row, end);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) {
            S *to = c + i * c_row + j * count;
            store(to, accumulate ? sum[i][j] : load<V>(to) + sum[i][j]);
        }
}

template <class V, int rows, int vectors> constexpr RegisterTile register_tile() {
    return {rows, vectors, gemm<V, rows, vectors>};
}

// Register tiles that fill the register file without spilling.
template <class V> constexpr RegisterTiles register_tiles() {
#if defined(__AVX512F__)
    return {
        lanes<V>::count,
        4,
        {{}, register_tile<V, 8, 1>(), register_tile<V, 8, 2>(), register_tile<V, 8, 3>(), register_tile<V, 6, 4>()},
        4,
        register_tile<V, 4, 6>(),
        register_tile<V, 1, 8>(),
        {{}, register_tile<V, 1, 1>(), register_tile<V, 1, 2>(), register_tile<V, 1, 3>(), register_tile<V, 1, 4>()}};
#elif defined(__AVX2__)
    return {lanes<V>::count,
            2,
            {{}, register_tile<V, 8, 1>(), register_tile<V, 6, 2>(), register_tile<V, 4, 3>()},
            3,
            register_tile<V, 4, 3>(),
            register_tile<V, 1, 8>(),
            {{}, register_tile<V, 1, 1>(), register_tile<V, 1, 2>()}};
#else
    return {lanes<V>::count,
            2,
            {{}, register_tile<V, 4, 1>(), register_tile<V, 4, 2>()},
            2,
            register_tile<V, 4, 2>(),
            register_tile<V, 1, 8>(),
            {{}, register_tile<V, 1, 1>(), register_tile<V, 1, 2>()}};
#endif
}

// Adds to sums[r] the sum of all lanes of v[r], r < count, in halves: lanes i and i + half, then half of those.
template <int count, class V> INFINIOP_INLINE void add_lanes(const V *v, int64_t row_count, scalar<V> *sums) {
    constexpr int n = lanes<V>::count;
    typedef typename make_indices<n>::type all;
    V part[count];
#pragma GCC unroll 8
    for (int r = 0; r < count; r++) part[r] = v[r];
    int left = count;
#pragma GCC unroll 4
    for (int width = n; width > 1; width /= 2) {
        const int half = left > 1 ? left / 2 : 0;  // the last one is joined with itself
        left = half ? half : 1;
#pragma GCC unroll 4
        for (int r = 0; r < left; r++)
            part[r] = zip<0>(part[r], part[r + half], all{}) + zip<n / 2>(part[r], part[r + half], all{});
    }
    scalar<V> sum[n];
    store(sum, part[0]);
    for (int r = 0; r < count && r < row_count; r++) sums[r] += sum[r * (n / count)];
}

template <class V>
void dot(int64_t lines, int64_t length, const void *g_, int64_t g_line, const void *x_, int64_t x_line,
         const int64_t *row, int64_t row_count, void *sums) {
    typedef scalar<V> S;
    constexpr int count = lanes<V>::count;
    const int64_t whole = length / count * count;
    integer<V> last = {};  // all ones in the lanes of a line's last vector
    for (int i = 0; i < length - whole; i++) last[i] = -1;
    V sum[DOT_ROWS] = {};
    const S *g = (const S *)g_, *x = (const S *)x_;
    for (int64_t line = 0; line < lines; line++, g += g_line, x += x_line) {
        for (int64_t i = 0; i < whole; i += count) {
            V factor = load<V>(g + i);
#pragma GCC unroll 9
            for (int r = 0; r < DOT_ROWS; r++) sum[r] = mul_add(factor, load<V>(x + row[r] + i), sum[r]);
        }
        if (whole < length) {
            V factor = bits_as<V>(bits_as<integer<V>>(load<V>(g + whole)) & last);
#pragma GCC unroll 9
            for (int r = 0; r < DOT_ROWS; r++)
                sum[r] = mul_add(factor, bits_as<V>(bits_as<integer<V>>(load<V>(x + row[r] + whole)) & last), sum[r]);
        }
    }
    constexpr int together = count < 8 ? count : 8;
#pragma GCC unroll 4
    for (int r = 0; r + together <= DOT_ROWS; r += together) add_lanes<together>(sum + r, row_count - r, (S *)sums + r);
#pragma GCC unroll 4
    for (int r = DOT_ROWS / together * together; r < DOT_ROWS; r++) add_lanes<1>(sum + r, row_count - r, (S *)sums + r);
}

// Sixteen partial sums whatever the vector width, restarting at the first with every row, then a fixed tree.
template <class T> double sum_rows(const char *from, int64_t step, int64_t row, int64_t rows, int64_t n) {
    typedef compute_vector<T> V;
    typedef scalar<V> S;
    constexpr int count = lanes<V>::count, vectors = 16 / count;
    V sum[vectors] = {};
    for (int64_t r = 0; r < rows; r++, from += row)
        for (int64_t i = 0; i < n; i += 16) {
            const char *at = from + i * step;
            const int here = n - i < 16 ? int(n - i) : 16;
            if (step == sizeof(T)) {
#pragma GCC unroll 16
                for (int j = 0; j < vectors; j++)
                    sum[j] += here == 16 ? widen_vector((const T *)at + j * count)
                                         : widen_some((const T *)at, j * count, here);
            } else {
                alignas(64) T part[16] = {};
                for (int j = 0; j < here; j++) __builtin_memcpy(part + j, at + j * step, sizeof(T));
#pragma GCC unroll 16
                for (int j = 0; j < vectors; j++) sum[j] += widen_vector(part + j * count);
            }
        }
    S part[16];
    for (int j = 0; j < vectors; j++) store(part + j * count, sum[j]);
    for (int width = 8; width; width /= 2)
        for (int j = 0; j < width; j++) part[j] += part[j + width];
    return part[0];
}

// What sum_rows gives, for channels side by side, `pixel` bytes from pixel to pixel: lanes are channels.
template <class T>
void sum_channels(const char *from, int64_t pixel, int64_t row, int64_t rows, int64_t n, int64_t channels,
                  double *sums) {
    typedef compute_vector<T> V;
    constexpr int count = lanes<V>::count;
    for (int64_t c = 0; c < channels; c += count) {
        V part[16] = {};
        for (int64_t r = 0; r < rows; r++) {
            const char *at = from + r * row + c * int64_t(sizeof(T));
            int64_t x = 0;
            for (; x + 16 <= n && c + count <= channels; x += 16)
#pragma GCC unroll 16
                for (int i = 0; i < 16; i++, at += pixel) part[i] += widen_vector((const T *)at);
            for (; x < n; x++, at += pixel) part[x % 16] += widen_some((const T *)at, 0, channels - c);
        }
        for (int width = 8; width; width /= 2)  // parts that no pixel reaches are 0, and no part is -0
            for (int j = 0; j < width && j + width < n; j++) part[j] += part[j + width];
        for (int j = 0; j < count && c + j < channels; j++) sums[c + j] = part[0][j];
    }
}

template <class V>
void add_to_rows(const void *row_, void *to_, int64_t pitch, int64_t rows, int64_t n, int flush) {
    typedef scalar<V> S;
    constexpr int count = lanes<V>::count;
    constexpr S least = sizeof(S) == 4 ? S(0x1p-126) : S(0x1p-1022);
    for (int64_t i = 0; i < n; i += count) {
        const V row = load<V>((const S *)row_ + i);
        S *to = (S *)to_ + i;
        for (int64_t r = 0; r < rows; r++, to += pitch) {
            const V sum = load<V>(to) + row;
            store(to, flush ? select(absolute(sum) < splat<V>(least), V{}, sum) : sum);
        }
    }
}

template <class V> int has_nonfinite(const void *values, int64_t n) {
    constexpr int count = lanes<V>::count;
    typedef scalar<V> S;
    integer<V> found = {};
    for (int64_t i = 0; i < n; i += count) {
        const V v = n - i < count ? widen_some((const S *)values, i, n) : load<V>((const S *)values + i);
        found |= v - v != V{};
    }
    int any = 0;
    for (int i = 0; i < count; i++) any |= found[i] != 0;
    return any;
}

constexpr void fill_gemm(KernelTable &table) {
    table.has_nonfinite[DTYPE_F32] = has_nonfinite<f32v>;
    table.has_nonfinite[DTYPE_F64] = has_nonfinite<f64v>;
    table.add_to_rows[DTYPE_F32] = add_to_rows<f32v>;
    table.add_to_rows[DTYPE_F64] = add_to_rows<f64v>;
    table.gemm[DTYPE_F32] = register_tiles<f32v>();
    table.gemm[DTYPE_F64] = register_tiles<f64v>();
    table.dot[DTYPE_F32] = dot<f32v>;
    table.dot[DTYPE_F64] = dot<f64v>;
    table.sum_channels[DTYPE_F16] = sum_channels<float16>;
    table.sum_channels[DTYPE_BF16] = sum_channels<bfloat16>;
    table.sum_channels[DTYPE_F32] = sum_channels<float>;
    table.sum_channels[DTYPE_F64] = sum_channels<double>;
    table.sum_rows[DTYPE_F16] = sum_rows<float16>;
    table.sum_rows[DTYPE_BF16] = sum_rows<bfloat16>;
    table.sum_rows[DTYPE_F32] = sum_rows<float>;
    table.sum_rows[DTYPE_F64] = sum_rows<double>;
}

}  // namespace
}  // namespace INFINIOP_ISA
