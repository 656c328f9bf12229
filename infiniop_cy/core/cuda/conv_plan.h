// A convolution and its gradients on a GPU: which kernels run, on which tiles, in how much workspace. What decides bits
// (which sums there are and where they are cut) follows from the sizes of one sample; tiles and waves, which decide
// none, also from how many there are and from the device.
#pragma once
#include <stddef.h>

#include <utility>

#include "../../kernels/cuda_conv_arguments.h"
#include "../base/support.h"
#include "cold.h"
#include "../../kernels/table.h"

struct CudaConvProblem {
    int dtype;  // DTYPE_F16, DTYPE_BF16, DTYPE_F32 or DTYPE_F64
    int accumulate, tf32;
    int multiprocessors;
    int forward;                       // the output's problem, with exchanged roles
    int64_t batch, groups, cin, cout;  // channels of one group
    ConvAxis axis[3];
    int64_t step[3];                        // see CudaConvAxis
    int64_t strides[CUDA_CONV_TENSORS][5];  // elements: n, channel, space; for weights n is co, channel ci
};

enum : int64_t {
    CUDA_CONV_UNIT = 4096,                     // output pixels in one sum, at most
    CUDA_CONV_SHORT_UNIT = 512,                // likewise where weights are few, and of grad_bias
    CUDA_CONV_LINK = 1 << 20,                  // likewise where a chain goes through all of them
    CUDA_CONV_SHORT_IMAGE = 64,                // fewer output pixels than this: panels span samples
    CUDA_CONV_FEW_CHANNELS = 8,                // fewer rows or columns than this: no tiles
    CUDA_CONV_FEW_SUMMED = 2,                  // likewise of output channels in grad_input
    CUDA_CONV_FEW_TERMS = 8,                   // likewise of taps and channels, where those are one axis
    CUDA_CONV_PARTED_TERMS = 1024,             // products of a grad_input's sum that is made in parts
    CUDA_CONV_PART_TERMS = 256,                // and of each of them, at least
    CUDA_CONV_PARTS = 8,                       // of a sum, at most
    CUDA_CONV_PART_BLOCKS = 450,               // small tiles of a small batch that keep all multiprocessors busy
    CUDA_CONV_PART_BATCH = 8,                  // that batch
    CUDA_CONV_SLOT_BYTES = int64_t(64) << 20,  // sums of a wave of units or pixels; more would not stay in the L2 cache
    CUDA_CONV_NARROW = int64_t(1) << 28,       // along one axis: sums of a few stay below 2^31
    CUDA_CONV_FEW_PIXELS = INT32_MAX - CUDA_CONV_BLOCK,
    CUDA_CONV_GRID = int64_t(1) << 30,  // blocks of one launch
    CUDA_CONV_ALIGN = 256,              // bytes, of the part of a workspace that is used
};

// ---- the geometry

INFINIOP_COLD static inline int64_t cuda_conv_tiles_of(int64_t n, int64_t tile) { return n / tile + (n % tile != 0); }

// a *= b, or a is -1 from then on.
INFINIOP_COLD static inline void cuda_conv_multiply(int64_t *a, int64_t b) {
    if (*a < 0 || b < 0 || mul_overflows(*a, b, a)) *a = -1;
}

// States the problem of an output as that of a grad_input, as the CPU does (core/conv/forward.pxi):
//
//   output[n, co, o] = sum over ci, k  input[n, ci, o*stride + k*dilation - before] * weight[co, ci, k]
//
// The input takes the place of grad_output, the output that of grad_input, and ci that of co. Taps lead the other way:
// their dilation is negative. The image that is written has one phase, and its stride is the step between the pixels
// that are read.
INFINIOP_COLD static inline void cuda_conv_exchange_roles(CudaConvProblem *problem) {
    int64_t (*views)[5] = problem->strides;
    problem->forward = 1;
    std::swap(problem->cin, problem->cout);
    for (int d = 0; d < 3; d++) {
        ConvAxis *axis = &problem->axis[d];
        problem->step[d] = axis->stride;
        std::swap(axis->size_in, axis->size_out);
        axis->before = -axis->before;
        axis->dilation = axis->hop = -axis->dilation;
        axis->stride = axis->common = axis->period = 1;
        axis->inverse = 0;
        axis->phases = axis->size_in > 0;
    }
    for (int i = 0; i < 5; i++) {
        views[CUDA_CONV_GRAD_INPUT][i] = views[CUDA_CONV_GRAD_OUTPUT][i];
        views[CUDA_CONV_GRAD_OUTPUT][i] = views[CUDA_CONV_INPUT][i];
    }
    std::swap(views[CUDA_CONV_WEIGHT][0], views[CUDA_CONV_WEIGHT][1]);
}

// Whether i = o*stride + k*dilation - before, or o*step, and all that is counted on the way stay far from 2^31.
INFINIOP_COLD static inline bool cuda_conv_is_narrow(const CudaConvAxis *axis) {
    const int64_t dilation = llabs(axis->dilation);
    int64_t reach = axis->size_out - 1, steps = axis->size_in - 1, span = axis->kernel - 1;
    if (axis->size_out == 0) reach = 0;
    if (axis->size_in == 0) steps = 0;
    cuda_conv_multiply(&reach, axis->stride);
    cuda_conv_multiply(&steps, axis->step);
    cuda_conv_multiply(&span, dilation);
    const int64_t values[] = {
        axis->size_in, llabs(axis->before), axis->size_out, axis->stride, axis->step, dilation, reach, steps, span};
    for (int64_t value : values)
        if (value < 0 || value >= CUDA_CONV_NARROW) return false;
    return true;
}

INFINIOP_COLD static inline void cuda_conv_geometry(const CudaConvProblem *problem, CudaConv *conv) {
    *conv = CudaConv();
    conv->batch = problem->batch, conv->groups = problem->groups, conv->cin = problem->cin, conv->cout = problem->cout;
    conv->accumulate = problem->accumulate != 0;
    conv->taps = conv->pixels_in = conv->pixels_out = 1;
    for (int d = 0; d < 3; d++) {
        CudaConvAxis *axis = &conv->axis[d];
        *static_cast<ConvAxis *>(axis) = problem->axis[d];
        axis->step = problem->step[d];
        cuda_conv_multiply(&conv->taps, axis->kernel);
        cuda_conv_multiply(&conv->pixels_in, axis->size_in);
        cuda_conv_multiply(&conv->pixels_out, axis->size_out);
        conv->wide |= !cuda_conv_is_narrow(axis);
    }
    int64_t columns = conv->taps;
    cuda_conv_multiply(&columns, conv->cin);
    const int64_t counts[] = {columns, conv->cout, conv->pixels_in, conv->pixels_out};
    for (int64_t count : counts) conv->wide |= count < 0 || count >= CUDA_CONV_FEW_PIXELS;
    for (CudaConvAxis &axis : conv->axis)
        if (!conv->wide && axis.size_out) axis.out = cuda_divisor(uint32_t(axis.size_out));
}

// Whether pixels (or taps) are evenly apart, so that their number tells where one is.
INFINIOP_COLD static inline bool cuda_conv_is_in_line(const CudaConvView *view, const int64_t *size) {
    const int64_t line = size[2] * view->space[2], plane = size[1] * line;
    return (size[1] == 1 || view->space[1] == line) && (size[0] == 1 || view->space[0] == plane);
}

// ---- plans; bytes and blocks are -1 where 64 bits do not count them

struct CudaConvInputPlan {
    int kernel;
    int64_t blocks, pack_blocks, packed_bytes, term_bytes, bytes;
    int64_t tile_columns, slots_at;
    CudaConvGradInput arguments;
};

struct CudaConvWeightPlan {
    int kernel;
    int64_t tiles, slot_bytes, slots, bytes;
    CudaConvGradWeight arguments;
};

INFINIOP_COLD static inline int cuda_conv_arithmetic(const CudaConvProblem *problem, bool tf32) {
    if (problem->dtype == DTYPE_F64) return CUDA_CONV_DOUBLE;
    if (problem->dtype != DTYPE_F32) return CUDA_CONV_16_BIT;
    return tf32 ? CUDA_CONV_TF32 : CUDA_CONV_FLOAT;
}

INFINIOP_COLD static inline int cuda_conv_item(const CudaConvProblem *problem) {
    return problem->dtype == DTYPE_F64 ? 8 : problem->dtype == DTYPE_F32 ? 4 : 2;
}

// Rounds of blocks on all multiprocessors, times the work of one. A small tile loads more for each product.
INFINIOP_COLD static inline double cuda_conv_cost(const CudaConvProblem *problem, int64_t blocks, int arithmetic,
                                                  bool small) {
    const CudaConvTile *tile = &cuda_conv_tiles[arithmetic][small];
    const int64_t at_once = problem->multiprocessors > 0 ? problem->multiprocessors : 1;
    return double(cuda_conv_tiles_of(blocks, at_once)) * tile->rows * tile->columns * (small ? 1.5 : 1.0);
}

// Whether (tap, co) is summed as one axis, by the small tiles: where panels of one tap would be mostly empty. With a
// stride a phase has some of the taps, even where one pixel is the only phase.
INFINIOP_COLD static inline bool cuda_conv_is_dense(const CudaConv *conv, int arithmetic) {
    const int64_t depth = cuda_conv_tiles[arithmetic][0].depth;
    if (conv->wide || conv->cout >= depth) return false;
    for (const CudaConvAxis &axis : conv->axis)
        if (axis.stride > 1) return false;
    const int64_t terms = conv->taps * conv->cout;
    return terms >= CUDA_CONV_FEW_TERMS && conv->taps >= 2 * cuda_conv_tiles_of(terms, depth);
}

// In how many parts (tap, co) is summed: where a sample's pixels are few tiles with long sums, which would leave
// multiprocessors idle. This decides bits, so it sees neither the batch nor the device.
INFINIOP_COLD static inline int64_t cuda_conv_input_parts(const CudaConv *conv, int arithmetic) {
    if (arithmetic == CUDA_CONV_TF32) return 1;
    for (const CudaConvAxis &axis : conv->axis)
        if (axis.phases > 1) return 1;
    const CudaConvTile *tile = &cuda_conv_tiles[arithmetic][1];
    int64_t pixels = CUDA_CONV_PART_BATCH, terms = conv->taps, parts = CUDA_CONV_PARTS;
    cuda_conv_multiply(&pixels, conv->pixels_in);
    cuda_conv_multiply(&terms, conv->cout);
    int64_t tiles = conv->groups;
    cuda_conv_multiply(&tiles, cuda_conv_tiles_of(conv->cin, tile->rows));
    cuda_conv_multiply(&tiles, pixels < 0 ? -1 : cuda_conv_tiles_of(pixels, tile->columns));
    if (tiles < 0 || terms < CUDA_CONV_PARTED_TERMS) return 1;
    for (int64_t most : {CUDA_CONV_PART_BLOCKS / tiles, terms / CUDA_CONV_PART_TERMS})
        if (most < parts) parts = most;
    return parts > (arithmetic == CUDA_CONV_16_BIT ? 2 : 1) ? parts : 1;  // two do not pay where sums are quick
}

// Room for the sums of the parts, of as many pixels as they leave room for at a time.
INFINIOP_COLD static inline void cuda_conv_plan_parts(CudaConvInputPlan *plan, int arithmetic) {
    CudaConvGradInput *a = &plan->arguments;
    int64_t column_bytes = arithmetic == CUDA_CONV_DOUBLE ? 8 : 4;
    for (int64_t size : {a->parts, a->conv.groups, a->rows}) cuda_conv_multiply(&column_bytes, size);
    int64_t tile_bytes = column_bytes, tiles = a->column_tiles;
    cuda_conv_multiply(&tile_bytes, plan->tile_columns);
    const int64_t most = tile_bytes > 0 ? CUDA_CONV_SLOT_BYTES / tile_bytes : 1;
    if (tiles > most) tiles = most > 1 ? most : 1;
    a->columns = tiles * plan->tile_columns;
    plan->slots_at = cuda_conv_tiles_of(plan->bytes, CUDA_CONV_ALIGN) * CUDA_CONV_ALIGN;
    int64_t bytes = tile_bytes;
    cuda_conv_multiply(&bytes, tiles);
    if (plan->bytes < 0 || bytes < 0 || add_overflows(plan->slots_at, bytes, &plan->bytes)) plan->bytes = -1;
}

// Tiles of the size that takes less time, of whole sums or of parts.
INFINIOP_COLD static inline void cuda_conv_plan_input_tiles(const CudaConvProblem *problem, CudaConvInputPlan *plan,
                                                            int arithmetic, int64_t pixels) {
    CudaConvGradInput *a = &plan->arguments;
    const CudaConv *conv = &a->conv;
    const bool tf32 = arithmetic == CUDA_CONV_TF32, dense = a->dense != 0;
    a->parts = dense ? 1 : cuda_conv_input_parts(conv, arithmetic);
    double least = 0;
    for (int small = dense ? 1 : 0; small < (tf32 ? 1 : 2); small++) {
        const CudaConvTile *tile = &cuda_conv_tiles[arithmetic][small];
        int64_t row_tiles = cuda_conv_tiles_of(conv->cin, tile->rows), blocks = row_tiles;
        int64_t column_tiles = cuda_conv_tiles_of(pixels < 0 ? 0 : pixels, tile->columns);
        cuda_conv_multiply(&blocks, pixels < 0 ? -1 : column_tiles);
        for (int d = 0; d < 3; d++) cuda_conv_multiply(&blocks, conv->axis[d].phases);
        cuda_conv_multiply(&blocks, conv->groups);
        cuda_conv_multiply(&blocks, a->parts);
        const double cost = cuda_conv_cost(problem, blocks, arithmetic, small);
        if (small && !dense && cost >= least) break;
        least = cost;
        const int first = a->parts == 1 ? CUDA_CONV_INPUT_LARGE : CUDA_CONV_INPUT_PART_LARGE;
        plan->kernel = dense ? int(CUDA_CONV_INPUT_DENSE) : tf32 ? int(CUDA_CONV_INPUT_TF32) : first + small;
        plan->blocks = blocks;
        plan->tile_columns = tile->columns;
        a->row_tiles = row_tiles, a->column_tiles = column_tiles;
        a->rows = row_tiles * tile->rows;
    }
}

// A thread for some pixels of a few channels, which tiles would be mostly empty for.
INFINIOP_COLD static inline void cuda_conv_plan_input_few(CudaConvInputPlan *plan, int64_t pixels) {
    CudaConvGradInput *a = &plan->arguments;
    plan->kernel = CUDA_CONV_INPUT_FEW;
    a->row_tiles = cuda_conv_tiles_of(a->conv.cin, CUDA_CONV_FEW_ROWS);
    a->column_tiles = cuda_conv_tiles_of(pixels, CUDA_CONV_FEW_COLUMNS * CUDA_CONV_BLOCK);
    plan->blocks = a->row_tiles;
    cuda_conv_multiply(&plan->blocks, a->column_tiles);
    for (int d = 0; d < 3; d++) cuda_conv_multiply(&plan->blocks, a->conv.axis[d].phases);
    cuda_conv_multiply(&plan->blocks, a->conv.groups);
}

INFINIOP_COLD static inline void cuda_conv_plan_input(const CudaConvProblem *problem, CudaConvInputPlan *plan) {
    *plan = CudaConvInputPlan();
    CudaConvGradInput *a = &plan->arguments;
    cuda_conv_geometry(problem, &a->conv);
    const CudaConv *conv = &a->conv;
    const int64_t *out = problem->strides[CUDA_CONV_GRAD_INPUT];
    int64_t elements = conv->pixels_in, pixels = conv->batch;
    cuda_conv_multiply(&elements, conv->batch);
    cuda_conv_multiply(&elements, conv->groups);
    cuda_conv_multiply(&elements, conv->cin);
    plan->blocks = elements < 0 ? -1 : cuda_conv_tiles_of(elements, CUDA_CONV_BLOCK);
    a->parts = 1;
    if (elements == 0) return;
    for (int d = 0; d < 3; d++)  // of the largest phase
        cuda_conv_multiply(&pixels, cuda_conv_tiles_of(conv->axis[d].size_in, conv->axis[d].stride));
    a->dense = cuda_conv_is_dense(conv, cuda_conv_arithmetic(problem, false));
    const int arithmetic = cuda_conv_arithmetic(problem, problem->tf32 && !a->dense);
    if (conv->wide || conv->cin < CUDA_CONV_FEW_CHANNELS || (conv->cout < CUDA_CONV_FEW_SUMMED && !a->dense)) {
        const bool few = conv->cin > 1 ? conv->cin < CUDA_CONV_FEW_CHANNELS : conv->cout >= CUDA_CONV_FEW_CHANNELS;
        if (few && !conv->wide && pixels >= 0) return cuda_conv_plan_input_few(plan, pixels);
        plan->kernel = CUDA_CONV_INPUT_DIRECT;
        a->channels_innermost = llabs(out[1]) < llabs(out[4]);
        return;
    }
    cuda_conv_plan_input_tiles(problem, plan, arithmetic, pixels);
    const int64_t summed = a->dense ? conv->taps * conv->cout : conv->cout;
    a->packed_taps = a->dense ? 1 : conv->taps;
    a->depth = cuda_conv_tiles_of(summed, CUDA_CONV_PACK_DEPTH) * CUDA_CONV_PACK_DEPTH;
    plan->pack_blocks = conv->groups;
    cuda_conv_multiply(&plan->pack_blocks, a->rows / CUDA_CONV_PACK_ROWS);
    cuda_conv_multiply(&plan->pack_blocks, a->packed_taps);
    cuda_conv_multiply(&plan->pack_blocks, a->depth / CUDA_CONV_PACK_DEPTH);
    const int item = cuda_conv_item(problem);
    const int64_t block_bytes = CUDA_CONV_PACK_ROWS * CUDA_CONV_PACK_DEPTH * item;  // a multiple of CUDA_CONV_ALIGN
    plan->packed_bytes = plan->bytes = plan->pack_blocks;
    plan->term_bytes = a->dense ? a->depth * int64_t(sizeof(CudaConvTerm)) : 0;
    cuda_conv_multiply(&plan->packed_bytes, block_bytes);
    cuda_conv_multiply(&plan->bytes, block_bytes + int64_t(sizeof(int32_t)));
    if (plan->bytes >= 0 && add_overflows(plan->bytes, plan->term_bytes, &plan->bytes)) plan->bytes = -1;
    if (a->parts > 1) cuda_conv_plan_parts(plan, arithmetic);
}

// Units of one sample; or of all pixels, where a sample has few.
INFINIOP_COLD static inline CudaConvUnits cuda_conv_units(const CudaConv *conv, bool across_samples, int64_t most) {
    CudaConvUnits units = {};
    int64_t pixels = conv->batch;
    cuda_conv_multiply(&pixels, conv->pixels_out);
    if (pixels <= 0) return units;
    units.piece = across_samples ? pixels : conv->pixels_out;
    units.parts = cuda_conv_tiles_of(units.piece, most);
    units.part = cuda_conv_tiles_of(cuda_conv_tiles_of(units.piece, units.parts), CUDA_CONV_CHUNK) * CUDA_CONV_CHUNK;
    units.parts = cuda_conv_tiles_of(units.piece, units.part);  // rounded up, they may be fewer
    units.count = across_samples ? units.parts : conv->batch;
    if (!across_samples) cuda_conv_multiply(&units.count, units.parts);
    return units;
}

// Output pixels in one sum. Few weights are few tiles, and only short units then keep many multiprocessors busy; their
// slots are small, too.
INFINIOP_COLD static inline int64_t cuda_conv_unit(const CudaConv *conv, int64_t columns) {
    int64_t pixels = 64 * cuda_conv_tiles_of(conv->cout, 64);
    cuda_conv_multiply(&pixels, cuda_conv_tiles_of(columns, 64));
    cuda_conv_multiply(&pixels, conv->groups);
    if (pixels < 0 || pixels > CUDA_CONV_UNIT) return CUDA_CONV_UNIT;
    return pixels < CUDA_CONV_SHORT_UNIT ? int64_t(CUDA_CONV_SHORT_UNIT) : pixels;
}

// What a unit's sums cost that are written out and read again, relative to summing them; a model to be tuned.
INFINIOP_COLD static inline double cuda_conv_slot_cost(const CudaConvUnits *units, int arithmetic, bool direct) {
    const double pixels = double(units->part < units->piece ? units->part : units->piece);
    const int as_many_pixels[CUDA_CONV_ARITHMETICS] = {50, 100, 40, 40};
    return (direct ? 5 : as_many_pixels[arithmetic]) / (pixels + 1);
}

// Room for the total, and for the sums of a wave of units.
INFINIOP_COLD static inline void cuda_conv_plan_slots(CudaConvWeightPlan *plan, int arithmetic) {
    const CudaConvGradWeight *a = &plan->arguments;
    plan->slot_bytes = a->conv.groups;
    cuda_conv_multiply(&plan->slot_bytes, a->rows);
    cuda_conv_multiply(&plan->slot_bytes, a->columns);
    cuda_conv_multiply(&plan->slot_bytes, arithmetic == CUDA_CONV_DOUBLE ? 8 : 4);
    if (plan->slot_bytes > INT64_MAX - CUDA_CONV_ALIGN) plan->slot_bytes = -1;
    if (plan->slot_bytes < 0 || plan->tiles < 0 || a->units.count < 0) {
        plan->bytes = -1;
        return;
    }
    plan->slot_bytes = cuda_conv_tiles_of(plan->slot_bytes, CUDA_CONV_ALIGN) * CUDA_CONV_ALIGN;
    if (a->mode == CUDA_CONV_EACH && a->units.count > 0) {
        plan->slots = CUDA_CONV_SLOT_BYTES / plan->slot_bytes;
        if (plan->slots < 1) plan->slots = 1;
        if (plan->slots > a->units.count) plan->slots = a->units.count;
    }
    plan->bytes = plan->slot_bytes;
    cuda_conv_multiply(&plan->bytes, plan->slots + 1);
}

// Whether an image's channels lie so that they can be read by vectors, if its memory is aligned.
INFINIOP_COLD static inline bool cuda_conv_are_lines(const CudaConvProblem *problem, int tensor) {
    const int64_t *strides = problem->strides[tensor], vector = CUDA_CONV_VECTOR_BYTES / cuda_conv_item(problem);
    if (strides[1] != 1 || (problem->batch > 1 && strides[0] % vector)) return false;
    for (int d = 0; d < 3; d++) {
        const ConvAxis *axis = &problem->axis[d];
        if ((tensor == CUDA_CONV_INPUT ? axis->size_in : axis->size_out) > 1 && strides[2 + d] % vector) return false;
    }
    return true;
}

// Whether grad_weight reads vectors of channels. Images of planes are packed for that where 16-bit numbers meet several
// taps; elsewhere it takes longer than it saves.
INFINIOP_COLD static inline bool cuda_conv_is_by_channels(const CudaConvProblem *problem, const CudaConv *conv) {
    const int item = cuda_conv_item(problem), vector = CUDA_CONV_VECTOR_BYTES / item;
    if (conv->cout % vector || conv->cin % vector) return false;
    if (item == 2 && conv->taps > 1) return true;
    return cuda_conv_are_lines(problem, CUDA_CONV_GRAD_OUTPUT) && cuda_conv_are_lines(problem, CUDA_CONV_INPUT);
}

INFINIOP_COLD static inline void cuda_conv_plan_weight(const CudaConvProblem *problem, CudaConvWeightPlan *plan) {
    *plan = CudaConvWeightPlan();
    CudaConvGradWeight *a = &plan->arguments;
    cuda_conv_geometry(problem, &a->conv);
    const CudaConv *conv = &a->conv;
    int64_t columns = conv->taps;
    cuda_conv_multiply(&columns, conv->cin);
    if (conv->cout == 0 || columns == 0) return;
    const bool direct = conv->wide || conv->cout < CUDA_CONV_FEW_CHANNELS || columns < CUDA_CONV_FEW_CHANNELS;
    const bool across = !direct && conv->pixels_out < CUDA_CONV_SHORT_IMAGE;
    // A chain cannot go in tensor cores' steps: then a batch could not be cut anywhere. 16-bit sums cannot be anyway.
    const int arithmetic = cuda_conv_arithmetic(problem, problem->tf32 && !across && !direct);
    a->by_channels = !direct && arithmetic != CUDA_CONV_TF32 && cuda_conv_is_by_channels(problem, conv);
    const bool chain = across && arithmetic != CUDA_CONV_16_BIT;
    a->units = cuda_conv_units(conv, across,
                               chain    ? CUDA_CONV_LINK
                               : direct ? CUDA_CONV_UNIT
                                        : cuda_conv_unit(conv, columns));
    double least = -1;
    // Large tiles of multiply-adds would take more registers by channels than there are.
    const bool no_large = a->by_channels && (arithmetic == CUDA_CONV_FLOAT || arithmetic == CUDA_CONV_DOUBLE);
    for (int choice = no_large ? int(CUDA_CONV_MODES) : 0; choice < 2 * CUDA_CONV_MODES; choice++) {
        const int small = choice / CUDA_CONV_MODES, mode = choice % CUDA_CONV_MODES;
        if (small && (direct || arithmetic == CUDA_CONV_TF32)) continue;
        if (chain != (mode == CUDA_CONV_CHAIN) || (mode == CUDA_CONV_ALL && a->units.count <= 1)) continue;
        const CudaConvTile tile =
            direct ? CudaConvTile{1, CUDA_CONV_WARP_COLUMNS, 1} : cuda_conv_tiles[arithmetic][small];
        const int64_t row_tiles = cuda_conv_tiles_of(conv->cout, tile.rows);
        int64_t column_tiles = cuda_conv_tiles_of(columns, tile.columns), tiles = conv->groups;
        cuda_conv_multiply(&tiles, row_tiles);
        cuda_conv_multiply(&tiles, column_tiles);
        if (direct && tiles > 0) column_tiles = tiles = cuda_conv_tiles_of(tiles, CUDA_CONV_BLOCK / CUDA_CONV_WARP);
        int64_t blocks = tiles;
        if (mode == CUDA_CONV_EACH) cuda_conv_multiply(&blocks, a->units.count);
        double cost = cuda_conv_cost(problem, blocks, arithmetic, small);
        if (mode == CUDA_CONV_EACH) cost *= 1 + cuda_conv_slot_cost(&a->units, arithmetic, direct);
        else cost *= double(a->units.count);
        if (least >= 0 && cost >= least) continue;
        least = cost;
        plan->kernel = direct                         ? int(CUDA_CONV_WEIGHT_DIRECT)
                       : arithmetic == CUDA_CONV_TF32 ? int(CUDA_CONV_WEIGHT_TF32)
                       : a->by_channels               ? CUDA_CONV_WEIGHT_CHANNELS_LARGE + small
                                                      : CUDA_CONV_WEIGHT_LARGE + small;
        plan->tiles = tiles;
        a->mode = mode;
        a->rows = row_tiles * tile.rows, a->columns = direct ? columns : column_tiles * tile.columns;
        a->row_tiles = row_tiles, a->column_tiles = column_tiles;
    }
    cuda_conv_plan_slots(plan, arithmetic);
}
