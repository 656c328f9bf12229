// grad_weight by tiles: output channels by (input channel, tap), summed over output pixels unit by unit.
//   grad_weight[co, ci, k] = sum over n, o of grad_output[n, co, o] * input[n, ci, o*stride + k*dilation - before]
#pragma once
#include "conv_tensor_cores.cuh"

namespace INFINIOP_ISA {
namespace {

// What a block computes: a tile of [group][rows][columns], over one unit or all.
struct WeightBlock {
    int64_t row, column, group, first_unit;
    int rows;    // that are output channels
    int64_t to;  // the tile's corner in the total, or in its slot
};

template <class Tile> INFINIOP_INLINE void write_block(WeightBlock &block, const CudaConvGradWeight &a) {
    int64_t slot = block_number(a.first_block);
    block.column = take(slot, a.column_tiles) * Tile::columns;
    block.row = take(slot, a.row_tiles) * Tile::rows;
    block.group = take(slot, a.conv.groups);
    block.first_unit = a.first_unit + slot;
    block.rows = int(min(a.conv.cout - block.row, int64_t(Tile::rows)));
    block.to = ((slot * a.conv.groups + block.group) * a.rows + block.row) * a.columns + block.column;
}

// An output pixel: in grad_output, channel 0 of the tile; in input, channel 0 of the group, what tap 0 meets, and which
// pixel that is. CONV_ABSENT: none.
enum { CONV_ABSENT = 1 << 30 };
struct alignas(16) OutputPixel {
    int64_t g, x;
    int start[3], padding;
};
// A column: how far from there it meets input. CONV_ABSENT: past the last.
struct alignas(16) WeightColumn {
    int64_t x;
    int shift[3], padding;
};

INFINIOP_INLINE void write_column(WeightColumn &column, const CudaConv &c, int64_t number) {
    const CudaConvView &v = c.view[CUDA_CONV_INPUT];
    for (int d = 2; d >= 0; d--) column.shift[d] = int(take(number, c.axis[d].kernel)) * int(c.axis[d].dilation);
    column.x = number * v.channel + offset(v, column.shift);
    if (number >= c.cin) column.shift[0] = CONV_ABSENT;
}

INFINIOP_INLINE void write_pixel(OutputPixel &pixel, const CudaConv &c, const WeightBlock &block, int64_t number,
                                 bool there) {
    const CudaConvView &gv = c.view[CUDA_CONV_GRAD_OUTPUT], &xv = c.view[CUDA_CONV_INPUT];
    const Position at(c, number);
    for (int d = 0; d < 3; d++) pixel.start[d] = at.pixel[d] * int(c.axis[d].stride) - int(c.axis[d].before);
    pixel.g = at.n * gv.n + (block.group * c.cout + block.row) * gv.channel + offset(gv, at.pixel);
    pixel.x = at.n * xv.n + block.group * c.cin * xv.channel + offset(xv, pixel.start);
    if (!there) pixel.start[0] = CONV_ABSENT;
}

// A thread fills one k of both panels. Padding is zeros, which are data: 0 * inf is NaN.
template <class Tile> struct WeightPanels {
    static constexpr int step = CUDA_CONV_BLOCK / Tile::depth;
    static constexpr int a_count = Tile::rows / step, b_count = Tile::columns / step;
    T a_values[a_count], b_values[b_count];

    INFINIOP_INLINE void fetch(const CudaConv &c, const OutputPixel &pixel, const WeightColumn *columns, int rows) {
        const int first = threadIdx.x / Tile::depth;
        const int64_t channel = c.view[CUDA_CONV_GRAD_OUTPUT].channel;
        const OutputPixel p = pixel;
        const int left = p.start[0] == CONV_ABSENT ? 0 : rows - first;
        const T *g = data_of<const T>(c, CUDA_CONV_GRAD_OUTPUT) + p.g + first * channel;
        const T *x = data_of<const T>(c, CUDA_CONV_INPUT) + p.x;
#pragma unroll
        for (int i = 0; i < a_count; i++, g += step * channel) a_values[i] = i * step < left ? *g : T{};
#pragma unroll
        for (int i = 0; i < b_count; i++) {
            const WeightColumn &column = columns[first + i * step];
            bool there = true;  // & and not &&: no branches
            for (int d = 0; d < 3; d++) there &= unsigned(p.start[d] + column.shift[d]) < unsigned(c.axis[d].size_in);
            b_values[i] = there ? x[column.x] : T{};
        }
    }
    INFINIOP_INLINE void commit(T *panel_a, T *panel_b) {
        const int k = threadIdx.x % Tile::depth, first = threadIdx.x / Tile::depth;
#pragma unroll
        for (int i = 0; i < a_count; i++) panel_a[Tile::a_at(k, first + i * step)] = Tile::prepare(a_values[i]);
#pragma unroll
        for (int i = 0; i < b_count; i++) panel_b[Tile::b_at(k, first + i * step)] = Tile::prepare(b_values[i]);
    }
};

template <class Tile> INFINIOP_INLINE void grad_weight_tile(const CudaConvGradWeight &a) {
    alignas(32) __shared__ T panel_a[2][Tile::a_size], panel_b[2][Tile::b_size];
    __shared__ OutputPixel pixels[CUDA_CONV_CHUNK + Tile::depth];  // the last are always absent
    __shared__ WeightColumn columns[Tile::columns];
    static_assert(CUDA_CONV_CHUNK == CUDA_CONV_BLOCK && Tile::columns <= CUDA_CONV_BLOCK, "one of each per thread");
    const CudaConv &c = a.conv;

    __shared__ WeightBlock block;
    if (threadIdx.x == 0) write_block<Tile>(block, a);
    __syncthreads();
    if (threadIdx.x < Tile::depth) pixels[CUDA_CONV_CHUNK + threadIdx.x].start[0] = CONV_ABSENT;
    if (threadIdx.x < Tile::columns) write_column(columns[threadIdx.x], c, block.column + threadIdx.x);

    Tile sums;
    const int units = a.mode == CUDA_CONV_EACH ? 1 : int(a.wave);
    S *const to = (S *)(a.mode == CUDA_CONV_EACH ? a.slots : a.total) + block.to;
    if (a.mode == CUDA_CONV_CHAIN && a.continues) sums.load(to, a.columns);
    else sums.clear();
    for (int unit = 0; unit < units; unit++) {
        for (int done = 0;; done += CUDA_CONV_CHUNK) {
            const Unit all(a.units, block.first_unit + unit);  // again each time, which saves registers
            const int left = int(all.length) - done;
            if (left <= 0) break;
            const int steps = min((left + Tile::depth - 1) / Tile::depth, CUDA_CONV_CHUNK / Tile::depth);
            write_pixel(pixels[threadIdx.x], c, block, all.flat + done + threadIdx.x, int(threadIdx.x) < left);
            __syncthreads();
            const OutputPixel *pixel = pixels + threadIdx.x % Tile::depth;
            WeightPanels<Tile> next;
            next.fetch(c, *pixel, columns, block.rows);
            next.commit(panel_a[0], panel_b[0]);
            __syncthreads();
            static_assert(CUDA_CONV_CHUNK <= TENSOR_CORE_RUN, "a chunk is a run");
            for (int s = 0; s < steps; s++) {
                const int now = s & 1;
                next.fetch(c, pixel[(s + 1) * Tile::depth], columns, block.rows);
                sums.multiply(panel_a[now], panel_b[now]);
                if (s + 1 == steps) sums.settle();  // behind the loop it would cost registers in it
                next.commit(panel_a[1 - now], panel_b[1 - now]);
                __syncthreads();
            }
        }
        if (a.mode == CUDA_CONV_ALL) {
            sums.add_to(to, a.columns, a.continues || unit);
            sums.clear();
        }
    }
    if (a.mode != CUDA_CONV_ALL) sums.store(to, a.columns);
}

// total = (((from + slot 0) + slot 1) + ...), an element per thread, rounded once where it goes to grad_weight.
INFINIOP_INLINE void reduce_element(const CudaConvGradWeight &a) {
    const CudaConv &c = a.conv;
    const CudaConvView &v = c.view[CUDA_CONV_GRAD_WEIGHT];
    const int64_t slot = c.groups * a.rows * a.columns;
    int64_t group = block_number(a.first_block) * CUDA_CONV_BLOCK + threadIdx.x;
    const int64_t column = take(group, c.cin * c.taps), row = take(group, c.cout);
    if (group >= c.groups) return;
    T *out = (T *)v.data + (group * c.cout + row) * v.n + column;
    if (!a.together) {
        int64_t ci = column, k[3];
        for (int d = 2; d >= 0; d--) k[d] = take(ci, c.axis[d].kernel);
        out += ci * v.channel + offset(v, k) - column;
    }
    const int64_t at = (group * a.rows + row) * a.columns + column;
    const S *from = (const S *)a.slots + at;
    S *total = (S *)a.total + at, sum = 0;
    if (a.from == CUDA_CONV_TENSOR) sum = to_compute(*out);
    if (a.from == CUDA_CONV_TOTAL) sum = *total;
#pragma unroll 8
    for (int64_t i = 0; i < a.wave; i++) sum += from[i * slot];
    if (a.to == CUDA_CONV_TOTAL) *total = sum;
    else *out = from_compute<T>(sum);
}

}  // namespace
}  // namespace INFINIOP_ISA
