# Classes of taps, for grad_weight: for all taps of a class, the input pixels that meet output pixels 0, 1, 2, ... lie a
# stride apart, and from tap to tap of the class they move by `hop` such steps. Or, interleaved, all classes together:
# positions `common` input pixels apart, an output pixel every `period` of them, a tap every `hop`.


# The input under a tile of output pixels: class by class, or interleaved (one "class" of all taps).
ctypedef struct InputBlock:
    int64_t classes[3]    # of taps, along each axis
    int64_t extent[3]     # positions of a class
    int64_t step[3]       # input pixels from position to position
    int64_t pixel[3]      # positions from output pixel to output pixel
    int64_t hop[3]        # positions from tap to tap of a class
    int64_t sample        # positions from sample to sample
    int64_t plane         # positions of a class, all samples of the tile together
    int64_t behind        # zeros that follow the last class, where rows share them (amx_gaps.pxi)


cdef int64_t class_count(const InputBlock *block) noexcept nogil:
    """Count the classes along all axes."""
    return block.classes[0] * block.classes[1] * block.classes[2]


cdef bint fill_input_block(const SampleGeometry *sample, const int64_t *extent, int64_t samples, bint interleaved,
                           int64_t align, int64_t limit, InputBlock *block) noexcept nogil:
    """Lay out the input under a tile of `extent` output pixels and `samples` samples, which begin at multiples of
    `align` positions. Return False where the classes of one channel and sample have more positions than the limit."""
    cdef const ConvAxis *axis
    cdef int64_t extra, last_tap, positions
    cdef int d
    for d in range(3):
        axis = &sample.axis[d]
        block.classes[d] = 1 if interleaved else min(axis.period, axis.kernel)
        block.step[d] = axis.common if interleaved else axis.stride
        block.pixel[d] = axis.period if interleaved else 1
        block.hop[d] = axis.hop
        last_tap = axis.kernel - 1 if interleaved else (axis.kernel - 1) // axis.period
        if mul_overflows(extent[d] - 1, block.pixel[d], &positions) or mul_overflows(last_tap, axis.hop, &extra) \
                or add_overflows(positions, extra, &positions):
            return False
        block.extent[d] = positions + 1
    positions = sample_positions(block.extent, limit)
    extra = sample_positions(block.classes, limit)
    if positions > limit or extra > limit or positions * extra > limit:
        return False
    block.sample = round_up(positions, align)
    block.plane, block.behind = samples * block.sample, 0
    return True


cdef void class_box(const SampleGeometry *sample, const InputBlock *block, const Box *tile, int64_t number,
                    Box *box) noexcept nogil:
    """Make the box of input pixels of the class of that number, for the tile's samples."""
    cdef int d
    box.n, box.samples = tile.n, tile.samples
    for d in range(2, -1, -1):
        box.first[d] = tile.first[d] * sample.axis[d].stride + number % block.classes[d] * sample.axis[d].dilation \
            - sample.axis[d].before
        number //= block.classes[d]
        box.step[d], box.extent[d] = block.step[d], block.extent[d]


cdef int64_t tap_position(const SampleGeometry *sample, const InputBlock *block, int64_t tap,
                          int64_t *in_class) noexcept nogil:
    """Return the class of a tap; in_class: the position in it that the tile's first pixel meets."""
    cdef int64_t tap_class[3]
    cdef int64_t rank[3]
    cdef int64_t k[3]
    cdef int d
    tap_index(sample, tap, k)
    for d in range(3):
        tap_class[d] = 0 if block.classes[d] == 1 else k[d] % block.classes[d]
        rank[d] = k[d] if block.classes[d] == 1 else k[d] // block.classes[d]
    in_class[0] = (rank[0] * block.hop[0] * block.extent[1] + rank[1] * block.hop[1]) * block.extent[2] \
        + rank[2] * block.hop[2]
    return (tap_class[0] * block.classes[1] + tap_class[1]) * block.classes[2] + tap_class[2]


cdef int64_t pixel_row(const InputBlock *block, int64_t n, int64_t z, int64_t y) noexcept nogil:
    """Return the position in a class of the first pixel of a tile's row, in the tile's n-th sample."""
    return n * block.sample + (z * block.pixel[0] * block.extent[1] + y * block.pixel[1]) * block.extent[2]
