# The list of algorithms. For each gradient the first that accepts the geometry computes it; the last of each accepts
# all. To add one is a file, and its two lines here.
include "depthwise.pxi"
include "input_col2im.pxi"
include "input_amx.pxi"
include "input_amx_late.pxi"
include "input_amx_fused.pxi"
include "input_pixels.pxi"
include "input_gemm.pxi"
include "input_taps.pxi"
include "output.pxi"
include "output_copies.pxi"
include "output_dot.pxi"
include "output_windows.pxi"
include "output_multiplied.pxi"
include "weight_outer.pxi"
include "weight_amx.pxi"
include "weight_amx_sums.pxi"
include "weight_amx_shared.pxi"
include "weight_amx_fused.pxi"
include "weight_dot.pxi"
include "weight_gemm.pxi"
include "weight_im2col.pxi"

ctypedef ConvAlgorithm (*AlgorithmRow)() noexcept nogil


cdef ConvAlgorithm conv_algorithm(int number) noexcept nogil:
    """Return the row of that number; behind the last one its name is NULL."""
    cdef ConvAlgorithm none
    cdef AlgorithmRow *rows = [
        depthwise,
        input_amx_joined,
        grouped,
        input_depthwise,
        input_col2im,
        input_amx,
        input_amx_fused,
        input_pixels,
        input_gemm,
        input_taps,
        output_dot,
        output_depthwise,
        output_multiplied,
        output_amx_joined,
        output_grouped,
        output_amx,
        output_pixels,
        output_gemm,
        output_taps,
        weight_outer,
        weight_amx,
        weight_amx_fused,
        weight_dot,
        weight_gemm,
        weight_im2col,
        NULL,
    ]
    if rows[number] != NULL:
        return rows[number]()
    none.name = NULL
    return none
