// Every elementwise operator: out[i] = value(input[i]); out[i] = gradient(grad_output[i], input[i]), or out[i] + it.
// The formulas are those of the CPU (kernels/formulas.h); here is only how elements reach them. Compiled for one
// direction of one formula and one dtype:
//   -DINFINIOP_FORMULA=gelu -DINFINIOP_DIRECTION=gradient_of -DINFINIOP_T=float
//
// Each kernel goes through one_element, and nothing is contracted (--fmad=false), so the bits do not depend on which
// kernel computes an element.
#include "cast.h"
#include "cuda_arguments.h"
#include "formulas.h"
#include "table.h"

namespace INFINIOP_ISA {
namespace {

typedef INFINIOP_DIRECTION<INFINIOP_FORMULA> Formula;
typedef INFINIOP_T T;
typedef compute_type<T> S;

constexpr bool HAS_GRAD = Formula::inputs == 2;
constexpr int OPERANDS = 1 + Formula::inputs;  // of CUDA_OPERANDS

__device__ __forceinline__ S one_element(S g, S x, const FormulaParameters &p) {
    return Formula::apply<T>(g, x, Formula::prepared<T>(p));
}

__device__ __forceinline__ T one_element(T g, T x, const T *old, const FormulaParameters &p) {
    S result = one_element(to_compute(g), to_compute(x), p);
    return from_compute<T>(old ? to_compute(*old) + result : result);
}

constexpr int VECTOR = CUDA_VECTOR_BYTES / sizeof(T);
struct alignas(CUDA_VECTOR_BYTES) Vector { T lane[VECTOR]; };

// The operands of one element.
struct Offsets { int64_t of[CUDA_OPERANDS]; };

template <class Index> __device__ __forceinline__ Index divide(Index n, const CudaAxis &axis);
template <> __device__ __forceinline__ uint32_t divide(uint32_t n, const CudaAxis &axis) {
    return (__umulhi(n, axis.divisor.magic) + n) >> axis.divisor.shift;
}
template <> __device__ __forceinline__ uint64_t divide(uint64_t n, const CudaAxis &axis) {
    return n / uint64_t(axis.length);  // beyond 2^31 elements only
}

// Finds the offsets in bytes of element n, counted in the order of the axes.
template <class Index> __device__ __forceinline__ Offsets offsets_of(Index n, const CudaStrided &a) {
    Offsets offsets = {};
    for (int d = a.ndim - 1; d >= 0; d--) {
        Index rest = d ? divide<Index>(n, a.axes[d]) : 0;
        Index index = n - rest * Index(a.axes[d].length);
        for (int k = 0; k < OPERANDS; k++) offsets.of[k] += int64_t(index) * a.axes[d].strides[k];
        n = rest;
    }
    return offsets;
}

__device__ __forceinline__ T *element(void *data, int64_t offset) { return (T *)((char *)data + offset); }

// Loads one element of any floating dtype, in the compute type of T.
__device__ __forceinline__ S load_any(const void *data, int64_t offset, int dtype) {
    const char *p = (const char *)data + offset;
    switch (dtype) {
        case DTYPE_F16: return S(to_compute(*(const float16 *)p));
        case DTYPE_BF16: return S(to_compute(*(const bfloat16 *)p));
        case DTYPE_F32: return S(*(const float *)p);
        default: return S(*(const double *)p);
    }
}

template <class To> __device__ __forceinline__ void store_as(void *p, S v) { *(To *)p = from_value<To>::of(v); }

// Stores one element of any dtype. v is rounded to T first, since the result is cast after computing.
__device__ __forceinline__ void store_any(void *data, int64_t offset, int dtype, S v) {
    void *p = (char *)data + offset;
    v = S(to_compute(from_compute<T>(v)));
    switch (dtype) {
        case DTYPE_BOOL: return store_as<bool>(p, v);
        case DTYPE_I8: return store_as<int8_t>(p, v);
        case DTYPE_I16: return store_as<int16_t>(p, v);
        case DTYPE_I32: return store_as<int32_t>(p, v);
        case DTYPE_I64: return store_as<int64_t>(p, v);
        case DTYPE_U8: return store_as<uint8_t>(p, v);
        case DTYPE_U16: return store_as<uint16_t>(p, v);
        case DTYPE_U32: return store_as<uint32_t>(p, v);
        case DTYPE_U64: return store_as<uint64_t>(p, v);
        case DTYPE_F16: return store_as<float16>(p, v);
        case DTYPE_BF16: return store_as<bfloat16>(p, v);
        case DTYPE_F32: return store_as<float>(p, v);
        case DTYPE_F64: return store_as<double>(p, v);
        case DTYPE_C64: return store_as<complex<float>>(p, v);
        default: return store_as<complex<double>>(p, v);
    }
}

__device__ __forceinline__ void strided_element(const CudaStrided &a, const Offsets &o) {
    T *out = element(a.data[CUDA_OUT], o.of[CUDA_OUT]);
    T g = {}, x = *element(a.data[CUDA_INPUT], o.of[CUDA_INPUT]);
    if constexpr (HAS_GRAD) g = *element(a.data[CUDA_GRAD_OUTPUT], o.of[CUDA_GRAD_OUTPUT]);
    *out = one_element(g, x, a.accumulate ? out : nullptr, a.parameters);
}

__device__ __forceinline__ void mixed_element(const CudaStrided &a, const Offsets &o) {
    S g = 0, x = load_any(a.data[CUDA_INPUT], o.of[CUDA_INPUT], a.dtypes[CUDA_INPUT]);
    if constexpr (HAS_GRAD) g = load_any(a.data[CUDA_GRAD_OUTPUT], o.of[CUDA_GRAD_OUTPUT], a.dtypes[CUDA_GRAD_OUTPUT]);
    S result = one_element(g, x, a.parameters);
    if (a.accumulate) result = load_any(a.data[CUDA_OUT], o.of[CUDA_OUT], a.dtypes[CUDA_OUT]) + result;
    store_any(a.data[CUDA_OUT], o.of[CUDA_OUT], a.dtypes[CUDA_OUT], result);
}

// Neighbouring threads take neighbouring elements of out's innermost axis.
template <class Index, void (*one)(const CudaStrided &, const Offsets &)>
__device__ __forceinline__ void walk(const CudaStrided &a) {
    Index first = Index(blockIdx.x) * (CUDA_BLOCK * CUDA_ITEMS) + threadIdx.x;
    for (int i = 0; i < CUDA_ITEMS; i++) {
        Index n = first + Index(i) * CUDA_BLOCK;
        if (n < Index(a.size)) one(a, offsets_of<Index>(n, a));
    }
}

}  // namespace
}  // namespace INFINIOP_ISA

using namespace INFINIOP_ISA;

// A thread per vector; the thread after the last whole one takes what is left.
extern "C" __global__ void __launch_bounds__(CUDA_BLOCK) contiguous(const CudaContiguous a) {
    int64_t first = (int64_t(blockIdx.x) * CUDA_BLOCK + threadIdx.x) * VECTOR;
    const T *x = (const T *)a.data[CUDA_INPUT] + first;
    const T *g = HAS_GRAD ? (const T *)a.data[CUDA_GRAD_OUTPUT] + first : x;
    T *out = (T *)a.data[CUDA_OUT] + first;
    if (first + VECTOR <= a.size) {
        Vector grads = *(const Vector *)g, inputs = *(const Vector *)x, old, result;  // without g one load
        if (a.accumulate) old = *(const Vector *)out;
#pragma unroll
        for (int i = 0; i < VECTOR; i++)
            result.lane[i] =
                one_element(grads.lane[i], inputs.lane[i], a.accumulate ? &old.lane[i] : nullptr, a.parameters);
        *(Vector *)out = result;
    } else {
        for (int i = 0; first + i < a.size; i++)
            out[i] = one_element(g[i], x[i], a.accumulate ? out + i : nullptr, a.parameters);
    }
}

extern "C" __global__ void __launch_bounds__(CUDA_BLOCK) strided(const CudaStrided a) {
    if (a.size < INT32_MAX) walk<uint32_t, strided_element>(a);
    else walk<uint64_t, strided_element>(a);
}

// Operands of several dtypes: each element is converted on its way.
extern "C" __global__ void __launch_bounds__(CUDA_BLOCK) mixed(const CudaStrided a) {
    if (a.size < INT32_MAX) walk<uint32_t, mixed_element>(a);
    else walk<uint64_t, mixed_element>(a);
}

// A block per tile of out's innermost axis (columns) and tile_axis (rows). An operand that is `across`, contiguous
// along the rows, goes through shared memory, so that both its loads and the stores of out touch whole lines.
extern "C" __global__ void __launch_bounds__(CUDA_BLOCK) tiled(const CudaStrided a) {
    __shared__ T tile[OPERANDS][CUDA_TILE][CUDA_TILE + 1];  // by column; one more against bank conflicts
    constexpr int STEP = CUDA_BLOCK / CUDA_TILE;
    const int last = a.ndim - 1, lane = threadIdx.x % CUDA_TILE, group = threadIdx.x / CUDA_TILE;
    int64_t block = blockIdx.x, rows = 0, columns = 0;
    Offsets corner = {};
    for (int d = last; d >= 0; d--) {
        int64_t step = d == last || d == a.tile_axis ? CUDA_TILE : 1, count = (a.axes[d].length + step - 1) / step;
        int64_t index = block % count * step;
        block /= count;
        if (d == last) columns = a.axes[d].length - index;
        if (d == a.tile_axis) rows = a.axes[d].length - index;
        for (int k = 0; k < OPERANDS; k++) corner.of[k] += index * a.axes[d].strides[k];
    }
    for (int k = CUDA_INPUT; k < OPERANDS; k++) {
        if (!a.across[k]) continue;
        for (int column = group; column < CUDA_TILE; column += STEP)
            if (column < columns && lane < rows)
                tile[k][column][lane] = *element(
                    a.data[k], corner.of[k] + column * a.axes[last].strides[k] + lane * a.axes[a.tile_axis].strides[k]);
    }
    __syncthreads();
    for (int row = group; row < CUDA_TILE; row += STEP) {
        if (row >= rows || lane >= columns) continue;
        T value[CUDA_OPERANDS] = {};
        T *out = nullptr;
        for (int k = 0; k < OPERANDS; k++) {
            T *p = element(a.data[k],
                           corner.of[k] + row * a.axes[a.tile_axis].strides[k] + lane * a.axes[last].strides[k]);
            if (k == CUDA_OUT) out = p;
            else value[k] = a.across[k] ? tile[k][lane][row] : *p;
        }
        *out = one_element(value[CUDA_GRAD_OUTPUT], value[CUDA_INPUT], a.accumulate ? out : nullptr, a.parameters);
    }
}
