// grad_input of few channels in a group, which would leave tiles mostly empty: a thread sums all of them, or a few, for
// some pixels of a phase, so that what it reads of grad_output serves several sums. Elements are summed in the order of
// conv_direct.cuh.
#pragma once
#include "conv_grad_input.cuh"

namespace INFINIOP_ISA {
namespace {

struct FewChannels {
    static constexpr int rows = CUDA_CONV_FEW_ROWS, thread_pixels = CUDA_CONV_FEW_COLUMNS;
    static constexpr int columns = thread_pixels * CUDA_CONV_BLOCK;
    typedef Vector<S, rows> Weights;  // of one (tap, co)
};

// The block's weights from place `first` of (tap, co) on, in shared memory; inf and NaN become 0, as they would meet
// the zeros that stand for pixels outside.
INFINIOP_INLINE void fetch_few_weights(FewChannels::Weights *to, int &nonfinite, const CudaConv &c,
                                       const InputBlock &block, int64_t first, int count) {
    const CudaConvView &v = c.view[CUDA_CONV_WEIGHT];
    for (int i = threadIdx.x; i < count; i += CUDA_CONV_BLOCK) {
        int64_t rest = first + i, k[3];
        const int64_t co = take(rest, c.cout);
        for (int d = 2; d >= 0; d--) k[d] = block.axis[d].tap + take(rest, block.axis[d].taps) * c.axis[d].period;
        const T *from =
            (const T *)v.data + block.group * c.weight_group + co * v.n + block.row * v.channel + offset(v, k);
        for (int j = 0; j < FewChannels::rows; j++) {
            S weight = block.row + j < c.cin ? to_compute(from[j * v.channel]) : S(0);
            if (!(weight - weight == 0)) {
                nonfinite = 1;
                weight = 0;
            }
            to[i].lane[j] = weight;
        }
    }
}

// Walks over the taps of a phase, and over the output channels of each, for a thread's pixels.
struct FewPixels {
    static constexpr int many = FewChannels::thread_pixels;
    int output[many][3];  // what the phase's first tap meets
    int64_t g[many];      // where that is, of channel 0 of the group
    const T *from[many];  // what is read next
    bool there[many];     // whether the tap meets a pixel
    int tap[3];

    INFINIOP_INLINE FewPixels(const CudaConv &c, const InputBlock &block) {
#pragma unroll
        for (int p = 0; p < many; p++) {
            InputColumn column;
            write_column(column, c, block, threadIdx.x + p * CUDA_CONV_BLOCK);
            g[p] = column.g;
            for (int d = 0; d < 3; d++) output[p][d] = column.output[d];
        }
        for (int &t : tap) t = 0;
    }
    INFINIOP_INLINE void start_tap(const CudaConv &c) {
        const CudaConvView &v = c.view[CUDA_CONV_GRAD_OUTPUT];
#pragma unroll
        for (int p = 0; p < many; p++) {
            int64_t at = g[p];
            there[p] = true;  // & and not &&: no branches
            for (int d = 0; d < 3; d++) {
                const int back = tap[d] * int(c.axis[d].hop);
                there[p] &= unsigned(output[p][d] - back) < unsigned(c.axis[d].size_out);
                at -= back * v.space[d];
            }
            from[p] = data_of<const T>(c, CUDA_CONV_GRAD_OUTPUT) + at;
        }
    }
    INFINIOP_INLINE void next_tap(const InputBlock &block) {
        for (int d = 2; d >= 0; d--) {
            if (++tap[d] < block.axis[d].taps) break;
            tap[d] = 0;
        }
    }
};

INFINIOP_INLINE void grad_input_few_channels(const CudaConvGradInput &a) {
    constexpr int rows = FewChannels::rows, many = FewChannels::thread_pixels;
    const CudaConv &c = a.conv;
    __shared__ FewChannels::Weights weights[CUDA_CONV_CHUNK];
    __shared__ InputBlock block;
    __shared__ int nonfinite;
    if (threadIdx.x == 0) {
        write_block<FewChannels>(block, a);
        nonfinite = 0;
    }
    __syncthreads();
    if (block.first >= pixels_of(c, block)) return;

    const int64_t places = c.cout * taps_of(block), channel = c.view[CUDA_CONV_GRAD_OUTPUT].channel;
    FewPixels pixels(c, block);
    S sums[many][rows] = {};
    int co = 0;
    for (int64_t first = 0; first < places; first += CUDA_CONV_CHUNK) {
        const int count = int(min(places - first, int64_t(CUDA_CONV_CHUNK)));
        if (first) __syncthreads();
        fetch_few_weights(weights, nonfinite, c, block, first, count);
        __syncthreads();
        for (int done = 0; done < count;) {
            if (co == 0) pixels.start_tap(c);
            const int run = min(int(c.cout) - co, count - done);
#pragma unroll 4
            for (int i = done; i < done + run; i++) {
                const FewChannels::Weights w = weights[i];
#pragma unroll
                for (int p = 0; p < many; p++) {
                    const S g = pixels.there[p] ? to_compute(*pixels.from[p]) : S(0);
                    pixels.from[p] += channel;
#pragma unroll
                    for (int j = 0; j < rows; j++) sums[p][j] = mul_add(g, w.lane[j], sums[p][j]);
                }
            }
            done += run, co += run;
            if (co < c.cout) continue;
            co = 0;
            pixels.next_tap(block);
        }
    }
#pragma unroll
    for (int p = 0; p < many; p++) {
        const PixelOfResult at(c, block, PhasePixel(block, threadIdx.x + p * CUDA_CONV_BLOCK));
        if (at.n >= c.batch) break;
#pragma unroll
        for (int j = 0; j < rows; j++)
            if (block.row + j < c.cin) at.store(c, block, block.row + j, sums[p][j], nonfinite);
    }
}

}  // namespace
}  // namespace INFINIOP_ISA
