# Depthwise convolutions of tensors whose channels lie side by side, computed where these lie: an output, or grad_input;
# and the sums of grad_weight.

cdef enum:
    PIXEL_LINES = 9         # of a phase's taps, at most: their loads meet two lines of memory where pixels do not begin
    WIDE_PIXEL_LINES = 21   # with one; with vectors of 64 bytes
    MOST_PIXEL_LINES = 128  # where taps reach so far that packing what they meet takes longer:
    PACKED_LINES = 4        # lines of a pixel that take as long as packing a position
    WIDE_PACKED_LINES = 7   # ... where rows of results are long:
    LONG_PIXEL_ROW = 16     # few blocks of theirs meet padding
    WIDENED = 5             # times that an element of 16 bits may be widened, if lines of taps are short
    SHARED_SETS = 4096      # bytes, or a multiple: what lies so far apart is in the same few sets of a cache


cdef bint by_pixels(const ConvProblem *problem, int kind) noexcept nogil:
    """Say whether the channels of grad_output and of another tensor lie side by side, one of each to a group."""
    cdef int64_t item = itemsize_of(problem.sample.dtype)
    return problem.sample.cin == 1 and problem.sample.cout == 1 and problem.view[CONV_GRAD_OUTPUT].channel == item \
        and problem.view[kind].channel == item


# ---- an output, or grad_input

cdef int64_t most_line_taps(const SampleGeometry *sample) noexcept nogil:
    """Return the most taps of a line."""
    return WIDE_LINE_TAPS if has_wide_vectors(sample) else LINE_TAPS


cdef int64_t pixel_lines(const SampleGeometry *sample) noexcept nogil:
    """Count the lines of a phase's taps, at most."""
    cdef int64_t lines = 1, most = most_line_taps(sample), taps, tap_class
    cdef int d
    for d in range(3):
        taps = (sample.axis[d].kernel - 1) // (1 if sample.forward else sample.axis[d].period) + 1
        if d == 2 and taps_share_pixels(sample):
            taps = 0
            for tap_class in range(sample.source[d].classes):
                taps += ceil_div(taps_of_class(sample, tap_class), most)
        elif d == 2 and sample.source[d].step == 1 and sample.axis[d].dilation == 1:
            taps = ceil_div(taps, most)
        lines *= taps
    return lines


cdef int64_t chained_taps(const SampleGeometry *sample) noexcept nogil:
    """Return how many taps are summed from zero at once, as accurately as the other algorithms sum so many: all of
    those that pixels could be computed under where they lie, in whatever layout these are."""
    return STENCIL_TAPS if sample.taps > STENCIL_TAPS and pixel_lines(sample) > MOST_PIXEL_LINES else sample.taps


cdef bint writes_pixels(const ConvProblem *problem, const LaneBlocks *blocks) noexcept nogil:
    """Say whether pixels can be computed where both images lie, and whether that pays: elements of 16 bits are widened
    under every line of taps, and lines of memory are met twice."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t lines = pixel_lines(sample), steps = 1, packed = PACKED_LINES
    cdef int d
    if lines > MOST_PIXEL_LINES or kernels.stencil_pixels[sample.dtype] == NULL or problem.accumulate \
            or not by_pixels(problem, CONV_GRAD_INPUT):
        return False
    if blocks.tiling.extent[2] >= LONG_PIXEL_ROW and has_wide_vectors(sample):
        packed = WIDE_PACKED_LINES
    if lines * tiling_pixels(&blocks.tiling) <= packed * sample_positions(blocks.extent, STENCIL_MOST_POSITIONS):
        return True
    for d in range(3):
        steps *= sample.source[d].step
    return lines <= (WIDE_PIXEL_LINES if has_wide_vectors(sample) else PIXEL_LINES) \
        and (itemsize_of(sample.dtype) == sample.item or lines <= WIDENED * steps or LINE_TAPS * lines < sample.taps)


cdef int64_t taps_of_line(const LaneTask *t, const Phase *phase, int64_t first, const int64_t *output) noexcept nogil:
    """Count the taps of a phase that are a line, from that number on, which meets `output`: each of them meets the
    pixel that the one before it meets for the next step."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef int64_t most = min(most_line_taps(sample), phase.axis[2].taps - first % phase.axis[2].taps), taps = 1
    cdef int64_t next[3]
    while taps < most:
        lane_tap(sample, &t.own.blocks, phase, first + taps, next)
        if output[2] - next[2] != taps * sample.source[2].step:
            break
        taps += 1
    return taps


cdef int64_t fill_pixel_lines(const LaneTask *t, const Phase *phase, const Box *part, int64_t z,
                              PixelLine *lines) noexcept nogil:
    """Find the taps of a phase that a plane of steps meets, in lines; return how many there are."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef const ConvView *x = &t.run.problem.view[CONV_GRAD_OUTPUT]
    cdef int64_t i = 0, count = 0, y, step = sample.source[1].step
    cdef int64_t size[3]
    cdef int64_t output[3]
    cdef PixelLine *line
    output_size(sample, size)
    while i < phase.tap_count:
        line = &lines[count]
        lane_tap(sample, &t.own.blocks, phase, i, output)
        line.taps = taps_of_line(t, phase, i, output)
        line.at = output[0] * x.space[0] + output[1] * x.space[1] + output[2] * x.space[2]
        line.pixel = part.first[2] * sample.source[2].step + output[2]
        y = part.first[1] * step + output[1]
        line.first_row, line.end_row = max(<int64_t>0, -floor_div(y, step)), floor_div(size[1] - 1 - y, step) + 1
        if not 0 <= (part.first[0] + z) * sample.source[0].step + output[0] < size[0]:
            line.end_row = 0
        i += line.taps
        count += 1
    return count


# The pixels of one phase in a tile.
ctypedef struct PhasePixels:
    Box part               # of the phase's steps
    StencilPixels pixels
    const char *source     # what the first step of a plane meets
    const char *weights
    char *to
    PixelLine lines[MOST_PIXEL_LINES]


cdef bint begin_phase(const LaneTask *t, int64_t number, const void *bias, PhasePixels *phase) noexcept nogil:
    """Find a tile's pixels of the phase of that number; return whether there are any."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef const Phase *taps = &t.tables.phases[number]
    cdef const ConvView *x = &t.run.problem.view[CONV_GRAD_OUTPUT]
    cdef const ConvView *out = &t.run.problem.view[CONV_GRAD_INPUT]
    cdef int64_t size[3]
    cdef StencilPixels *pixels = &phase.pixels
    cdef int d
    if not phase_part(taps, &t.tile, &phase.part):
        return False
    phase.source = x.data + t.tile.n * x.n + t.channel * x.channel
    phase.to = out.data + t.tile.n * out.n + t.channel * out.channel
    for d in range(3):
        phase.source += phase.part.first[d] * sample.source[d].step * x.space[d]
        phase.to += (taps.axis[d].first + phase.part.first[d] * sample.axis[d].stride) * out.space[d]
    phase.weights = t.weights + t.tables.start[number] * sample.lanes * sample.item
    output_size(sample, size)
    pixels.line = phase.lines
    pixels.first_row, pixels.end_row, pixels.first_column = 0, phase.part.extent[1], 0
    pixels.width = pixels.end_column = phase.part.extent[2]
    pixels.channels = t.channels
    pixels.from_row, pixels.from_pixel = sample.source[1].step * x.space[1], sample.source[2].step * x.space[2]
    pixels.to_row, pixels.to_pixel = sample.axis[1].stride * out.space[1], sample.axis[2].stride * out.space[2]
    pixels.row, pixels.step = size[2], sample.source[2].step
    pixels.weights, pixels.past, pixels.bias = t.bytes // sample.item, t.run.problem.stream, bias
    pixels.unsent = NULL
    return True


cdef void begin_plane(const LaneTask *t, int64_t number, int64_t z, PhasePixels *phase) noexcept nogil:
    """Go to a phase's plane of that number, after the one before it."""
    cdef const SampleGeometry *sample = t.run.sample
    phase.pixels.lines = fill_pixel_lines(t, &t.tables.phases[number], &phase.part, z, phase.lines)
    if z > 0:
        phase.source += sample.source[0].step * t.run.problem.view[CONV_GRAD_OUTPUT].space[0]
        phase.to += sample.axis[0].stride * t.run.problem.view[CONV_GRAD_INPUT].space[0]


cdef void compute_phase(const LaneTask *t, int64_t number, const void *bias) noexcept nogil:
    """Compute a tile's pixels of a phase where they lie."""
    cdef PhasePixels phase
    cdef int64_t z
    if not begin_phase(t, number, bias, &phase):
        return
    for z in range(phase.part.extent[0]):
        begin_plane(t, number, z, &phase)
        kernels.stencil_pixels[t.run.sample.dtype](&phase.pixels, phase.source, phase.weights, phase.to)


cdef void compute_pixels(const LaneTask *t) noexcept nogil:
    """Compute a tile's pixels."""
    cdef double bias[PIXEL_CHANNELS]
    cdef const void *added = <const void *>bias if has_output_bias(t.run.problem) else NULL
    cdef int64_t number, first = 0
    while added != NULL and first < t.channels:
        load_output_bias(t.run.problem, t.channel + first, min(<int64_t>BIAS_STAGED, t.channels - first),
                         <char *>bias + first * t.run.sample.item)
        first += BIAS_STAGED
    if stages_task(t):
        compute_staged(t, added)
        return
    for number in range(phase_count(t.run.sample)):
        compute_phase(t, number, added)


# ---- the sums of grad_weight

cdef bint is_flat(const ConvAxis *axis) noexcept nogil:
    """Say whether there is nothing along an axis but one pixel of each image."""
    return axis.kernel == 1 and axis.size_in == 1 and axis.size_out == 1 and axis.before == 0


cdef bint dots_pixels(const ConvProblem *problem) noexcept nogil:
    """Say whether sums of grad_weight may be computed where grad_output and the input lie: float32, images, and numbers
    of taps that are summed as many at a time as the kernel has room for."""
    cdef const SampleGeometry *sample = &problem.sample
    return by_pixels(problem, CONV_INPUT) and sample.dtype == DTYPE_F32 and is_flat(&sample.axis[0]) \
        and sample.taps % DOT_PIXEL_TAPS in (0, DOT_PIXEL_REST)


cdef bint dots_task(const LaneTask *t) noexcept nogil:
    """Say whether a task does that: where its channels are whole vectors, and pixels not so far apart that a row of
    them shares few sets of the caches."""
    cdef const ConvProblem *problem = t.run.problem
    return dots_pixels(problem) and t.channels % t.run.sample.lanes == 0 and most_taps_inside(t) \
        and problem.view[CONV_INPUT].space[2] % SHARED_SETS != 0 \
        and problem.view[CONV_GRAD_OUTPUT].space[2] % SHARED_SETS != 0


cdef bint most_taps_inside(const LaneTask *t) noexcept nogil:
    """Say whether all taps meet the input under most of a sample's output pixels: the others take as long as some
    more."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef int64_t pixels = 1
    cdef int64_t begin[2]
    cdef int64_t end[2]
    cdef int d
    for d in range(1, 3):
        steps_inside(&sample.axis[d], 0, sample.axis[d].size_out, 0, &begin[0], &end[0])
        steps_inside(&sample.axis[d], 0, sample.axis[d].size_out, sample.axis[d].kernel - 1, &begin[1], &end[1])
        pixels *= max(<int64_t>0, end[1] - begin[0])
    return 5 * pixels >= 4 * sample.pixels_out


cdef void dot_pixels(const LaneTask *t, char *products) noexcept nogil:
    """Write a tile's sums of grad_weight."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef const ConvView *g = &t.run.problem.view[CONV_GRAD_OUTPUT]
    cdef const ConvView *x = &t.run.problem.view[CONV_INPUT]
    cdef const ConvAxis *axis = &sample.axis[1]
    cdef int64_t at[STENCIL_TAPS]
    cdef TapInside inside[STENCIL_TAPS]
    cdef int64_t tap, first
    cdef int64_t pixel[3]
    cdef int64_t k[3]
    cdef const char *from_g = g.data + t.out.n * g.n + t.channel * g.channel
    cdef const char *from_x = x.data + t.out.n * x.n + t.channel * x.channel
    cdef StencilDotPixels dot
    memset(products, 0, t.vectors * t.bytes)
    for tap in range(sample.taps):
        input_pixel(sample, t.out.first, tap, pixel)
        at[tap] = pixel[1] * x.space[1] + pixel[2] * x.space[2]
        tap_index(sample, tap, k)
        steps_inside(&sample.axis[1], t.out.first[1], t.out.extent[1], k[1], &inside[tap].first_row,
                     &inside[tap].end_row)
        steps_inside(&sample.axis[2], t.out.first[2], t.out.extent[2], k[2], &inside[tap].first, &inside[tap].end)
    from_g += t.out.first[1] * g.space[1] + t.out.first[2] * g.space[2]
    dot.rows, dot.width, dot.vectors, dot.sums = t.out.extent[1], t.out.extent[2], t.vectors, t.bytes // sample.item
    dot.g_row, dot.g_pixel = g.space[1], g.space[2]
    dot.x_row, dot.x_pixel = axis[0].stride * x.space[1], axis[1].stride * x.space[2]
    dot.taps, dot.at, dot.inside = sample.taps, at, inside
    dot.three_by_three = axis[0].kernel == 3 and axis[1].kernel == 3 and axis[1].stride == axis[1].dilation
    steps_inside(&axis[1], t.out.first[2], t.out.extent[2] + 2, 0, &dot.first_column, &dot.end_column)
    input_pixel(sample, t.out.first, sample.taps - 1, pixel)
    first = max(<int64_t>0, t.out.first[2] * axis[1].stride - axis[1].before)
    dot.new_rows, dot.next_row, dot.next_pixel = axis[0].stride, x.space[1], x.space[2]
    dot.pixels = min(axis[1].size_in - first, t.out.extent[2] * axis[1].stride)
    dot.newest = pixel[1] * x.space[1] + first * x.space[2]
    if t.out.extent[0]:
        kernels.stencil_dot_pixels(&dot, from_g, from_x, products)


cdef void run_blocks(const LaneTask *t, char *products) noexcept nogil:
    """Compute both gradients on one tile by packed blocks, as many vectors of channels at a time as these have room
    for."""
    cdef LaneTask some = t[0]
    cdef int64_t v = 0
    while v < t.vectors:
        some.channel, some.vectors = t.channel + v * t.run.sample.lanes, min(t.own.block_vectors, t.vectors - v)
        some.channels = min(some.vectors * t.run.sample.lanes, t.channels - v * t.run.sample.lanes)
        some.weights = t.weights + v * t.bytes
        run_stencils(&some, products + v * t.bytes)
        v += some.vectors


cdef void run_lane_tile(const LaneTask *t, char *products) noexcept nogil:
    """Compute all that is wanted of one tile; products: room for its sums of grad_weight."""
    cdef LaneTask rest = t[0]
    if t.of_weight and dots_task(t):
        dot_pixels(t, products)
        rest.of_weight = False
    # Elements of 16 bits are widened once for both gradients, where grad_weight takes blocks of them, but for rows.
    if t.of_input and not t.nonfinite[0] and t.own.by_pixels \
            and (not rest.of_weight or itemsize_of(t.run.sample.dtype) == t.run.sample.item or stages_task(t)):
        compute_pixels(t)
        rest.of_input = False
    if rest.of_weight or rest.of_input:
        run_blocks(&rest, products)
