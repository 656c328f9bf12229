// A convolution and its gradients, for one dtype: -DINFINIOP_T=float. core/cuda/conv.h plans and launches; the kernels'
// names are its cuda_conv_kernel_names.
//
// Forward, grad_input and grad_weight are three contractions of one geometry. The first two sum over channels and taps
// of an image that is read, and are the same kernels: the output is the grad_input of the problem with exchanged roles
// (cuda_conv_exchange_roles). grad_weight sums over pixels.
//
// No result depends on strides, on the device or on which other gradients are wanted; an element's sum runs in an order
// that its sizes alone decide.
#include "conv_direct.cuh"
#include "conv_few_channels.cuh"
#include "conv_grad_bias.cuh"
#include "conv_grad_input.cuh"
#include "conv_grad_weight.cuh"
#include "conv_images.cuh"

using namespace INFINIOP_ISA;

namespace {

constexpr int arithmetic = sizeof(T) == 2 ? CUDA_CONV_16_BIT : sizeof(T) == 4 ? CUDA_CONV_FLOAT : CUDA_CONV_DOUBLE;
enum { LARGE, SMALL };

// Blocks of grad_input_part_large on a multiprocessor, at least: for two of them registers would be spilled there.
#if __CUDA_ARCH__ >= 1200
constexpr int LARGE_PARTS = 1;
#else
constexpr int LARGE_PARTS = 2;
#endif

}  // namespace

// weight[co, ci, k] to packed[group][k][co][ci]
extern "C" __global__ void __launch_bounds__(CUDA_CONV_BLOCK) pack_weight(const CudaConvGradInput a) {
    pack_weight_block(a);
}

// grad_input[n, ci, i] = sum over k, co of packed[k][co][ci] * grad_output[n, co, o]; or, with exchanged roles,
// output[n, co, o] = bias[co] + sum over k, ci of packed[k][ci][co] * input[n, ci, i]
extern "C" __global__ void __launch_bounds__(CUDA_CONV_BLOCK, 2) grad_input_large(const CudaConvGradInput a) {
    grad_input_tile<Tile<arithmetic, LARGE, false>, INPUT_WHOLE>(a);
}
extern "C" __global__ void __launch_bounds__(CUDA_CONV_BLOCK, 2) grad_input_small(const CudaConvGradInput a) {
    grad_input_tile<Tile<arithmetic, SMALL, false>, INPUT_WHOLE>(a);
}
extern "C" __global__ void __launch_bounds__(CUDA_CONV_BLOCK, 2) grad_input_tf32(const CudaConvGradInput a) {
    if constexpr (arithmetic == CUDA_CONV_FLOAT) grad_input_tile<Tile<CUDA_CONV_TF32, LARGE, false>, INPUT_WHOLE>(a);
}
extern "C" __global__ void __launch_bounds__(CUDA_CONV_BLOCK, 2) grad_input_dense(const CudaConvGradInput a) {
    grad_input_tile<Tile<arithmetic, SMALL, false>, INPUT_DENSE>(a);
}
// slots[part][group][ci][pixel], for a wave of pixels: the same over a part of (k, co)
extern "C" __global__ void __launch_bounds__(CUDA_CONV_BLOCK, LARGE_PARTS)
    grad_input_part_large(const CudaConvGradInput a) {
    grad_input_tile<Tile<arithmetic, LARGE, false>, INPUT_PART>(a);
}
extern "C" __global__ void __launch_bounds__(CUDA_CONV_BLOCK, 2) grad_input_part_small(const CudaConvGradInput a) {
    grad_input_tile<Tile<arithmetic, SMALL, false>, INPUT_PART>(a);
}
// grad_input[n, ci, i] = sum over parts of slots[part][group][ci][pixel]
extern "C" __global__ void __launch_bounds__(CUDA_CONV_BLOCK, 2) grad_input_sum_parts(const CudaConvGradInput a) {
    sum_input_parts(a);
}
// grad_input without packed weights: some channels of some pixels a thread
extern "C" __global__ void __launch_bounds__(CUDA_CONV_BLOCK, 2) grad_input_few(const CudaConvGradInput a) {
    grad_input_few_channels(a);
}
// an element a thread
extern "C" __global__ void __launch_bounds__(CUDA_CONV_BLOCK) grad_input_direct(const CudaConvGradInput a) {
    if (a.conv.wide) grad_input_elements<int64_t>(a);
    else grad_input_elements<int>(a);
}

// slots[unit][group][co][ci, k] or total[group][co][ci, k] = sum over o of grad_output[n, co, o] * input[n, ci, i]
extern "C" __global__ void __launch_bounds__(CUDA_CONV_BLOCK, 2) grad_weight_large(const CudaConvGradWeight a) {
    grad_weight_tile<Tile<arithmetic, LARGE, true>, WeightPanels>(a);
}
extern "C" __global__ void __launch_bounds__(CUDA_CONV_BLOCK, 2) grad_weight_small(const CudaConvGradWeight a) {
    grad_weight_tile<Tile<arithmetic, SMALL, true>, WeightPanels>(a);
}
extern "C" __global__ void __launch_bounds__(CUDA_CONV_BLOCK, 2) grad_weight_tf32(const CudaConvGradWeight a) {
    if constexpr (arithmetic == CUDA_CONV_FLOAT) grad_weight_tile<Tile<CUDA_CONV_TF32, LARGE, true>, WeightPanels>(a);
}
// The same of images whose channels lie side by side, with (k, ci) for (ci, k)
extern "C" __global__ void __launch_bounds__(CUDA_CONV_BLOCK, 2)
    grad_weight_channels_large(const CudaConvGradWeight a) {
    if constexpr (arithmetic == CUDA_CONV_16_BIT) grad_weight_tile<Tile<arithmetic, LARGE, false>, ChannelPanels>(a);
}
extern "C" __global__ void __launch_bounds__(CUDA_CONV_BLOCK, 2)
    grad_weight_channels_small(const CudaConvGradWeight a) {
    grad_weight_tile<Tile<arithmetic, SMALL, false, 2>, ChannelPanels>(a);
}
extern "C" __global__ void __launch_bounds__(CUDA_CONV_BLOCK, 2) grad_weight_direct(const CudaConvGradWeight a) {
    if (a.conv.wide) grad_weight_elements<int64_t>(a);
    else grad_weight_elements<int>(a);
}

// grad_weight[co, ci, k] = old + sum over units of slots[unit][group][co][ci, k]
extern "C" __global__ void __launch_bounds__(CUDA_CONV_BLOCK) reduce(const CudaConvGradWeight a) { reduce_elements(a); }

// grad_bias[co] = sum over n, o of grad_output[n, co, o]
extern "C" __global__ void __launch_bounds__(CUDA_CONV_BIAS_BLOCK) sum_bias(const CudaConvGradBias a) {
    if (a.conv.wide) grad_bias_channel<int64_t>(a);
    else grad_bias_channel<int>(a);
}

// Between an image whose channels are neighbours and one whose pixels are.
extern "C" __global__ void __launch_bounds__(CUDA_CONV_BLOCK) copy_image(const CudaConvImage a) { copy_image_block(a); }
