// grad_input by tiles: input channels by the input pixels of a phase, counted over the batch, summed over (tap, co).
//   grad_input[n, ci, i] = sum over k, co of weight[co, ci, k] * grad_output[n, co, (i + before - k*dilation) / stride]
// All pixels of a phase meet the same taps, so no product is with a pixel between two windows. An output has one phase,
// whose neighbours meet pixels `step` apart.
#pragma once
#include "conv_direct.cuh"
#include "conv_tensor_cores.cuh"

namespace INFINIOP_ISA {
namespace {

// Place `number` of a dense sum: of tap and channel, as packed weights have them.
INFINIOP_INLINE void write_term(const CudaConvGradInput &a, int64_t number) {
    const CudaConvView &v = a.conv.view[CUDA_CONV_GRAD_OUTPUT];
    CudaConvTerm term = {};
    const int64_t at = number, co = take(number, a.conv.cout);
    for (int d = 2; d >= 0; d--) term.back[d] = int(take(number, a.conv.axis[d].kernel)) * int(a.conv.axis[d].hop);
    term.offset = co * v.channel - offset(v, term.back);
    a.terms[at] = term;
}

INFINIOP_INLINE int64_t offset_of_tap(const CudaConv &c, int64_t tap) {
    int64_t k[3];
    for (int d = 2; d >= 0; d--) k[d] = take(tap, c.axis[d].kernel);
    return offset(c.view[CUDA_CONV_WEIGHT], k);
}

// Weights as [group][tap][co][ci], so that a tile's rows lie side by side. inf and NaN become 0: they would meet the
// zeros that stand for pixels outside.
INFINIOP_INLINE void pack_weight_block(const CudaConvGradInput &a) {
    const CudaConv &c = a.conv;
    const CudaConvView &v = c.view[CUDA_CONV_WEIGHT];
    constexpr int rows = CUDA_CONV_PACK_ROWS, depth = CUDA_CONV_PACK_DEPTH;
    const int64_t number = block_number(a.first_block);
    int64_t group = number;
    const int64_t first_co = take(group, a.depth / depth) * depth, tap = take(group, a.packed_taps);
    const int64_t ci = take(group, a.rows / rows) * rows + threadIdx.x % rows;
    const T *from = (const T *)v.data + group * c.weight_group + ci * v.channel;
    T *to = (T *)a.packed + ((group * a.packed_taps + tap) * a.depth) * a.rows + ci;
    int64_t at_tap = offset_of_tap(c, tap);
    if (a.dense && number * depth < a.depth && threadIdx.x < depth) write_term(a, first_co + threadIdx.x);
    __shared__ int nonfinite;
    if (threadIdx.x == 0) nonfinite = 0;
    __syncthreads();
    for (int i = threadIdx.x / rows; i < depth; i += CUDA_CONV_BLOCK / rows) {
        int64_t co = first_co + i;
        bool there = ci < c.cin && co < c.cout;
        if (a.dense) {
            int64_t number = co;
            co = take(number, c.cout);
            there = ci < c.cin && number < c.taps;
            at_tap = offset_of_tap(c, number);
        }
        T weight = there ? from[co * v.n + at_tap] : T{};
        S value = to_compute(weight);
        if (!(value - value == 0)) {
            nonfinite = 1;
            weight = T{};
        }
        to[(first_co + i) * a.rows] = weight;
    }
    __syncthreads();
    if (threadIdx.x == 0) a.nonfinite[number] = nonfinite;
}

// What a block computes: a tile of input channels by pixels of a phase, from `row` and `first` on. Pixels are counted
// over the batch. part: of the sum over (tap, co), where blocks share it: where its steps begin, and how many they are.
struct InputBlock {
    int64_t row, first, group, part;
    int tap[3], co, steps;
    ConvAxisPhaseOf<int> axis[3];
};

template <class Tile> INFINIOP_INLINE void write_block(InputBlock &block, const CudaConvGradInput &a) {
    int64_t number = block_number(a.first_block);
    block.row = take(number, a.row_tiles) * Tile::rows;
    block.first = a.first_column + take(number, a.column_tiles) * Tile::columns;
    for (int d = 2; d >= 0; d--)
        block.axis[d] = conv_axis_phase(a.conv.axis[d], int(take(number, a.conv.axis[d].phases)));
    block.group = take(number, a.conv.groups);
    block.part = number;
}
INFINIOP_INLINE int64_t pixels_of(const CudaConv &c, const InputBlock &block) {
    return c.batch * block.axis[0].size * block.axis[1].size * block.axis[2].size;
}
INFINIOP_INLINE int taps_of(const InputBlock &block) {
    return block.axis[0].taps * block.axis[1].taps * block.axis[2].taps;
}

// A pixel of the phase: its sample and where it is there.
struct PhasePixel {
    int64_t n;
    int at[3];
    INFINIOP_INLINE PhasePixel(const InputBlock &block, int column) : n(block.first + column) {
        for (int d = 2; d >= 0; d--) at[d] = int(take(n, block.axis[d].size));
    }
};

// Where sums of one pixel go: its place in grad_input, of which `to` is the group's channel 0.
struct PixelOfResult {
    int64_t n;
    int pixel[3];
    T *to;
    INFINIOP_INLINE PixelOfResult(const CudaConv &c, const InputBlock &block, const PhasePixel &at) : n(at.n) {
        const CudaConvView &v = c.view[CUDA_CONV_GRAD_INPUT];
        for (int d = 0; d < 3; d++) pixel[d] = block.axis[d].first + at.at[d] * int(c.axis[d].stride);
        to = (T *)v.data + n * v.n + block.group * c.cin * v.channel + offset(v, pixel);
    }
    INFINIOP_INLINE void store(const CudaConv &c, const InputBlock &block, int64_t ci, S sum) const {
        T &element = to[ci * c.view[CUDA_CONV_GRAD_INPUT].channel];
        element = from_compute<T>(finished(c, block.group * c.cin + ci, sum, element));
    }
    // nonfinite: some weight is inf or NaN, for which the sum has 0, so what it reaches is summed again.
    INFINIOP_INLINE void store(const CudaConv &c, const InputBlock &block, int64_t ci, S sum, bool nonfinite) const {
        if (nonfinite) {
            bool reached;
            S exact = input_sum<int>(c, n, block.group, ci, pixel, reached);
            if (reached) sum = exact;
        }
        store(c, block, ci, sum);
    }
};

// A column: which output pixel the phase's first tap meets, far outside for a pixel past the last, and where channel 0
// of the group is there.
struct alignas(16) InputColumn {
    int64_t g;
    int output[3], padding;
};

INFINIOP_INLINE void write_column(InputColumn &column, const CudaConv &c, const InputBlock &block, int number) {
    const CudaConvView &v = c.view[CUDA_CONV_GRAD_OUTPUT];
    const PhasePixel pixel(block, number);
    for (int d = 0; d < 3; d++) column.output[d] = block.axis[d].output + pixel.at[d] * int(c.axis[d].step);
    column.g = pixel.n * v.n + block.group * c.cout * v.channel + offset(v, column.output);
    if (pixel.n >= c.batch) column.output[0] = INT32_MIN / 2;
}

template <class Tile> INFINIOP_INLINE int steps_of_tap(const CudaConvGradInput &a) {
    return (int(a.conv.cout) + Tile::depth - 1) / Tile::depth;
}

template <class Tile> INFINIOP_INLINE void write_part(InputBlock &block, const CudaConvGradInput &a) {
    const int64_t all = steps_of_tap<Tile>(a) * taps_of(block);
    int64_t first = all * block.part / a.parts;
    block.steps = int(all * (block.part + 1) / a.parts - first);
    if (!block.steps) return;  // there may be no tap at all
    block.co = int(take(first, steps_of_tap<Tile>(a))) * Tile::depth;
    for (int d = 2; d >= 0; d--) block.tap[d] = int(take(first, block.axis[d].taps));
}

// Walks over (tap, co) in steps of a panel's depth, one tap after the other or, where it is dense, over all of its
// places. A thread fills panel b for one pixel.
template <class Tile, bool dense> struct InputPanels {
    static constexpr int lanes = 16 / sizeof(T), a_row = Tile::rows / lanes, a_vectors = a_row * Tile::depth;
    static constexpr int a_count = (a_vectors + CUDA_CONV_BLOCK - 1) / CUDA_CONV_BLOCK;
    static constexpr int b_step = CUDA_CONV_BLOCK / Tile::columns, b_count = Tile::depth / b_step;
    typedef Vector<T, lanes> Lanes;
    const T *pixel, *weights;
    int tap[3], co;
    int left;  // output channels; none where the tap meets no pixel
    Lanes a_values[a_count];
    T b_values[b_count];

    INFINIOP_INLINE void start(const CudaConvGradInput &a, const InputBlock &block, const InputColumn &column) {
        if (!dense) return start_tap(a, block, column);
        co = threadIdx.x / Tile::columns;
        left = int(a.conv.taps * a.conv.cout);
        pixel = data_of<const T>(a.conv, CUDA_CONV_GRAD_OUTPUT) + column.g;
        weights = (const T *)a.packed + block.group * a.depth * a.rows + block.row;
    }
    INFINIOP_INLINE void start_tap(const CudaConvGradInput &a, const InputBlock &block, const InputColumn &column) {
        const CudaConv &c = a.conv;
        const CudaConvView &v = c.view[CUDA_CONV_GRAD_OUTPUT];
        const int first = threadIdx.x / Tile::columns;
        int64_t number = block.group, g = column.g + first * v.channel;
        bool there = true;
        for (int d = 0; d < 3; d++) {
            int back = tap[d] * int(c.axis[d].hop);
            there &= unsigned(column.output[d] - back) < unsigned(c.axis[d].size_out);
            g -= back * v.space[d];
            number = number * c.axis[d].kernel + block.axis[d].tap + tap[d] * c.axis[d].period;
        }
        co = 0;
        left = there ? int(c.cout) - first : 0;
        pixel = data_of<const T>(c, CUDA_CONV_GRAD_OUTPUT) + g;
        weights = (const T *)a.packed + number * a.depth * a.rows + block.row;
    }
    // At the first step of a part, where no axis is dense.
    INFINIOP_INLINE void start_part(const CudaConvGradInput &a, const InputBlock &block, const InputColumn &column) {
        for (int d = 0; d < 3; d++) tap[d] = block.tap[d];
        start_tap(a, block, column);
        co = block.co;
        pixel += co * a.conv.view[CUDA_CONV_GRAD_OUTPUT].channel;
        weights += co * a.rows;
    }
    // co counts places of (tap, co).
    INFINIOP_INLINE void fetch_terms(const CudaConvGradInput &a, const InputColumn &column) {
#pragma unroll
        for (int i = 0; i < b_count; i++) {
            const int place = co + i * b_step;
            bool there = place < left;
            const CudaConvTerm term = a.terms[there ? place : 0];
            for (int d = 0; d < 3; d++)
                there &= unsigned(column.output[d] - term.back[d]) < unsigned(a.conv.axis[d].size_out);
            b_values[i] = there ? pixel[term.offset] : T{};
        }
    }
    INFINIOP_INLINE void fetch(const CudaConvGradInput &a, const InputBlock &block, const InputColumn &column) {
        if (dense) fetch_terms(a, column);
        const int64_t step = b_step * a.conv.view[CUDA_CONV_GRAD_OUTPUT].channel;
#pragma unroll
        for (int i = 0; i < a_count; i++) {
            int v = threadIdx.x + i * CUDA_CONV_BLOCK;
            if (a_vectors % CUDA_CONV_BLOCK == 0 || v < a_vectors)
                a_values[i] = *(const Lanes *)(weights + v / a_row * a.rows + v % a_row * lanes);
        }
        if (!dense) {
#pragma unroll
            for (int i = 0; i < b_count; i++, pixel += step) b_values[i] = i * b_step < left - co ? *pixel : T{};
        }
        co += Tile::depth;
        weights += Tile::depth * a.rows;
        if (dense) return;
        if (co < a.conv.cout) return;
        for (int d = 2; d >= 0; d--) {
            if (++tap[d] < block.axis[d].taps) break;
            tap[d] = 0;
        }
        start_tap(a, block, column);
    }
    INFINIOP_INLINE void commit(T *panel_a, T *panel_b) {
#pragma unroll
        for (int i = 0; i < a_count; i++) {
            int v = threadIdx.x + i * CUDA_CONV_BLOCK;
#pragma unroll
            for (int j = 0; j < lanes; j++) a_values[i].lane[j] = Tile::prepare(a_values[i].lane[j]);
            if (a_vectors % CUDA_CONV_BLOCK == 0 || v < a_vectors)
                *(Lanes *)(panel_a + Tile::a_at(v / a_row, v % a_row * lanes)) = a_values[i];
        }
#pragma unroll
        for (int i = 0; i < b_count; i++)
            panel_b[Tile::b_at(threadIdx.x / Tile::columns + i * b_step, threadIdx.x % Tile::columns)] =
                Tile::prepare(b_values[i]);
    }
};

// How a tile's sums leave through shared memory: in rounds of so many rows, `pitch` apart.
template <class Tile> struct InputStage {
    static constexpr int pitch = Tile::columns + 16 / sizeof(S);
    static constexpr int rounds = Tile::rows * pitch * sizeof(S) > 40 * 1024 ? 2 : 1, rows = Tile::rows / rounds;
    static constexpr int bytes = rows * pitch * sizeof(S);
};

// How a tile's kernel takes the sums over (tap, co): one tap after the other; dense, where its places are one axis; a
// part of them. Each is a kernel of its own, since in one with others it would take up to a fifth longer.
enum InputSums { INPUT_WHOLE, INPUT_DENSE, INPUT_PART };

// The sums over all steps of (tap, co), or a part's. panels: room for two of each.
template <InputSums kind, class Tile>
INFINIOP_INLINE void sum_input_tile(Tile &sums, const CudaConvGradInput &a, const InputBlock &block,
                                    const InputColumn &column, T *panels) {
    constexpr bool dense = kind == INPUT_DENSE;
    T *panel_a = panels, *panel_b = panel_a + 2 * Tile::a_size;
    int steps = steps_of_tap<Tile>(a) * taps_of(block);
    if (dense) steps = (int(a.conv.cout) * taps_of(block) + Tile::depth - 1) / Tile::depth;
    if (kind == INPUT_PART) steps = block.steps;
    if (!steps) return;
    InputPanels<Tile, dense> next = {};
    if (kind == INPUT_PART) next.start_part(a, block, column);
    else next.start(a, block, column);
    next.fetch(a, block, column);
    next.commit(panel_a, panel_b);
    __syncthreads();
    for (int s = 0; s < steps; s++) {
        const int now = s & 1;
        if (s + 1 < steps) next.fetch(a, block, column);
        sums.multiply(panel_a + now * Tile::a_size, panel_b + now * Tile::b_size);
        if ((s + 1) % (TENSOR_CORE_RUN / Tile::depth) == 0) sums.settle();
        if (s + 1 < steps) next.commit(panel_a + (1 - now) * Tile::a_size, panel_b + (1 - now) * Tile::b_size);
        __syncthreads();
    }
    sums.settle();
}

// Whether a weight of `rows` rows is inf or NaN; flag, in shared memory, is 0 before. Threads wait for each other
// before they read it.
INFINIOP_INLINE void find_nonfinite(int &flag, const CudaConvGradInput &a, int64_t group, int64_t row, int rows) {
    const int64_t flags = a.packed_taps * (a.depth / CUDA_CONV_PACK_DEPTH);  // of PACK_ROWS rows
    const int32_t *from = a.nonfinite + (group * a.rows + row) / CUDA_CONV_PACK_ROWS * flags;
    for (int64_t i = threadIdx.x; i < (rows + CUDA_CONV_PACK_ROWS - 1) / CUDA_CONV_PACK_ROWS * flags;
         i += CUDA_CONV_BLOCK)
        if (from[i]) flag = 1;
}

// Sums to grad_input, by way of `stage`. nonfinite: see find_nonfinite.
template <class Tile>
INFINIOP_INLINE void store_input_tile(Tile &sums, const CudaConvGradInput &a, const InputBlock &block, S *stage,
                                      const int &nonfinite) {
    typedef InputStage<Tile> Stage;
    const CudaConv &c = a.conv;
    const int number = threadIdx.x % Tile::columns;
    const PixelOfResult at(c, block, PhasePixel(block, number));
#pragma unroll 1
    for (int round = 0; round < Stage::rounds; round++) {
        if (round) __syncthreads();
        sums.store(stage, Stage::pitch, round * Stage::rows, Stage::rows);
        __syncthreads();
        for (int i = threadIdx.x / Tile::columns; i < Stage::rows; i += CUDA_CONV_BLOCK / Tile::columns) {
            const int64_t ci = block.row + round * Stage::rows + i;
            if (at.n >= c.batch || ci >= c.cin) break;
            at.store(c, block, ci, stage[i * Stage::pitch + number], nonfinite);
        }
    }
}

template <class Tile, InputSums kind> INFINIOP_INLINE void grad_input_tile(const CudaConvGradInput &a) {
    static_assert(!Tile::k_innermost, "weights are packed along ci");
    constexpr int panel_bytes = 2 * (Tile::a_size + Tile::b_size) * sizeof(T);
    constexpr int stage_bytes = kind == INPUT_PART ? 0 : InputStage<Tile>::bytes;
    alignas(32) __shared__ unsigned char memory[panel_bytes > stage_bytes ? panel_bytes : stage_bytes];

    __shared__ InputBlock block;
    __shared__ InputColumn columns[Tile::columns];
    __shared__ int nonfinite;
    if (threadIdx.x == 0) {
        write_block<Tile>(block, a);
        if (kind == INPUT_PART) write_part<Tile>(block, a);
        nonfinite = 0;
    }
    __syncthreads();
    if (block.first >= pixels_of(a.conv, block)) return;  // a phase of fewer than the largest
    if (threadIdx.x < Tile::columns) write_column(columns[threadIdx.x], a.conv, block, threadIdx.x);
    __syncthreads();

    Tile sums;
    sums.clear();
    sum_input_tile<kind>(sums, a, block, columns[threadIdx.x % Tile::columns], (T *)memory);
    if (kind == INPUT_PART) {
        const int64_t row = (block.part * a.conv.groups + block.group) * a.rows + block.row;
        sums.store((S *)a.slots + row * a.columns + block.first - a.first_column, a.columns);
        return;
    }
    find_nonfinite(nonfinite, a, block.group, block.row, Tile::rows);
    store_input_tile(sums, a, block, (S *)memory, nonfinite);
}

// grad_input = ((part 0 + part 1) + ...), a thread per pixel of some channels.
INFINIOP_INLINE void sum_input_parts(const CudaConvGradInput &a) {
    constexpr int rows = CUDA_CONV_SUMMED_ROWS;
    const CudaConv &c = a.conv;
    int64_t number = block_number(a.first_block);
    const int column = int(take(number, a.column_tiles)) * CUDA_CONV_BLOCK + threadIdx.x;
    InputBlock block = {};
    block.first = a.first_column;
    block.row = take(number, a.row_tiles) * rows;
    block.group = number;
    for (int d = 0; d < 3; d++) block.axis[d] = conv_axis_phase(c.axis[d], 0);
    __shared__ int nonfinite;
    if (threadIdx.x == 0) nonfinite = 0;
    __syncthreads();
    find_nonfinite(nonfinite, a, block.group, block.row, rows);
    __syncthreads();
    const PixelOfResult at(c, block, PhasePixel(block, column));
    if (column >= a.columns || at.n >= c.batch) return;
    const S *from = (const S *)a.slots + (block.group * a.rows + block.row) * a.columns + column;
    const int64_t next_part = c.groups * a.rows * a.columns;
    const int there = int(min(c.cin - block.row, int64_t(rows)));
    if (nonfinite) {  // apart, so that registers and code of that are not multiplied by rows
#pragma unroll 1
        for (int i = 0; i < there; i++, from += a.columns) {
            S sum = *from;
            for (int64_t part = 1; part < a.parts; part++) sum += from[part * next_part];
            at.store(c, block, block.row + i, sum, true);
        }
        return;
    }
    S sum[rows];
#pragma unroll
    for (int i = 0; i < rows; i++) sum[i] = from[i * a.columns];
#pragma unroll 1
    for (int64_t part = 1; part < a.parts; part++)
#pragma unroll
        for (int i = 0; i < rows; i++) sum[i] += from[part * next_part + i * a.columns];
#pragma unroll
    for (int i = 0; i < rows; i++)
        if (i < there) at.store(c, block, block.row + i, sum[i]);
}

}  // namespace
}  // namespace INFINIOP_ISA
