// A line of the kernel's taps over lines of the image: its pixels taken out for each output pixel, or sums added to them.
#pragma once
#include "dtype.h"
#include "table.h"

namespace INFINIOP_ISA {
namespace {

// The taps of one output pixel that are inside of the image: [from, to), the first of them at pixel `at`.
struct InsideTaps { int64_t from, to, at; };

INFINIOP_INLINE InsideTaps inside_taps(const TapLine &line, int64_t row) {
    const int64_t first = line.first + row * line.row_step, step = line.tap_step;
    InsideTaps t = {0, line.taps, first};
    if (first < 0) {
        t.from = step == 1 ? -first : (-first + step - 1) / step;
        t.at = first + t.from * step;
    }
    if (first + (line.taps - 1) * step >= line.size)
        t.to = first >= line.size ? 0 : step == 1 ? line.size - first : (line.size - 1 - first) / step + 1;
    if (t.from > t.to) t.from = t.to = 0, t.at = 0;
    return t;
}

template <class T>
void take_taps(const TapLine *line_, const void *from_, void *to_, int64_t to_row) {
    typedef compute_vector<T> V;
    typedef compute_type<T> S;
    constexpr int count = lanes<V>::count;
    const TapLine line = *line_;
    S *to = (S *)to_;
    for (int64_t r = 0; r < line.rows; r++, to += to_row) {
        const InsideTaps t = inside_taps(line, r);
        const T *from = (const T *)from_ + t.at * line.pitch;
        const int64_t n = t.to - t.from, step = line.tap_step * line.pitch;
        for (int64_t i = 0; i < t.from; i += count) store(to + i, V{});
        S *at = to + t.from;
        int64_t i = 0;
        if (step == 1) {
            for (; i + count <= n; i += count) store(at + i, widen_vector(from + i));
            if (i < n) store(at + i, widen_some(from, i, n));
        } else {
            alignas(64) T some[count] = {};
            for (; i < n; i += count) {
                for (int j = 0; j < count && i + j < n; j++) some[j] = from[(i + j) * step];
                store(at + i, widen_vector((const T *)some));
            }
        }
        for (i = t.to; i < line.taps; i += count) store(to + i, V{});
    }
}

template <class V>
void add_taps(const TapLine *line_, const void *from_, int64_t from_row, void *to_) {
    typedef scalar<V> S;
    constexpr int count = lanes<V>::count;
    const TapLine line = *line_;
    const S *sums = (const S *)from_;
    for (int64_t r = 0; r < line.rows; r++, sums += from_row) {
        const InsideTaps t = inside_taps(line, r);
        const S *from = sums + t.from;
        S *to = (S *)to_ + t.at;
        const int64_t n = t.to - t.from;
        int64_t i = 0;
        if (line.tap_step == 1) {
            for (; i + count <= n; i += count) store(to + i, load<V>(to + i) + load<V>(from + i));
#if defined(__AVX512F__)
            // Sums that begin as 0 are never -0, which adding 0 would change.
            if (i < n) store(to + i, load<V>(to + i) + widen_some(from, i, n));
#else
            for (; i < n; i++) to[i] += from[i];
#endif
        } else {
            for (; i < n; i++) to[i * line.tap_step] += from[i];
        }
    }
}

constexpr void fill_tap_lines(KernelTable &table) {
    table.take_taps[DTYPE_F16] = take_taps<float16>;
    table.take_taps[DTYPE_BF16] = take_taps<bfloat16>;
    table.take_taps[DTYPE_F32] = take_taps<float>;
    table.take_taps[DTYPE_F64] = take_taps<double>;
    table.add_taps[DTYPE_F32] = add_taps<f32v>;
    table.add_taps[DTYPE_F64] = add_taps<f64v>;
}

}  // namespace
}  // namespace INFINIOP_ISA
