// What one instruction set offers the core: a constant table of functions, the same for all of them.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "parameters.h"

// infiniDtype_t of InfiniCore; its values index the tables below.
enum Dtype {
    DTYPE_INVALID = 0,
    DTYPE_BOOL = 2, DTYPE_I8, DTYPE_I16, DTYPE_I32, DTYPE_I64, DTYPE_U8, DTYPE_U16, DTYPE_U32, DTYPE_U64,
    DTYPE_F16 = 12, DTYPE_F32, DTYPE_F64,
    DTYPE_C64 = 17, DTYPE_C128, DTYPE_BF16,
    DTYPE_COUNT
};

enum { MAX_FORMULAS = 64 };

// How a kernel stores a gradient: over what out holds, added to it, or past the caches to memory, which saves reading
// lines that will be overwritten, and pays where out does not stay in the cache.
enum Store { WRITE, ACCUMULATE, STREAM, STORE_COUNT };

// out[i] = gradient(g[i], x[i]) or, accumulating, out[i] + gradient; n contiguous elements of one dtype.
// out may be g or x itself. All modes give the same bits.
// After streaming, finish_streams() of support.h.
typedef void (*ElementwiseKernel)(const void *g, const void *x, void *out, int64_t n, const FormulaParameters *);

// to[i] = from[i] with strides in bytes; floats round to nearest even, floats to integers truncate and
// saturate (NaN gives 0).
typedef void (*ConvertKernel)(const char *from, int64_t from_stride, char *to, int64_t to_stride, int64_t n);

// to[r][c] = from[c][r]; `from` is contiguous along r with columns `column` bytes apart, `to` along c with rows `row`
// bytes apart.
typedef void (*TransposeKernel)(const char *from, int64_t column, char *to, int64_t row, int64_t rows, int64_t columns);

// c[mr][nr] += sum over k of a[k][mr] * b[k][nr], or of a[mr][k] whose rows are a_row elements apart (by_rows). The sum
// runs in the order of k: from zero, then added to c (chain = 0), or starting from c (chain = 1), which makes the bits
// independent of where k is cut.
typedef void (*GemmKernel)(int64_t k, const void *a, int64_t a_row, const void *b, void *c, int64_t c_row, int chain);

struct GemmTile {
    int mr, nr;
    int lanes;  // of a vector; nr is a multiple
    GemmKernel kernel, by_rows;
};

// The sum of n contiguous elements, in an order that depends on n alone.
typedef double (*SumKernel)(const void *values, int64_t n);

struct KernelTable {
    const char *isa;
    int formula_count;
    const char *formula_name[MAX_FORMULAS];
    bool (*formula_accepts[MAX_FORMULAS])(const FormulaParameters *);
    ElementwiseKernel elementwise[MAX_FORMULAS][DTYPE_COUNT][STORE_COUNT];
    ConvertKernel convert[DTYPE_COUNT][DTYPE_COUNT];              // [from][to]
    TransposeKernel transpose[DTYPE_COUNT];                       // F16, BF16, F32, F64
    GemmTile gemm[DTYPE_COUNT];                                   // F32, F64
    SumKernel sum[DTYPE_COUNT];                                   // F32, F64
};

extern const struct KernelTable infiniop_kernels_generic;
extern const struct KernelTable infiniop_kernels_avx2;
extern const struct KernelTable infiniop_kernels_avx512;

// The table for this CPU, or the one that INFINIOP_CY_ISA (infiniop_forced_isa, else null) names; null with the
// problem in words where that cannot run. Chosen once, when the library is loaded.
extern const struct KernelTable *const infiniop_kernels;
extern const char *const infiniop_forced_isa;
extern const char *infiniop_kernels_problem;
// Names of the tables compiled in, null-terminated, best first.
const char *const *infiniop_compiled_isas(void);
