// The instructions of AMX that amx.h is written in, or where they are to be tested without, a model of them.
#pragma once
#include "table.h"

#if defined(__AVX512F__) && defined(__x86_64__) && defined(__linux__)
#if defined(INFINIOP_EMULATED_AMX)
#include "tiles_emulated.h"
#endif

namespace INFINIOP_ISA {
namespace {

// What LDTILECFG reads.
struct alignas(64) TileShapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

#if defined(INFINIOP_EMULATED_AMX)
template <int tile> void load_tile(const char *p, int64_t row) { emulated_tiles.load(tile, p, row); }
template <int tile> void store_tile(char *p, int64_t row) { emulated_tiles.store(tile, p, row); }
template <int tile> void zero_tile() { emulated_tiles.zero(tile); }
template <int c, int a, int b> void multiply_tile() { emulated_tiles.multiply(c, a, b); }
inline void load_shapes(const TileShapes *shapes) { emulated_tiles.configure(shapes->row_bytes, shapes->rows); }
inline void release_tiles() { emulated_tiles.release(); }
#else
// Follows a load and a product. Where the other hardware thread of a core is busy, tile instructions close to each
// other wait for one another; with seven others in between, even such as do nothing, a product and its share of loads
// take 14 ns, not 20 (measured on a Xeon of 2024; with five 17, with sixteen 15). Where it is idle they take 6 ns
// either way: a product keeps the unit for 16 cycles, in which nearly a hundred instructions can start. Each has 3
// bytes, since the cache of decoded instructions holds 48 of 64 bytes of code.
#define INFINIOP_APART "\n\t.rept 7\n\tnopl (%%rax)\n\t.endr"

// By name, since the intrinsics are macros that take no template's number.
template <int tile> INFINIOP_INLINE void load_tile(const char *p, int64_t row) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" INFINIOP_APART ::"r"(p), "r"(row), "i"(tile) : "memory");
}
template <int tile> INFINIOP_INLINE void store_tile(char *p, int64_t row) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(p), "r"(row), "i"(tile) : "memory");
}
template <int tile> INFINIOP_INLINE void zero_tile() { asm volatile("tilezero %%tmm%c0" ::"i"(tile)); }
template <int c, int a, int b> INFINIOP_INLINE void multiply_tile() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" INFINIOP_APART ::"i"(c), "i"(a), "i"(b));
}
INFINIOP_INLINE void load_shapes(const TileShapes *shapes) { asm volatile("ldtilecfg %0" ::"m"(*shapes)); }
INFINIOP_INLINE void release_tiles() { asm volatile("tilerelease"); }
#endif

// Tiles for `rows` rows of sums, at most 32: of sums in tiles 0 to 3, of a in 4 and 5, of b in 6 and 7.
INFINIOP_INLINE void configure_tiles(int64_t rows) {
    TileShapes shapes = {};
    shapes.palette = 1;
    for (int i = 0; i < 8; i++) {
        const bool below = i == 2 || i == 3 || i == 5;
        shapes.row_bytes[i] = 64;
        shapes.rows[i] = uint8_t(i >= 6 ? 16 : !below ? (rows < 16 ? rows : 16) : rows > 16 ? rows - 16 : 1);
    }
    load_shapes(&shapes);
}

}  // namespace
}  // namespace INFINIOP_ISA
#endif
