// Blocks whose lanes are channels: rows of pixels of up to a vector of channels, moved from a tensor into [row][pixel]
// [lane] of the compute type, and back, whichever way the tensor lies.
#pragma once
#include "cast.h"
#include "convert.h"
#include "transpose.h"
#include "table.h"

namespace INFINIOP_ISA {
namespace {

// How a tensor lies: channels side by side, pixels side by side, or neither.
enum class Across { channels, pixels, neither };
template <class T> Across across(const LaneRows *r) {
    if (r->channel == sizeof(T) && (r->channels > 1 || r->pixel != sizeof(T))) return Across::channels;
    return r->pixel == sizeof(T) ? Across::pixels : Across::neither;
}

template <class V> INFINIOP_INLINE void zero_pixels(scalar<V> *to, int64_t n) {
    for (int64_t i = 0; i < n; i++) store(to + i * lanes<V>::count, V{});
}

// The first n of a vector's elements, to storage.
template <class T> INFINIOP_INLINE void narrow_some(char *to, compute_vector<T> v, int n) {
    constexpr int count = lanes<compute_vector<T>>::count;
    if (n == count) return narrow_vector((T *)to, v);
    alignas(64) T rest[count];
    narrow_vector(rest, v);
#if defined(__AVX512F__)
    copy_some<sizeof rest>((const char *)rest, to, n * int64_t(sizeof(T)));
#else
    __builtin_memcpy(to, rest, size_t(n) * sizeof(T));
#endif
}

// Rows that follow each other are one; `line` counts pixels up to where the block's next row begins.
struct LaneLines { int64_t rows, width, line; };
template <class T> LaneLines merged(const LaneRows *r) {
    if (r->row == r->width * r->pixel) return {1, r->rows * r->width, r->width};
    return {r->rows, r->width, r->width};
}

// Squares of pixels by channels; the block's rows have a pitch of their own.
template <class T> void pack_across(const char *from, const LaneRows *r, scalar<compute_vector<T>> *to) {
    typedef compute_vector<T> V;
    constexpr int count = lanes<V>::count;
    const LaneLines lines = merged<T>(r);
    const int64_t gap = (r->pitch - r->width) * count;
    const int channels = int(r->channels);
    for (int64_t y = 0; y < lines.rows; y++) {
        int64_t left = lines.line;
        for (int64_t p = 0; p < lines.width; p += count) {
            const char *at = from + y * r->row + p * int64_t(sizeof(T));
            const int here = lines.width - p < count ? int(lines.width - p) : count;
            V square[count];
            if (here == count && channels == count)
#pragma GCC unroll 16
                for (int c = 0; c < count; c++) square[c] = widen_vector((const T *)(at + c * r->channel));
            else
                for (int c = 0; c < count; c++)
                    square[c] = c < channels ? widen_some((const T *)(at + c * r->channel), 0, here) : V{};
            transpose_square<count>(square);
            if (left >= count) {  // in one row of the block
#pragma GCC unroll 16
                for (int i = 0; i < count; i++)
                    if (i < here) store(to + i * count, square[i]);
                to += here * count, left -= here;
                if (!left) to += gap, left = lines.line;
                continue;
            }
#pragma GCC unroll 16
            for (int i = 0; i < count; i++) {
                if (i >= here) break;
                store(to, square[i]);
                to += count;
                if (!--left) to += gap, left = lines.line;
            }
        }
    }
}

template <class T> void pack_lanes(const char *from, const LaneRows *r, void *block) {
    typedef compute_vector<T> V;
    typedef scalar<V> S;
    constexpr int count = lanes<V>::count;
    const int64_t whole = r->before + r->width + r->after;
    S *to = (S *)block;
    for (int64_t y = 0; y < r->above; y++, to += r->pitch * count) zero_pixels<V>(to, whole);
    S *body = to + r->before * count;
    for (int64_t y = 0; y < r->rows; y++, to += r->pitch * count) {
        zero_pixels<V>(to, r->before);
        zero_pixels<V>(to + (r->before + r->width) * count, r->after);
    }
    for (int64_t y = 0; y < r->below; y++, to += r->pitch * count) zero_pixels<V>(to, whole);
    const Across how = across<T>(r);
    if (how == Across::pixels) return pack_across<T>(from, r, body);
    for (int64_t y = 0; y < r->rows; y++, body += r->pitch * count, from += r->row) {
        const char *at = from;
        if (how == Across::neither)
            for (int64_t i = 0; i < r->width; i++, at += r->pixel) {
                T values[count] = {};
                for (int c = 0; c < r->channels; c++) values[c] = read<T>(at + c * r->channel);
                store(body + i * count, widen_vector(values));
            }
        else if (r->channels == count)
            for (int64_t i = 0; i < r->width; i++, at += r->pixel) store(body + i * count, widen_vector((const T *)at));
        else
            for (int64_t i = 0; i < r->width; i++, at += r->pixel)
                store(body + i * count, widen_some((const T *)at, 0, r->channels));
    }
}

template <class T> void unpack_across(const scalar<compute_vector<T>> *from, const LaneRows *r, char *to) {
    typedef compute_vector<T> V;
    constexpr int count = lanes<V>::count;
    const bool one = r->pitch == r->width && r->row == r->width * r->pixel;
    const int64_t rows = one ? 1 : r->rows, width = one ? r->rows * r->width : r->width;
    const int channels = int(r->channels);
    for (int64_t y = 0; y < rows; y++)
        for (int64_t p = 0; p < width; p += count) {
            const scalar<V> *at = from + (y * r->pitch + p) * count;
            char *there = to + y * r->row + p * int64_t(sizeof(T));
            const int here = width - p < count ? int(width - p) : count;
            V square[count];
#pragma GCC unroll 16
            for (int i = 0; i < count; i++) square[i] = i < here ? load<V>(at + i * count) : V{};
            transpose_square<count>(square);
            if (here == count && channels == count)
#pragma GCC unroll 16
                for (int c = 0; c < count; c++) narrow_vector((T *)(there + c * r->channel), square[c]);
            else
                for (int c = 0; c < channels; c++) narrow_some<T>(there + c * r->channel, square[c], here);
        }
}

template <class T> void unpack_lanes(const void *block, const LaneRows *r, char *to) {
    typedef compute_vector<T> V;
    typedef scalar<V> S;
    constexpr int count = lanes<V>::count;
    const S *from = (const S *)block;
    const Across how = across<T>(r);
    const int channels = int(r->channels);
    if (how == Across::pixels) return unpack_across<T>(from, r, to);
    for (int64_t y = 0; y < r->rows; y++, from += r->pitch * count, to += r->row) {
        char *at = to;
        if (how == Across::neither)
            for (int64_t i = 0; i < r->width; i++, at += r->pixel) {
                T values[count];
                narrow_vector(values, load<V>(from + i * count));
                for (int c = 0; c < channels; c++) write(at + c * r->channel, values[c]);
            }
        else if (channels == count)
            for (int64_t i = 0; i < r->width; i++, at += r->pixel) narrow_vector((T *)at, load<V>(from + i * count));
        else
            for (int64_t i = 0; i < r->width; i++, at += r->pixel) narrow_some<T>(at, load<V>(from + i * count), channels);
    }
}

template <class T> constexpr void fill_lanes_of(KernelTable &table, Dtype dtype) {
    table.pack_lanes[dtype] = pack_lanes<T>;
    table.unpack_lanes[dtype] = unpack_lanes<T>;
}
constexpr void fill_lanes(KernelTable &table) {
    fill_lanes_of<float16>(table, DTYPE_F16);
    fill_lanes_of<bfloat16>(table, DTYPE_BF16);
    fill_lanes_of<float>(table, DTYPE_F32);
    fill_lanes_of<double>(table, DTYPE_F64);
}

}  // namespace
}  // namespace INFINIOP_ISA
