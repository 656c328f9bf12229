// Transposing copies: rows of a tensor that lies across another one, by squares that stay in registers.
#pragma once
#include "simd.h"
#include "table.h"

namespace INFINIOP_ISA {
namespace {

typedef uint32_t transpose_u32 __attribute__((vector_size(vector_bytes)));
typedef uint64_t transpose_u64 __attribute__((vector_size(vector_bytes)));

template <int... i> struct indices {};
template <int n, int... i> struct make_indices : make_indices<n - 1, n - 1, i...> {};
template <int... i> struct make_indices<0, i...> { typedef indices<i...> type; };

// a and b interleaved, from element `first` of each on.
template <int first, class V, int... i> INFINIOP_INLINE V zip(V a, V b, indices<i...>) {
    constexpr int n = sizeof...(i);
#if defined(__clang__)
    return __builtin_shufflevector(a, b, (first + i / 2 + i % 2 * n)...);
#else
    typedef decltype(a < b) mask;
    return __builtin_shuffle(a, b, mask{(first + i / 2 + i % 2 * n)...});
#endif
}

// A square of n vectors of n elements: log2(n) rounds, each interleaving the first half with the second.
template <int n, class V> INFINIOP_INLINE void transpose_square(V *rows) {
    typedef typename make_indices<n>::type all;
#pragma GCC unroll 4
    for (int round = 1; round < n; round *= 2) {
        V next[n];
#pragma GCC unroll 8
        for (int i = 0; i < n / 2; i++) {
            next[2 * i] = zip<0>(rows[i], rows[i + n / 2], all{});
            next[2 * i + 1] = zip<n / 2>(rows[i], rows[i + n / 2], all{});
        }
#pragma GCC unroll 16
        for (int i = 0; i < n; i++) rows[i] = next[i];
    }
}

// One square: row r of `to` is element r of each column of `from`.
template <class V> struct transpose_block {
    static constexpr int size = vector_bytes / sizeof(V{}[0]);
    static INFINIOP_INLINE void run(const char *from, int64_t column, char *to, int64_t row) {
        V square[size];
#pragma GCC unroll 16
        for (int i = 0; i < size; i++) square[i] = load<V>(from + i * column);
        transpose_square<size>(square);
#pragma GCC unroll 16
        for (int i = 0; i < size; i++) store(to + i * row, square[i]);
    }
};

// 16 bits: pairs of columns become 32-bit elements, one square for even and one for odd rows.
template <> struct transpose_block<uint16_t> {
    static constexpr int size = vector_bytes / 2;
    static INFINIOP_INLINE void run(const char *from, int64_t column, char *to, int64_t row) {
        typedef transpose_u32 V;
        V even[size / 2], odd[size / 2];
#pragma GCC unroll 16
        for (int i = 0; i < size / 2; i++) {
            V a = load<V>(from + 2 * i * column), b = load<V>(from + (2 * i + 1) * column);
            even[i] = (a & 0xffffu) | (b << 16);
            odd[i] = (a >> 16) | (b & 0xffff0000u);
        }
        transpose_square<size / 2>(even);
#pragma GCC unroll 16
        for (int i = 0; i < size / 2; i++) store(to + 2 * i * row, even[i]);
        transpose_square<size / 2>(odd);
#pragma GCC unroll 16
        for (int i = 0; i < size / 2; i++) store(to + (2 * i + 1) * row, odd[i]);
    }
};

// T: the element; B: what a square is made of.
template <class T, class B>
void transpose(const char *from, int64_t column, char *to, int64_t row, int64_t rows, int64_t columns) {
    constexpr int size = transpose_block<B>::size;
    int64_t whole_columns = columns / size * size, whole_rows = rows / size * size;
    for (int64_t c = 0; c < whole_columns; c += size)
        for (int64_t r = 0; r < whole_rows; r += size)
            transpose_block<B>::run(from + c * column + r * int64_t(sizeof(T)), column,
                                    to + r * row + c * int64_t(sizeof(T)), row);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = r < whole_rows ? whole_columns : 0; c < columns; c++)
            __builtin_memcpy(to + r * row + c * sizeof(T), from + c * column + r * sizeof(T), sizeof(T));
}

constexpr void fill_transpose(KernelTable &table) {
    table.transpose[DTYPE_F16] = transpose<uint16_t, uint16_t>;
    table.transpose[DTYPE_BF16] = transpose<uint16_t, uint16_t>;
    table.transpose[DTYPE_F32] = transpose<uint32_t, transpose_u32>;
    table.transpose[DTYPE_F64] = transpose<uint64_t, transpose_u64>;
}

}  // namespace
}  // namespace INFINIOP_ISA
