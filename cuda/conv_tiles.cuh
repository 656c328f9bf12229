// Products of tiles: sum[row][column] += sum over k of a[k][row] * b[k][column], by CUDA_CONV_BLOCK threads from panels
// in shared memory, every element a chain of multiply-adds in the order of k. A tile says where its panels keep element
// (k, row): a_at and b_at; store and load go between the sums and a matrix whose rows are `pitch` elements apart.
#pragma once
#include "conv_geometry.cuh"

namespace INFINIOP_ISA {
namespace {

constexpr int TENSOR_CORE_RUN = 256;  // products of a sum, at most, that tensor cores add by themselves

template <class E, int n> struct alignas(n * sizeof(E)) Vector { E lane[n]; };

// 16 by 16 threads. A thread has groups of `lane` neighbouring rows and columns: reading them is one access.
template <class E, int arithmetic, int size, int panels = 1> struct FmaTile {
    typedef E element;
    static constexpr CudaConvTile tile = cuda_conv_tiles[arithmetic][size];
    static constexpr int rows = tile.rows, columns = tile.columns, depth = panels * tile.depth;
    static constexpr int lane = 16 / sizeof(S), pad = 16 / sizeof(E);  // pad: against bank conflicts
    static constexpr int a_pitch = rows + pad, b_pitch = columns + pad;
    static constexpr int a_size = depth * a_pitch, b_size = depth * b_pitch;
    static constexpr bool k_innermost = false;
    typedef Vector<S, lane> Sums;
    S sum[rows / 16][columns / 16];

    static INFINIOP_INLINE int a_at(int k, int row) { return k * a_pitch + row; }
    static INFINIOP_INLINE int b_at(int k, int column) { return k * b_pitch + column; }
    static INFINIOP_INLINE E prepare(E v) { return v; }

    INFINIOP_INLINE void clear() {
        for (auto &row : sum)
            for (S &s : row) s = 0;
    }

    template <int n> static INFINIOP_INLINE void gather(const E *panel_row, int thread, S (&to)[n]) {
#pragma unroll
        for (int g = 0; g < n; g += lane) {
            Vector<E, lane> v = *(const Vector<E, lane> *)(panel_row + g * 16 + thread * lane);
#pragma unroll
            for (int i = 0; i < lane; i++) to[g + i] = to_compute(v.lane[i]);
        }
    }

    INFINIOP_INLINE void multiply(const E *a, const E *b) {
#pragma unroll
        for (int k = 0; k < depth; k++) {
            S x[rows / 16], y[columns / 16];
            gather(a + k * a_pitch, threadIdx.x / 16, x);
            gather(b + k * b_pitch, threadIdx.x % 16, y);
#pragma unroll
            for (int i = 0; i < rows / 16; i++)
#pragma unroll
                for (int j = 0; j < columns / 16; j++) sum[i][j] = mul_add(x[i], y[j], sum[i][j]);
        }
    }

    INFINIOP_INLINE void settle() {}  // tensor cores have sums to bring together

    // use(sums, element) for each `lane` sums side by side in a row, of rows [from, from + count); both are multiples
    // of 16*lane.
    template <class Use> INFINIOP_INLINE void each(int from, int count, Use use) {
#pragma unroll
        for (int g = 0; g < rows / 16; g += lane) {
            if (g * 16 < from || g * 16 >= from + count) continue;
#pragma unroll
            for (int i = g; i < g + lane; i++)
#pragma unroll
                for (int j = 0; j < columns / 16; j += lane)
                    use(&sum[i][j], g * 16 + threadIdx.x / 16 * lane + i - g, j * 16 + threadIdx.x % 16 * lane);
        }
    }

    INFINIOP_INLINE void store(S *to, int64_t pitch, int from = 0, int count = rows) {
        each(from, count, [=](S *s, int row, int column) {
            Sums v;
#pragma unroll
            for (int i = 0; i < lane; i++) v.lane[i] = s[i];
            *(Sums *)(to + (row - from) * pitch + column) = v;
        });
    }
    INFINIOP_INLINE void load(const S *from, int64_t pitch) {
        each(0, rows, [=](S *s, int row, int column) {
            Sums v = *(const Sums *)(from + row * pitch + column);
#pragma unroll
            for (int i = 0; i < lane; i++) s[i] = v.lane[i];
        });
    }
    // total = (continues ? total : 0) + sums
    INFINIOP_INLINE void add_to(S *total, int64_t pitch, bool continues) {
        each(0, rows, [=](S *s, int row, int column) {
            Sums *to = (Sums *)(total + row * pitch + column), v = {};
            if (continues) v = *to;
#pragma unroll
            for (int i = 0; i < lane; i++) v.lane[i] += s[i];
            *to = v;
        });
    }
};

}  // namespace
}  // namespace INFINIOP_ISA
