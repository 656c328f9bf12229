from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, intptr_t
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport getenv, strtol
from libc.stdio cimport snprintf
from libc.string cimport memcmp, memcpy, memset, strchr, strlen, strncmp
cimport cython


cdef extern from "../kernels/table.h" nogil:
    enum:
        DTYPE_INVALID, DTYPE_BOOL, DTYPE_I8, DTYPE_I16, DTYPE_I32, DTYPE_I64
        DTYPE_U8, DTYPE_U16, DTYPE_U32, DTYPE_U64
        DTYPE_F16, DTYPE_F32, DTYPE_F64, DTYPE_C64, DTYPE_C128, DTYPE_BF16, DTYPE_COUNT
    enum:
        WRITE, ACCUMULATE, STREAM
    ctypedef struct FormulaParameters:
        double value[4]
    ctypedef void (*ElementwiseKernel)(const void *, const void *, void *, int64_t,
                                       const FormulaParameters *) noexcept nogil
    ctypedef void (*ConvertKernel)(const char *, int64_t, char *, int64_t, int64_t) noexcept nogil
    ctypedef void (*TransposeKernel)(const char *, int64_t, char *, int64_t, int64_t, int64_t) noexcept nogil
    ctypedef void (*TransposeToKernel)(const char *, int64_t, char *, const int64_t *, int64_t, int64_t) noexcept nogil
    ctypedef void (*StreamKernel)(const char *, int64_t, char *, int64_t, int64_t, int64_t) noexcept nogil
    ctypedef struct Unsent:
        const char *data
        char *to
        int64_t bytes, share
        char *stage
        int64_t rest
        char *other
    ctypedef void (*PadKernel)(const char *, int64_t, char *, int64_t, int64_t, int64_t, int64_t,
                               int64_t) noexcept nogil
    ctypedef struct BatchReduce:
        int64_t count
        int64_t depth
        const int64_t *a_offset
        const int64_t *b_offset
        int64_t a_step
        int64_t b_step
        int64_t a_ahead
        int64_t b_ahead
        int64_t columns
        const void *bias
    int GEMM_PUT, GEMM_PUT_PAST, GEMM_PUT_CHAIN
    ctypedef void (*GemmKernel)(const BatchReduce *, const void *, const int64_t *, const void *, void *, int64_t,
                                int) noexcept nogil
    ctypedef struct LaneRows:
        int64_t pixel, row, channel
        int64_t rows, width, channels
        int64_t above, below, before, after
        int64_t pitch, apart
        bint stream
    ctypedef void (*PackLanesKernel)(const char *, const LaneRows *, void *) noexcept nogil
    ctypedef void (*UnpackLanesKernel)(const void *, const LaneRows *, char *) noexcept nogil
    ctypedef struct StencilRows:
        int64_t rows, width, from_row, from_pixel, to_row, to_pixel, taps
        const int64_t *at
    int SPREAD_MOST
    ctypedef void (*SpreadKernel)(const char *, int64_t, int64_t, int64_t, int64_t, char *, int64_t) noexcept nogil
    enum StencilSums:
        STENCIL_SET
        STENCIL_ADD_PRODUCTS
        STENCIL_ADD_SUM

    ctypedef void (*StencilKernel)(const StencilRows *, const void *, const void *, void *,
                                   StencilSums) noexcept nogil
    int LINE_TAPS, WIDE_LINE_TAPS
    ctypedef struct PixelLine:
        int64_t taps, at, pixel, first_row, end_row
    ctypedef struct StencilPixels:
        int64_t first_row, end_row, first_column, end_column, width, channels
        int64_t from_row, from_pixel, to_row, to_pixel, row, step, lines
        const PixelLine *line
        int64_t weights
        const void *bias
        Unsent *unsent
        bint past
    ctypedef void (*StencilPixelsKernel)(const StencilPixels *, const char *, const void *, char *) noexcept nogil
    ctypedef struct StencilDotRows:
        int64_t rows, width, g_row, x_row, x_pixel, taps
        const int64_t *at
    ctypedef void (*StencilDotKernel)(const StencilDotRows *, const void *, const void *, void *) noexcept nogil
    int DOT_PIXEL_TAPS, DOT_PIXEL_REST
    ctypedef struct TapInside:
        int64_t first_row, end_row, first, end
    ctypedef struct StencilDotPixels:
        int64_t rows, width, vectors, g_row, g_pixel, x_row, x_pixel, sums, taps
        const int64_t *at
        const TapInside *inside
        int64_t three_by_three, first_column, end_column
        int64_t new_rows, next_row, next_pixel, pixels, newest
    ctypedef void (*StencilDotPixelsKernel)(const StencilDotPixels *, const char *, const char *, void *) noexcept nogil
    ctypedef struct LaneGroups:
        int64_t channels
        int64_t apart
    ctypedef void (*GroupStencilKernel)(const StencilRows *, const LaneGroups *, const void *, const void *,
                                        void *) noexcept nogil
    ctypedef void (*GroupStencilDotKernel)(const StencilDotRows *, const LaneGroups *, const void *, const void *,
                                           void *) noexcept nogil
    ctypedef struct TapLine:
        int64_t rows
        int64_t row_step
        int64_t taps
        int64_t tap_step
        int64_t first
        int64_t size
        int64_t pitch
    ctypedef void (*TakeTapsKernel)(const TapLine *, const void *, void *, int64_t) noexcept nogil
    ctypedef void (*AddTapsKernel)(const TapLine *, const void *, int64_t, void *) noexcept nogil
    ctypedef void (*AddProductsKernel)(const TapLine *, const void *, int64_t, int64_t, const void *, int64_t,
                                       void *) noexcept nogil
    ctypedef double (*SumKernel)(const char *, int64_t, int64_t, int64_t, int64_t) noexcept nogil
    ctypedef void (*SumChannelsKernel)(const char *, int64_t, int64_t, int64_t, int64_t, int64_t,
                                       double *) noexcept nogil
    ctypedef bint (*AcceptsParameters)(const FormulaParameters *) noexcept nogil
    ctypedef struct RegisterTile:
        int rows
        int vectors
        GemmKernel kernel
    ctypedef struct RegisterTiles:
        int lanes
        int max_vectors
        RegisterTile many_rows[5]
        int panel_vectors
        RegisterTile few_rows
        RegisterTile one_row
        RegisterTile row[5]
    ctypedef struct VnniKernels:
        void (*of_planes)(const char *, const char *, int64_t, char *, int64_t, int64_t, int64_t, int64_t,
                          int64_t) noexcept nogil
        void (*of_channels)(const char *, int64_t, char *, const int64_t *, int64_t, int64_t) noexcept nogil
        void (*of_lines)(const char *, int64_t, char *, int64_t, int64_t, int64_t) noexcept nogil
        void (**of_pixels)(const char *, const int64_t *, char *, int64_t, int64_t, int64_t) noexcept nogil
        void (*transpose)(const char *, int64_t, char *, int64_t, int64_t, int64_t) noexcept nogil
        void (*reverse)(const char *, int64_t, int64_t, char *, int64_t, int64_t, int64_t, int64_t) noexcept nogil
        int (*replace_nonfinite)(char *, int64_t) noexcept nogil
        PadKernel pad_every_other
    const float LEAST_GRADIENT, LEAST_FACTOR
    enum:
        UNFIT_FACTOR
        UNFIT_GRADIENT
    ctypedef struct PartKernels:
        int parts
        int (*of_rows)(const char *, int64_t, char *, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                       int64_t) noexcept nogil
        int (*of_row_pairs)(const char *, int64_t, char *, int64_t, int64_t, int64_t) noexcept nogil
        int (*of_planes)(const char *, const char *, int64_t, char *, int64_t, int64_t, int64_t, int64_t, int64_t,
                         int64_t) noexcept nogil
        int (*of_pixels)(const char *, int64_t, char *, int64_t, int64_t, int64_t) noexcept nogil
        int (*of_lines)(const char *, int64_t, char *, int64_t, int64_t, int64_t) noexcept nogil
        int (*of_line_pairs)(const char *, int64_t, char *, int64_t, int64_t, int64_t) noexcept nogil
        int (*outside)(const char *, int64_t, float) noexcept nogil
        int (*of_columns)(const char *, const int64_t *, int64_t, int64_t, char *, int64_t) noexcept nogil
    enum:
        DOT_ROWS
    ctypedef void (*AddToRowsKernel)(const void *, void *, int64_t, int64_t, int64_t, int) noexcept nogil
    ctypedef int (*NonfiniteKernel)(const void *, int64_t) noexcept nogil
    ctypedef void (*DotKernel)(int64_t, int64_t, const void *, int64_t, const void *, int64_t, const int64_t *, int64_t,
                               void *) noexcept nogil
    ctypedef struct AmxAhead:
        const char *at
        int64_t rows
        int64_t row
        int64_t bytes

    ctypedef struct AmxBatchReduce:
        int64_t count
        int64_t depth
        const int64_t *a_offset
        const int64_t *b_offset
        int64_t a_row
        int64_t a_down
        int64_t a_step
        int64_t b_row
        int64_t b_right
        int64_t c_right
        int64_t parts
        int64_t a_part
        int64_t b_part
        AmxAhead ahead
    enum:
        AMX_SIDE, AMX_STEPS, AMX_PANELS_COLUMNS, AMX_BF16_SUBNORMAL
    enum AmxSums:
        AMX_SET, AMX_ADD_PRODUCTS, AMX_ADD_SUM
    ctypedef struct AmxKernels:
        void (*multiply)(const AmxBatchReduce *, const void *, int64_t, const void *, int64_t, void *, int64_t,
                         AmxSums) noexcept nogil
        void (*narrow_rows)(const char *, int64_t, char *, int64_t, int64_t, int64_t) noexcept nogil
        void (*save_panels)(const char *, int64_t, char *, int64_t, int64_t, int64_t, int, int) noexcept nogil
        void (*multiply_panels)(const AmxBatchReduce *, const char *, int64_t, const char *, int64_t, int64_t, char *,
                                char *, int64_t, int, int) noexcept nogil
        int (*multiply_lines)(const AmxBatchReduce *, const char *, int64_t, int64_t, int64_t, int64_t, char *,
                              const char *, int64_t, int64_t, char *, char *, int64_t, int) noexcept nogil
    ctypedef struct Magnitudes:
        int64_t largest
        int nonfinite
        int minus_zero
    ctypedef void (*ScanKernel)(const void *, int64_t, Magnitudes *) noexcept nogil
    ctypedef struct Grid:
        double scale[2]
        double most
    ctypedef void (*AddToGridKernel)(const void *, int64_t *, int64_t, const Grid *) noexcept nogil
    ctypedef void (*FromGridKernel)(const int64_t *, void *, int64_t, double, int) noexcept nogil
    ctypedef struct FormulaKernels:
        const char *name
        int inputs
        AcceptsParameters accepts
        ElementwiseKernel (*kernel)[3]
    ctypedef struct KernelTable:
        const char *isa
        int formula_count
        const FormulaKernels **formula
        ConvertKernel (*convert)[20]
        TransposeKernel *transpose
        TransposeKernel *widen_transpose
        TransposeToKernel *transpose_to
        PadKernel pad_rows
        StreamKernel stream_rows
        PadKernel pad_every_other
        RegisterTiles *gemm
        RegisterTiles dot2
        VnniKernels vnni
        PartKernels *parts
        AmxKernels amx
        DotKernel *dot
        PackLanesKernel *pack_lanes
        UnpackLanesKernel *unpack_lanes
        SpreadKernel *spread
        StencilKernel *stencil
        StencilPixelsKernel *stencil_pixels
        StencilDotKernel *stencil_dot
        StencilDotPixelsKernel stencil_dot_pixels
        GroupStencilKernel *group_stencil
        GroupStencilDotKernel *group_stencil_dot
        TakeTapsKernel *take_taps
        AddTapsKernel *add_taps
        AddProductsKernel *add_products
        SumChannelsKernel *sum_channels
        SumKernel *sum_rows
        AddToRowsKernel *add_to_rows
        NonfiniteKernel *has_nonfinite
        ScanKernel *scan
        AddToGridKernel *add_to_grid
        FromGridKernel *from_grid
    const KernelTable *const kernels "infiniop_kernels"
    const char *const chosen_isa "infiniop_isa"
    const bint infiniop_dot2
    bint infiniop_amx()
    const char *const forced_isa "infiniop_forced_isa"
    const char *kernels_problem "infiniop_kernels_problem"
    const char *const *infiniop_compiled_isas()


cdef extern from "base/support.h" nogil:
    bint mul_overflows(int64_t a, int64_t b, int64_t *result)
    bint add_overflows(int64_t a, int64_t b, int64_t *result)
    const char *compiler_name()
    int openmp_version()
    int omp_get_max_threads()
    int in_forked_child
    uint64_t enter_float_state()
    void leave_float_state(uint64_t saved)
    void finish_streams()
    void prefetch_line(const char *p)


cdef enum:
    MAX_NDIM = 64


def compiled_isas():
    """Names of the instruction sets this build has kernels for, best first."""
    cdef const char *const *name = infiniop_compiled_isas()
    result = []
    while name[0] != NULL:
        result.append(name[0].decode())
        name += 1
    return result


if kernels == NULL:
    raise ImportError(f"INFINIOP_CY_ISA={forced_isa.decode()}: {kernels_problem.decode()}; "
                      f"compiled in: {', '.join(compiled_isas())}")


def formula_names():
    """Names of the compiled formulas; a position in this list is the formula's number."""
    return [kernels.formula[i].name.decode() for i in range(kernels.formula_count)]


def build_info():
    """What this build is and which kernels it chose: compiler, openmp (yyyymm or 0), isa, isas."""
    return {
        "compiler": compiler_name().decode(),
        "openmp": openmp_version(),
        "isas": compiled_isas(),
        "isa": chosen_isa.decode(),
        "isa_forced": forced_isa != NULL,
    }
