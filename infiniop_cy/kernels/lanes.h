// Blocks whose lanes are channels: rows of pixels, moved from a tensor into [row][pixel][lane] of the compute type for
// each vector of channels, and back, whichever way the tensor lies.
#pragma once
#include "cast.h"
#include "convert.h"
#include "transpose.h"
#include "table.h"

namespace INFINIOP_ISA {
namespace {

enum { LANE_AHEAD = 256, PIXELS_AHEAD = 16 };  // bytes of a channel's pixels, or pixels, that are prefetched

// How a tensor lies: channels side by side, pixels side by side, or neither.
enum class Across { channels, pixels, neither };
template <class T> Across across(const LaneRows *r) {
    if (r->channel == sizeof(T) && (r->channels > 1 || r->pixel != sizeof(T))) return Across::channels;
    return r->pixel == sizeof(T) ? Across::pixels : Across::neither;
}

template <class V> INFINIOP_INLINE void zero_pixels(scalar<V> *to, int64_t n) {
    for (int64_t i = 0; i < n; i++) store(to + i * lanes<V>::count, V{});
}

// Rows that follow each other are one; `line` counts pixels up to where the block's next row begins.
struct LaneLines { int64_t rows, width, line; };
template <class T> LaneLines merged(const LaneRows *r) {
    if (r->row == r->width * r->pixel) return {1, r->rows * r->width, r->width};
    return {r->rows, r->width, r->width};
}

// Squares of pixels by channels, of one vector; the block's rows have a pitch of their own.
template <class T>
void pack_across(const char *from, const LaneRows *r, int channels, scalar<compute_vector<T>> *to) {
    typedef compute_vector<T> V;
    constexpr int count = lanes<V>::count;
    const LaneLines lines = merged<T>(r);
    const int64_t gap = (r->pitch - r->width) * count;
    for (int64_t y = 0; y < lines.rows; y++) {
        int64_t left = lines.line;
        for (int64_t p = 0; p < lines.width; p += count) {
            const char *at = from + y * r->row + p * int64_t(sizeof(T));
            const int here = lines.width - p < count ? int(lines.width - p) : count;
            V square[count];
            if (here == count && channels == count)
#pragma GCC unroll 16
                for (int c = 0; c < count; c++) {
                    prefetch(at + c * r->channel + LANE_AHEAD);
                    square[c] = widen_vector((const T *)(at + c * r->channel));
                }
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

// The zeros around a block's rows.
template <class V> void zero_around(const LaneRows *r, scalar<V> *to) {
    constexpr int count = lanes<V>::count;
    const int64_t whole = r->before + r->width + r->after;
    for (int64_t y = 0; y < r->above; y++, to += r->pitch * count) zero_pixels<V>(to, whole);
    for (int64_t y = 0; y < r->rows; y++, to += r->pitch * count) {
        zero_pixels<V>(to, r->before);
        zero_pixels<V>(to + (r->before + r->width) * count, r->after);
    }
    for (int64_t y = 0; y < r->below; y++, to += r->pitch * count) zero_pixels<V>(to, whole);
}

// Pixel by pixel, all channels of each, which lie side by side.
template <class T> void pack_along(const char *from, const LaneRows *r, scalar<compute_vector<T>> *to) {
    constexpr int count = lanes<compute_vector<T>>::count;
    const int64_t whole = r->channels / count, apart = r->apart * count, ahead = PIXELS_AHEAD * r->pixel;
    for (int64_t y = 0; y < r->rows; y++, to += r->pitch * count, from += r->row) {
        const T *at = (const T *)from;
        for (int64_t i = 0; i < r->width; i++, at = (const T *)((const char *)at + r->pixel)) {
            for (int64_t v = 0; v < whole; v++) {
                prefetch((const char *)(at + v * count) + ahead);
                store(to + v * apart + i * count, widen_vector(at + v * count));
            }
            if (whole * count < r->channels)
                store(to + whole * apart + i * count, widen_some(at, whole * count, r->channels));
        }
    }
}

template <class T> void pack_scattered(const char *from, const LaneRows *r, int channels,
                                       scalar<compute_vector<T>> *to) {
    constexpr int count = lanes<compute_vector<T>>::count;
    for (int64_t y = 0; y < r->rows; y++, to += r->pitch * count, from += r->row)
        for (int64_t i = 0; i < r->width; i++) {
            T values[count] = {};
            for (int c = 0; c < channels; c++) values[c] = read<T>(from + i * r->pixel + c * r->channel);
            store(to + i * count, widen_vector(values));
        }
}

template <class T> void pack_lanes(const char *from, const LaneRows *r, void *block) {
    typedef compute_vector<T> V;
    constexpr int count = lanes<V>::count;
    scalar<V> *to = (scalar<V> *)block, *body = to + (r->above * r->pitch + r->before) * count;
    const Across how = across<T>(r);
    if (how == Across::channels) pack_along<T>(from, r, body);
    for (int64_t c = 0; c < r->channels; c += count, from += count * r->channel) {
        const int channels = r->channels - c < count ? int(r->channels - c) : count;
        zero_around<V>(r, to);
        if (how == Across::pixels) pack_across<T>(from, r, channels, body);
        if (how == Across::neither) pack_scattered<T>(from, r, channels, body);
        to += r->apart * count, body += r->apart * count;
    }
}

// Stores of vectors, past the caches where the address allows it.
template <class T> INFINIOP_INLINE void narrow_past(char *to, compute_vector<T> v) {
    if constexpr (sizeof(T) == sizeof(compute_type<T>)) return stream(to, v);
#if defined(__AVX512F__)
    alignas(64) T values[lanes<compute_vector<T>>::count];
    narrow_vector(values, v);
    _mm256_stream_si256((__m256i *)to, _mm256_load_si256((const __m256i *)values));
#else
    narrow_vector((T *)to, v);
#endif
}

// Up to a vector of pixels of up to a vector of channels.
template <class T>
INFINIOP_INLINE void unpack_square(const scalar<compute_vector<T>> *at, const LaneRows *r, int channels, int here,
                                   bool past, char *there) {
    typedef compute_vector<T> V;
    constexpr int count = lanes<V>::count;
    V square[count];
#pragma GCC unroll 16
    for (int i = 0; i < count; i++) square[i] = i < here ? load<V>(at + i * count) : V{};
    transpose_square<count>(square);
    if (here < count || channels < count)
        for (int c = 0; c < channels; c++) narrow_some<T>(there + c * r->channel, square[c], here);
    else if (past)
#pragma GCC unroll 16
        for (int c = 0; c < count; c++) narrow_past<T>(there + c * r->channel, square[c]);
    else
#pragma GCC unroll 16
        for (int c = 0; c < count; c++) narrow_vector((T *)(there + c * r->channel), square[c]);
}

template <class T>
void unpack_across(const scalar<compute_vector<T>> *from, const LaneRows *r, int channels, char *to) {
    constexpr int count = lanes<compute_vector<T>>::count;
    const bool one = r->pitch == r->width && r->row == r->width * r->pixel;
    const int64_t rows = one ? 1 : r->rows, width = one ? r->rows * r->width : r->width;
    // Lines are written whole where a vector of pixels is one.
    const bool past = r->stream && count * sizeof(T) == 64 && r->channel % 64 == 0 && uintptr_t(to) % sizeof(T) == 0;
    for (int64_t y = 0; y < rows; y++) {
        char *row = to + y * r->row;
        int64_t p = 0, head = past ? int64_t(-uintptr_t(row) % 64 / sizeof(T)) : 0, here = head ? head : count;
        for (; p < width; p += here, here = count) {
            if (here > width - p) here = width - p;
            unpack_square<T>(from + (y * r->pitch + p) * count, r, channels, int(here), past,
                             row + p * int64_t(sizeof(T)));
        }
    }
}

// A row of memory past the caches, wherever it begins: whole lines, from a stage whose lines are those of the row, and
// what is left of the first and the last one to the caches.
struct StagedStream {
    enum { ROOM = 8192 };
    alignas(64) char stage[ROOM + 64];
    char *to;           // the line in which the stage begins
    int64_t begin, at;  // the bytes of it that are staged

    explicit StagedStream(char *first) : to(first - uintptr_t(first) % 64), begin(first - to), at(begin) {}
    // Room for so many bytes, at most ROOM.
    char *take(int64_t bytes) {
        if (at + bytes > ROOM + 64) send();
        at += bytes;
        return stage + at - bytes;
    }
    __attribute__((noinline)) void send() {
        const int64_t first = begin ? 64 : 0, end = at / 64 * 64;
        if (end < 64) return;
        __builtin_memcpy(to + begin, stage + begin, size_t(first - begin));
        stream_rows(stage + first, 0, to + first, 0, 1, end - first);
        __builtin_memcpy(stage, stage + end, size_t(at - end));
        to += end, at -= end, begin = 0;
    }
    __attribute__((noinline)) void finish() {
        send();
        __builtin_memcpy(to + begin, stage + begin, size_t(at - begin));
    }
};

template <class T>
void unpack_along(const scalar<compute_vector<T>> *from, const LaneRows *r, char *to) {
    typedef compute_vector<T> V;
    constexpr int count = lanes<V>::count;
    const int64_t whole = r->channels / count, apart = r->apart * count;
    const int rest = int(r->channels - whole * count);
    const bool past = r->stream && (uintptr_t(to) | r->row | r->pixel | r->channels * sizeof(T)) % 64 == 0;
    const bool staged = r->stream && !past &&
                        sizeof(T) == sizeof(scalar<V>) &&  // elements that are converted take longer
                        r->pixel == int64_t(r->channels * sizeof(T)) && r->pixel <= int64_t(StagedStream::ROOM);
    for (int64_t y = 0; y < r->rows; y++, from += r->pitch * count, to += r->row) {
        char *at = to;
        StagedStream stream(to);
        for (int64_t i = 0; i < r->width; i++, at += r->pixel) {
            char *there = staged ? stream.take(r->pixel) : at;
            for (int64_t v = 0; v < whole; v++, there += count * sizeof(T)) {
                V values = load<V>(from + v * apart + i * count);
                if (past) narrow_past<T>(there, values);
                else narrow_vector((T *)there, values);
            }
            if (rest) narrow_some<T>(there, load<V>(from + whole * apart + i * count), rest);
        }
        if (staged) stream.finish();
    }
}

template <class T>
void unpack_scattered(const scalar<compute_vector<T>> *from, const LaneRows *r, int channels, char *to) {
    typedef compute_vector<T> V;
    constexpr int count = lanes<V>::count;
    for (int64_t y = 0; y < r->rows; y++, from += r->pitch * count, to += r->row)
        for (int64_t i = 0; i < r->width; i++) {
            T values[count];
            narrow_vector(values, load<V>(from + i * count));
            for (int c = 0; c < channels; c++) write(to + i * r->pixel + c * r->channel, values[c]);
        }
}

template <class T> void unpack_lanes(const void *block, const LaneRows *r, char *to) {
    typedef compute_vector<T> V;
    constexpr int count = lanes<V>::count;
    const scalar<V> *from = (const scalar<V> *)block;
    const Across how = across<T>(r);
    if (how == Across::channels) return unpack_along<T>(from, r, to);
    for (int64_t c = 0; c < r->channels; c += count, from += r->apart * count, to += count * r->channel) {
        const int channels = r->channels - c < count ? int(r->channels - c) : count;
        if (how == Across::pixels) unpack_across<T>(from, r, channels, to);
        else unpack_scattered<T>(from, r, channels, to);
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
