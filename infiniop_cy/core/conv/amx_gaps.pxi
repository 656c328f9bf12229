# AMX: zeros that the rows of a block have in common. Products go on over the positions between the rows of a tile
# (amx.pxi). Where rows begin and end in padding, the zeros behind a row are those before the next one, and likewise
# rows of zeros between planes and planes of zeros between samples: there are fewer positions to go over, and a tap
# still moves every pixel by the same number of them, to the same number or to zeros. Behind the last sample are as
# many zeros as before the first.


cdef int64_t zeros_at_both_ends(int64_t first, int64_t step, int64_t extent, int64_t size) noexcept nogil:
    """Count the positions first, first + step, ... that lie before an image, and those behind it; return the smaller
    number."""
    cdef int64_t before = ceil_div(-first, step) if first < 0 else 0
    cdef int64_t inside = (size - 1 - first) // step + 1 if first < size else 0
    return min(before, max(<int64_t>0, extent - inside))


cdef int64_t take_common(const int64_t *common, int64_t *extent) noexcept nogil:
    """Take from the extents of a block what its rows, planes and samples have in common; return the number of zeros
    that the last sample then lacks."""
    cdef int d
    for d in range(3):
        extent[d] -= common[d]
    return (common[0] * extent[1] + common[1]) * extent[2] + common[2]


cdef int64_t share_source_zeros(const SampleGeometry *sample, const Halo *halo, Box *block) noexcept nogil:
    """Let the rows of a block of grad_output share zeros; return how many follow the block. Taps that count as channels
    are not looked at, and pixels of a tile keep positions of their own."""
    cdef int64_t common[3]
    cdef const SourceAxis *source
    cdef int64_t k
    cdef int d
    for d in range(3):
        source = &sample.source[d]
        common[d] = 0 if d == 2 and sample.folded > 1 else halo.extra[d]
        for k in range(source.classes if common[d] else 0):
            common[d] = min(common[d], zeros_at_both_ends(
                block.first[d] * source.step + k * sample.axis[d].dilation - source.before, source.step,
                block.extent[d], sample.axis[d].size_out))
    return take_common(common, block.extent)


cdef void share_input_zeros(const SampleGeometry *sample, const int64_t *tile, bint even,
                            InputBlock *block) noexcept nogil:
    """Let the rows of the input's block share zeros along the axes that a tile of these extents covers. even: whether
    rows have an even number of positions, if need be one more."""
    cdef int64_t common[3]
    cdef const ConvAxis *axis
    cdef int64_t k
    cdef int d
    for d in range(3):
        axis = &sample.axis[d]
        common[d] = block.extent[d] - tile[d] if tile[d] == axis.size_out else 0
        for k in range(block.classes[d] if common[d] else 0):
            common[d] = min(common[d], zeros_at_both_ends(k * axis.dilation - axis.before, block.step[d],
                                                          block.extent[d], axis.size_in))
    if even:
        common[2] -= (block.extent[2] - common[2]) % 2
    block.behind = max(<int64_t>0, take_common(common, block.extent))


cdef double positions_to_pixels(const SampleGeometry *sample) noexcept nogil:
    """Return how many positions are multiplied for a pixel of grad_input, or about: gaps between rows and, where a tile
    holds several samples, between these."""
    cdef int64_t grid[3]
    cdef double ratio = 1
    cdef Halo halo
    cdef Box whole, block
    cdef int d
    phase_grid(sample, grid)
    all_phases_halo(sample, &halo)
    whole.n, whole.samples = 0, 1
    for d in range(3):
        whole.first[d], whole.step[d], whole.extent[d] = 0, 1, max(<int64_t>1, grid[d])
    block_under(&whole, &halo, &block)
    share_source_zeros(sample, &halo, &block)
    for d in range(0 if 2 * box_positions(&whole) <= AMX_MAX_PIXELS else 2, 3):
        ratio *= <double>block.extent[d] / whole.extent[d]
    return ratio
