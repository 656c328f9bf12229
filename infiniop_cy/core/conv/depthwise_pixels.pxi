# The output of a depthwise convolution whose channels lie side by side: pixels under which no tap meets padding are
# computed from where the input lies to where the output lies, the others around them as ever, by blocks.

cdef enum:
    PIXEL_TAPS = 9  # at most: their loads meet two lines where pixels do not begin with one
    WIDENED = 3     # times that an element of 16 bits may be widened instead of once


cdef bint writes_pixels(const LaneTask *t) noexcept nogil:
    """Say whether a task's output can be computed where input and output lie, and whether that pays: elements of 16
    bits are widened under every tap."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef const ConvProblem *problem = t.run.problem
    cdef int64_t item = itemsize_of(sample.dtype)
    return sample.forward and sample.cin == 1 and sample.cout == 1 and not t.nonfinite[0] \
        and not problem.accumulate and t.channels <= BIAS_STAGED \
        and problem.view[CONV_GRAD_OUTPUT].channel == item and problem.view[CONV_GRAD_INPUT].channel == item \
        and sample.taps <= PIXEL_TAPS and (
            item == sample.item
            or sample.taps <= WIDENED * sample.source[0].step * sample.source[1].step * sample.source[2].step)


cdef bint inside_of_tile(const LaneTask *t, Box *inside) noexcept nogil:
    """Find the pixels of a tile under which all taps meet the image; return whether these are most of them: to compute
    what is around them takes as long as some more."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef const Halo *halo = &t.own.blocks.halo
    cdef int64_t size[3]
    cdef int64_t first, last, step
    cdef int d
    output_size(sample, size)
    inside[0] = t.pixels
    for d in range(3):
        step = sample.source[d].step
        first = max(t.pixels.first[d], ceil_div(-halo.low[d], step))
        last = min(t.pixels.first[d] + t.pixels.extent[d] - 1,
                   floor_div(size[d] - 1 - halo.low[d] - halo.extra[d], step))
        if last < first:
            return False
        inside.first[d], inside.extent[d] = first, last + 1 - first
    return 5 * box_positions(inside) >= 4 * box_positions(&t.pixels)


cdef void compute_pixels(const LaneTask *t, const Box *box) noexcept nogil:
    """Compute a box of the output under which no tap meets padding."""
    cdef const SampleGeometry *sample = t.run.sample
    cdef const ConvView *x = &t.run.problem.view[CONV_GRAD_OUTPUT]
    cdef const ConvView *out = &t.run.problem.view[CONV_GRAD_INPUT]
    cdef int64_t at[PIXEL_TAPS]
    cdef double bias[BIAS_STAGED]
    cdef const char *source = x.data + box.n * x.n + t.channel * x.channel
    cdef char *to = out.data + box.n * out.n + t.channel * out.channel
    cdef int64_t tap, z, ky = sample.axis[1].kernel, kx = sample.axis[2].kernel
    cdef StencilPixels pixels
    cdef int i, d
    for d in range(3):
        source += (box.first[d] * sample.source[d].step + t.own.blocks.halo.low[d]) * x.space[d]
        to += box.first[d] * out.space[d]
    pixels.taps, pixels.at = t.tables.start[1], at
    for i in range(pixels.taps):
        tap = t.tables.order[i]
        at[i] = tap // (ky * kx) * sample.axis[0].dilation * x.space[0] \
            + tap // kx % ky * sample.axis[1].dilation * x.space[1] + tap % kx * sample.axis[2].dilation * x.space[2]
    pixels.rows, pixels.width, pixels.channels = box.extent[1], box.extent[2], t.channels
    pixels.from_row, pixels.from_pixel = sample.source[1].step * x.space[1], sample.source[2].step * x.space[2]
    pixels.to_row, pixels.to_pixel = out.space[1], out.space[2]
    pixels.weights, pixels.past, pixels.bias = t.bytes // sample.item, t.run.problem.stream, NULL
    if has_output_bias(t.run.problem):
        load_output_bias(t.run.problem, t.channel, t.channels, <char *>bias)
        pixels.bias = bias
    for z in range(box.extent[0]):
        kernels.stencil_pixels[sample.dtype](&pixels, source + z * sample.source[0].step * x.space[0], t.weights,
                                             to + z * out.space[0])


cdef void compute_block(LaneTask *t) noexcept nogil:
    """Compute an output's tile, if it has pixels, by a packed block."""
    cdef int64_t v
    if box_positions(&t.tile) <= 0:
        return
    t.out, t.pixels = t.tile, t.tile
    load_tile_output(t, 0)
    for v in range(t.vectors):
        tile_grad_input(t, v, 0)
    save_tile_input(t)


cdef void compute_around(const LaneTask *t, const Box *inside) noexcept nogil:
    """Compute what a tile has around a box: what lies before and behind it along an axis, then along the next one,
    within the box along the axes before."""
    cdef LaneTask part = t[0]
    cdef Box rest = t.pixels
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


cdef void run_lane_tile(const LaneTask *t, char *products) noexcept nogil:
    """Compute all that is wanted of one tile; products: room for its sums of grad_weight."""
    cdef Box inside
    if t.of_input and writes_pixels(t) and inside_of_tile(t, &inside):
        compute_pixels(t, &inside)
        compute_around(t, &inside)
    else:
        run_stencils(t, products)
