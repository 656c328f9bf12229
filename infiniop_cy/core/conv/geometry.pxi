# Where pixels, taps and phases lie. Each fact of geometry has its one function here.
#
# grad_input goes by phases: the input pixels of one residue of the stride, which only the taps of one class reach. In a
# phase, output pixel = step of the phase + an offset that falls by `hop` from tap to tap of the class.


# The input pixels first + step * stride along each axis, and the taps that reach them.
ctypedef struct Phase:
    ConvAxisPhase axis[3]
    int64_t first_packed   # the number of its first tap in the order of packed taps; its others follow
    int64_t tap_count


# ---- pixels and taps

cdef void output_size(const SampleGeometry *sample, int64_t *size) noexcept nogil:
    """Write the extents of grad_output."""
    cdef int d
    for d in range(3):
        size[d] = sample.axis[d].size_out


cdef void input_size(const SampleGeometry *sample, int64_t *size) noexcept nogil:
    """Write the extents of the input."""
    cdef int d
    for d in range(3):
        size[d] = sample.axis[d].size_in


cdef void tap_index(const SampleGeometry *sample, int64_t tap, int64_t *k) noexcept nogil:
    """Write the index along each axis of the tap of that number."""
    cdef int d
    for d in range(2, -1, -1):
        k[d] = tap % sample.axis[d].kernel
        tap //= sample.axis[d].kernel


cdef void input_pixel(const SampleGeometry *sample, const int64_t *o, int64_t tap, int64_t *i) noexcept nogil:
    """Write the input pixel that output pixel o meets under a tap; it is outside of the image where it is padding."""
    cdef int64_t k[3]
    cdef int d
    tap_index(sample, tap, k)
    for d in range(3):
        i[d] = o[d] * sample.axis[d].stride + k[d] * sample.axis[d].dilation - sample.axis[d].before


cdef void steps_inside(const ConvAxis *axis, int64_t first, int64_t extent, int64_t k, int64_t *begin,
                       int64_t *end) noexcept nogil:
    """Find which of `extent` output pixels, from `first` on, meet the input under tap k, and no padding."""
    cdef int64_t before = axis.before - k * axis.dilation
    begin[0] = min(extent, max(<int64_t>0, -floor_div(-before, axis.stride) - first))
    end[0] = max(begin[0], min(extent, floor_div(axis.size_in - 1 + before, axis.stride) + 1 - first))


cdef bint is_inside(const int64_t *pixel, const int64_t *size) noexcept nogil:
    """Say whether a pixel lies in an image of that size."""
    return 0 <= pixel[0] < size[0] and 0 <= pixel[1] < size[1] and 0 <= pixel[2] < size[2]


# ---- phases of the input, for grad_input

cdef int64_t phase_count(const SampleGeometry *sample) noexcept nogil:
    """Count the phases that have a pixel."""
    return sample.axis[0].phases * sample.axis[1].phases * sample.axis[2].phases


cdef void phase_grid(const SampleGeometry *sample, int64_t *size) noexcept nogil:
    """Write the extents of the largest phase, in pixels."""
    cdef int d
    for d in range(3):
        size[d] = ceil_div(sample.axis[d].size_in, sample.axis[d].stride)


cdef int64_t taps_before_class(const ConvAxis *axis, int64_t tap_class) noexcept nogil:
    """Count an axis' taps in the classes before this one."""
    return tap_class * (axis.kernel // axis.period) + min(tap_class, axis.kernel % axis.period)


cdef void make_phase(const SampleGeometry *sample, int64_t number, Phase *phase) noexcept nogil:
    """Make the phase of that number, which is below phase_count."""
    cdef int d
    cdef const ConvAxis *axis
    cdef ConvAxisPhase *part
    phase.tap_count = 1
    for d in range(2, -1, -1):
        axis = &sample.axis[d]
        phase.axis[d] = conv_axis_phase(axis[0], number % axis.phases)
        number //= axis.phases
        phase.tap_count *= phase.axis[d].taps
    phase.first_packed = 0
    if phase.tap_count:
        part = phase.axis
        phase.first_packed = \
            taps_before_class(&sample.axis[0], part[0].tap) * sample.axis[1].kernel * sample.axis[2].kernel \
            + part[0].taps * (taps_before_class(&sample.axis[1], part[1].tap) * sample.axis[2].kernel
                              + part[1].taps * taps_before_class(&sample.axis[2], part[2].tap))


cdef void axis_tap(const SampleGeometry *sample, const ConvAxisPhase *phase, int d, int64_t rank, int64_t *output,
                   int64_t *k) noexcept nogil:
    """Write what the first pixel of a phase meets along one axis under its tap of that rank, and that tap's index k."""
    cdef const SourceAxis *source = &sample.source[d]
    k[0] = phase.tap + rank * sample.axis[d].period
    if source.classes > 1:
        output[0] = rank // source.classes * source.hop
    else:
        output[0] = phase.output - (phase.taps - 1 - rank if sample.forward else rank) * sample.axis[d].hop


cdef void phase_tap(const SampleGeometry *sample, const Phase *phase, int64_t number, int64_t *output,
                    int64_t *k) noexcept nogil:
    """Write the output pixel that the phase's first pixel meets under the phase's tap of that number, and that tap's
    index k along each axis."""
    cdef int d
    for d in range(2, -1, -1):
        axis_tap(sample, &phase.axis[d], d, number % phase.axis[d].taps, &output[d], &k[d])
        number //= phase.axis[d].taps


cdef void pixels_that_meet(const SampleGeometry *sample, int d, int64_t output, int64_t k, int64_t *first,
                           int64_t *end) noexcept nogil:
    """Find the pixels of a phase [first, end) along one axis that meet no padding under tap k, under which its first
    pixel meets that output pixel; there may be none. Taps that count as channels are not looked at."""
    cdef const SourceAxis *source = &sample.source[d]
    cdef int64_t before = source.before - k % source.classes * sample.axis[d].dilation
    if d == 2 and sample.folded > 1:
        first[0], end[0] = 0, sample.axis[d].size_in
        return
    first[0] = -floor_div(-before, source.step) - output
    end[0] = floor_div(sample.axis[d].size_out - 1 + before, source.step) + 1 - output


cdef int64_t packed_tap(const SampleGeometry *sample, int64_t tap) noexcept nogil:
    """Return the number of a tap in the order of packed taps: class by class, so that the taps of a phase follow each
    other."""
    cdef int64_t before[3]
    cdef int64_t same[3]
    cdef int64_t rank[3]
    cdef int64_t k[3]
    cdef int64_t tap_class
    cdef const ConvAxis *axis
    cdef int d
    tap_index(sample, tap, k)
    for d in range(3):
        axis = &sample.axis[d]
        tap_class, rank[d] = k[d] % axis.period, k[d] // axis.period
        before[d] = taps_before_class(axis, tap_class)
        same[d] = (axis.kernel - 1 - tap_class) // axis.period + 1
    return before[0] * sample.axis[1].kernel * sample.axis[2].kernel \
        + same[0] * (before[1] * sample.axis[2].kernel + same[1] * before[2]) \
        + (rank[0] * same[1] + rank[1]) * same[2] + rank[2]


cdef bint phase_part(const Phase *phase, const Box *tile, Box *part) noexcept nogil:
    """Cut from a tile of the phases' grid what lies outside of this phase; return whether anything is left."""
    cdef bint left = True
    cdef int d
    part[0] = tile[0]
    for d in range(3):
        part.extent[d] = min(tile.extent[d], phase.axis[d].size - tile.first[d])
        left = left and part.extent[d] > 0
    return left


# ---- the halo: the output pixels that the taps reach

# The taps reach output pixels s + low to s + low + extra from the pixel at step s: of any phase, or of one.
ctypedef struct Halo:
    int64_t low[3]
    int64_t extra[3]


cdef bint class_halo(const SampleGeometry *sample, int d, Halo *halo) noexcept nogil:
    """Find the halo of a class of taps along an axis that is read by classes; return whether it is."""
    cdef const SourceAxis *source = &sample.source[d]
    if source.classes == 1:
        return False
    halo.low[d], halo.extra[d] = 0, (ceil_div(sample.axis[d].kernel, source.classes) - 1) * source.hop
    return True


cdef void all_phases_halo(const SampleGeometry *sample, Halo *halo) noexcept nogil:
    """Find the halo that holds those of all phases."""
    cdef const ConvAxis *axis
    cdef int d
    for d in range(3):
        axis = &sample.axis[d]
        if class_halo(sample, d, halo):
            continue
        halo.low[d] = -floor_div((axis.kernel - 1) * axis.dilation - axis.before, axis.stride)
        halo.extra[d] = max(<int64_t>0, floor_div(axis.phases - 1 + axis.before, axis.stride) - halo.low[d])


cdef void phase_halo(const SampleGeometry *sample, const Phase *phase, Halo *halo) noexcept nogil:
    """Find the halo of one phase."""
    cdef int d
    for d in range(3):
        if class_halo(sample, d, halo):
            continue
        halo.extra[d] = max(<int64_t>0, phase.axis[d].taps - 1) * sample.axis[d].hop
        halo.low[d] = phase.axis[d].output - halo.extra[d]


cdef void block_under(const Box *tile, const Halo *halo, Box *block) noexcept nogil:
    """Make the block of output pixels that a tile's taps reach."""
    cdef int d
    block[0] = tile[0]
    for d in range(3):
        block.first[d] += halo.low[d]
        block.extent[d] += halo.extra[d]


cdef int64_t halo_positions(const SampleGeometry *sample, const int64_t *extent, int64_t limit) noexcept nogil:
    """Count the positions of one sample's block under a tile with these extents, of all classes, in any phase; limit +
    1 if there are more than the limit."""
    cdef int64_t sum[3]
    cdef int64_t classes = source_classes(sample, limit), positions
    cdef Halo halo
    cdef int d
    all_phases_halo(sample, &halo)
    for d in range(3):
        if add_overflows(extent[d], halo.extra[d], &sum[d]):
            return limit + 1
    positions = sample_positions(sum, limit)
    return limit + 1 if positions > limit // classes else positions * classes


cdef int64_t block_positions(const SampleGeometry *sample, const Tiling *tiling) noexcept nogil:
    """Count the positions of a tile's block, of all samples and classes: what to make room for, so without a limit."""
    return tiling.samples * halo_positions(sample, tiling.extent, <int64_t>1 << 40)


cdef double positions_of_tiles(const SampleGeometry *sample, const Tiling *tiling) noexcept nogil:
    """Count the positions of the blocks of all tiles of one sample, in one phase."""
    cdef int64_t grid[3]
    phase_grid(sample, grid)
    return <double>block_positions(sample, tiling) * count_tiles(tiling, 1, grid)


cdef int64_t tile_blocks(const SampleGeometry *sample, int64_t pixels, int64_t limit, Tiling *tiling) noexcept nogil:
    """Cut one sample of the grid of the largest phase into tiles of at most `pixels` pixels, of several planes where
    the block of one would be too large; return the positions of a block, limit + 1 if there are more than the limit.
    Smaller tiles have no larger blocks."""
    cdef int64_t grid[3]
    cdef int64_t positions
    phase_grid(sample, grid)
    tile_grid(grid, pixels, tiling)
    positions = halo_positions(sample, tiling.extent, limit)
    if positions > limit and sample.axis[0].kernel > 1:
        tile_depth(grid, pixels, tiling)
        positions = halo_positions(sample, tiling.extent, limit)
    return positions


cdef int64_t fit_tiles(const SampleGeometry *sample, int64_t pixels, int64_t least, int64_t limit, Tiling *tiling,
                       int64_t *positions) noexcept nogil:
    """Cut tiles as tile_blocks does, of half as many pixels as long as their block would be too large and they have
    more than the least; return their pixels, at most."""
    positions[0] = tile_blocks(sample, pixels, limit, tiling)
    while positions[0] > limit and pixels > least:
        pixels //= 2
        positions[0] = tile_blocks(sample, pixels, limit, tiling)
    return pixels


cdef int64_t tile_phases(const ConvProblem *problem, int64_t pixels, int64_t most, int64_t limit,
                         Tiling *tiling) noexcept nogil:
    """Cut the grid of the largest phase into tiles of at most `pixels` pixels, with blocks of at most `most` positions
    if there are any, which hold several samples where their blocks then have at most `limit` positions; return the
    number of tiles."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t grid[3]
    phase_grid(sample, grid)
    tile_blocks(sample, pixels, most, tiling)
    join_evenly(grid, problem.batch, min(pixels // tiling_pixels(tiling),
                                         limit // halo_positions(sample, tiling.extent, limit)), tiling)
    return count_tiles(tiling, problem.batch, grid)


cdef int64_t block_offset(const Box *block, const int64_t *output, const int64_t *low) noexcept nogil:
    """Return the block's position of an output pixel under step 0 of the phase."""
    return ((output[0] - low[0]) * block.extent[1] + output[1] - low[1]) * block.extent[2] + output[2] - low[2]


# ---- the source of a block, class by class

cdef int64_t source_classes(const SampleGeometry *sample, int64_t limit) noexcept nogil:
    """Count the classes of taps that blocks are read by; limit + 1 if there are more than the limit."""
    cdef int64_t classes[3]
    cdef int d
    for d in range(3):
        classes[d] = sample.source[d].classes
    return sample_positions(classes, limit)


cdef int64_t block_classes(const SampleGeometry *sample) noexcept nogil:
    """Count the classes of taps that blocks are read by."""
    return sample.source[0].classes * sample.source[1].classes * sample.source[2].classes


cdef void source_box(const SampleGeometry *sample, const Box *block, int64_t number, Box *box) noexcept nogil:
    """Make the box of pixels that the positions of a block are, in the class of that number."""
    cdef const SourceAxis *source
    cdef int d
    box[0] = block[0]
    for d in range(2, -1, -1):
        source = &sample.source[d]
        box.first[d] = block.first[d] * source.step + number % source.classes * sample.axis[d].dilation - source.before
        box.step[d] = source.step
        number //= source.classes


cdef void source_span(const SampleGeometry *sample, const Box *block, Box *box) noexcept nogil:
    """Make the box of pixels, side by side, that holds those of all classes, or nearly."""
    cdef int d
    source_box(sample, block, 0, box)
    for d in range(3):
        box.extent[d] *= box.step[d]
        box.step[d] = 1


cdef void source_pixel(const SampleGeometry *sample, const int64_t *position, const int64_t *k,
                       int64_t *pixel) noexcept nogil:
    """Write the pixel that a position is in the class of tap k."""
    cdef const SourceAxis *source
    cdef int d
    for d in range(3):
        source = &sample.source[d]
        pixel[d] = position[d] * source.step + k[d] % source.classes * sample.axis[d].dilation - source.before


cdef int64_t tap_class(const SampleGeometry *sample, const int64_t *k) noexcept nogil:
    """Return the number of the class of tap k."""
    cdef int64_t number = 0
    cdef int d
    for d in range(3):
        number = number * sample.source[d].classes + k[d] % sample.source[d].classes
    return number


cdef int64_t tap_place(const SampleGeometry *sample, const Box *block, const int64_t *output, const int64_t *k,
                       const int64_t *low) noexcept nogil:
    """Return the position of an output pixel under step 0 of the phase in a block of all classes, one after the other:
    that of the class of tap k."""
    return tap_class(sample, k) * box_positions(block) + block_offset(block, output, low)
