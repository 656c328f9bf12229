# AMX: what its algorithms share. A product of bfloat16 is 16 x 32 by 32 x 16 in one instruction, which adds even and
# odd steps apart in float32, then joins them, then adds them to the accumulator; subnormals count as 0. float32 and
# float16 are sums of bfloat16 (parts.pxi), float32 only within the bounds of survey.pxi. Columns go on over the
# positions between the rows of a tile: their sums are not saved (grad_input), or meet zeros of grad_output
# (grad_weight).
cdef enum:
    # Channels of bfloat16, with fewer of which other algorithms are as fast; measured.
    AMX_MIN_OUTPUTS = 2        # where there is one group
    AMX_MIN_INPUTS = 4
    AMX_MIN_WEIGHTS = 32       # of one tap
    AMX_MIN_GROUP = 6          # each way, where there are several
    AMX_FEW_INPUTS = 8         # that are multiplied with their taps or phases, at most,
    AMX_TAPS_OUTPUTS = 9       # and how many outputs that takes
    AMX_MAX_TAPS = 512
    PART_MIN_CHANNELS = 24     # where an element is several bfloat16
    PART_MIN_REUSE = 45        # for float32's grad_weight: how often an element that is taken apart is multiplied,
    STRIDED_MIN_REUSE = 170    # with a stride,
    STRIDED_MIN_TAPS = 9       # and how many taps that takes, unless it is one
    SMALL_MIN_REUSE = 80       # where a quarter of an instruction is empty,
    SMALL_MIN_PRODUCTS = 1 << 16  # and of how many channels of each by taps,
    FULL_MIN_PRODUCTS = 1 << 20   # or where two fifths are
    HALF_MIN_REUSE = 40        # the same for float16's grad_weight,
    PART_MIN_PRODUCTS = 128    # and for float32's grad_input under several taps
    PART_MIN_STEPS = 48        # for float32's grad_input under several taps: output channels by taps
    AMX_HALF = 16              # rows or columns of one instruction
    AMX_CELL = 1024            # bytes of 16 rows of a by 32 steps
    AMX_COLUMNS = 32           # AMX_SIDE, as a constant
    AMX_OUTPUT_ROWS = 256      # output channels of a task of grad_weight, at most,
    AMX_MOST_ROWS = 512        # and of the only tile's


cdef bint suits_amx(const SampleGeometry *sample, const char **why) noexcept nogil:
    """Say whether a geometry has what all algorithms by AMX want."""
    if not sample.parts:
        why[0] = b"it multiplies sums of bfloat16, on CPUs with AMX that the system grants"
        return False
    if sample.cin == 0 or sample.cout < (AMX_MIN_OUTPUTS if sample.groups == 1 else AMX_MIN_GROUP):
        why[0] = b"few output channels to a group would leave most of an instruction empty"
        return False
    if sample.taps > AMX_MAX_TAPS:
        why[0] = b"there are too many taps"
        return False
    return True


cdef bint has_amx_inputs(const SampleGeometry *sample, const char **why) noexcept nogil:
    """Say whether there are enough input channels for products of them alone."""
    why[0] = b"few input channels to a group would leave most of an instruction empty"
    return sample.cin >= (AMX_MIN_INPUTS if sample.groups == 1 else AMX_MIN_GROUP) \
        and sample.cin * sample.cout >= AMX_MIN_WEIGHTS


cdef bint has_few_inputs(const SampleGeometry *sample, const char **why) noexcept nogil:
    """Say whether input channels are so few that an instruction is to have their taps or phases, too."""
    why[0] = b"input channels to a group are many, or output channels few"
    return sample.cin <= AMX_FEW_INPUTS and sample.cout >= AMX_TAPS_OUTPUTS


cdef bint pays_in_parts(const SampleGeometry *sample, const char **why) noexcept nogil:
    """Say whether products of several parts are enough quicker than float32's to pay for taking numbers apart; the
    bounds here are measured."""
    if sample.parts == 1 or (sample.cin >= PART_MIN_CHANNELS and sample.cout >= PART_MIN_CHANNELS):
        return True
    why[0] = b"few channels to a group do not pay for taking numbers apart"
    return False


cdef int64_t amx_element_bytes(const SampleGeometry *sample) noexcept nogil:
    """Count the bytes of an element's parts, by which tiles are cut; float16's sums are in the order of float32's."""
    return 2 if sample.parts == 1 else 6


cdef int64_t amx_chunks(const SampleGeometry *sample) noexcept nogil:
    """Count the chunks of output channels; the steps of one instruction are a chunk of AMX_STEPS."""
    return ceil_div(sample.cout, AMX_STEPS)
