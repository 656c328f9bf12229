// Products of float32 by AMX whose rows are lines of numbers in memory: these are taken apart a few at a time between
// the products of the rows before them, which the tiles' unit computes meanwhile.
#pragma once
#include "amx.h"
#include "parts.h"

namespace INFINIOP_ISA {
namespace {

#if defined(__AVX512F__) && defined(__x86_64__) && defined(__linux__)
// At most AMX_SIDE lines as [32 numbers][part][line].
struct LinePacking {
    enum { PART = AMX_SIDE * 64, STEP = BFLOAT16_PARTS * PART, AHEAD = 4096 };
    const char *row, *at;  // the line that is taken apart, and its next numbers
    char *to;
    int64_t step, channels, rows, channel, line, each;
    Unfit<float> unfit;

    // The next lines, and how often some of them will be taken apart before all have to be.
    INFINIOP_INLINE void begin(const char *from, int64_t rows_, char *to_, int64_t times) {
        row = at = from;
        rows = rows_;
        to = to_;
        channel = line = 0;
        each = (rows * ((channels + 31) / 32) + times - 1) / times;
    }
    INFINIOP_INLINE void some() {
        if (rows > 0) some_lines(each);
    }
    __attribute__((noinline)) void some_lines(int64_t count) {
        Unfit<float> seen = unfit;
        for (; count > 0 && rows > 0; count--) {
            const int64_t left = channels - channel;
            const __mmask16 low = first_channels(left), high = first_channels(left - 16);
            _mm_prefetch(at + AHEAD, _MM_HINT_T0);
            _mm_prefetch(at + AHEAD + 64, _MM_HINT_T0);
            store_halves<float>(parts_of<float>::load(at, low), parts_of<float>::load(at + 64, high),
                                to + channel / 32 * STEP + line * 64, PART, 0xFFFF, &seen);
            at += 128;
            channel += 32;
            if (channel < channels) continue;
            row += step;
            at = row;
            channel = 0;
            line++;
            rows--;
        }
        unfit = seen;
    }
};

struct MeanwhilePacking : Meanwhile {
    enum { PARTS = 3 };
    LinePacking lines;
    INFINIOP_INLINE void between() { lines.some(); }
};

inline int multiply_lines(const AmxBatchReduce *all, const char *a, int64_t a_step, int64_t rows, int64_t channels,
                          int64_t chain, char *packed, const char *b, int64_t panel, int64_t columns, char *sums,
                          char *to, int64_t to_row, int past) {
    const int64_t steps = all->count, half = steps * LinePacking::STEP;
    // Whole tiles of sums are stored where they belong, unless they go past the caches or are added to others.
    const int64_t whole = columns % 16 ? columns / AMX_SIDE * AMX_SIDE : columns;
    const int64_t direct = past || chain < steps ? 0 : whole;
    AmxBatchReduce part = *all;
    MeanwhilePacking meanwhile;
    meanwhile.ahead = {};
    meanwhile.lines.step = a_step;
    meanwhile.lines.channels = channels;
    int64_t n = rows < AMX_SIDE ? rows : int64_t(AMX_SIDE), before = 0;
    const int64_t pitch = n * AMX_SIDE * 4;
    meanwhile.lines.begin(a, n, packed, 1);
    meanwhile.lines.some();
    for (bool second = false; rows > 0; second = !second) {
        const int64_t next = rows - n < AMX_SIDE ? rows - n : int64_t(AMX_SIDE);
        a += n * a_step;
        meanwhile.lines.begin(a, next, packed + (second ? 0 : half), steps * 6 * ((columns + AMX_SIDE - 1) / AMX_SIDE));
        if (n != before) configure_tiles(n);
        before = n;
        for (int64_t c = 0; c < columns; c += AMX_SIDE) {
            SumRows panel_sums = {sums + c / AMX_SIDE * pitch, AMX_SIDE * 4, part.c_right, n, columns - c};
            if (c < direct) panel_sums.at = to + 4 * c, panel_sums.row = to_row;
            for (int64_t s = 0; s < steps; s += chain) {
                part.count = steps - s < chain ? steps - s : chain;
                part.a_offset = all->a_offset + s;
                part.b_offset = all->b_offset + s;
                multiply_some_rows(&part, packed + (second ? half : 0), b + c / AMX_SIDE * panel, panel_sums,
                                   s ? AMX_ADD_SUM : AMX_SET, &meanwhile);
            }
        }
        meanwhile.later.add();
        meanwhile.lines.some_lines(INT64_MAX);
        save_panels(sums + direct / AMX_SIDE * pitch, pitch, to + 4 * direct, to_row, n, columns - direct, false, past);
        to += n * to_row;
        rows -= n;
        n = next;
    }
    release_tiles();
    return meanwhile.lines.unfit.any();
}

constexpr void fill_amx_lines(KernelTable &table) { table.amx.multiply_lines = multiply_lines; }
#else
constexpr void fill_amx_lines(KernelTable &) {}
#endif

}  // namespace
}  // namespace INFINIOP_ISA
