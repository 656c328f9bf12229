// FmaTile's counterpart on tensor cores, where the hardware has them for the type; its products are exact and its sums
// single precision, in the hardware's order. float is rounded to tf32.
//
// The hardware cuts off what its sums have below the last place, always toward zero, so that the error of a sum grows
// as fast as the sum. It therefore adds no more than TENSOR_CORE_RUN products, which are then added to the whole as
// usual.
#pragma once
#include "conv_tiles.cuh"

#if __CUDA_ARCH__ >= 700
#include <mma.h>
#endif

namespace INFINIOP_ISA {
namespace {

template <class E> inline constexpr bool has_tensor_cores = false;

#if __CUDA_ARCH__ >= 700
template <class Type, class Memory, int DEPTH> struct core_of {
    typedef Type type;
    typedef Memory memory;
    static constexpr int depth = DEPTH;
    template <class E> static INFINIOP_INLINE E prepare(E v) { return v; }
};
template <class E> struct tensor_core;
template <> inline constexpr bool has_tensor_cores<float16> = true;
template <> struct tensor_core<float16> : core_of<__half, __half, 16> {};
#if __CUDA_ARCH__ >= 800
template <> inline constexpr bool has_tensor_cores<bfloat16> = true;
template <> struct tensor_core<bfloat16> : core_of<__nv_bfloat16, __nv_bfloat16, 16> {};
template <> inline constexpr bool has_tensor_cores<float> = true;
template <> struct tensor_core<float> : core_of<nvcuda::wmma::precision::tf32, float, 8> {
    // What is finite stays so: rounded to inf, it would be NaN where it meets the zeros of padding. So the bit by which
    // the largest numbers would be rounded up is taken off them.
    static INFINIOP_INLINE float prepare(float v) {
        const unsigned bits = __float_as_uint(v);
        return nvcuda::wmma::__float_to_tf32((bits & 0x7FFFF000) == 0x7F7FF000 ? __uint_as_float(bits & ~0x1000u) : v);
    }
};
#endif

// Four by two warps. K_INNERMOST: how the panels lie, as is best for those who fill them.
template <class E, int arithmetic, int size, bool K_INNERMOST> struct TensorCoreTile {
    typedef E element;
    static constexpr CudaConvTile tile = cuda_conv_tiles[arithmetic][size];
    typedef tensor_core<E> core;
    typedef typename core::memory memory;
    static constexpr int rows = tile.rows, columns = tile.columns, depth = tile.depth, pad = 16 / sizeof(E);
    static constexpr bool k_innermost = K_INNERMOST;
    static constexpr int a_pitch = (k_innermost ? depth : rows) + pad, b_pitch = (k_innermost ? depth : columns) + pad;
    static constexpr int a_size = a_pitch * (k_innermost ? rows : depth);
    static constexpr int b_size = b_pitch * (k_innermost ? columns : depth);
    static constexpr int warp_rows = rows / 4, warp_columns = columns / 2;
    template <class Use, class Type, class... Layout>
    using Fragment = nvcuda::wmma::fragment<Use, 16, 16, core::depth, Type, Layout...>;
    typedef Fragment<nvcuda::wmma::accumulator, float> Sum;
    Sum sum[warp_rows / 16][warp_columns / 16], part[warp_rows / 16][warp_columns / 16];

    static INFINIOP_INLINE int a_at(int k, int row) { return k_innermost ? row * a_pitch + k : k * a_pitch + row; }
    static INFINIOP_INLINE int b_at(int k, int column) {
        return k_innermost ? column * b_pitch + k : k * b_pitch + column;
    }
    static INFINIOP_INLINE E prepare(E v) { return core::prepare(v); }
    static INFINIOP_INLINE int first_row() { return threadIdx.x / CUDA_CONV_WARP / 2 * warp_rows; }
    static INFINIOP_INLINE int first_column() { return threadIdx.x / CUDA_CONV_WARP % 2 * warp_columns; }

    INFINIOP_INLINE void clear_part() {
#pragma unroll
        for (auto &row : part)
#pragma unroll
            for (Sum &s : row) nvcuda::wmma::fill_fragment(s, 0.0f);
    }
    INFINIOP_INLINE void clear() {
        for (auto &row : sum)
            for (Sum &s : row) nvcuda::wmma::fill_fragment(s, 0.0f);
        clear_part();
    }
    // Those who multiply settle after TENSOR_CORE_RUN products at most, and when they are done: sum += part.
    INFINIOP_INLINE void settle() {
#pragma unroll
        for (int i = 0; i < warp_rows / 16; i++)
#pragma unroll
            for (int j = 0; j < warp_columns / 16; j++)
#pragma unroll
                for (int l = 0; l < Sum::num_elements; l++) sum[i][j].x[l] += part[i][j].x[l];
        clear_part();
    }

    INFINIOP_INLINE void multiply(const E *a, const E *b) {
        using namespace nvcuda::wmma;
        typedef typename std::conditional<k_innermost, row_major, col_major>::type ALayout;
        typedef typename std::conditional<k_innermost, col_major, row_major>::type BLayout;
#pragma unroll
        for (int k = 0; k < depth; k += core::depth) {
            Fragment<matrix_a, typename core::type, ALayout> x[warp_rows / 16];
            Fragment<matrix_b, typename core::type, BLayout> y[warp_columns / 16];
#pragma unroll
            for (int i = 0; i < warp_rows / 16; i++)
                load_matrix_sync(x[i], (const memory *)a + a_at(k, first_row() + i * 16), a_pitch);
#pragma unroll
            for (int j = 0; j < warp_columns / 16; j++)
                load_matrix_sync(y[j], (const memory *)b + b_at(k, first_column() + j * 16), b_pitch);
#pragma unroll
            for (int i = 0; i < warp_rows / 16; i++)
#pragma unroll
                for (int j = 0; j < warp_columns / 16; j++) mma_sync(part[i][j], x[i], y[j], part[i][j]);
        }
    }

    static INFINIOP_INLINE void load_sum(Sum &s, const float *from, int64_t pitch) {
        nvcuda::wmma::load_matrix_sync(s, from, unsigned(pitch), nvcuda::wmma::mem_row_major);
    }
    static INFINIOP_INLINE void store_sum(const Sum &s, float *to, int64_t pitch) {
        nvcuda::wmma::store_matrix_sync(to, s, unsigned(pitch), nvcuda::wmma::mem_row_major);
    }

    // use(sums, where they belong in the matrix) for each 16 by 16 of them.
    template <class Use> INFINIOP_INLINE void each(float *matrix, int64_t pitch, Use use) {
#pragma unroll
        for (int i = 0; i < warp_rows / 16; i++)
#pragma unroll
            for (int j = 0; j < warp_columns / 16; j++)
                use(sum[i][j], matrix + (first_row() + i * 16) * pitch + first_column() + j * 16);
    }
    INFINIOP_INLINE void store(float *to, int64_t pitch, int = 0, int = rows) {
        each(to, pitch, [=](Sum &s, float *p) { store_sum(s, p, pitch); });
    }
    INFINIOP_INLINE void load(float *from, int64_t pitch) {
        each(from, pitch, [=](Sum &s, float *p) { load_sum(s, p, pitch); });
        clear_part();
    }
    INFINIOP_INLINE void add_to(float *total, int64_t pitch, bool continues) {
        each(total, pitch, [=](Sum &s, float *p) {
            Sum v;
            nvcuda::wmma::fill_fragment(v, 0.0f);
            if (continues) load_sum(v, p, pitch);
#pragma unroll
            for (int i = 0; i < v.num_elements; i++) v.x[i] += s.x[i];
            store_sum(v, p, pitch);
        });
    }
};

template <int arithmetic, int size, bool k_innermost, int panels, bool tensor_cores> struct tile_type {
    typedef FmaTile<T, arithmetic, size, panels> type;
};
template <int arithmetic, int size, bool k_innermost, int panels>
struct tile_type<arithmetic, size, k_innermost, panels, true> {
    typedef TensorCoreTile<T, arithmetic, size, k_innermost> type;
};
#else
template <int arithmetic, int size, bool, int panels, bool> struct tile_type {
    typedef FmaTile<T, arithmetic, size, panels> type;
};
#endif

// panels: so many times the depth of the table, where products are not the tensor cores'.
template <int arithmetic, int size, bool k_innermost, int panels = 1>
using Tile =
    typename tile_type<arithmetic, size, k_innermost, panels,
                       has_tensor_cores<T> && (arithmetic == CUDA_CONV_16_BIT || arithmetic == CUDA_CONV_TF32)>::type;

}  // namespace
}  // namespace INFINIOP_ISA
