// How the images of a convolution are to lie for its kernels, which of them are packed for that, and where.
#pragma once
#include "conv_plan.h"

// Most kernels go from pixel to pixel of a plane, so images whose channels lie closer, as in channels_last, are packed
// before, or unpacked afterwards. A grad_weight by channels reads lines of them, by vectors.
enum CudaConvForm { CUDA_CONV_AS_IT_LIES, CUDA_CONV_PLANES, CUDA_CONV_LINES };

// grad_input and input, which are as large and not needed at once, share their room; so do both forms of grad_output.
struct CudaConvImages {
    int input[CUDA_CONV_TENSORS], weight[CUDA_CONV_TENSORS];  // forms, for grad_input and grad_bias; for grad_weight
    int64_t outer_bytes, inner_bytes;                         // of grad_output; of grad_input and input
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
    int64_t bytes = cuda_conv_item(problem);
    for (int64_t size : {image.batch, image.channels, image.pixels}) cuda_conv_multiply(&bytes, size);
    if (bytes < 0 || bytes > INT64_MAX - CUDA_CONV_ALIGN) return -1;
    return cuda_conv_tiles_of(bytes, CUDA_CONV_ALIGN) * CUDA_CONV_ALIGN;
}

// data: as for a run, or null while planning: then there is room for lines, in case memory turns out not to be aligned.
INFINIOP_COLD static inline CudaConvImages cuda_conv_images(const CudaConvProblem *problem,
                                                            const CudaConvInputPlan *input,
                                                            const CudaConvWeightPlan *weight, void *const *data) {
    CudaConvImages images = CudaConvImages();
    if (problem->batch == 0) return images;
    const bool tiles = input->blocks > 0 && input->kernel != CUDA_CONV_INPUT_DIRECT;
    const bool sums = weight->tiles > 0 && !weight->arguments.conv.wide, lines = sums && weight->arguments.by_channels;
    // An element a thread: those of a pixel's channels go along with them, those of a channel's pixels across.
    const bool across =
        input->blocks > 0 && !tiles && !input->arguments.conv.wide && !input->arguments.channels_innermost;
    const auto is_aligned = [=](int tensor) { return data && (uintptr_t)data[tensor] % CUDA_CONV_VECTOR_BYTES == 0; };
    const int tensors[] = {CUDA_CONV_GRAD_OUTPUT, CUDA_CONV_INPUT, CUDA_CONV_GRAD_INPUT};
    const bool planes_of_input[] = {tiles || sums || across, false, tiles};
    const bool is_summed[] = {sums, sums, false};  // by grad_weight
    for (int i = 0; i < 3; i++) {
        const int tensor = tensors[i];
        const bool neighbours = cuda_conv_channels_are_neighbours(problem, tensor);
        if (planes_of_input[i] && neighbours) images.input[tensor] = CUDA_CONV_PLANES;
        const bool suits_weight = lines ? is_aligned(tensor) && cuda_conv_are_lines(problem, tensor) : !neighbours;
        if (is_summed[i] && !suits_weight) images.weight[tensor] = lines ? CUDA_CONV_LINES : CUDA_CONV_PLANES;
        if (images.input[tensor] || images.weight[tensor]) {
            int64_t *bytes = cuda_conv_is_outer(tensor) ? &images.outer_bytes : &images.inner_bytes;
            *bytes = cuda_conv_image_bytes(problem, tensor);
        }
    }
    return images;
}

INFINIOP_COLD static inline void cuda_conv_pack_strides(CudaConvProblem *problem, int tensor, int form) {
    const CudaConvImage image = cuda_conv_image(problem, tensor);
    int64_t *strides = problem->strides[tensor];
    const bool lines = form == CUDA_CONV_LINES;
    strides[4] = lines ? image.channels : 1;
    strides[3] = image.size[2] * strides[4], strides[2] = image.size[1] * strides[3];
    strides[1] = lines ? 1 : image.pixels, strides[0] = image.channels * image.pixels;
}
