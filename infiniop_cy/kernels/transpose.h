// Transposing copies: rows of a tensor that lies across another one, by squares that stay in registers.
#pragma once
#include "simd.h"
#include "some.h"
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

// A square of n vectors of n elements: log2(n) rounds, each interleaving the first half with the second. Of fewer
// vectors than each has elements, n, a power of two: n elements of one after those of the other.
template <int n, class V> INFINIOP_INLINE void transpose_square(V *rows) {
    constexpr int elements = vector_bytes / sizeof(V{}[0]);
    typedef typename make_indices<elements>::type all;
#pragma GCC unroll 4
    for (int round = 1; round < n; round *= 2) {
        V next[n];
#pragma GCC unroll 8
        for (int i = 0; i < n / 2; i++) {
            next[2 * i] = zip<0>(rows[i], rows[i + n / 2], all{});
            next[2 * i + 1] = zip<elements / 2>(rows[i], rows[i + n / 2], all{});
        }
#pragma GCC unroll 16
        for (int i = 0; i < n; i++) rows[i] = next[i];
    }
}

// How the elements of a column become a vector: as they are.
template <class V> struct as_they_are {
    typedef V vector;
    static constexpr int item = sizeof(V{}[0]);  // bytes of an element of `from`
    static INFINIOP_INLINE V whole(const char *p) { return load<V>(p); }
    static INFINIOP_INLINE V some(const char *p, int n) { return load_some<V>(p, n); }
};

// One square: row r of `to` is element r of each column of `from`. few_rows, few_columns: of a square that is cut off,
// at most so many. The rows of few columns stand in as few vectors; of few rows, of whose columns as many elements as
// are readable may be loaded, what none of them needs is not computed.
template <class Load> struct transpose_block {
    typedef typename Load::vector V;
    static constexpr int from_item = Load::item, to_item = sizeof(V{}[0]), size = vector_bytes / to_item;
    template <class Row> static INFINIOP_INLINE void run(const char *from, int64_t column, Row row) {
        V square[size];
#pragma GCC unroll 16
        for (int i = 0; i < size; i++) square[i] = Load::whole(from + i * column);
        transpose_square<size>(square);
#pragma GCC unroll 16
        for (int i = 0; i < size; i++) store(row(i), square[i]);
    }
    template <int most>
    static INFINIOP_INLINE void load_columns(const char *from, int64_t column, int readable, int columns, V *square) {
#pragma GCC unroll 16
        for (int i = 0; i < most; i++)
            square[i] = i >= columns      ? V{}
                        : readable < size ? Load::some(from + i * column, readable)
                                          : Load::whole(from + i * column);
    }
    template <int most, class Row>
    static INFINIOP_INLINE void few_columns(const char *from, int64_t column, Row row, int rows, int columns) {
        V part[most];
        load_columns<most>(from, column, rows, columns, part);
        transpose_square<most>(part);
#pragma GCC unroll 16
        for (int i = 0; i < size; i++) {
            if (i >= rows) break;
            store_from(row(i), part[i * most / size], i * most % size, columns);
        }
    }
    // All rows of few columns, each after the other: `most` elements are stored, of which the next rows' replace those
    // behind the columns.
    template <int most>
    static INFINIOP_INLINE void side_by_side(const char *from, int64_t column, char *to, int columns) {
        V part[most];
        load_columns<most>(from, column, size, columns, part);
        transpose_square<most>(part);
#pragma GCC unroll 16
        for (int i = 0; i < size; i++)
            __builtin_memcpy(to + i * columns * to_item,
                             (const char *)(part + i * most / size) + i * most % size * to_item, most * to_item);
    }
    template <int most, class Row>
    static INFINIOP_INLINE void few_rows(const char *from, int64_t column, Row row, int rows, int columns,
                                         int readable) {
        V square[size];
        load_columns<size>(from, column, readable, columns, square);
        transpose_square<size>(square);
#pragma GCC unroll 16
        for (int i = 0; i < most; i++) {
            if (i >= rows) break;
            if (columns < size) store_some(row(i), square[i], columns);
            else store(row(i), square[i]);
        }
    }
};

// 16 bits: pairs of columns become 32-bit elements, one square for even and one for odd rows.
struct transpose_words {
    static constexpr int from_item = 2, to_item = 2, size = vector_bytes / 2;
    template <class Row> static INFINIOP_INLINE void run(const char *from, int64_t column, Row row) {
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
        for (int i = 0; i < size / 2; i++) store(row(2 * i), even[i]);
        transpose_square<size / 2>(odd);
#pragma GCC unroll 16
        for (int i = 0; i < size / 2; i++) store(row(2 * i + 1), odd[i]);
    }
    // The even and the odd rows of so many columns.
    template <int most>
    static INFINIOP_INLINE void load_pairs(const char *from, int64_t column, int readable, int columns,
                                           transpose_u32 *even, transpose_u32 *odd) {
        typedef transpose_u32 V;
#pragma GCC unroll 16
        for (int i = 0; i < most / 2; i++) {
            V a = load_words<V>(from + 2 * i * column, 2 * i < columns ? readable : 0);
            V b = load_words<V>(from + (2 * i + 1) * column, 2 * i + 1 < columns ? readable : 0);
            even[i] = (a & 0xffffu) | (b << 16);
            odd[i] = (a >> 16) | (b & 0xffff0000u);
        }
    }
    template <int most, class Row>
    static INFINIOP_INLINE void few_rows(const char *from, int64_t column, Row row, int rows, int columns,
                                         int readable) {
        transpose_u32 even[size / 2], odd[size / 2];
        load_pairs<size>(from, column, readable, columns, even, odd);
        transpose_square<size / 2>(even);
        transpose_square<size / 2>(odd);
#pragma GCC unroll 16
        for (int i = 0; i < most / 2; i++) {
            if (2 * i < rows) store_words(row(2 * i), even[i], columns);
            if (2 * i + 1 < rows) store_words(row(2 * i + 1), odd[i], columns);
        }
    }
    template <int most, class Row>
    static INFINIOP_INLINE void few_columns(const char *from, int64_t column, Row row, int rows, int columns) {
        transpose_u32 even[most / 2], odd[most / 2];
        load_pairs<most>(from, column, rows, columns, even, odd);
        transpose_square<most / 2>(even);
        transpose_square<most / 2>(odd);
#pragma GCC unroll 16
        for (int i = 0; i < size / 2; i++) {
            const int first = i * most % size, part = i * most / size;
            if (2 * i < rows) store_words_from(row(2 * i), even[part], first, columns);
            if (2 * i + 1 < rows) store_words_from(row(2 * i + 1), odd[part], first, columns);
        }
    }
};

// A square that is cut off.
template <class Block, class Row>
void transpose_some(const char *from, int64_t column, Row row, int rows, int columns) {
    constexpr int size = Block::size;
    if (rows <= size / 4) Block::template few_rows<size / 4>(from, column, row, rows, columns, rows);
    else if (columns <= size / 4) Block::template few_columns<size / 4>(from, column, row, rows, columns);
    else if (rows <= size / 2) Block::template few_rows<size / 2>(from, column, row, rows, columns, rows);
    else if (columns <= size / 2) Block::template few_columns<size / 2>(from, column, row, rows, columns);
    else Block::template few_rows<size>(from, column, row, rows, columns, rows);
}

// Where rows go, in bytes from the first: evenly, or each to a place of its own.
struct EvenRows {
    int64_t step;
    INFINIOP_INLINE int64_t operator()(int64_t r) const { return r * step; }
    INFINIOP_INLINE bool without_gaps(int64_t row) const { return step == row; }
};

struct RowPlaces {
    int64_t step;
    const int64_t *places = nullptr;  // where rows do not go evenly
    INFINIOP_INLINE int64_t operator()(int64_t r) const { return places ? places[r] : r * step; }
    INFINIOP_INLINE bool without_gaps(int64_t row) const { return !places && step == row; }
};

// Squares of 16-bit words are large: they are compiled once, for both.
template <class Block> struct even_rows { typedef EvenRows type; };
template <> struct even_rows<transpose_words> { typedef RowPlaces type; };

// Few rows of columns without gaps, half a vector of them at most, such as the pixels of images: whole vectors are
// loaded, which end in the columns behind. Goes on as far as there are such, and returns how far.
template <class Block, class Place>
int64_t transpose_few_rows(const char *from, int64_t column, char *to, Place place, int rows, int64_t columns) {
    constexpr int size = Block::size;
    int64_t c = 0;
    for (; (columns - c - size + 1) * column >= size * Block::from_item; c += size) {
        char *there = to + c * Block::to_item;
        Block::template few_rows<size / 2>(
            from + c * column, column, [=](int i) { return there + place(i); }, rows, size, size);
    }
    return c;
}

// Rows of few columns, half a vector of them at most, without gaps between rows. Goes on as far as what is stored
// behind a row's columns is written again, and returns how far.
template <class Block>
int64_t transpose_few_columns(const char *from, int64_t column, char *to, int64_t rows, int columns) {
    constexpr int size = Block::size;
    int64_t r = 0;
    for (; (rows - r - size) * columns >= size; r += size) {
        const char *at = from + r * Block::from_item;
        char *there = to + r * columns * Block::to_item;
        if (columns <= size / 4) Block::template side_by_side<size / 4>(at, column, there, columns);
        else Block::template side_by_side<size / 2>(at, column, there, columns);
    }
    return r;
}

// At most four rows of 16-bit words, such as the channels of images, of columns that do not overlap: eight bytes of
// each column are loaded, which may end in the columns behind it. Goes on as far as they end in one, and returns how
// far.
template <class Place>
int64_t transpose_few_words(const char *from, int64_t column, char *to, Place place, int rows, int64_t columns) {
    int64_t c = 0;
#if defined(__AVX512BW__)
    const __m512i by_row = _mm512_set_epi16(31, 27, 23, 19, 15, 11, 7, 3, 30, 26, 22, 18, 14, 10, 6, 2, 29, 25, 21, 17,
                                            13, 9, 5, 1, 28, 24, 20, 16, 12, 8, 4, 0);
    for (; (columns - c - 32) * column + 2 * rows >= 8; c += 32) {
        __m512i eight[4];  // columns each: a lane of eight words for every row
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const char *at = from + (c + 8 * i) * column;
            auto two = [=](int first) {
                const __m128i low = _mm_loadl_epi64((const __m128i *)(at + first * column));
                const double *high = (const double *)(at + (first + 1) * column);
                return _mm_castpd_si128(_mm_loadh_pd(_mm_castsi128_pd(low), high));
            };
            const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(two(0)), two(2), 1);
            const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(two(4)), two(6), 1);
            eight[i] = _mm512_permutexvar_epi16(by_row, _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
        }
        const __m512i first_low = _mm512_shuffle_i64x2(eight[0], eight[1], 0x44);
        const __m512i first_high = _mm512_shuffle_i64x2(eight[2], eight[3], 0x44);
        const __m512i last_low = _mm512_shuffle_i64x2(eight[0], eight[1], 0xEE);
        const __m512i last_high = _mm512_shuffle_i64x2(eight[2], eight[3], 0xEE);
        char *there = to + 2 * c;
        _mm512_storeu_si512(there + place(0), _mm512_shuffle_i64x2(first_low, first_high, 0x88));
        if (rows > 1) _mm512_storeu_si512(there + place(1), _mm512_shuffle_i64x2(first_low, first_high, 0xDD));
        if (rows > 2) _mm512_storeu_si512(there + place(2), _mm512_shuffle_i64x2(last_low, last_high, 0x88));
        if (rows > 3) _mm512_storeu_si512(there + place(3), _mm512_shuffle_i64x2(last_low, last_high, 0xDD));
    }
#endif
    return c;
}

template <class Block, class Place>
void transpose_rows(const char *from, int64_t column, char *to, Place place, int64_t rows, int64_t columns) {
    constexpr int size = Block::size;
    int64_t done = 0, rows_done = 0;
    if constexpr (Block::to_item > 2)  // those of 16 bits move by pairs
        if (columns <= size / 2 && place.without_gaps(columns * Block::to_item))
            rows_done = transpose_few_columns<Block>(from, column, to, rows, int(columns));
    if constexpr (Block::to_item == 2)
        if (rows <= 4 && column >= 2 * rows) done = transpose_few_words(from, column, to, place, int(rows), columns);
    if (!done && rows <= size / 2 && column == rows * Block::from_item)
        done = transpose_few_rows<Block>(from, column, to, place, int(rows), columns);
    auto square = [=](int64_t r, int64_t c) {
        const char *at = from + c * column + r * Block::from_item;
        char *there = to + c * Block::to_item;
        auto row = [there, r, place](int i) { return there + place(r + i); };
        if (columns - c >= size && rows - r >= size) Block::run(at, column, row);
        else
            transpose_some<Block>(at, column, row, rows - r < size ? int(rows - r) : size,
                                  columns - c < size ? int(columns - c) : size);
    };
    // Along the longer side, so that few streams of memory are open at a time.
    if (columns > rows)
        for (int64_t r = rows_done; r < rows; r += size)
            for (int64_t c = done; c < columns; c += size) square(r, c);
    else
        for (int64_t c = done; c < columns; c += size)
            for (int64_t r = rows_done; r < rows; r += size) square(r, c);
}

template <class Block>
void transpose(const char *from, int64_t column, char *to, int64_t row, int64_t rows, int64_t columns) {
    transpose_rows<Block>(from, column, to, typename even_rows<Block>::type{row}, rows, columns);
}

template <class Block>
void transpose_to(const char *from, int64_t column, char *to, const int64_t *place, int64_t rows, int64_t columns) {
    transpose_rows<Block>(from, column, to, RowPlaces{0, place}, rows, columns);
}

inline void copy_rows(const char *from, int64_t from_row, char *to, int64_t to_row, int64_t rows, int64_t bytes) {
    for (; rows > 0; rows--, to += to_row, from += from_row) {
#if defined(__AVX512F__)
        const __mmask64 last = bits_between(0, bytes % 64);
        int64_t at = 0;
        for (; at + 64 <= bytes; at += 64) _mm512_storeu_si512(to + at, _mm512_loadu_si512(from + at));
        if (last) _mm512_mask_storeu_epi8(to + at, last, _mm512_maskz_loadu_epi8(last, from + at));
#else
        int64_t at = 0;
        for (; at + 32 <= bytes; at += 32) __builtin_memcpy(to + at, from + at, 32);  // by vectors, without a call
        if (at < bytes) __builtin_memcpy(to + at, from + at, size_t(bytes - at));
#endif
    }
}

// Rows of bytes between zeros; by columns of whole vectors, whose masks are the same in every row. Without zeros row by
// row, so that each is written as a whole.
inline void pad_rows(const char *from, int64_t from_row, char *to, int64_t to_row, int64_t rows, int64_t before,
                     int64_t bytes, int64_t width) {
    if (before == 0 && bytes == width) return copy_rows(from, from_row, to, to_row, rows, bytes);
#if defined(__AVX512F__)
    for (int64_t at = 0; at < width; at += 64) {
        const __mmask64 inside = bits_between(before - at, before + bytes - at), all = bits_between(0, width - at);
        for (int64_t r = 0; r < rows; r++)
            _mm512_mask_storeu_epi8(to + r * to_row + at, all,
                                    _mm512_maskz_loadu_epi8(inside, from + r * from_row + at - before));
    }
#else
    for (int64_t r = 0; r < rows; r++, to += to_row, from += from_row) {
        __builtin_memset(to, 0, size_t(before));
        __builtin_memcpy(to + before, from, size_t(bytes));
        __builtin_memset(to + before + bytes, 0, size_t(width - before - bytes));
    }
#endif
}

// Rows of bytes that follow each other, or fill cache lines: pieces of a line are joined on their way to memory.
inline void stream_rows(const char *from, int64_t from_row, char *to, int64_t to_row, int64_t rows, int64_t bytes) {
#if defined(__SSE2__)
    if (((uintptr_t(to) | uintptr_t(to_row) | uintptr_t(bytes)) & 15) == 0) {
        for (; rows > 0; rows--, to += to_row, from += from_row) {
            int64_t at = 0;
            auto sixteen = [&]() {
                _mm_stream_si128((__m128i *)(to + at), _mm_loadu_si128((const __m128i *)(from + at)));
                at += 16;
            };
#if defined(__AVX512F__)
            while (at < bytes && (uintptr_t(to + at) & 63)) sixteen();
            for (; at + 64 <= bytes; at += 64) _mm512_stream_si512((__m512i *)(to + at), _mm512_loadu_si512(from + at));
#elif defined(__AVX2__)
            if (at < bytes && (uintptr_t(to + at) & 31)) sixteen();
            for (; at + 32 <= bytes; at += 32)
                _mm256_stream_si256((__m256i *)(to + at), _mm256_loadu_si256((const __m256i *)(from + at)));
#endif
            while (at < bytes) sixteen();
        }
        return;
    }
#endif
    copy_rows(from, from_row, to, to_row, rows, bytes);
}

// Rows of every other 4-byte element of the source between zeros, by columns as in pad_rows.
inline void pad_every_other(const char *from, int64_t from_row, char *to, int64_t to_row, int64_t rows, int64_t before,
                            int64_t bytes, int64_t width) {
#if defined(__AVX512F__)
    const __m512i order = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    for (int64_t at = 0; at < width; at += 64) {
        const uint64_t inside =
            bits_between((before - at) / 4, (before + bytes - at) / 4);  // negative ones are cut off
        const __mmask16 all = __mmask16(bits_between(0, (width - at) / 4));
        uint32_t source = 0;
        for (int i = 0; i < 16; i++) source |= uint32_t(inside >> i & 1) << 2 * i;
        for (int64_t r = 0; r < rows; r++) {
            const char *here = from + r * from_row + 2 * (at - before);
            const __m512i low = _mm512_maskz_loadu_epi32(__mmask16(source), here);
            const __m512i high = _mm512_maskz_loadu_epi32(__mmask16(source >> 16), here + 64);
            _mm512_mask_storeu_epi32(to + r * to_row + at, all, _mm512_permutex2var_epi32(low, order, high));
        }
    }
#else
    for (int64_t r = 0; r < rows; r++, to += to_row, from += from_row) {
        __builtin_memset(to, 0, size_t(before));
        for (int64_t i = 0; i < bytes; i += 4) __builtin_memcpy(to + before + i, from + 2 * i, 4);
        __builtin_memset(to + before + bytes, 0, size_t(width - before - bytes));
    }
#endif
}

typedef transpose_block<as_they_are<transpose_u32>> transpose_singles;
typedef transpose_block<as_they_are<transpose_u64>> transpose_doubles;

constexpr void fill_transpose(KernelTable &table) {
    table.transpose[DTYPE_F16] = transpose<transpose_words>;
    table.transpose[DTYPE_BF16] = transpose<transpose_words>;
    table.transpose[DTYPE_F32] = transpose<transpose_singles>;
    table.transpose[DTYPE_F64] = transpose<transpose_doubles>;
    table.transpose_to[DTYPE_BF16] = transpose_to<transpose_words>;
    table.transpose_to[DTYPE_F32] = transpose_to<transpose_singles>;
    table.transpose_to[DTYPE_F64] = transpose_to<transpose_doubles>;
    table.pad_rows = pad_rows;
    table.stream_rows = stream_rows;
    table.pad_every_other = pad_every_other;
}

}  // namespace
}  // namespace INFINIOP_ISA
