// Channels side by side, each of them several times in a row: for the output of a depthwise convolution with a channel
// multiplier, whose channels then meet one each.
#pragma once
#include "simd.h"
#include "table.h"

namespace INFINIOP_ISA {
namespace {

// Writes SPREAD_MOST copies of a channel, the last of which the next channel overwrites.
template <class Word>
void spread_channels(const char *from, int64_t from_pixel, int64_t pixels, int64_t channels, int64_t copies, char *to,
                     int64_t to_pixel) {
    for (; pixels > 0; pixels--, from += from_pixel, to += to_pixel) {
        char *at = to;
        for (int64_t c = 0; c < channels; c++, at += copies * int64_t(sizeof(Word))) {
            Word word, words[SPREAD_MOST];
            __builtin_memcpy(&word, from + c * int64_t(sizeof word), sizeof word);
#pragma GCC unroll 8
            for (int i = 0; i < SPREAD_MOST; i++) words[i] = word;
            __builtin_memcpy(at, words, sizeof words);
        }
    }
}

constexpr void fill_spread(KernelTable &table) {
    table.spread[DTYPE_F16] = table.spread[DTYPE_BF16] = spread_channels<uint16_t>;
    table.spread[DTYPE_F32] = spread_channels<uint32_t>;
    table.spread[DTYPE_F64] = spread_channels<uint64_t>;
}

}  // namespace
}  // namespace INFINIOP_ISA
