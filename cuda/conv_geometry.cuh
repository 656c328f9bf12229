// Where the pixels and taps of a convolution lie. Divisions take the short way where 32 bits allow it.
#pragma once
#include "cuda_conv_arguments.h"
#include "device_types.cuh"

namespace INFINIOP_ISA {
namespace {

typedef INFINIOP_T T;
typedef compute_type<T> S;

// n / length for 0 <= n < 2^31 and a length that has a divisor.
INFINIOP_INLINE int divide(int n, int64_t, const CudaDivisor &d) { return (__umulhi(n, d.magic) + n) >> d.shift; }
INFINIOP_INLINE int64_t divide(int64_t n, int64_t length, const CudaDivisor &) { return n / length; }

// n becomes n / length; returns the remainder.
template <class I> INFINIOP_INLINE I take(I &n, int64_t length, const CudaDivisor &d) {
    I rest = divide(n, length, d), index = n - rest * I(length);
    n = rest;
    return index;
}
INFINIOP_INLINE int64_t take(int64_t &n, int64_t length) {
    int64_t rest = (n | length) >> 32 ? n / length : uint32_t(n) / uint32_t(length), index = n - rest * length;
    n = rest;
    return index;
}

INFINIOP_INLINE int64_t block_number(int64_t first) { return first + blockIdx.x; }
template <class Of> INFINIOP_INLINE Of *data_of(const CudaConv &c, int tensor) { return (Of *)c.view[tensor].data; }

template <class I> INFINIOP_INLINE int64_t offset(const CudaConvView &v, const I *pixel) {
    return pixel[0] * v.space[0] + pixel[1] * v.space[1] + pixel[2] * v.space[2];
}
template <class I> INFINIOP_INLINE bool inside(const I *pixel, const I *size) {
    bool there = true;  // & and not &&: no branches
    for (int d = 0; d < 3; d++) there &= pixel[d] >= 0 & pixel[d] < size[d];
    return there;
}

template <class I> struct Sizes {
    I in[3], out[3];
    INFINIOP_INLINE Sizes(const CudaConv &c) {
        for (int d = 0; d < 3; d++) in[d] = I(c.axis[d].size_in), out[d] = I(c.axis[d].size_out);
    }
};

// The output pixel with this number, counted over the batch.
struct Position {
    int64_t n;
    int pixel[3];

    INFINIOP_INLINE Position(const CudaConv &c, int64_t flat) : n(flat) {
        if (flat >> 31) {
            for (int d = 2; d >= 0; d--) pixel[d] = int(take(n, c.axis[d].size_out));
        } else {
            int rest = int(flat);
            for (int d = 2; d >= 0; d--) pixel[d] = take(rest, c.axis[d].size_out, c.axis[d].out);
            n = rest;
        }
    }
};

// Where a unit starts, counted over the batch, and its length.
struct Unit {
    int64_t flat, length;
    INFINIOP_INLINE Unit(const CudaConvUnits &u, int64_t number) {
        int64_t part = take(number, u.parts) * u.part;
        flat = number * u.piece + part;
        length = part + u.part < u.piece ? u.part : u.piece - part;
    }
};

}  // namespace
}  // namespace INFINIOP_ISA
