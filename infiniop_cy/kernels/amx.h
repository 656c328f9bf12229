// bfloat16 by AMX: products of 16 x 32 by 32 x 16 matrices in one instruction, added in float. Subnormals count as
// zeros; even and odd steps of a product are summed apart, then joined, then added. float32 and float16 are multiplied
// as sums of bfloat16, the small products first.
#pragma once
#include "convert.h"
#include "dot2.h"
#include "table.h"
#include "tiles.h"
#include "transpose.h"

namespace INFINIOP_ISA {
namespace {

#if defined(__AVX512F__) && defined(__x86_64__) && defined(__linux__)
// Rows of at most 32 sums; the columns from the 17th on lie `right` bytes after the first.
struct SumRows {
    char *at;
    int64_t row, right, rows, columns;
};

// Sums from zero that are yet to be added to others: while the next products are computed, not in between.
struct LaterSums {
    alignas(64) char sums[AMX_SIDE * AMX_SIDE * 4];
    SumRows to = {};

    // Says where the tiles go.
    INFINIOP_INLINE SumRows keep(const SumRows &to_) {
        to = to_;
        return {sums, AMX_SIDE * 4, 64, to.rows, to.columns};
    }
    INFINIOP_INLINE void add() {
        if (to.rows > 0) add_rows();
    }
    __attribute__((noinline)) void add_rows() {
        for (const char *from = sums; to.rows > 0; to.rows--, from += AMX_SIDE * 4, to.at += to.row) {
            add_vector(from, to.at);
            if (to.columns > 16) add_vector(from + 64, to.at + to.right);
        }
    }
    static INFINIOP_INLINE void add_vector(const char *from, char *to) {
        _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), _mm512_load_ps(from)));
    }
};

// What a call is to ask for, spread over its steps, so that memory and products overlap.
struct Ahead {
    const char *row, *at;              // the row, and its cache line
    int64_t rows, next, bytes, lines;  // lines: at a time

    INFINIOP_INLINE void ask() {
        if (rows > 0) ask_some();
    }
    __attribute__((noinline)) void ask_some() {
        for (int64_t i = 0; i < lines && rows > 0; i++) {
            _mm_prefetch(at, _MM_HINT_T1);
            at += 64;
            if (at < row + bytes) continue;
            row += next;
            at = first_line(row);
            rows--;
        }
    }
    static INFINIOP_INLINE const char *first_line(const char *row) { return row - uintptr_t(row) % 64; }
};

INFINIOP_INLINE Ahead ahead_of(const AmxBatchReduce *steps, int64_t row_blocks) {
    const AmxAhead &ahead = steps->ahead;
    const int64_t times = row_blocks * steps->count * steps->depth;
    if (!times || !ahead.rows) return {};
    const int64_t lines = ahead.rows * ((ahead.bytes + 127) / 64);
    return {ahead.at, Ahead::first_line(ahead.at), ahead.rows, ahead.row, ahead.bytes, (lines + times - 1) / times};
}

// What is done between the products of one step and those of the next.
struct Meanwhile {
    // Products between stores: one that follows the last after more than about 0.7 us takes 0.3 us longer, as long as
    // 50 products (measured on a Xeon of 2024), and the sums of a block take longer. So tiles are stored for nothing.
    enum { PRODUCTS = 48 };
    alignas(64) char nowhere[16 * 64];
    int64_t products = 0;
    LaterSums later;
    Ahead ahead;

    enum { PARTS = 0 };  // of which the numbers are, if that is known
    INFINIOP_INLINE void between() {}
    INFINIOP_INLINE void after(int64_t more) {
        later.add();
        ahead.ask();
        products += more;
        if (products < PRODUCTS) return;
        products = 0;
        store_tile<6>(nowhere, 64);
    }
};

// A block of sums in tiles 0 to 3, `rows` by `columns` of them; of a in 4 and 5, of b in 6 and 7.
template <int rows, int columns> struct TileBlock {
    const int64_t a_row, a_down, b_row, b_right;

    INFINIOP_INLINE void load_a(const char *a) const {
        load_tile<4>(a, a_row);
        if (rows > 1) load_tile<5>(a + a_down, a_row);
    }
    INFINIOP_INLINE void load_b(const char *b) const {
        load_tile<6>(b, b_row);
        if (columns > 1) load_tile<7>(b + b_right, b_row);
    }
    static INFINIOP_INLINE void multiply() {
        multiply_tile<0, 4, 6>();
        if (columns > 1) multiply_tile<1, 4, 7>();
        if (rows > 1) multiply_tile<2, 5, 6>();
        if (rows > 1 && columns > 1) multiply_tile<3, 5, 7>();
    }

    // The products of 32 steps. Each load but the first two leaves one operand where it is. Two parts are taken as
    // three whose smallest is 0, so that float16's sums are those of the same numbers in float32.
    template <int parts, class M>
    INFINIOP_INLINE void step(const char *a, int64_t a_part, const char *b, int64_t b_part, M *meanwhile) const {
        constexpr int last = parts - 1;
        load_a(a);
        load_b(b + last * b_part);
        multiply();  // high by low
        meanwhile->between();
        if constexpr (parts == 3) {
            load_b(b + b_part);
            multiply();  // high by middle
            meanwhile->between();
        }
        if constexpr (parts > 1) {
            load_a(a + a_part);
            multiply();  // middle by middle
            meanwhile->between();
            load_b(b);
            multiply();  // middle by high
            meanwhile->between();
        }
        if constexpr (parts == 3) {
            load_a(a + 2 * a_part);
            multiply();  // low by high
            meanwhile->between();
        }
        if constexpr (parts > 1) {
            load_a(a);
            multiply();  // high by high
            meanwhile->between();
        }
    }

    template <int parts, class M>
    INFINIOP_INLINE void reduce(const AmxBatchReduce *steps, const char *a_, const char *b_, M *meanwhile) const {
        constexpr int64_t products = rows * columns * (parts == 3 ? 6 : parts * parts);
        for (int64_t s = 0; s < steps->count; s++) {
            const char *a = a_ + steps->a_offset[s], *b = b_ + steps->b_offset[s];
            for (int64_t k = 0; k < steps->depth; k++, a += steps->a_step, b += 16 * b_row) {
                step<parts>(a, steps->a_part, b, steps->b_part, meanwhile);
                meanwhile->after(products);
            }
        }
        meanwhile->later.add();  // where there were no steps
    }
};

template <int rows, int columns, class M>
INFINIOP_INLINE void multiply_tiles(const AmxBatchReduce *steps, const char *a, const char *b, const SumRows &to,
                                    AmxSums how, M *meanwhile) {
    SumRows sums = to;
    if (how == AMX_ADD_PRODUCTS) {
        load_tile<0>(sums.at, sums.row);
        if (columns > 1) load_tile<1>(sums.at + sums.right, sums.row);
        if (rows > 1) load_tile<2>(sums.at + 16 * sums.row, sums.row);
        if (rows > 1 && columns > 1) load_tile<3>(sums.at + 16 * sums.row + sums.right, sums.row);
    } else {
        zero_tile<0>();
        if (columns > 1) zero_tile<1>();
        if (rows > 1) zero_tile<2>();
        if (rows > 1 && columns > 1) zero_tile<3>();
    }
    const TileBlock<rows, columns> block = {steps->a_row, steps->a_down, steps->b_row, steps->b_right};
    if constexpr (M::PARTS == 3) block.template reduce<3>(steps, a, b, meanwhile);
    else if (steps->parts == 1) block.template reduce<1>(steps, a, b, meanwhile);
    else if (steps->parts == 2) block.template reduce<2>(steps, a, b, meanwhile);
    else block.template reduce<3>(steps, a, b, meanwhile);
    if (how == AMX_ADD_SUM) sums = meanwhile->later.keep(to);
    store_tile<0>(sums.at, sums.row);
    if (columns > 1) store_tile<1>(sums.at + sums.right, sums.row);
    if (rows > 1) store_tile<2>(sums.at + 16 * sums.row, sums.row);
    if (rows > 1 && columns > 1) store_tile<3>(sums.at + 16 * sums.row + sums.right, sums.row);
}

// For tiles that are configured for that.
template <class M>
inline void multiply_some_rows(const AmxBatchReduce *steps, const char *a, const char *b, const SumRows &sums,
                               AmxSums how, M *meanwhile) {
    if (sums.rows > 16 && sums.columns > 16) multiply_tiles<2, 2>(steps, a, b, sums, how, meanwhile);
    else if (sums.rows > 16) multiply_tiles<2, 1>(steps, a, b, sums, how, meanwhile);
    else if (sums.columns > 16) multiply_tiles<1, 2>(steps, a, b, sums, how, meanwhile);
    else multiply_tiles<1, 1>(steps, a, b, sums, how, meanwhile);
}

inline void multiply_amx(const AmxBatchReduce *steps, const void *a_, int64_t rows, const void *b_, int64_t columns,
                         void *c, int64_t c_row, AmxSums how) {
    const char *a = (const char *)a_, *b = (const char *)b_;
    SumRows sums = {(char *)c, c_row, steps->c_right, AMX_SIDE, columns};
    Meanwhile meanwhile;
    meanwhile.ahead = ahead_of(steps, (rows + AMX_SIDE - 1) / AMX_SIDE);
    for (int64_t before = 0; rows > 0; rows -= sums.rows, a += 2 * steps->a_down, sums.at += sums.rows * c_row) {
        sums.rows = rows < AMX_SIDE ? rows : int64_t(AMX_SIDE);
        if (sums.rows != before) configure_tiles(sums.rows);
        before = sums.rows;
        multiply_some_rows(steps, a, b, sums, how, &meanwhile);
    }
    release_tiles();
    meanwhile.later.add();
}

// Sums of AMX are never subnormal, which this instruction counts as zeros; those of several tiles may be.
INFINIOP_DOT2 inline void narrow_rows_at_once(const char *from, int64_t from_row, char *to, int64_t to_row,
                                              int64_t rows, int64_t n) {
    for (; rows > 0; rows--, from += from_row, to += to_row) {
        int64_t i = 0;
        for (; i + 32 <= n; i += 32)
            _mm512_storeu_si512(to + 2 * i, (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + 4 * i + 64),
                                                                         _mm512_loadu_ps(from + 4 * i)));
        for (; i < n; i += 16) {
            const __mmask16 some = n - i < 16 ? __mmask16((1u << (n - i)) - 1) : __mmask16(0xFFFF);
            _mm256_mask_storeu_epi16(to + 2 * i, some,
                                     (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(some, from + 4 * i)));
        }
    }
}

inline void convert_rows(const char *from, int64_t from_row, char *to, int64_t to_row, int64_t rows, int64_t n) {
    for (; rows > 0; rows--, from += from_row, to += to_row) convert<float, bfloat16>(from, 4, to, 2, n);
}

inline void narrow_rows(const char *from, int64_t from_row, char *to, int64_t to_row, int64_t rows, int64_t n) {
    if (infiniop_avx512_bf16) return narrow_rows_at_once(from, from_row, to, to_row, rows, n);
    convert_rows(from, from_row, to, to_row, rows, n);
}

// Whether any of n sums, at most AMX_SIDE, of some rows of a panel is subnormal.
inline bool some_are_subnormal(const char *from, int64_t rows, int64_t n) {
    const __m512 least = _mm512_set1_ps(0x1p-126f), zero = _mm512_setzero_ps();
    __mmask16 found = 0;
    for (; rows > 0; rows--, from += 4 * AMX_SIDE)
        for (int64_t i = 0; i < n; i += 16) {
            const __mmask16 some = n - i < 16 ? __mmask16((1u << (n - i)) - 1) : __mmask16(0xFFFF);
            const __m512 sums = _mm512_maskz_loadu_ps(some, from + 4 * i);
            found |= _mm512_cmp_ps_mask(_mm512_abs_ps(sums), least, _CMP_LT_OQ) &
                     _mm512_cmp_ps_mask(sums, zero, _CMP_NEQ_OQ);
        }
    return found;
}

inline void save_panels(const char *from, int64_t panel, char *to, int64_t to_row, int64_t rows, int64_t channels,
                        int bf16, int past) {
    alignas(64) char pixels[4 * AMX_PANELS_COLUMNS];
    void (*const copy)(const char *, int64_t, char *, int64_t, int64_t, int64_t) = past ? stream_rows : copy_rows;
    const int64_t row = 2 * channels, most = bf16 ? int64_t(sizeof(pixels)) / row : channels > AMX_SIDE ? 1 : rows;
    for (int64_t some; rows > 0; rows -= some, from += 4 * AMX_SIDE * some, to += to_row * some) {
        some = rows < most ? rows : most;
        for (int64_t c = 0; c < channels; c += AMX_SIDE) {
            const char *at = from + c / AMX_SIDE * panel;
            const int64_t n = channels - c < AMX_SIDE ? channels - c : int64_t(AMX_SIDE);
            if (bf16 == AMX_BF16_SUBNORMAL && some_are_subnormal(at, some, n))
                convert_rows(at, 4 * AMX_SIDE, pixels + 2 * c, row, some, n);
            else if (bf16) narrow_rows(at, 4 * AMX_SIDE, pixels + 2 * c, row, some, n);
            else copy(at, 4 * AMX_SIDE, to + 4 * c, to_row, some, 4 * n);
        }
        if (bf16 && to_row == row) copy(pixels, 0, to, 0, 1, some * row);
        else if (bf16) copy(pixels, row, to, to_row, some, row);
    }
}

inline void multiply_panels(const AmxBatchReduce *steps, const char *a, int64_t rows, const char *b, int64_t panel,
                            int64_t channels, char *sums, char *to, int64_t to_row, int bf16, int past) {
    const int64_t pitch = (rows < AMX_SIDE ? rows : int64_t(AMX_SIDE)) * AMX_SIDE * 4;
    Meanwhile meanwhile;
    meanwhile.ahead = {};
    for (int64_t n, before = 0; rows > 0; rows -= n, a += 2 * steps->a_down, to += n * to_row, before = n) {
        n = rows < AMX_SIDE ? rows : int64_t(AMX_SIDE);
        if (n != before) configure_tiles(n);
        for (int64_t c = 0; c < channels; c += AMX_SIDE)
            multiply_some_rows(steps, a, b + c / AMX_SIDE * panel,
                               {sums + c / AMX_SIDE * pitch, AMX_SIDE * 4, steps->c_right, n, channels - c}, AMX_SET,
                               &meanwhile);
        save_panels(sums, pitch, to, to_row, n, channels, bf16, past);
    }
    release_tiles();
}

constexpr void fill_amx(KernelTable &table) {
    table.amx = {multiply_amx, narrow_rows, save_panels, multiply_panels, nullptr};
}
#else
constexpr void fill_amx(KernelTable &) {}
#endif

}  // namespace
}  // namespace INFINIOP_ISA
