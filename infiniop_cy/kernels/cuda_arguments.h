// What the host hands to the elementwise CUDA kernels, one struct per kernel, by value.
#pragma once
#include <stdint.h>

#include "parameters.h"

// The operands, in the order of arrays: out, input, grad_output.
enum { CUDA_OUT, CUDA_INPUT, CUDA_GRAD_OUTPUT, CUDA_OPERANDS };

enum {
    CUDA_BLOCK = 256,        // threads
    CUDA_ITEMS = 4,          // elements of one thread where they are not loaded by vectors
    CUDA_VECTOR_BYTES = 16,  // one access of a thread
    CUDA_TILE = 32,          // rows and columns of a transposed tile
    CUDA_MAX_AXES = 64,
};

// n / divisor without a division: (mulhi(n, magic) + n) >> shift, for n < 2^31.
struct CudaDivisor { uint32_t divisor, magic, shift; };

static inline CudaDivisor cuda_divisor(uint32_t divisor) {
    uint32_t shift = 0;
    while (shift < 31 && (uint32_t(1) << shift) < divisor) shift++;
    uint64_t excess = (uint64_t(1) << shift) - divisor;
    return {divisor, uint32_t((excess << 32) / divisor + 1), shift};
}

struct CudaAxis {
    int64_t length;
    CudaDivisor divisor;  // of length, where the number of elements is below 2^31
    int32_t padding;
    int64_t strides[CUDA_OPERANDS];  // bytes
};

// All operands contiguous, of one dtype, at multiples of CUDA_VECTOR_BYTES.
struct CudaContiguous {
    void *data[CUDA_OPERANDS];
    int64_t size;
    FormulaParameters parameters;
    int32_t accumulate, padding;
};

// Any strides; the last axis is the innermost of out.
struct CudaStrided {
    void *data[CUDA_OPERANDS];
    int64_t size;
    FormulaParameters parameters;
    int32_t accumulate, ndim;
    int32_t dtypes[CUDA_OPERANDS];  // for the kernel that converts
    int32_t tile_axis;  // for the kernel that transposes: along which an operand that is `across` is contiguous
    int32_t across[CUDA_OPERANDS], padding;
    CudaAxis axes[CUDA_MAX_AXES];
};
