// A model of AMX's tiles, after the operations of Intel's manual (Software Developer's Manual, volume 2: LDTILECFG,
// TILELOADD, TILESTORED, TDPBF16PS). Each thread has tiles of its own, as its registers would be. Whatever the
// instructions refuse (tiles that nobody configured, shapes that do not fit each other) ends the program.
#pragma once
#include <stdint.h>
#include <string.h>
#include "simd.h"

namespace INFINIOP_ISA {
namespace {

class EmulatedTiles {
    struct Tile {
        alignas(64) char row[16][64];
        int rows, row_bytes;
    } tiles[8];
    bool configured;

    Tile &of(int number) {
        require(configured && tiles[number].rows);
        return tiles[number];
    }
    static void require(bool holds) {
        if (!holds) __builtin_trap();
    }

    // Products of the even and of the odd steps are summed apart, by FMA, then joined, then added.
    __attribute__((noinline)) static void add_products(Tile &c, const Tile &a, const Tile &b) {
        const __m512i upper = _mm512_set1_epi32(int(0xFFFF0000));
        for (int m = 0; m < c.rows; m++) {
            __m512 even = _mm512_setzero_ps(), odd = even;
            for (int k = 0; k < b.rows; k++) {
                uint32_t pair;
                memcpy(&pair, a.row[m] + 4 * k, 4);
                const __m512i pairs = _mm512_loadu_si512(b.row[k]);
                even = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_set1_epi32(int(pair << 16))),
                                       _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)), even);
                odd = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_set1_epi32(int(pair & 0xFFFF0000))),
                                      _mm512_castsi512_ps(_mm512_and_si512(pairs, upper)), odd);
            }
            _mm512_store_ps(c.row[m], _mm512_add_ps(_mm512_load_ps(c.row[m]), _mm512_add_ps(even, odd)));
        }
    }

public:
    void configure(const uint16_t *row_bytes, const uint8_t *rows) {
        memset(this, 0, sizeof(*this));
        configured = true;
        for (int i = 0; i < 8; i++) {
            require(rows[i] <= 16 && row_bytes[i] <= 64 && row_bytes[i] % 4 == 0 && !rows[i] == !row_bytes[i]);
            tiles[i].rows = rows[i];
            tiles[i].row_bytes = row_bytes[i];
        }
    }
    void release() { configured = false; }
    void load(int number, const char *p, int64_t row) {
        Tile &tile = of(number);
        memset(tile.row, 0, sizeof(tile.row));
        for (int i = 0; i < tile.rows; i++) memcpy(tile.row[i], p + i * row, size_t(tile.row_bytes));
    }
    void store(int number, char *p, int64_t row) {
        const Tile &tile = of(number);
        for (int i = 0; i < tile.rows; i++) memcpy(p + i * row, tile.row[i], size_t(tile.row_bytes));
    }
    void zero(int number) {
        Tile &tile = of(number);
        memset(tile.row, 0, sizeof(tile.row));
    }
    // Subnormals count as zeros, and sums are rounded to the nearest, whatever the thread's own state; no flag is
    // raised.
    void multiply(int c, int a, int b) {
        require(c != a && c != b && a != b && of(c).rows == of(a).rows);
        require(of(a).row_bytes == 4 * of(b).rows && of(c).row_bytes == of(b).row_bytes);
        const unsigned state = _mm_getcsr();
        _mm_setcsr(0x9FC0);  // nearest, every exception masked, subnormals as zeros and zeros for subnormals
        add_products(of(c), of(a), of(b));
        _mm_setcsr(state);
    }
};

thread_local EmulatedTiles emulated_tiles;

}  // namespace
}  // namespace INFINIOP_ISA
