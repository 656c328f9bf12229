# The output of a convolution, by grad_input's algorithms on the problem with exchanged roles (forward.pxi).

cdef ConvAlgorithm as_output(ConvAlgorithm row, const char *name, int more=0) noexcept nogil:
    """Let a row of grad_input compute the output. more: FOR_... that it knows, besides."""
    row.name, row.gradients = name, FOR_OUTPUT | more
    return row


cdef ConvAlgorithm output_depthwise() noexcept nogil:
    return as_output(depthwise(), b"output:depthwise")


cdef ConvAlgorithm output_grouped() noexcept nogil:
    return as_output(grouped(), b"output:grouped")


cdef ConvAlgorithm output_amx() noexcept nogil:
    return as_output(input_amx(), b"output:amx", FOR_FOLDED_TAPS)


cdef ConvAlgorithm output_amx_joined() noexcept nogil:
    return as_output(input_amx_joined(), b"output:amx_joined")


cdef ConvAlgorithm output_pixels() noexcept nogil:
    return as_output(input_pixels(), b"output:pixels", FOR_FOLDED_TAPS)


cdef ConvAlgorithm output_gemm() noexcept nogil:
    return as_output(input_gemm(), b"output:gemm", FOR_FOLDED_TAPS)


cdef ConvAlgorithm output_taps() noexcept nogil:
    return as_output(input_taps(), b"output:taps", FOR_FOLDED_TAPS | FOR_FAR_PIXELS)
