// A line of the kernel's taps over lines of the image: its pixels taken out for each output pixel, or sums added to
// them.
#pragma once
#include "some.h"
#include "table.h"

namespace INFINIOP_ISA {
namespace {

INFINIOP_INLINE int64_t up(int64_t n, int64_t of) { return n / of + (n % of != 0); }

// The taps of one output pixel that are inside of the image: [from, to), the first of them at pixel `at`.
struct InsideTaps { int64_t from, to, at; };

INFINIOP_INLINE InsideTaps inside_taps(const TapLine &line, int64_t row) {
    const int64_t first = line.first + row * line.row_step, step = line.tap_step;
    InsideTaps t = {0, line.taps, first};
    if (first < 0) {
        t.from = step == 1 ? -first : up(-first, step);
        t.at = first + t.from * step;
    }
    if (first + (line.taps - 1) * step >= line.size)
        t.to = first >= line.size ? 0 : step == 1 ? line.size - first : (line.size - 1 - first) / step + 1;
    if (t.from > t.to) t.from = t.to = 0, t.at = 0;
    return t;
}

// The rows all of whose taps are inside: [from, to).
struct InsideRows { int64_t from, to; };

INFINIOP_INLINE InsideRows inside_rows(const TapLine &line) {
    const int64_t last = line.size - 1 - line.first - (line.taps - 1) * line.tap_step, step = line.row_step;
    InsideRows rows = {line.first < 0 ? up(-line.first, step) : 0, last < 0 ? 0 : last / step + 1};
    if (rows.to > line.rows) rows.to = line.rows;
    if (rows.from > rows.to) rows.from = rows.to;
    return rows;
}

template <class T> INFINIOP_INLINE void take_row(const TapLine &line, int64_t row, const T *line_from,
                                                 compute_type<T> *to) {
    typedef compute_vector<T> V;
    constexpr int count = lanes<V>::count;
    const InsideTaps t = inside_taps(line, row);
    const T *from = line_from + t.at * line.pitch;
    const int64_t n = t.to - t.from, step = line.tap_step * line.pitch;
    int64_t i;
    for (i = 0; i < t.from; i += count) store(to + i, V{});
    if (step == 1) {
        for (i = 0; i + count <= n; i += count) store(to + t.from + i, widen_vector(from + i));
        if (i < n) store(to + t.from + i, widen_some(from, i, n));
    } else {
        alignas(64) T some[count] = {};
        for (i = 0; i < n; i += count) {
            for (int j = 0; j < count && i + j < n; j++) some[j] = from[(i + j) * step];
            store(to + t.from + i, widen_vector((const T *)some));
        }
    }
    for (i = t.to; i < line.taps; i += count) store(to + i, V{});
}

template <class T>
void take_taps(const TapLine *line_, const void *from_, void *to_, int64_t to_row) {
    constexpr int count = lanes<compute_vector<T>>::count;
    const TapLine line = *line_;
    const T *from = (const T *)from_;
    compute_type<T> *to = (compute_type<T> *)to_;
    if (line.tap_step * line.pitch != 1 || line.taps > count) {
        for (int64_t r = 0; r < line.rows; r++) take_row(line, r, from, to + r * to_row);
        return;
    }
    const InsideRows inside = inside_rows(line);
    for (int64_t r = 0; r < inside.from; r++) take_row(line, r, from, to + r * to_row);
    from += line.first;
    for (int64_t r = inside.from; r < inside.to; r++)
        store(to + r * to_row, widen_some(from + r * line.row_step, 0, line.taps));
    for (int64_t r = inside.to; r < line.rows; r++) take_row(line, r, (const T *)from_, to + r * to_row);
}

// Each gives the sums of one row: a vector of them from tap k on, all of its lanes or some, the others being 0; or one.
template <class V> struct StoredSums {
    typedef scalar<V> S;
    const S *sums;
    int64_t row;

    INFINIOP_INLINE V whole(int64_t r, int64_t k) const { return load<V>(sums + r * row + k); }
    INFINIOP_INLINE V some(int64_t r, int64_t k, lane_mask<V> lanes) const {
        return load_lanes<V>(sums + r * row + k, lanes);
    }
    INFINIOP_INLINE S one(int64_t r, int64_t k) const { return sums[r * row + k]; }
};

template <class V> struct ProductSums {
    typedef scalar<V> S;
    const S *g;
    int64_t g_row, channels;
    const S *w;
    int64_t w_row;

    INFINIOP_INLINE V whole(int64_t r, int64_t k) const {
        V sum = {};
        for (int64_t c = 0; c < channels; c++)
            sum = mul_add(splat<V>(g[r * g_row + c]), load<V>(w + c * w_row + k), sum);
        return sum;
    }
    INFINIOP_INLINE V some(int64_t r, int64_t k, lane_mask<V> lanes) const {
        V sum = {};
        for (int64_t c = 0; c < channels; c++)
            sum = mul_add(splat<V>(g[r * g_row + c]), load_lanes<V>(w + c * w_row + k, lanes), sum);
        return keep_lanes(sum, lanes);
    }
    INFINIOP_INLINE S one(int64_t r, int64_t k) const {  // what a lane of whole() is
        alignas(64) S part[lanes<V>::count] = {};
        V sum = {};
        for (int64_t c = 0; c < channels; c++) {
            part[0] = w[c * w_row + k];
            sum = mul_add(splat<V>(g[r * g_row + c]), load<V>(part), sum);
        }
        return sum[0];
    }
};

// Taps side by side of output pixels whose windows overlap: a vector of pixels is loaded once for all of them, as what
// has just been stored could not be loaded at another offset without waiting.
template <class V, class Sums> INFINIOP_INLINE void add_windows(const TapLine &line, const Sums &sums, scalar<V> *to) {
    constexpr int64_t count = lanes<V>::count;
    const int64_t begin = line.first < 0 ? 0 : line.first, step = line.row_step, taps = line.taps;
    int64_t end = line.first + (line.rows - 1) * step + taps, from_row = 0, to_row = 0;
    if (end > line.size) end = line.size;
    for (int64_t b = begin; b < end; b += count) {
        V sum = load<V>(to + b);
        const int64_t here = end - b < count ? end - b : count;
        while (from_row < line.rows && line.first + from_row * step + taps <= b) from_row++;
        while (to_row < line.rows && line.first + to_row * step < b + here) to_row++;
        for (int64_t i = to_row; i-- > from_row;) {
            const int64_t k = b - line.first - i * step;  // of lane 0
            if (k >= 0 && k + count <= taps && here == count) {
                sum += sums.whole(i, k);
            } else {
                const int64_t last = taps - k < here ? taps - k : here;
                sum += sums.some(i, k, lanes_between<V>(k < 0 ? -k : 0, last));
            }
        }
        store(to + b, sum);
    }
}

// From the last row to the first, so that each pixel meets the taps from the first to the last.
template <class V, class Sums> INFINIOP_INLINE void add_rows(const TapLine &line, const Sums &sums,
                                                             scalar<V> *to_line) {
    constexpr int count = lanes<V>::count;
    if (line.tap_step == 1 && line.rows > 1 && line.row_step < line.taps) return add_windows<V>(line, sums, to_line);
    for (int64_t r = line.rows; r-- > 0;) {
        const InsideTaps t = inside_taps(line, r);
        scalar<V> *to = to_line + t.at;
        const int64_t n = t.to - t.from;
        int64_t i = 0;
        if (line.tap_step == 1) {
            for (; i + count <= n; i += count) store(to + i, load<V>(to + i) + sums.whole(r, t.from + i));
            // Sums that begin as 0 are never -0, which adding 0 would change.
            if (i < n) store(to + i, load<V>(to + i) + sums.some(r, t.from + i, lanes_between<V>(0, n - i)));
            continue;
        }
        for (; i < n; i++) to[i * line.tap_step] += sums.one(r, t.from + i);
    }
}

template <class V>
void add_taps(const TapLine *line, const void *from, int64_t from_row, void *to) {
    add_rows<V>(*line, StoredSums<V>{(const scalar<V> *)from, from_row}, (scalar<V> *)to);
}

template <class V>
void add_products(const TapLine *line, const void *g, int64_t g_row, int64_t channels, const void *w, int64_t w_row,
                  void *to) {
    typedef const scalar<V> *P;
    add_rows<V>(*line, ProductSums<V>{(P)g, g_row, channels, (P)w, w_row}, (scalar<V> *)to);
}

constexpr void fill_tap_lines(KernelTable &table) {
    table.take_taps[DTYPE_F16] = take_taps<float16>;
    table.take_taps[DTYPE_BF16] = take_taps<bfloat16>;
    table.take_taps[DTYPE_F32] = take_taps<float>;
    table.take_taps[DTYPE_F64] = take_taps<double>;
    table.add_taps[DTYPE_F32] = add_taps<f32v>;
    table.add_taps[DTYPE_F64] = add_taps<f64v>;
    table.add_products[DTYPE_F32] = add_products<f32v>;
    table.add_products[DTYPE_F64] = add_products<f64v>;
}

}  // namespace
}  // namespace INFINIOP_ISA
