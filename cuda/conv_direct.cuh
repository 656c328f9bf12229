// Sums without tiles: for few channels in a group, where tiles would be mostly padding; for sizes beyond 32 bits; and
// for the elements of grad_input that weights which are not finite reach. I counts pixels. Of an output, all this is in
// exchanged roles.
#pragma once
#include "conv_geometry.cuh"

namespace INFINIOP_ISA {
namespace {

// The pixel of grad_output from which tap k reaches one of grad_input, along one axis; -1 for none.
template <class I> INFINIOP_INLINE I output_of(const CudaConvAxis &a, I pixel, I k) {
    I shifted = pixel * I(a.step) + I(a.before) - k * I(a.dilation), output = shifted;
    if (shifted < 0) return -1;
    if (a.stride != 1) {
        output = shifted / I(a.stride);
        if (output * I(a.stride) != shifted) return -1;
    }
    return output < I(a.size_out) ? output : -1;
}

// grad_input[n, ci, pixel] = sum over k, co of grad_output[n, co, o] * weight[co, ci, k], of terms that exist;
// nonfinite: whether one of those weights is inf or NaN.
template <class I>
INFINIOP_INLINE S input_sum(const CudaConv &c, int64_t n, int64_t group, int64_t ci, const I *pixel, bool &nonfinite) {
    const CudaConvView &gv = c.view[CUDA_CONV_GRAD_OUTPUT], &wv = c.view[CUDA_CONV_WEIGHT];
    const T *g = (const T *)gv.data + n * gv.n + group * c.cout * gv.channel;
    const T *w = (const T *)wv.data + group * c.weight_group + ci * wv.channel;
    S sum = 0;
    I k[3], o[3];
    nonfinite = false;
    for (k[0] = 0; k[0] < I(c.axis[0].kernel); k[0]++) {
        if ((o[0] = output_of<I>(c.axis[0], pixel[0], k[0])) < 0) continue;
        for (k[1] = 0; k[1] < I(c.axis[1].kernel); k[1]++) {
            if ((o[1] = output_of<I>(c.axis[1], pixel[1], k[1])) < 0) continue;
            for (k[2] = 0; k[2] < I(c.axis[2].kernel); k[2]++) {
                if ((o[2] = output_of<I>(c.axis[2], pixel[2], k[2])) < 0) continue;
                const T *from = g + offset(gv, o), *tap = w + offset(wv, k);
                for (int64_t co = 0; co < c.cout; co++, from += gv.channel, tap += wv.n) {
                    S weight = to_compute(*tap);
                    nonfinite |= !(weight - weight == 0);
                    sum = mul_add(to_compute(*from), weight, sum);
                }
            }
        }
    }
    return sum;
}

// What an element of grad_input comes to beside its sum: an output's bias, or what was there. channel: of all groups.
INFINIOP_INLINE S finished(const CudaConv &c, int64_t channel, S sum, const T &old) {
    const CudaConvView &bias = c.view[CUDA_CONV_BIAS];
    if (bias.data) sum += to_compute(((const T *)bias.data)[channel * bias.n]);
    return c.accumulate ? to_compute(old) + sum : sum;
}

// A thread per element of grad_input.
template <class I> INFINIOP_INLINE void grad_input_elements(const CudaConvGradInput &a) {
    const CudaConv &c = a.conv;
    const CudaConvView &v = c.view[CUDA_CONV_GRAD_INPUT];
    const int64_t channels = c.groups * c.cin;
    int64_t n = block_number(a.first_block) * CUDA_CONV_BLOCK + threadIdx.x, channel = 0;
    I pixel[3];
    if (a.channels_innermost) channel = take(n, channels);
    for (int d = 2; d >= 0; d--) pixel[d] = I(take(n, c.axis[d].size_in));
    if (!a.channels_innermost) channel = take(n, channels);
    if (n >= c.batch) return;
    T *to = (T *)v.data + n * v.n + channel * v.channel + offset(v, pixel);
    int64_t group = channel, ci = take(group, c.cin);
    bool nonfinite;
    const S sum = input_sum<I>(c, n, group, ci, pixel, nonfinite);
    *to = from_compute<T>(finished(c, channel, sum, *to));
}

INFINIOP_INLINE S warp_sum(S v) {
    for (int lane = CUDA_CONV_WARP / 2; lane; lane /= 2) v += __shfl_xor_sync(~0u, v, lane);
    return v;
}

// What a warp sums: a few neighbouring elements of one output channel.
template <class I> struct WarpColumns {
    const T *g;                          // of the output channel
    const T *x[CUDA_CONV_WARP_COLUMNS];  // of the input channel, where output pixel 0 meets it under the tap
    I start[CUDA_CONV_WARP_COLUMNS][3];  // that input pixel
};

// grad_weight[co, ci, k] over one unit, by a warp: lane i sums pixels i, i + 32, ..., then a tree over the lanes.
template <class I>
INFINIOP_INLINE void weight_sums(const CudaConv &c, const Unit &unit, const WarpColumns<I> &columns,
                                 S (&sums)[CUDA_CONV_WARP_COLUMNS]) {
    const CudaConvView &gv = c.view[CUDA_CONV_GRAD_OUTPUT], &xv = c.view[CUDA_CONV_INPUT];
    const Sizes<I> sizes(c);
    int64_t n = unit.flat;
    const I first = I(take(n, c.pixels_out)), end = first + I(unit.length);
    const T *g = columns.g + n * gv.n;
    for (S &sum : sums) sum = 0;
    for (I p = first + threadIdx.x % CUDA_CONV_WARP; p < end; p += CUDA_CONV_WARP) {
        I o[3], at[3], rest = p;
        for (int d = 2; d >= 0; d--) {
            o[d] = take(rest, c.axis[d].size_out, c.axis[d].out);
            at[d] = o[d] * I(c.axis[d].stride);
        }
        const S grad = to_compute(g[offset(gv, o)]);
        const int64_t x = n * xv.n + offset(xv, at);
#pragma unroll
        for (int i = 0; i < CUDA_CONV_WARP_COLUMNS; i++) {
            I pixel[3];
            for (int d = 0; d < 3; d++) pixel[d] = columns.start[i][d] + at[d];
            S there = inside(pixel, sizes.in) ? to_compute(columns.x[i][x]) : S(0);  // 0 is data: 0 * inf is NaN
            sums[i] = mul_add(grad, there, sums[i]);
        }
    }
    for (S &sum : sums) sum = warp_sum(sum);
}

// A warp per few elements of grad_weight, and per unit or for all of them.
template <class I> INFINIOP_INLINE void grad_weight_elements(const CudaConvGradWeight &a) {
    constexpr int many = CUDA_CONV_WARP_COLUMNS;
    const CudaConv &c = a.conv;
    const CudaConvView &gv = c.view[CUDA_CONV_GRAD_OUTPUT], &xv = c.view[CUDA_CONV_INPUT];
    int64_t unit = block_number(a.first_block), channel = take(unit, a.column_tiles);  // co, counted over the groups
    channel = channel * (CUDA_CONV_BLOCK / CUDA_CONV_WARP) + threadIdx.x / CUDA_CONV_WARP;
    const int64_t column = take(channel, (a.columns + many - 1) / many) * many;
    if (channel >= c.groups * c.cout) return;
    int64_t group = channel;
    take(group, c.cout);
    WarpColumns<I> columns;
    columns.g = (const T *)gv.data + channel * gv.channel;
    for (int i = 0; i < many; i++) {
        int64_t ci = column + i < a.columns ? column + i : column;  // again, past the last
        for (int d = 2; d >= 0; d--)
            columns.start[i][d] = I(take(ci, c.axis[d].kernel) * c.axis[d].dilation - c.axis[d].before);
        columns.x[i] = (const T *)xv.data + (group * c.cin + ci) * xv.channel + offset(xv, columns.start[i]);
    }
    const int64_t element = channel * a.columns + column, size = c.groups * a.rows * a.columns;
    const int left = threadIdx.x % CUDA_CONV_WARP ? 0 : int(min(a.columns - column, int64_t(many)));  // to write
    S sums[many];
    if (a.mode == CUDA_CONV_EACH) {
        weight_sums<I>(c, Unit(a.units, a.first_unit + unit), columns, sums);
#pragma unroll
        for (int i = 0; i < many; i++)
            if (i < left) ((S *)a.slots)[unit * size + element + i] = sums[i];
        return;
    }
    S *to = (S *)a.total + element, total[many];
#pragma unroll
    for (int i = 0; i < many; i++) total[i] = a.continues && i < left ? to[i] : S(0);
    for (int64_t u = 0; u < a.wave; u++) {
        weight_sums<I>(c, Unit(a.units, a.first_unit + u), columns, sums);
#pragma unroll
        for (int i = 0; i < many; i++) total[i] += sums[i];
    }
#pragma unroll
    for (int i = 0; i < many; i++)
        if (i < left) to[i] = total[i];
}

}  // namespace
}  // namespace INFINIOP_ISA
