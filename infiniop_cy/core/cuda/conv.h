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

static const char *const cuda_conv_kernel_names[CUDA_CONV_KERNELS] = {
    "pack_weight",       "grad_input_large",  "grad_input_small", "grad_input_tf32",    "grad_input_direct",
    "grad_weight_large", "grad_weight_small", "grad_weight_tf32", "grad_weight_direct", "reduce",
    "sum_bias",          "copy_image",        "grad_input_dense",
};

// One launch; returns 0 or a driver error, which ends the run.
typedef int (*CudaConvLaunch)(void *context, int kernel, const unsigned grid[3], unsigned block, const void *arguments,
                              size_t bytes);

enum : int64_t {
    CUDA_CONV_UNIT = 4096,                     // output pixels in one sum, at most
    CUDA_CONV_SHORT_UNIT = 512,                // likewise where weights are few, and of grad_bias
    CUDA_CONV_LINK = 1 << 20,                  // likewise where a chain goes through all of them
    CUDA_CONV_SHORT_IMAGE = 64,                // fewer output pixels than this: panels span samples
    CUDA_CONV_FEW_CHANNELS = 8,                // fewer rows or columns than this: no tiles
    CUDA_CONV_FEW_SUMMED = 2,                  // likewise of output channels in grad_input
    CUDA_CONV_FEW_TERMS = 8,                   // likewise of taps and channels, where those are one axis
    CUDA_CONV_SLOT_BYTES = int64_t(64) << 20,  // sums of a wave of units; more would not stay in the L2 cache
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
    for (int t = 0; t < CUDA_CONV_TENSORS; t++) {
        CudaConvView *view = &conv->view[t];
        view->n = problem->strides[t][0], view->channel = problem->strides[t][1];
        for (int d = 0; d < 3; d++) view->space[d] = problem->strides[t][2 + d];
    }
    const CudaConvView *weight = &conv->view[CUDA_CONV_WEIGHT];
    conv->weight_group = problem->forward ? conv->cin * weight->channel : conv->cout * weight->n;
}

// ---- plans; bytes and blocks are -1 where 64 bits do not count them

struct CudaConvInputPlan {
    int kernel;
    int64_t blocks, pack_blocks, packed_bytes, flag_bytes, bytes;
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

// Rounds of blocks on all multiprocessors, times the work of one. A small tile loads more for each product.
INFINIOP_COLD static inline double cuda_conv_cost(const CudaConvProblem *problem, int64_t blocks, int arithmetic,
                                                  bool small) {
    const CudaConvTile *tile = &cuda_conv_tiles[arithmetic][small];
    const int64_t at_once = problem->multiprocessors > 0 ? problem->multiprocessors : 1;
    return double(cuda_conv_tiles_of(blocks, at_once)) * tile->rows * tile->columns * (small ? 1.5 : 1.0);
}

// Whether (tap, co) is summed as one axis, by the small tiles: where panels of one tap would be mostly empty. Phases
// differ in taps.
INFINIOP_COLD static inline bool cuda_conv_is_dense(const CudaConv *conv, int arithmetic) {
    const int64_t depth = cuda_conv_tiles[arithmetic][0].depth;
    if (conv->wide || conv->cout >= depth) return false;
    for (const CudaConvAxis &axis : conv->axis)
        if (axis.phases > 1) return false;
    const int64_t terms = conv->taps * conv->cout;
    return terms >= CUDA_CONV_FEW_TERMS && conv->taps >= 2 * cuda_conv_tiles_of(terms, depth);
}

INFINIOP_COLD static inline void cuda_conv_plan_input(const CudaConvProblem *problem, CudaConvInputPlan *plan) {
    *plan = CudaConvInputPlan();
    CudaConvGradInput *a = &plan->arguments;
    cuda_conv_geometry(problem, &a->conv);
    const CudaConv *conv = &a->conv;
    const CudaConvView *out = &conv->view[CUDA_CONV_GRAD_INPUT];
    int64_t elements = conv->pixels_in, pixels = conv->batch;
    cuda_conv_multiply(&elements, conv->batch);
    cuda_conv_multiply(&elements, conv->groups);
    cuda_conv_multiply(&elements, conv->cin);
    plan->blocks = elements < 0 ? -1 : cuda_conv_tiles_of(elements, CUDA_CONV_BLOCK);
    if (elements == 0) return;
    a->dense = cuda_conv_is_dense(conv, cuda_conv_arithmetic(problem, false));
    const int arithmetic = cuda_conv_arithmetic(problem, problem->tf32 && !a->dense);
    if (conv->wide || conv->cin < CUDA_CONV_FEW_CHANNELS || (conv->cout < CUDA_CONV_FEW_SUMMED && !a->dense)) {
        plan->kernel = CUDA_CONV_INPUT_DIRECT;
        a->channels_innermost = llabs(out->channel) < llabs(out->space[2]);
        return;
    }
    for (int d = 0; d < 3; d++)  // of the largest phase
        cuda_conv_multiply(&pixels, cuda_conv_tiles_of(conv->axis[d].size_in, conv->axis[d].stride));
    double least = 0;
    for (int small = a->dense ? 1 : 0; small < (arithmetic == CUDA_CONV_TF32 ? 1 : 2); small++) {
        const CudaConvTile *tile = &cuda_conv_tiles[arithmetic][small];
        int64_t row_tiles = cuda_conv_tiles_of(conv->cin, tile->rows), blocks = row_tiles;
        int64_t column_tiles = cuda_conv_tiles_of(pixels < 0 ? 0 : pixels, tile->columns);
        cuda_conv_multiply(&blocks, pixels < 0 ? -1 : column_tiles);
        for (int d = 0; d < 3; d++) cuda_conv_multiply(&blocks, conv->axis[d].phases);
        cuda_conv_multiply(&blocks, conv->groups);
        const double cost = cuda_conv_cost(problem, blocks, arithmetic, small);
        if (small && !a->dense && cost >= least) break;
        least = cost;
        plan->kernel = a->dense                       ? CUDA_CONV_INPUT_DENSE
                       : arithmetic == CUDA_CONV_TF32 ? CUDA_CONV_INPUT_TF32
                                                      : CUDA_CONV_INPUT_LARGE + small;
        plan->blocks = blocks;
        a->row_tiles = row_tiles, a->column_tiles = column_tiles;
        a->rows = row_tiles * tile->rows;
    }
    const int64_t summed = a->dense ? conv->taps * conv->cout : conv->cout;
    a->packed_taps = a->dense ? 1 : conv->taps;
    a->depth = cuda_conv_tiles_of(summed, CUDA_CONV_PACK_DEPTH) * CUDA_CONV_PACK_DEPTH;
    plan->pack_blocks = conv->groups;
    cuda_conv_multiply(&plan->pack_blocks, a->rows / CUDA_CONV_PACK_ROWS);
    cuda_conv_multiply(&plan->pack_blocks, a->packed_taps);
    cuda_conv_multiply(&plan->pack_blocks, a->depth / CUDA_CONV_PACK_DEPTH);
    const int item = arithmetic == CUDA_CONV_DOUBLE ? 8 : arithmetic == CUDA_CONV_16_BIT ? 2 : 4;
    const int64_t block_bytes = CUDA_CONV_PACK_ROWS * CUDA_CONV_PACK_DEPTH * item;  // a multiple of CUDA_CONV_ALIGN
    plan->packed_bytes = plan->bytes = plan->pack_blocks;
    cuda_conv_multiply(&plan->packed_bytes, block_bytes);
    // A block's flag, and whatever aligns the terms, which lie behind the flags.
    cuda_conv_multiply(&plan->bytes, block_bytes + 2 * int64_t(sizeof(int32_t)));
    if (!a->dense || plan->bytes < 0) return;
    plan->flag_bytes = plan->pack_blocks * 2 * int64_t(sizeof(int32_t));
    plan->bytes += a->depth * int64_t(sizeof(CudaConvTerm));
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
    const int as_many_pixels[CUDA_CONV_ARITHMETICS] = {50, 100, 400, 400};
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
    const bool chain = across && arithmetic != CUDA_CONV_16_BIT;
    a->units = cuda_conv_units(conv, across,
                               chain    ? CUDA_CONV_LINK
                               : direct ? CUDA_CONV_UNIT
                                        : cuda_conv_unit(conv, columns));
    double least = -1;
    for (int choice = 0; choice < 2 * CUDA_CONV_MODES; choice++) {
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
        plan->kernel = direct                         ? CUDA_CONV_WEIGHT_DIRECT
                       : arithmetic == CUDA_CONV_TF32 ? CUDA_CONV_WEIGHT_TF32
                                                      : CUDA_CONV_WEIGHT_LARGE + small;
        plan->tiles = tiles;
        a->mode = mode;
        a->rows = row_tiles * tile.rows, a->columns = direct ? columns : column_tiles * tile.columns;
        a->row_tiles = row_tiles, a->column_tiles = column_tiles;
    }
    cuda_conv_plan_slots(plan, arithmetic);
}

// ---- images

// What is read or written pixel by pixel is packed before, or unpacked afterwards, where its channels lie closer.
// grad_input and input, which are as large and not needed at once, share their room.
struct CudaConvImages {
    bool packs[CUDA_CONV_TENSORS];
    int64_t outer_bytes, inner_bytes;  // of grad_output; of grad_input and input
};

INFINIOP_COLD static inline bool cuda_conv_is_outer(int tensor) { return tensor == CUDA_CONV_GRAD_OUTPUT; }

INFINIOP_COLD static inline bool cuda_conv_channels_are_neighbours(const CudaConvProblem *problem, int tensor) {
    const int64_t *strides = problem->strides[tensor];
    const bool outer = cuda_conv_is_outer(tensor);
    int64_t between_pixels = -1;
    for (int d = 0; d < 3; d++) {
        const int64_t size = outer ? problem->axis[d].size_out : problem->axis[d].size_in, step = llabs(strides[2 + d]);
        if (size > 1 && (between_pixels < 0 || step < between_pixels)) between_pixels = step;
    }
    const bool several = problem->groups > 1 || (outer ? problem->cout : problem->cin) > 1;
    return several && strides[1] != 0 && llabs(strides[1]) < between_pixels;
}

INFINIOP_COLD static inline CudaConvImage cuda_conv_image(const CudaConvProblem *problem, int tensor) {
    const bool outer = cuda_conv_is_outer(tensor);
    CudaConvImage image = CudaConvImage();
    image.batch = problem->batch, image.channels = problem->groups * (outer ? problem->cout : problem->cin);
    image.pixels = 1;
    for (int d = 0; d < 3; d++) {
        image.size[d] = outer ? problem->axis[d].size_out : problem->axis[d].size_in;
        image.pixels *= image.size[d];
    }
    image.channel_tiles = cuda_conv_tiles_of(image.channels, CUDA_CONV_COPY_TILE);
    image.pixel_tiles = cuda_conv_tiles_of(image.pixels, CUDA_CONV_COPY_TILE);
    return image;
}

// Bytes of one, rounded up; -1 where 64 bits do not count them.
INFINIOP_COLD static inline int64_t cuda_conv_image_bytes(const CudaConvProblem *problem, int tensor) {
    const CudaConvImage image = cuda_conv_image(problem, tensor);
    int64_t bytes = problem->dtype == DTYPE_F64 ? 8 : problem->dtype == DTYPE_F32 ? 4 : 2;
    for (int64_t size : {image.batch, image.channels, image.pixels}) cuda_conv_multiply(&bytes, size);
    if (bytes < 0 || bytes > INT64_MAX - CUDA_CONV_ALIGN) return -1;
    return cuda_conv_tiles_of(bytes, CUDA_CONV_ALIGN) * CUDA_CONV_ALIGN;
}

INFINIOP_COLD static inline CudaConvImages cuda_conv_images(const CudaConvProblem *problem,
                                                            const CudaConvInputPlan *input,
                                                            const CudaConvWeightPlan *weight) {
    CudaConvImages images = CudaConvImages();
    const bool tiles = input->blocks > 0 && input->kernel != CUDA_CONV_INPUT_DIRECT;
    const bool sums = weight->tiles > 0 && !weight->arguments.conv.wide && problem->batch > 0;
    // An element a thread: those of a pixel's channels go along with them, those of a channel's pixels across.
    const bool across = input->blocks > 0 && !tiles && !input->arguments.conv.wide && problem->batch > 0 &&
                        !input->arguments.channels_innermost;
    const bool wanted[] = {tiles || sums || across, sums, tiles};
    const int tensors[] = {CUDA_CONV_GRAD_OUTPUT, CUDA_CONV_INPUT, CUDA_CONV_GRAD_INPUT};
    for (int i = 0; i < 3; i++) {
        const int tensor = tensors[i];
        if (!wanted[i] || !cuda_conv_channels_are_neighbours(problem, tensor)) continue;
        images.packs[tensor] = true;
        (cuda_conv_is_outer(tensor) ? images.outer_bytes : images.inner_bytes) = cuda_conv_image_bytes(problem, tensor);
    }
    return images;
}

// Bytes of device workspace that suffice for the output, or all three gradients; -1 where 64 bits do not count them.
INFINIOP_COLD static inline int64_t cuda_conv_workspace(const CudaConvProblem *problem) {
    CudaConvInputPlan input;
    CudaConvWeightPlan weight = CudaConvWeightPlan();
    cuda_conv_plan_input(problem, &input);
    if (!problem->forward) cuda_conv_plan_weight(problem, &weight);
    const CudaConvImages images = cuda_conv_images(problem, &input, &weight);
    int64_t bytes = input.bytes > weight.bytes ? input.bytes : weight.bytes;  // one after the other
    if (input.bytes < 0 || input.blocks < 0 || weight.bytes < 0) return -1;
    for (int64_t more : {images.outer_bytes, images.inner_bytes}) {
        if (more < 0 || more > INT64_MAX - bytes) return -1;
        bytes += more;
    }
    return bytes;
}

// ---- running

struct CudaConvRun {
    CudaConvLaunch launch;
    void *context;
};

template <class Arguments>
INFINIOP_COLD static inline int cuda_conv_launch(const CudaConvRun *run, int kernel, int64_t blocks, unsigned threads,
                                                 Arguments *a) {
    int code = 0;
    for (a->first_block = 0; a->first_block < blocks && !code; a->first_block += CUDA_CONV_GRID) {
        const int64_t left = blocks - a->first_block;
        const unsigned grid[3] = {unsigned(left < CUDA_CONV_GRID ? left : int64_t(CUDA_CONV_GRID)), 1, 1};
        code = run->launch(run->context, kernel, grid, threads, a, sizeof *a);
    }
    return code;
}

INFINIOP_COLD static inline void cuda_conv_bind(CudaConv *conv, void *const data[CUDA_CONV_TENSORS]) {
    for (int t = 0; t < CUDA_CONV_TENSORS; t++) conv->view[t].data = data[t];
}

INFINIOP_COLD static inline int cuda_conv_run_input(const CudaConvRun *run, const CudaConvProblem *problem,
                                                    void *const *data, char *workspace) {
    CudaConvInputPlan plan;
    cuda_conv_plan_input(problem, &plan);
    CudaConvGradInput *a = &plan.arguments;
    cuda_conv_bind(&a->conv, data);
    a->packed = workspace;
    a->nonfinite = (int32_t *)(workspace + plan.packed_bytes);
    a->terms = (CudaConvTerm *)(workspace + plan.packed_bytes + plan.flag_bytes);
    int code = cuda_conv_launch(run, CUDA_CONV_PACK_WEIGHT, plan.pack_blocks, CUDA_CONV_BLOCK, a);
    if (code) return code;
    return cuda_conv_launch(run, plan.kernel, plan.blocks, CUDA_CONV_BLOCK, a);
}

INFINIOP_COLD static inline int cuda_conv_reduce(const CudaConvRun *run, CudaConvGradWeight *a, int from, int64_t slots,
                                                 int to) {
    const int64_t elements = a->conv.groups * a->conv.cout * a->conv.cin * a->conv.taps;
    const CudaConvView *v = &a->conv.view[CUDA_CONV_GRAD_WEIGHT];
    const CudaConvAxis *axis = a->conv.axis;
    const int64_t line = axis[2].kernel, plane = axis[1].kernel * line;
    a->together = v->space[2] == 1 && v->space[1] == line && v->space[0] == plane && v->channel == a->conv.taps;
    a->from = from, a->to = to, a->wave = slots;
    return cuda_conv_launch(run, CUDA_CONV_REDUCE, cuda_conv_tiles_of(elements, CUDA_CONV_BLOCK), CUDA_CONV_BLOCK, a);
}

INFINIOP_COLD static inline int cuda_conv_run_weight(const CudaConvRun *run, const CudaConvProblem *problem,
                                                     void *const *data, char *workspace) {
    CudaConvWeightPlan plan;
    cuda_conv_plan_weight(problem, &plan);
    CudaConvGradWeight *a = &plan.arguments;
    if (plan.slot_bytes == 0) return 0;
    cuda_conv_bind(&a->conv, data);
    a->total = workspace;
    a->slots = workspace + plan.slot_bytes;
    const int start = a->conv.accumulate ? CUDA_CONV_TENSOR : CUDA_CONV_NOWHERE;
    const int64_t units = a->units.count;
    int code = 0;
    if (units == 0) return cuda_conv_reduce(run, a, start, 0, CUDA_CONV_TENSOR);
    const bool each = a->mode == CUDA_CONV_EACH;
    const int64_t most = each ? plan.slots : int64_t(CUDA_CONV_GRID);
    a->continues = !each && a->conv.accumulate;
    if (a->continues) code = cuda_conv_reduce(run, a, start, 0, CUDA_CONV_TOTAL);
    for (a->first_unit = 0; a->first_unit < units && !code; a->first_unit += most) {
        const int64_t left = units - a->first_unit, wave = left < most ? left : most;
        a->wave = wave;
        code = cuda_conv_launch(run, plan.kernel, plan.tiles * (each ? wave : 1), CUDA_CONV_BLOCK, a);
        if (each && !code)
            code = cuda_conv_reduce(run, a, a->first_unit ? int(CUDA_CONV_TOTAL) : start, wave,
                                    wave < left ? CUDA_CONV_TOTAL : CUDA_CONV_TENSOR);
        a->continues = 1;
    }
    return code || each ? code : cuda_conv_reduce(run, a, CUDA_CONV_TOTAL, 0, CUDA_CONV_TENSOR);
}

// Axes of grad_output that lie one after the other become one.
INFINIOP_COLD static inline void cuda_conv_merge_output(CudaConv *conv) {
    int64_t *space = conv->view[CUDA_CONV_GRAD_OUTPUT].space;
    CudaConvAxis *inner = &conv->axis[2];
    for (int d = 1; d >= 0; d--) {
        CudaConvAxis *outer = &conv->axis[d];
        if (outer->size_out != 1 && space[d] != space[2] * inner->size_out) return;
        inner->size_out *= outer->size_out;
        outer->size_out = 1;
        if (!conv->wide) outer->out = cuda_divisor(1), inner->out = cuda_divisor(uint32_t(inner->size_out));
    }
}

INFINIOP_COLD static inline int cuda_conv_run_bias(const CudaConvRun *run, const CudaConvProblem *problem,
                                                   void *const *data) {
    CudaConvGradBias a = CudaConvGradBias();
    cuda_conv_geometry(problem, &a.conv);
    cuda_conv_bind(&a.conv, data);
    a.units = cuda_conv_units(&a.conv, false, CUDA_CONV_SHORT_UNIT);
    if (a.units.count > 0) cuda_conv_merge_output(&a.conv);
    return cuda_conv_launch(run, CUDA_CONV_SUM_BIAS, a.conv.groups * a.conv.cout, CUDA_CONV_BIAS_BLOCK, &a);
}

// From a tensor to its packed form, or back.
INFINIOP_COLD static inline int cuda_conv_copy_image(const CudaConvRun *run, const CudaConvProblem *problem, int tensor,
                                                     void *data, const CudaConvProblem *packed, void *packed_data,
                                                     bool packs) {
    CudaConvImage image = cuda_conv_image(problem, tensor);
    CudaConvView views[2];  // the tensor, and packed
    for (int i = 0; i < 2; i++) {
        const int64_t *strides = (i ? packed : problem)->strides[tensor];
        views[i] = {i ? packed_data : data, strides[0], strides[1], {strides[2], strides[3], strides[4]}};
    }
    image.in_line = true;
    for (const CudaConvView &v : views) {
        const int64_t line = image.size[2] * v.space[2], plane = image.size[1] * line;
        image.in_line &= (image.size[1] == 1 || v.space[1] == line) && (image.size[0] == 1 || v.space[0] == plane);
    }
    image.packs = packs, image.from = views[!packs], image.to = views[packs];
    return cuda_conv_launch(run, CUDA_CONV_COPY_IMAGE, image.batch * image.channel_tiles * image.pixel_tiles,
                            CUDA_CONV_BLOCK, &image);
}

INFINIOP_COLD static inline void cuda_conv_pack_strides(CudaConvProblem *problem, int tensor) {
    const CudaConvImage image = cuda_conv_image(problem, tensor);
    int64_t *strides = problem->strides[tensor];
    strides[4] = 1, strides[3] = image.size[2], strides[2] = image.size[1] * image.size[2];
    strides[1] = image.pixels, strides[0] = image.channels * image.pixels;
}

// The three gradients, or the output in grad_input's place.
INFINIOP_COLD static inline int cuda_conv_run_passes(const CudaConvRun *run, const CudaConvProblem *problem,
                                                     void *const *data, char *workspace) {
    CudaConvInputPlan input;
    CudaConvWeightPlan weight = CudaConvWeightPlan();
    cuda_conv_plan_input(problem, &input);
    if (data[CUDA_CONV_GRAD_WEIGHT]) cuda_conv_plan_weight(problem, &weight);
    if (!data[CUDA_CONV_GRAD_INPUT]) input.blocks = 0;
    const CudaConvImages images = cuda_conv_images(problem, &input, &weight);
    CudaConvProblem packed = *problem;
    void *at[CUDA_CONV_TENSORS], *const outer = workspace, *const inner = workspace + images.outer_bytes;
    workspace += images.outer_bytes + images.inner_bytes;
    for (int t = 0; t < CUDA_CONV_TENSORS; t++) {
        at[t] = data[t];
        if (!images.packs[t]) continue;
        cuda_conv_pack_strides(&packed, t);
        at[t] = cuda_conv_is_outer(t) ? outer : inner;
    }
    const auto copy = [&](int tensor, bool packs) {
        if (!images.packs[tensor]) return 0;
        return cuda_conv_copy_image(run, problem, tensor, data[tensor], &packed, at[tensor], packs);
    };
    int code = copy(CUDA_CONV_GRAD_OUTPUT, true);
    if (!code && data[CUDA_CONV_GRAD_INPUT]) {
        const bool direct = input.kernel == CUDA_CONV_INPUT_DIRECT;
        const bool as_they_are = direct && (input.arguments.channels_innermost || input.arguments.conv.wide);
        if (problem->accumulate) code = copy(CUDA_CONV_GRAD_INPUT, true);
        if (!code) code = cuda_conv_run_input(run, as_they_are ? problem : &packed, as_they_are ? data : at, workspace);
        if (!code) code = copy(CUDA_CONV_GRAD_INPUT, false);
    }
    if (!code && data[CUDA_CONV_GRAD_WEIGHT]) {
        code = copy(CUDA_CONV_INPUT, true);
        if (!code) code = cuda_conv_run_weight(run, &packed, at, workspace);
    }
    if (!code && data[CUDA_CONV_GRAD_BIAS]) code = cuda_conv_run_bias(run, &packed, at);
    return code;
}

// data: device addresses. A gradient of null is left out; of an output's problem the output is in grad_output's place,
// as it is in the core. workspace: at a multiple of CUDA_CONV_ALIGN.
INFINIOP_COLD static inline int cuda_conv_run(const CudaConvProblem *problem, void *const data[CUDA_CONV_TENSORS],
                                              void *workspace, CudaConvLaunch launch, void *context) {
    const CudaConvRun run = {launch, context};
    if (!problem->forward) return cuda_conv_run_passes(&run, problem, data, (char *)workspace);
    void *exchanged[CUDA_CONV_TENSORS] = {};
    exchanged[CUDA_CONV_GRAD_OUTPUT] = data[CUDA_CONV_INPUT];
    exchanged[CUDA_CONV_WEIGHT] = data[CUDA_CONV_WEIGHT], exchanged[CUDA_CONV_BIAS] = data[CUDA_CONV_BIAS];
    exchanged[CUDA_CONV_GRAD_INPUT] = data[CUDA_CONV_GRAD_OUTPUT];
    return cuda_conv_run_passes(&run, problem, exchanged, (char *)workspace);
}
