# Depthwise convolutions of tensors whose channels lie side by side, computed where these lie: an output, or grad_input,
# but for the pixels whose taps meet padding, which are computed by blocks; and the sums of grad_weight.

cdef enum:
    PIXEL_TAPS = 9   # of a phase, at most: their loads meet two lines where pixels do not begin with one
    WIDENED = 3      # times that an element of 16 bits may be widened instead of once


cdef bint by_pixels(const LaneTask *t, int kind) noexcept nogil:
    """Say whether the channels of grad_output and of another tensor lie side by side, one of each to a group."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef const ConvProblem *problem = t.run.problem
    cdef int64_t item = itemsize_of(sample.dtype)
    return sample.cin == 1 and sample.cout == 1 and problem.view[CONV_GRAD_OUTPUT].channel == item \
        and problem.view[kind].channel == item


# ---- an output, or grad_input

cdef bint writes_pixels(const LaneTask *t) noexcept nogil:
    """Say whether a task's pixels can be computed where both images lie, and whether that pays: elements of 16 bits are
    widened under every tap."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef int64_t most = 1, steps = 1
    cdef int d
    for d in range(3):
        most *= (sample.axis[d].kernel - 1) // (1 if sample.forward else sample.axis[d].period) + 1
        steps *= sample.source[d].step
    return by_pixels(t, CONV_GRAD_INPUT) and not t.nonfinite[0] and not t.run.problem.accumulate \
        and t.channels <= BIAS_STAGED and most <= PIXEL_TAPS \
        and (itemsize_of(sample.dtype) == sample.item or sample.taps <= WIDENED * steps)


cdef bint inside_of_tile(const LaneTask *t, Box *inside) noexcept nogil:
    """Find the steps of a tile under which all taps meet the image; return whether these are most of them: to compute
    what is around them takes as long as some more."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef const Halo *halo = &t.own.blocks.halo
    cdef int64_t size[3]
    cdef int64_t first, last, step
    cdef int d
    output_size(sample, size)
    inside[0] = t.tile
    for d in range(3):
        step = sample.source[d].step
        first = max(t.tile.first[d], ceil_div(-halo.low[d], step))
        last = min(t.tile.first[d] + t.tile.extent[d] - 1,
                   floor_div(size[d] - 1 - halo.low[d] - halo.extra[d], step))
        if last < first:
            return False
        inside.first[d], inside.extent[d] = first, last + 1 - first
    return 5 * box_positions(inside) >= 4 * box_positions(&t.tile)


cdef void compute_phase(const LaneTask *t, int64_t number, const Box *box, const void *bias) noexcept nogil:
    """Compute the pixels of a phase under a box of steps none of whose taps meet padding."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef const Phase *phase = &t.tables.phases[number]
    cdef const ConvView *x = &t.run.problem.view[CONV_GRAD_OUTPUT]
    cdef const ConvView *out = &t.run.problem.view[CONV_GRAD_INPUT]
    cdef int64_t at[PIXEL_TAPS]
    cdef int64_t output[3]
    cdef const char *source = x.data + box.n * x.n + t.channel * x.channel
    cdef char *to = out.data + box.n * out.n + t.channel * out.channel
    cdef int64_t z, first = t.tables.start[number]
    cdef StencilPixels pixels
    cdef Box part
    cdef int i, d
    if not phase_part(phase, box, &part):
        return
    for d in range(3):
        source += part.first[d] * sample.source[d].step * x.space[d]
        to += (phase.axis[d].first + part.first[d] * sample.axis[d].stride) * out.space[d]
    pixels.taps, pixels.at = t.tables.start[number + 1] - first, at
    for i in range(pixels.taps):
        lane_tap(sample, &t.own.blocks, phase, i, output)
        at[i] = output[0] * x.space[0] + output[1] * x.space[1] + output[2] * x.space[2]
    pixels.rows, pixels.width, pixels.channels = part.extent[1], part.extent[2], t.channels
    pixels.from_row, pixels.from_pixel = sample.source[1].step * x.space[1], sample.source[2].step * x.space[2]
    pixels.to_row, pixels.to_pixel = sample.axis[1].stride * out.space[1], sample.axis[2].stride * out.space[2]
    pixels.weights, pixels.past, pixels.bias = t.bytes // sample.item, t.run.problem.stream, bias
    for z in range(part.extent[0]):
        kernels.stencil_pixels[sample.dtype](&pixels, source + z * sample.source[0].step * x.space[0],
                                             t.weights + first * sample.lanes * sample.item,
                                             to + z * sample.axis[0].stride * out.space[0])


cdef void compute_pixels(const LaneTask *t, const Box *box) noexcept nogil:
    """Compute all phases under a box of steps none of whose taps meet padding."""
    cdef double bias[BIAS_STAGED]
    cdef bint biased = has_output_bias(t.run.problem)
    cdef int64_t number
    if biased:
        load_output_bias(t.run.problem, t.channel, t.channels, <char *>bias)
    for number in range(phase_count(t.run.sample)):
        compute_phase(t, number, box, <const void *>bias if biased else NULL)


cdef void compute_block(LaneTask *t) noexcept nogil:
    """Compute the pixels of a box of steps, if there are any, by a packed block."""
    cdef int64_t v
    if box_positions(&t.tile) <= 0:
        return
    place_tile(t)
    if box_positions(&t.pixels) <= 0:
        return
    load_tile_output(t, 0)
    for v in range(t.vectors):
        tile_grad_input(t, v, 0)
    save_tile_input(t)


cdef void compute_around(const LaneTask *t, const Box *inside) noexcept nogil:
    """Compute what a tile has around a box: what lies before and behind it along an axis, then along the next one,
    within the box along the axes before."""
    cdef LaneTask part = t[0]
    cdef Box rest = t.tile
    cdef int64_t first, end
    cdef int d
    for d in range(3):
        first, end = rest.first[d], rest.first[d] + rest.extent[d]
        part.tile = rest
        part.tile.extent[d] = inside.first[d] - first
        compute_block(&part)
        part.tile.first[d] = inside.first[d] + inside.extent[d]
        part.tile.extent[d] = end - part.tile.first[d]
        compute_block(&part)
        rest.first[d], rest.extent[d] = inside.first[d], inside.extent[d]


# ---- the sums of grad_weight

cdef bint is_flat(const ConvAxis *axis) noexcept nogil:
    """Say whether there is nothing along an axis but one pixel of each image."""
    return axis.kernel == 1 and axis.size_in == 1 and axis.size_out == 1 and axis.before == 0


cdef bint dots_pixels(const LaneTask *t) noexcept nogil:
    """Say whether a task's sums of grad_weight are computed where grad_output and the input lie: float32 of whole
    vectors of channels, images, and numbers of taps that are summed as many at a time as the kernel has room for."""
    cdef const SampleGeometry *sample = t.run.sample
    return by_pixels(t, CONV_INPUT) and sample.dtype == DTYPE_F32 and t.channels % sample.lanes == 0 \
        and is_flat(&sample.axis[0]) and sample.taps % DOT_PIXEL_TAPS in (0, DOT_PIXEL_REST)


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
    cdef int64_t at[STENCIL_TAPS]
    cdef TapInside inside[STENCIL_TAPS]
    cdef int64_t tap
    cdef int64_t pixel[3]
    cdef const char *from_g = g.data + t.out.n * g.n + t.channel * g.channel
    cdef const char *from_x = x.data + t.out.n * x.n + t.channel * x.channel
    cdef StencilDotPixels dot
    memset(products, 0, t.vectors * t.bytes)
    for tap in range(sample.taps):
        input_pixel(sample, t.out.first, tap, pixel)
        at[tap] = pixel[1] * x.space[1] + pixel[2] * x.space[2]
        steps_inside(&sample.axis[1], t.out.first[1], t.out.extent[1], tap // sample.axis[2].kernel,
                     &inside[tap].first_row, &inside[tap].end_row)
        steps_inside(&sample.axis[2], t.out.first[2], t.out.extent[2], tap % sample.axis[2].kernel,
                     &inside[tap].first, &inside[tap].end)
    from_g += t.out.first[1] * g.space[1] + t.out.first[2] * g.space[2]
    dot.rows, dot.width, dot.vectors, dot.sums = t.out.extent[1], t.out.extent[2], t.vectors, t.bytes // sample.item
    dot.g_row, dot.g_pixel = g.space[1], g.space[2]
    dot.x_row, dot.x_pixel = sample.axis[1].stride * x.space[1], sample.axis[2].stride * x.space[2]
    dot.taps, dot.at, dot.inside = sample.taps, at, inside
    if t.out.extent[0]:
        kernels.stencil_dot_pixels(&dot, from_g, from_x, products)


cdef void run_lane_tile(const LaneTask *t, char *products) noexcept nogil:
    """Compute all that is wanted of one tile; products: room for its sums of grad_weight."""
    cdef LaneTask rest = t[0]
    cdef Box inside
    if t.of_weight and dots_pixels(t) and most_taps_inside(t):
        dot_pixels(t, products)
        rest.of_weight = False
    if t.of_input and writes_pixels(t) and inside_of_tile(t, &inside):
        compute_pixels(t, &inside)
        compute_around(t, &inside)
        rest.of_input = False
    if rest.of_weight or rest.of_input:
        run_stencils(&rest, products)
