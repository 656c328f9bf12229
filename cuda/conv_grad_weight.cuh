// grad_weight by tiles: output channels by (input channel, tap), or by (tap, input channel) where channels are read by
// vectors, summed over output pixels unit by unit.
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

INFINIOP_INLINE void write_column(WeightColumn &column, const CudaConv &c, int64_t number, bool by_channels) {
    const CudaConvView &v = c.view[CUDA_CONV_INPUT];
    int64_t ci = 0;
    if (by_channels) ci = take(number, c.cin);
    for (int d = 2; d >= 0; d--) column.shift[d] = int(take(number, c.axis[d].kernel)) * int(c.axis[d].dilation);
    if (!by_channels) ci = number;
    column.x = ci * v.channel + offset(v, column.shift);
    if (by_channels ? number > 0 : ci >= c.cin) column.shift[0] = CONV_ABSENT;
}
// Whether a column meets input at this pixel.
INFINIOP_INLINE bool meets(const CudaConv &c, const OutputPixel &pixel, const WeightColumn &column) {
    bool there = true;  // & and not &&: no branches
    for (int d = 0; d < 3; d++)
        there &= unsigned(pixel.start[d]) + unsigned(column.shift[d]) < unsigned(c.axis[d].size_in);
    return there;
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
    static constexpr int step = CUDA_CONV_BLOCK / Tile::depth, together = 1;
    static constexpr int a_count = Tile::rows / step, b_count = Tile::columns / step;
    T a_values[a_count], b_values[b_count];

    // Of a panel's pixels.
    INFINIOP_INLINE void fetch(const CudaConv &c, const OutputPixel *pixels, const WeightColumn *columns, int rows) {
        const int first = threadIdx.x / Tile::depth;
        const int64_t channel = c.view[CUDA_CONV_GRAD_OUTPUT].channel;
        const OutputPixel p = pixels[threadIdx.x % Tile::depth];
        const int left = p.start[0] == CONV_ABSENT ? 0 : rows - first;
        const T *g = data_of<const T>(c, CUDA_CONV_GRAD_OUTPUT) + p.g + first * channel;
        const T *x = data_of<const T>(c, CUDA_CONV_INPUT) + p.x;
#pragma unroll
        for (int i = 0; i < a_count; i++, g += step * channel) a_values[i] = i * step < left ? *g : T{};
#pragma unroll
        for (int i = 0; i < b_count; i++) {
            const WeightColumn &column = columns[first + i * step];
            b_values[i] = meets(c, p, column) ? x[column.x] : T{};
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

// The same of images whose channels lie side by side, by vectors of them: one test of the bounds, and one access, for
// each. Channels are a multiple of a vector, and so is what lies between pixels.
template <class Tile> struct ChannelPanels {
    static constexpr int together = CUDA_CONV_VECTOR_BYTES / sizeof(T);
    static constexpr int a_row = Tile::rows / together, b_row = Tile::columns / together;
    static constexpr int a_vectors = a_row * Tile::depth, b_vectors = b_row * Tile::depth;
    static constexpr int a_count = (a_vectors + CUDA_CONV_BLOCK - 1) / CUDA_CONV_BLOCK;
    static constexpr int b_count = (b_vectors + CUDA_CONV_BLOCK - 1) / CUDA_CONV_BLOCK;
    typedef Vector<T, together> Channels;
    Channels a_values[a_count], b_values[b_count];

    static INFINIOP_INLINE bool is_one(int v, int vectors) { return vectors % CUDA_CONV_BLOCK == 0 || v < vectors; }

    INFINIOP_INLINE void fetch(const CudaConv &c, const OutputPixel *pixels, const WeightColumn *columns, int rows) {
        const T *const g = data_of<const T>(c, CUDA_CONV_GRAD_OUTPUT), *const x = data_of<const T>(c, CUDA_CONV_INPUT);
#pragma unroll
        for (int i = 0; i < a_count; i++) {
            const int v = threadIdx.x + i * CUDA_CONV_BLOCK, row = v % a_row * together;
            if (!is_one(v, a_vectors)) break;
            const OutputPixel &p = pixels[v / a_row];
            const bool there = p.start[0] != CONV_ABSENT && row < rows;
            a_values[i] = there ? *(const Channels *)(g + p.g + row) : Channels{};
        }
#pragma unroll
        for (int i = 0; i < b_count; i++) {
            const int v = threadIdx.x + i * CUDA_CONV_BLOCK;
            if (!is_one(v, b_vectors)) break;
            const OutputPixel &p = pixels[v / b_row];
            const WeightColumn &column = columns[v % b_row];
            b_values[i] = meets(c, p, column) ? *(const Channels *)(x + p.x + column.x) : Channels{};
        }
    }
    static INFINIOP_INLINE void put(T *to, Channels values) {
#pragma unroll
        for (T &value : values.lane) value = Tile::prepare(value);
        *(Channels *)to = values;
    }
    INFINIOP_INLINE void commit(T *panel_a, T *panel_b) {
        static_assert(!Tile::k_innermost, "vectors are of rows and columns");
#pragma unroll
        for (int i = 0; i < a_count; i++) {
            const int v = threadIdx.x + i * CUDA_CONV_BLOCK;
            if (is_one(v, a_vectors)) put(panel_a + Tile::a_at(v / a_row, v % a_row * together), a_values[i]);
        }
#pragma unroll
        for (int i = 0; i < b_count; i++) {
            const int v = threadIdx.x + i * CUDA_CONV_BLOCK;
            if (is_one(v, b_vectors)) put(panel_b + Tile::b_at(v / b_row, v % b_row * together), b_values[i]);
        }
    }
};

template <class Tile, template <class> class Panels> INFINIOP_INLINE void grad_weight_tile(
    const CudaConvGradWeight &a) {
    alignas(32) __shared__ T panel_a[2][Tile::a_size], panel_b[2][Tile::b_size];
    __shared__ OutputPixel pixels[CUDA_CONV_CHUNK + Tile::depth];  // the last are always absent
    constexpr int together = Panels<Tile>::together, vectors = Tile::columns / together;
    __shared__ WeightColumn columns[vectors];
    static_assert(CUDA_CONV_CHUNK == CUDA_CONV_BLOCK && Tile::columns <= CUDA_CONV_BLOCK, "one of each per thread");
    const CudaConv &c = a.conv;

    __shared__ WeightBlock block;
    if (threadIdx.x == 0) write_block<Tile>(block, a);
    __syncthreads();
    if (threadIdx.x < Tile::depth) pixels[CUDA_CONV_CHUNK + threadIdx.x].start[0] = CONV_ABSENT;
    if (threadIdx.x < vectors)
        write_column(columns[threadIdx.x], c, block.column + threadIdx.x * together, together > 1);

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
            Panels<Tile> next;
            next.fetch(c, pixels, columns, block.rows);
            next.commit(panel_a[0], panel_b[0]);
            __syncthreads();
            static_assert(CUDA_CONV_CHUNK <= TENSOR_CORE_RUN, "a chunk is a run");
            for (int s = 0; s < steps; s++) {
                const int now = s & 1;
                next.fetch(c, pixels + (s + 1) * Tile::depth, columns, block.rows);
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

// total = (((from + slot 0) + slot 1) + ...), rounded once where it goes to grad_weight; a thread has some elements of
// one output channel.
INFINIOP_INLINE void reduce_elements(const CudaConvGradWeight &a) {
    constexpr int many = CUDA_CONV_REDUCED, step = CUDA_CONV_BLOCK;
    const CudaConv &c = a.conv;
    const CudaConvView &v = c.view[CUDA_CONV_GRAD_WEIGHT];
    const int64_t columns = c.cin * c.taps, slot = c.groups * a.rows * a.columns;
    int64_t channel = block_number(a.first_block);
    const int64_t first = take(channel, (columns + many * step - 1) / (many * step)) * (many * step) + threadIdx.x;
    int64_t group = channel;
    const int64_t row = take(group, c.cout);
    const S *const slots = (const S *)a.slots + (group * a.rows + row) * a.columns;
    S *const total = (S *)a.total + (group * a.rows + row) * a.columns;
    T *out[many];
    int64_t at[many];  // in the matrix
    S sum[many];
#pragma unroll
    for (int i = 0; i < many; i++) {
        const int64_t column = first + i * step < columns ? first + i * step : 0;  // past the last, not written
        int64_t ci = column, tap = take(ci, c.taps);
        at[i] = a.by_channels ? tap * c.cin + ci : column;
        out[i] = (T *)v.data + channel * v.n;
        if (a.together) {
            out[i] += column;
        } else {
            int64_t k[3];
            for (int d = 2; d >= 0; d--) k[d] = take(tap, c.axis[d].kernel);
            out[i] += ci * v.channel + offset(v, k);
        }
        // A chain whose last product underflows is -0, but 0 where absent pixels follow, as more do in larger panels:
        // so what it is added to is never -0.
        sum[i] = a.from == CUDA_CONV_TENSOR  ? to_compute(*out[i]) + S(0)
                 : a.from == CUDA_CONV_TOTAL ? total[at[i]] + S(0)
                                             : S(0);
    }
#pragma unroll 2
    for (int64_t unit = 0; unit < a.wave; unit++)
#pragma unroll
        for (int i = 0; i < many; i++) sum[i] += slots[unit * slot + at[i]];
#pragma unroll
    for (int i = 0; i < many; i++) {
        if (first + i * step >= columns) break;
        if (a.to == CUDA_CONV_TOTAL) total[at[i]] = sum[i];
        else *out[i] = from_compute<T>(sum[i]);
    }
}

}  // namespace
}  // namespace INFINIOP_ISA
