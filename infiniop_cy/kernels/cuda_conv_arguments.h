// What the host hands to the CUDA kernels of a convolution, by value. Strides count elements. cin and cout are those of
// one group; one and two spatial dimensions are three with leading ones. An output's problem has exchanged roles, see
// cuda_conv_exchange_roles: to its kernels the output is grad_input, the input grad_output, and cin the output's.
#pragma once
#include "conv_axis.h"
#include "cuda_arguments.h"

// The tensors, in the order of the core's.
enum CudaConvTensor {
    CUDA_CONV_GRAD_OUTPUT,
    CUDA_CONV_INPUT,
    CUDA_CONV_WEIGHT,
    CUDA_CONV_BIAS,
    CUDA_CONV_GRAD_INPUT,
    CUDA_CONV_GRAD_WEIGHT,
    CUDA_CONV_GRAD_BIAS,
    CUDA_CONV_TENSORS
};

// The kernels of a module, which is compiled for one dtype. LARGE, after which SMALL comes, TF32 and DENSE multiply
// tiles, see cuda_conv_tiles.
enum CudaConvKernel {
    CUDA_CONV_PACK_WEIGHT,
    CUDA_CONV_INPUT_LARGE,
    CUDA_CONV_INPUT_SMALL,
    CUDA_CONV_INPUT_TF32,
    CUDA_CONV_INPUT_DENSE,
    CUDA_CONV_INPUT_PART_LARGE,
    CUDA_CONV_INPUT_PART_SMALL,
    CUDA_CONV_INPUT_SUM_PARTS,
    CUDA_CONV_INPUT_FEW,
    CUDA_CONV_INPUT_DIRECT,
    CUDA_CONV_WEIGHT_LARGE,
    CUDA_CONV_WEIGHT_SMALL,
    CUDA_CONV_WEIGHT_TF32,
    CUDA_CONV_WEIGHT_CHANNELS_LARGE,
    CUDA_CONV_WEIGHT_CHANNELS_SMALL,
    CUDA_CONV_WEIGHT_DIRECT,
    CUDA_CONV_REDUCE,
    CUDA_CONV_SUM_BIAS,
    CUDA_CONV_COPY_IMAGE,
    CUDA_CONV_KERNELS
};

enum {
    CUDA_CONV_BLOCK = 256,        // threads, of all kernels but sum_bias
    CUDA_CONV_BIAS_BLOCK = 1024,  // a warp for each of 32 units at a time
    CUDA_CONV_WARP = 32,
    CUDA_CONV_CHUNK = 256,     // output pixels whose addresses a block keeps in shared memory
    CUDA_CONV_PACK_ROWS = 64,  // input by output channels that a block of pack_weight packs
    CUDA_CONV_PACK_DEPTH = 32,
    CUDA_CONV_WARP_COLUMNS = 3,  // (input channel, tap) that a warp of the direct kernel sums at once
    CUDA_CONV_FEW_ROWS = 4,      // channels, and pixels, that a thread of grad_input_few sums at once
    CUDA_CONV_FEW_COLUMNS = 2,
    CUDA_CONV_SUMMED_ROWS = 8,    // channels whose parts a thread adds; divides PACK_ROWS
    CUDA_CONV_REDUCED = 4,        // elements whose slots a thread adds
    CUDA_CONV_VECTOR_BYTES = 16,  // of channels that lie side by side, in one access of grad_weight
    CUDA_CONV_COPY_TILE = 64,     // channels by pixels that a block of copy_image turns over
};

// Rows by columns of a block's product, and how much of the summed axis is in shared memory at a time. Rows are
// multiples of CUDA_CONV_PACK_ROWS, depths divide CUDA_CONV_PACK_DEPTH.
struct CudaConvTile { int rows, columns, depth; };
enum CudaConvArithmetic { CUDA_CONV_FLOAT, CUDA_CONV_DOUBLE, CUDA_CONV_16_BIT, CUDA_CONV_TF32, CUDA_CONV_ARITHMETICS };
constexpr CudaConvTile cuda_conv_tiles[CUDA_CONV_ARITHMETICS][2] = {
    // large, small
    {{128, 128, 8}, {64, 64, 8}},
    {{64, 64, 8}, {64, 64, 8}},
    {{128, 64, 32}, {64, 64, 32}},
    {{128, 64, 16}, {128, 64, 16}},
};

// One spatial axis.
struct CudaConvAxis : ConvAxis {
    int64_t step;     // from a pixel of grad_input's phase to the next, pixels of grad_output; 1 but for an output
    CudaDivisor out;  // of size_out, unless the convolution is wide
    int32_t padding;
};

// As (n, channel, space); for weights n is the output channel, channel the input channel.
struct CudaConvView {
    void *data;
    int64_t n, channel, space[3];
};

struct CudaConv {
    int64_t batch, groups, cin, cout, taps, pixels_in, pixels_out;
    CudaConvAxis axis[3];
    CudaConvView view[CUDA_CONV_TENSORS];
    int64_t weight_group;  // from a group's weights to the next one's
    int32_t accumulate;
    int32_t wide;  // 32 bits do not count the pixels or taps; only the direct kernels cope
};

// What a dense sum has at one place: where its pixel and channel are from the first tap's and channel 0.
struct CudaConvTerm {
    int64_t offset;
    int32_t back[3], padding;
};

// pack_weight and grad_input. Packed weights are [group][tap][depth][rows], zero beyond the channels and where they are
// not finite; nonfinite[group][rows / PACK_ROWS][tap][depth / PACK_DEPTH] says where those were. Where few channels are
// summed, dense, (tap, co) is one axis of that depth, whose places are described by as many terms.
struct CudaConvGradInput {
    CudaConv conv;
    void *packed;
    int32_t *nonfinite;
    int64_t rows, depth;  // cin and what is summed, cout or all of (tap, co), rounded up
    int64_t first_block;  // of this launch
    int64_t row_tiles, column_tiles;
    int64_t channels_innermost;  // neighbouring threads of the direct kernel: channels instead of pixels
    int64_t packed_taps;         // taps, or 1
    int64_t dense;
    CudaConvTerm *terms;
    // Sums over (tap, co) that blocks share are made of so many parts, each summed from zero. A wave's, of `columns`
    // pixels from `first_column` on, lie in slots[part][group][rows][columns], in the compute type, until they are
    // added in order.
    int64_t parts;
    int64_t first_column, columns;
    void *slots;
};

// Output pixels are summed by units, each from zero, and units are added one after the other. Pixels counted over the
// batch fall into pieces (a sample, or all), pieces into parts: those are the units.
struct CudaConvUnits {
    int64_t count, piece, part, parts;  // parts of a piece; piece and part in pixels
};

enum CudaConvMode {
    CUDA_CONV_EACH,   // a block sums one unit and leaves it in the unit's slot
    CUDA_CONV_ALL,    // a block adds all units to the total, one after the other
    CUDA_CONV_CHAIN,  // a block carries one sum, which starts from the total, through all units
    CUDA_CONV_MODES
};
enum CudaConvPlace { CUDA_CONV_NOWHERE, CUDA_CONV_TOTAL, CUDA_CONV_TENSOR };

// grad_weight and reduce. Total and slots are matrices [group][rows][columns] in the compute type: of output channel by
// (input channel, tap), or by (tap, input channel), rounded up to whole tiles.
struct CudaConvGradWeight {
    CudaConv conv;
    void *total, *slots;
    int64_t rows, columns;
    int64_t row_tiles, column_tiles;
    int64_t first_block;
    CudaConvUnits units;
    int64_t first_unit;  // of this wave, of which slot 0 is
    int64_t wave;        // units in this wave; reduce: slots to add, 0 if the total has them already
    int32_t mode;
    int32_t continues;    // grad_weight: the total holds what earlier units, or the tensor, came to
    int32_t from, to;     // reduce: where the sum starts and where it goes
    int64_t together;     // the weights of an output channel follow each other in memory
    int64_t by_channels;  // columns are (tap, input channel): the images' channels lie side by side
};

struct CudaConvGradBias {
    CudaConv conv;  // contiguous axes of grad_output are merged
    CudaConvUnits units;
    int64_t first_block;
};

// copy_image: between an image whose channels are neighbours and one whose pixels are.
struct CudaConvImage {
    CudaConvView from, to;
    int64_t batch, channels, pixels, size[3];
    int64_t channel_tiles, pixel_tiles;
    int64_t first_block;
    int64_t in_line;  // pixels are evenly apart, on both sides
    int64_t packs;    // the channels that are neighbours are those of `from`, else of `to`
};
