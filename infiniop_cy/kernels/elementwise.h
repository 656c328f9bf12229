// One loop for every formula and dtype: widen, compute, narrow. What does not fill a register runs through the same
// vector code on a padded buffer, so an element's bits never depend on its position.
#pragma once
#include "dtype.h"
#include "formulas.h"
#include "table.h"

namespace INFINIOP_ISA {
namespace {

// Bytes between what is computed and what is fetched of each input. 512 to 8,192 measured alike; without, float32
// sigmoid and gelu took 1.6 and 1.15 times as long from memory, and the others the same.
enum { PREFETCH_BYTES = 2048 };

// Registers from which it pays to start with a part of one, so that the rest of out is aligned: stores across cache
// lines cost 3 to 10 %.
enum { ALIGN_FROM = 64 };

template <class Formula, class T, Store mode>
INFINIOP_INLINE void elementwise_step(const T *g, const T *x, T *out, const FormulaParameters &p) {
    auto inputs = widen(x);
    decltype(inputs) grads = {}, results = {};
    if constexpr (Formula::inputs == 2) grads = widen(g);
    if constexpr (mode == ACCUMULATE) results = widen(out);
    for (int i = 0; i < inputs.count; i++) {
        auto result = Formula::template apply<T>(grads.part[i], inputs.part[i], p);
        results.part[i] = mode == ACCUMULATE ? results.part[i] + result : result;
    }
    if (mode == STREAM) stream(out, narrow<T>(results));
    else store(out, narrow<T>(results));
}

// n elements, fewer than a register holds. One copy for every place that calls it: formulas are long.
template <class Formula, class T, Store mode>
__attribute__((noinline)) void elementwise_part(const T *g, const T *x, T *out, int64_t n, const FormulaParameters &p) {
    T gt[register_of<T>::count] = {}, xt[register_of<T>::count] = {}, ot[register_of<T>::count] = {};
    size_t bytes = size_t(n) * sizeof(T);
    if (Formula::inputs == 2) __builtin_memcpy(gt, g, bytes);
    __builtin_memcpy(xt, x, bytes);
    if (mode == ACCUMULATE) __builtin_memcpy(ot, out, bytes);
    elementwise_step<Formula, T, mode>(gt, xt, ot, p);
    __builtin_memcpy(out, ot, bytes);
}

template <class Formula, class T, Store mode>
void elementwise(const void *g_, const void *x_, void *out_, int64_t n, const FormulaParameters *parameters) {
    constexpr int count = register_of<T>::count;
    constexpr auto part = elementwise_part < Formula, T, mode == STREAM ? WRITE : mode > ;
    const T *g = (const T *)g_, *x = (const T *)x_;
    T *out = (T *)out_;
    FormulaParameters p = *parameters;  // out may alias it as far as the compiler knows
    for (double &value : p.value)
        if (value != value) value = __builtin_nan("");  // without a payload, which narrow() relies on
    p = Formula::template prepared<T>(p);
    int64_t i = 0;
    if (mode == STREAM || n >= ALIGN_FROM * count) {
        int64_t unaligned = int64_t(-(uintptr_t)out % vector_bytes / sizeof(T));
        i = unaligned < n ? unaligned : n;
        if (i) part(g, x, out, i, p);
    }
    for (; i + count <= n; i += count) {
        if (Formula::inputs == 2) prefetch((const char *)(g + i) + PREFETCH_BYTES);
        prefetch((const char *)(x + i) + PREFETCH_BYTES);
        elementwise_step<Formula, T, mode>(g + i, x + i, out + i, p);
    }
    if (i < n) part(g + i, x + i, out + i, n - i, p);
}

// How results are stored that shall go past the caches. A fallback, whose code shall be small, has that where it is
// felt.
#ifdef INFINIOP_FALLBACK
template <class Formula> constexpr Store past = Formula::waits_for_memory ? STREAM : WRITE;
#else
template <class Formula> constexpr Store past = STREAM;
#endif

template <class Formula> bool formula_accepts(const FormulaParameters *parameters) {
    return Formula::accepts(*parameters);
}

template <class Formula, class T> constexpr void fill_dtype(FormulaKernels &kernels, int dtype) {
    kernels.kernel[dtype][WRITE] = elementwise<Formula, T, WRITE>;
    if constexpr (Formula::inputs == 2) kernels.kernel[dtype][ACCUMULATE] = elementwise<Formula, T, ACCUMULATE>;
    kernels.kernel[dtype][STREAM] = elementwise<Formula, T, past<Formula>>;
}

template <class Formula> constexpr FormulaKernels kernels_of() {
    FormulaKernels kernels = {};
    kernels.name = Formula::name.text;
    kernels.inputs = Formula::inputs;
    kernels.accepts = formula_accepts<Formula>;
    fill_dtype<Formula, float16>(kernels, DTYPE_F16);
    fill_dtype<Formula, bfloat16>(kernels, DTYPE_BF16);
    fill_dtype<Formula, float>(kernels, DTYPE_F32);
    fill_dtype<Formula, double>(kernels, DTYPE_F64);
    return kernels;
}

}  // namespace
}  // namespace INFINIOP_ISA
