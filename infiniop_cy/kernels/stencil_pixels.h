// Depthwise convolutions of pixels whose channels lie side by side, read and written where they lie: for images of
// which memory, not arithmetic, is the limit. Sums have the order of stencil.h.
#pragma once
#include "lanes.h"
#include "stencil.h"

#include <type_traits>

namespace INFINIOP_ISA {
namespace {

// What tells results apart that are computed at once: `many` of a row from the x-th on, of the channels from `channel`
// on, of which there are `channels`, or as many more as the vectors have.
template <class T> struct PixelsPart {
    const StencilPixels *r;
    int64_t y, x, channels;
    const scalar<compute_vector<T>> *weight;
};

// Adds the products of a line of taps. What a pixel meets is loaded once for all taps. edge: some may be outside, where
// zeros are met.
template <class T, int many, int side, int taps, bool edge, bool whole>
INFINIOP_INLINE void add_pixel_line(const PixelsPart<T> &part, const PixelLine &line, const char *from,
                                    compute_vector<T> (&sum)[many][side]) {
    typedef compute_vector<T> V;
    constexpr int count = lanes<V>::count;
    static constexpr T zeros[side * count] = {};
    V factor[taps][side];
#pragma GCC unroll 5
    for (int k = 0; k < taps; k++)
#pragma GCC unroll 4
        for (int j = 0; j < side; j++) factor[k][j] = load<V>(part.weight + j * part.r->weights + k * count);
    const uint64_t row = part.y >= line.first_row && part.y < line.end_row ? uint64_t(part.r->row) : 0;
    if (edge && !row) return;  // with zeros only a sum's sign of zero changes
    const int64_t step = part.r->step, first = line.pixel + part.x * step, apart = part.r->from_pixel;
    from += line.at;
#pragma GCC unroll 12
    for (int p = many - 1; p > -taps; p--) {
        const T *pixel = (const T *)(from + p * apart);
        if (edge && uint64_t(first + p * step) >= row) pixel = zeros;
        V value[side];
#pragma GCC unroll 4
        for (int j = 0; j < side; j++)
            value[j] = whole ? widen_vector(pixel + j * count) : widen_some(pixel, 0, part.channels);
#pragma GCC unroll 5
        for (int k = 0; k < taps; k++)
            if (p + k >= 0 && p + k < many)
#pragma GCC unroll 4
                for (int j = 0; j < side; j++) sum[p + k][j] = mul_add(factor[k][j], value[j], sum[p + k][j]);
    }
}

// `wanted` of `many` results, `side` vectors of channels; or (not whole) the first channels of one. A line of memory is
// written as a whole, since parts of one that go past the caches would be sent one by one.
template <class T, int many, int side, bool edge, bool whole>
INFINIOP_INLINE void pixels_tile(PixelsPart<T> part, const char *from, const scalar<compute_vector<T>> *bias,
                                 int wanted, bool past, char *to) {
    typedef compute_vector<T> V;
    constexpr int count = lanes<V>::count;
    V sum[many][side] = {};
    for (const PixelLine *line = part.r->line, *end = line + part.r->lines; line < end; line++) {
        if (many * sizeof(V) == 512 && line->taps == 5)
            add_pixel_line<T, many, side, 5, edge, whole>(part, *line, from, sum);
        else if (many * sizeof(V) == 512 && line->taps == 4)
            add_pixel_line<T, many, side, 4, edge, whole>(part, *line, from, sum);
        else if (line->taps == 3) add_pixel_line<T, many, side, 3, edge, whole>(part, *line, from, sum);
        else if (line->taps == 2) add_pixel_line<T, many, side, 2, edge, whole>(part, *line, from, sum);
        else add_pixel_line<T, many, side, 1, edge, whole>(part, *line, from, sum);
        part.weight += line->taps * count;
    }
#pragma GCC unroll 8
    for (int i = 0; i < many; i++, to += part.r->to_pixel) {
        if (edge && i >= wanted) break;
#pragma GCC unroll 4
        for (int j = 0; j < side; j++) {
            const V total = sum[i][j] + scalar<V>(0);  // without -0; see stencil.h
            const V result = bias ? total + load<V>(bias + j * count) : total;
            T *at = (T *)to + j * count;
            if (!whole) narrow_some<T>((char *)at, result, int(part.channels < count ? part.channels : count));
            else if (past) narrow_past<T>((char *)at, result);
            else narrow_vector(at, result);
        }
    }
}

// Where the pixels lie that the next block of a row is the first to meet: of the rows that no earlier result has met.
struct PixelsAhead {
    enum { MOST = 64, MOST_LINES = 32 };  // of more lines, which are compared with each other, to ask takes too long
    int count = 0;
    int64_t at[MOST];

    PixelsAhead(const StencilPixels *r, int many) {
        if (r->lines > MOST_LINES) return;
        const int64_t pixel = r->from_pixel / r->step, block = (many - 1) * r->step;
        const PixelLine *const first = r->line, *const end = first + r->lines;
        for (const PixelLine *line = first; line < end && line->at > first->at - r->from_row; line++) {
            bool is_met = false;  // what follows this block, by another line of the row
            for (const PixelLine *other = first; other < end; other++)
                is_met |= other->at - line->at == (other->pixel - line->pixel) * pixel && other->pixel > line->pixel &&
                          other->pixel - (other->taps - 1) * r->step - 1 <= line->pixel + block;
            for (int64_t i = 1; !is_met && i <= many * r->step && count < MOST; i++)
                at[count++] = line->at + (block + i) * pixel;
        }
    }
};

// Asks for those pixels, of so many bytes each, a share of their cache lines at a time: all at once would hold up what
// is computed, and memory is read fastest in its order.
struct AskingAhead {
    const PixelsAhead *ahead;
    const char *from;
    int64_t bytes, byte = 0;
    int pixel = 0;

    // The share of so many of those bytes.
    INFINIOP_INLINE void some(int64_t share) {
        for (int64_t done = 0; done < ahead->count * share && pixel < ahead->count; done += 64) {
            prefetch(from + ahead->at[pixel] + byte);
            if ((byte += 64) >= bytes) byte = 0, pixel++;
        }
    }
};

// Sends so many bytes of what is unsent, or its last whole lines.
__attribute__((noinline)) inline void send_lines(Unsent *unsent, int64_t bytes) {
    const int64_t lines = (bytes < unsent->bytes ? bytes : unsent->bytes) / 64 * 64;
    stream_rows(unsent->data, 0, unsent->to, 0, 1, lines);
    unsent->data += lines, unsent->to += lines, unsent->bytes -= lines;
}

// All channels of some results: whole pixels are read and written while they are in the nearest cache, and (not NULL)
// what is ahead is asked for.
template <class T, int many, int side, bool edge>
INFINIOP_INLINE void pixels_block(PixelsPart<T> part, const char *from, int wanted, bool past, const PixelsAhead *ahead,
                                  char *to) {
    constexpr int count = lanes<compute_vector<T>>::count;
    const StencilPixels *r = part.r;
    const scalar<compute_vector<T>> *bias = (const scalar<compute_vector<T>> *)r->bias;
    AskingAhead asking = {ahead, from, r->channels * int64_t(sizeof(T))};
    auto tile = [&](auto vectors, auto whole) {
        constexpr int64_t bytes = vectors.value * count * sizeof(T);
        if (ahead) asking.some(bytes);
        pixels_tile<T, many, vectors.value, edge || !whole.value, whole.value>(part, from, bias, wanted, past, to);
        part.channels -= vectors.value * count, part.weight += vectors.value * r->weights, from += bytes, to += bytes;
        if (bias) bias += vectors.value * count;
    };
    while (part.channels >= side * count) tile(std::integral_constant<int, side>(), std::true_type());
    while (part.channels > 0) tile(std::integral_constant<int, 1>(), std::false_type());
}

template <class T, int many, int side>
INFINIOP_INLINE void pixels_rows(const StencilPixels *r, const char *from, const void *weight, char *to) {
    typedef compute_vector<T> V;
    const bool past = side * sizeof(V) == 64 && sizeof(T) == sizeof(scalar<V>) && r->past &&
                      (uintptr_t(to) | r->to_row | r->to_pixel | r->channels * sizeof(T)) % 64 == 0;
    int64_t lowest = 0, highest = 0;
    int64_t first_row = r->first_row, end_row = r->end_row;  // of results that only meet what is inside
    for (const PixelLine *line = r->line, *end = line + r->lines; line < end; line++) {
        const int64_t last = line->pixel - (line->taps - 1) * r->step;
        lowest = last < lowest ? last : lowest, highest = line->pixel > highest ? line->pixel : highest;
        first_row = line->first_row > first_row ? line->first_row : first_row;
        end_row = line->end_row < end_row ? line->end_row : end_row;
    }
    const PixelsAhead next(r, many);
    for (int64_t y = r->first_row; y < r->end_row; y++)
        for (int64_t x = r->first_column; x < r->end_column; x += many) {
            int wanted = many;
            if (r->end_column - r->first_column < many) wanted = int(r->end_column - r->first_column);
            else if (x + many > r->end_column) x = r->end_column - many;
            if (r->unsent) send_lines(r->unsent, many * r->channels * int64_t(sizeof(T)));
            const char *at = from + y * r->from_row + x * r->from_pixel;
            char *out = to + (y - r->first_row) * r->to_row + (x - r->first_column) * r->to_pixel;
            const PixelsPart<T> part = {r, y, x, r->channels, (const scalar<V> *)weight};
            const PixelsAhead *ahead = x + 2 * many <= r->width ? &next : nullptr;
            if (wanted == many && y >= first_row && y < end_row && lowest + x * r->step >= 0 &&
                highest + (x + many - 1) * r->step < r->row)
                pixels_block<T, many, side, false>(part, at, wanted, past, ahead, out);
            else pixels_block<T, many, side, true>(part, at, wanted, past, ahead, out);
        }
}

// Eight results at once, of one vector, hide how long an addition takes; four, where lines of taps are short, meet so
// few pixels that those and what is ahead stay in the nearest cache. With a stride, where lines are shorter yet, and
// images that stay in the caches, eight load less.
template <class T> void stencil_pixels(const StencilPixels *r, const char *from, const void *weight, char *to) {
    typedef compute_vector<T> V;
    constexpr int side = sizeof(T) == sizeof(scalar<V>) ? 64 / int(sizeof(V)) : 1;
    if constexpr (sizeof(T) > 2 && sizeof(V) == 64) {
        bool few = r->step == 1 || r->past;
        for (int64_t i = 0; i < r->lines; i++) few = few && r->line[i].taps <= LINE_TAPS;
        if (few) return pixels_rows<T, 4, side>(r, from, weight, to);
    }
    pixels_rows<T, 8 / side, side>(r, from, weight, to);
}

// The products of a row of g with what `taps` taps meet, for a vector of channels. Pixels whose taps are partly outside
// meet zeros there: inf times 0 is NaN, as it is in blocks with packed zeros.
template <int taps>
INFINIOP_INLINE void dot_pixels_row(const StencilDotPixels *r, int64_t y, const char *g, const char *x,
                                    const int64_t *at, const TapInside *inside, f32v (&sum)[taps]) {
    const char *start[taps];
    bool row_inside[taps];
    int64_t begin = 0, end = r->width;
    for (int t = 0; t < taps; t++) {
        start[t] = x + at[t];
        row_inside[t] = y >= inside[t].first_row && y < inside[t].end_row;
        begin = !row_inside[t] ? r->width : begin > inside[t].first ? begin : inside[t].first;
        end = end < inside[t].end ? end : inside[t].end;
    }
    auto some = [&](int64_t i) {
        const f32v factor = load<f32v>((const float *)(g + i * r->g_pixel));
#pragma GCC unroll 9
        for (int t = 0; t < taps; t++) {
            f32v value = {};
            if (row_inside[t] && i >= inside[t].first && i < inside[t].end)
                value = load<f32v>((const float *)(start[t] + i * r->x_pixel));
            sum[t] = mul_add(factor, value, sum[t]);
        }
    };
    int64_t i = 0;
    for (; i < begin && i < r->width; i++) some(i);
    for (int64_t offset = i * r->x_pixel; i < end; i++, offset += r->x_pixel) {
        const f32v factor = load<f32v>((const float *)(g + i * r->g_pixel));
#pragma GCC unroll 9
        for (int t = 0; t < taps; t++) sum[t] = mul_add(factor, load<f32v>((const float *)(start[t] + offset)), sum[t]);
    }
    for (; i < r->width; i++) some(i);
}

// The same for three rows of three taps: a pixel of x is loaded once for the three of g that it meets. The order of
// each sum is the same.
INFINIOP_INLINE void dot_pixels_lines(const StencilDotPixels *r, int64_t y, const char *g, const char *x,
                                      f32v (&sum)[9]) {
    alignas(64) static const float zeros[lanes<f32v>::count] = {};
    const char *line[3];
    int64_t step[3];
    for (int d = 0; d < 3; d++) {
        const bool inside = y >= r->inside[3 * d].first_row && y < r->inside[3 * d].end_row;
        line[d] = inside ? x + r->at[3 * d] : (const char *)zeros, step[d] = inside ? r->x_pixel : 0;
    }
    f32v before[2] = {};  // pixels of g
    auto column = [&](int64_t j, auto all) {
        f32v factor = {}, value[3] = {};
        if (all || j < r->width) factor = load<f32v>((const float *)(g + j * r->g_pixel));
        if (all || (j >= r->first_column && j < r->end_column))
            for (int d = 0; d < 3; d++) value[d] = load<f32v>((const float *)(line[d] + j * step[d]));
#pragma GCC unroll 3
        for (int d = 0; d < 3; d++) {
            if (all || j < r->width) sum[3 * d] = mul_add(factor, value[d], sum[3 * d]);
            if (all || (j >= 1 && j <= r->width)) sum[3 * d + 1] = mul_add(before[0], value[d], sum[3 * d + 1]);
            if (all || j >= 2) sum[3 * d + 2] = mul_add(before[1], value[d], sum[3 * d + 2]);
        }
        before[1] = before[0], before[0] = factor;
    };
    const int64_t from = r->first_column > 2 ? r->first_column : 2;
    const int64_t to = r->end_column < r->width ? r->end_column : r->width;
    int64_t j = 0;
    for (; j < r->width + 2 && j < from; j++) column(j, std::false_type());
    for (; j < to; j++) column(j, std::true_type());
    for (; j < r->width + 2; j++) column(j, std::false_type());
}

// The share of part v in what some rows of g are the first to meet: whole pixels, one after the other, so that memory
// is read in the order in which it lies.
INFINIOP_INLINE void prefetch_dot_rows(const StencilDotPixels *r, const char *g, const char *x, int64_t row,
                                       int64_t end, int64_t v) {
    const auto share = [&](const char *from, int64_t rows, int64_t width, int64_t next_row, int64_t next_pixel) {
        const int64_t first = rows * width * v / r->vectors, last = rows * width * (v + 1) / r->vectors;
        for (int64_t i = first; i < last; i++)
            for (int64_t c = 0; c < r->vectors * int64_t(sizeof(f32v)); c += 64)
                prefetch(from + i / width * next_row + i % width * next_pixel + c);
    };
    share(g + row * r->g_row, end - row, r->width, r->g_row, r->g_pixel);
    share(x + row * r->x_row + r->newest - (r->new_rows - 1) * r->next_row, (end - row) * r->new_rows, r->pixels,
          r->next_row, r->next_pixel);
}

template <int taps>
void dot_pixels_taps(const StencilDotPixels *r, const char *g, const char *x, int64_t first, float *sums_) {
    constexpr int count = lanes<f32v>::count;
    const int64_t together = chained_rows(r->width);
    const auto rows_after = [&](int64_t row) { return r->rows - row < together ? r->rows : row + together; };
    for (int64_t row = 0; row < r->rows; row += together) {
        const int64_t end = rows_after(row);
        for (int64_t v = 0; v < r->vectors; v++) {
            const int64_t channel = v * int64_t(sizeof(f32v));
            float *sums = sums_ + v * r->sums + first * count;
            f32v sum[taps] = {};
            if (first == 0) prefetch_dot_rows(r, g, x, end, rows_after(end), v);
            for (int64_t y = row; y < end; y++) {
                const char *g_at = g + y * r->g_row + channel, *x_at = x + y * r->x_row + channel;
                if constexpr (taps == 9)
                    if (r->three_by_three) {
                        dot_pixels_lines(r, y, g_at, x_at, sum);
                        continue;
                    }
                dot_pixels_row<taps>(r, y, g_at, x_at, r->at + first, r->inside + first, sum);
            }
#pragma GCC unroll 9
            for (int t = 0; t < taps; t++) store(sums + t * count, load<f32v>(sums + t * count) + sum[t]);
        }
    }
}

inline void stencil_dot_pixels(const StencilDotPixels *r, const char *g, const char *x, void *sums) {
    int64_t first = 0;
    for (; r->taps - first >= DOT_PIXEL_TAPS; first += DOT_PIXEL_TAPS)
        dot_pixels_taps<DOT_PIXEL_TAPS>(r, g, x, first, (float *)sums);
    if (first < r->taps) dot_pixels_taps<DOT_PIXEL_REST>(r, g, x, first, (float *)sums);
}

constexpr void fill_stencil_pixels(KernelTable &table) {
#if defined(__AVX512F__)
    table.stencil_pixels[DTYPE_F16] = stencil_pixels<float16>;
    table.stencil_pixels[DTYPE_BF16] = stencil_pixels<bfloat16>;
#endif
#if defined(__AVX2__) || !defined(__x86_64__)  // CPUs of before 2013 do without
    table.stencil_pixels[DTYPE_F32] = stencil_pixels<float>;
    table.stencil_pixels[DTYPE_F64] = stencil_pixels<double>;
#endif
    table.stencil_dot_pixels = stencil_dot_pixels;
}

}  // namespace
}  // namespace INFINIOP_ISA
