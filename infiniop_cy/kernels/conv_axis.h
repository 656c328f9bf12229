// One spatial axis of a convolution, i = o*stride + k*dilation - before, as the CPU's algorithms and the GPU's kernels
// see it. Written once, read by both compilers.
#pragma once
#include <stdint.h>

#if defined(__CUDACC__)
#define CONV_AXIS_FUNCTION __device__ __forceinline__
#else
#define CONV_AXIS_FUNCTION inline
#endif

// The input pixels first, first + stride, ... are a phase. The taps that reach one of them reach all: they are one
// class, tap, tap + period, ..., and from one of them to the next the output pixel moves by -hop, and for a given
// output pixel the input pixel by hop steps of the stride.
struct ConvAxis {
    int64_t size_in, size_out, kernel, stride, before, dilation;
    int64_t common;  // divisor of stride and dilation: stride = common*period, dilation = common*hop
    int64_t period, hop;
    int64_t inverse;  // of hop, modulo period
    int64_t phases;   // those that have a pixel
};

// The phase number `first`: size pixels, reached by taps tap + j*period, j < taps, from output pixels
// output + step - j*hop.
template <class I> struct ConvAxisPhaseOf { I first, size, tap, taps, output; };
typedef ConvAxisPhaseOf<int64_t> ConvAxisPhase;

// Derives what follows from the first six numbers. The dilation of a single tap means nothing: it is set to the stride.
static inline void conv_axis_derive(ConvAxis *axis) {
    if (axis->kernel == 1) axis->dilation = axis->stride;
    int64_t common = axis->stride, rest = axis->dilation;
    while (rest) {
        int64_t next = common % rest;
        common = rest;
        rest = next;
    }
    axis->common = common;
    axis->period = axis->stride / common;
    axis->hop = axis->dilation / common;
    axis->phases = axis->stride < axis->size_in ? axis->stride : axis->size_in;
    // hop^-1 modulo period, by Euclid
    int64_t a = axis->period, b = axis->hop % axis->period, x = 0, y = 1;
    while (b) {
        int64_t quotient = a / b, next = a % b, z = x - quotient * y;
        a = b, b = next, x = y, y = z;
    }
    axis->inverse = axis->period == 1 ? 0 : (x % axis->period + axis->period) % axis->period;
}

// a * b modulo `of`, for a and b below it.
template <class I> CONV_AXIS_FUNCTION I conv_axis_product(I a, I b, I of) {
#if defined(__CUDACC__)
    return I(int64_t(a) * b % of);
#else
    if (of <= INT32_MAX) return I(int64_t(a) * b % of);
    return I(__extension__(__int128)(a) * b % of);
#endif
}

// I: int where all numbers on the way fit, else int64_t.
template <class I> CONV_AXIS_FUNCTION ConvAxisPhaseOf<I> conv_axis_phase(const ConvAxis &a, I number) {
    ConvAxisPhaseOf<I> phase = {0, I(a.size_in), 0, I(a.kernel), I(a.before)};
    if (a.stride == 1) return phase;
    const I stride = I(a.stride), period = I(a.period), common = I(a.common);
    const I from_padding = number + I(a.before), residue = from_padding % stride;
    phase.first = number;
    phase.size = (I(a.size_in) - number - 1) / stride + 1;
    phase.tap = residue % common ? I(a.kernel) : conv_axis_product<I>(residue / common, I(a.inverse), period);
    phase.taps = phase.tap >= I(a.kernel) ? 0 : (I(a.kernel) - 1 - phase.tap) / period + 1;
    phase.output = phase.taps ? (from_padding - phase.tap * I(a.dilation)) / stride : 0;  // exact
    return phase;
}
