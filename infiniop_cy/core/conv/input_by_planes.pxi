# grad_input of one tap where the pixels of both tensors lie side by side: a product of matrices as they lie, rows of
# which are channels, and columns pixels. Nothing is packed but the weights, and nothing transposed. The values and the
# order of their products are those of a packed block and of sums.
cdef enum:
    PLANE_BYTES = 16384   # of grad_output under the pixels that all channels are computed for, before the next ones
    PLANE_DEPTH = 64      # channels that are multiplied, at most: the lines of more lie in too many places


cdef const RegisterTile *planes_tile(const SampleGeometry *sample, int64_t channels) noexcept nogil:
    """Find the register tile whose rows leave the fewest channels to be computed twice."""
    cdef const RegisterTiles *tiles = &kernels.gemm[sample.compute]
    cdef const RegisterTile *many = &tiles.many_rows[tiles.max_vectors]
    return &tiles.few_rows if round_up(channels, tiles.few_rows.rows) < round_up(channels, many.rows) else many


cdef bint rows_follow(const Box *tile, const ConvView *view, int64_t item) noexcept nogil:
    """Say whether the pixels of a tile lie side by side, sample by sample."""
    cdef Box one = tile[0]
    one.samples = 1
    return view.space[2] == item and follow_evenly(&one, 0, view.space)


cdef bint both_lie_by_planes(const ConvRun *run, const InputTile *t, const Box *block) noexcept nogil:
    """Say whether a tile is such a product, large enough for register tiles, which may overlap, and of so few channels
    that what is written takes longest, which need not be transposed then. Measured with narrow vectors."""
    cdef const ConvProblem *problem = run.problem
    cdef const SampleGeometry *sample = run.sample
    cdef const InputTiles *own = <const InputTiles *>run.blocking.own
    cdef const ConvView *g = &problem.view[CONV_GRAD_OUTPUT]
    cdef const ConvView *out = &problem.view[CONV_GRAD_INPUT]
    cdef const RegisterTile *tile = planes_tile(sample, t.sums.channels)
    return not has_wide_vectors(sample) and is_one_product(sample) and phase_count(sample) == 1 \
        and 0 < sample.cout <= min(run.order.channels, <int64_t>PLANE_DEPTH) and sample.cout < sample.cin \
        and not (run.nonfinite or problem.accumulate or own.weights.ready) \
        and of_whole_elements(problem, g) and of_whole_elements(problem, out) \
        and rows_follow(&t.tile, g, sample.item) and rows_follow(&t.tile, out, sample.item) \
        and t.pixels // t.tile.samples >= tile.vectors * sample.lanes and t.sums.channels >= tile.rows \
        and lies_in_output(sample, block)


cdef void add_bias_to_planes(const ConvRun *run, const InputTile *t, int64_t first, int64_t channels, char *to,
                             int64_t pixels) noexcept nogil:
    """Add the bias to some pixels, just written, of so many of a task's channels from the first-th on."""
    cdef double bias[BIAS_STAGED]
    cdef int64_t c
    if not has_output_bias(run.problem):
        return
    load_output_bias(run.problem, t.sums.group * run.sample.cin + t.sums.ci_from + first, channels, <char *>bias)
    for c in range(channels):
        add_bias_to_row(run.sample, <char *>bias, c, to + c * run.problem.view[CONV_GRAD_INPUT].channel, 1, pixels)


cdef void multiply_some_planes(const ConvRun *run, const InputTile *t, BatchReduce *steps, const char *g, char *to,
                               int64_t pixels, Prefetch *prefetch) noexcept nogil:
    """Write all of a task's channels of some pixels, at least as many as a register tile has columns."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputTiles *own = <const InputTiles *>run.blocking.own
    cdef const RegisterTile *tile = planes_tile(sample, t.sums.channels)
    cdef int64_t columns = own.weights.ci.columns, item = sample.item, width = tile.vectors * sample.lanes
    cdef int64_t apart = run.problem.view[CONV_GRAD_INPUT].channel, i = 0, at, r
    cdef int64_t weight[MAX_ROWS]
    cdef const char *weights = weight_panel(sample, &own.weights, shared_piece(run, INPUT_WEIGHTS), t.sums.group,
                                            t.panel_from, 0)
    while i < t.sums.channels:
        i = min(i, t.sums.channels - tile.rows)
        for r in range(tile.rows):
            weight[r] = (i + r) // columns * sample.cout * columns + (i + r) % columns
        at = 0
        while at < pixels:
            at = min(at, pixels - width)
            prefetch_some(prefetch)
            tile.kernel(steps, weights, weight, g + at * item, to + i * apart + at * item, apart // item, GEMM_PUT)
            at += width
        add_bias_to_planes(run, t, i, tile.rows, to + i * apart, pixels)
        i += tile.rows


cdef void multiply_by_planes(const ConvRun *run, const InputTile *t, const Box *block) noexcept nogil:
    """Multiply and write a tile of one group, sample by sample, some pixels at a time, while the next ones are asked
    for."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvView *g = &run.problem.view[CONV_GRAD_OUTPUT]
    cdef const RegisterTile *tile = planes_tile(sample, t.sums.channels)
    cdef int64_t item = sample.item, width = tile.vectors * sample.lanes, pixels = t.pixels // t.tile.samples
    cdef int64_t some = width * max(<int64_t>1, min(<int64_t>6, PLANE_BYTES // (sample.cout * width * item)))
    cdef int64_t calls = ceil_div(t.sums.channels, tile.rows) * ceil_div(some, width), n, at, now, next
    cdef const char *source
    cdef BatchReduce steps
    cdef Prefetch prefetch
    begin_steps(run, t, &steps)
    steps.count, steps.depth, steps.bias = 1, sample.cout, NULL
    t.a_offset[0] = t.b_offset[0] = 0
    steps.a_step, steps.b_step = (<const InputTiles *>run.blocking.own).weights.ci.columns, g.channel // item
    steps.columns = width
    for n in range(t.tile.samples):
        source = first_of_output(run, t, block) + n * g.n
        at = 0
        while at < pixels and not is_stopped(run):
            now = min(some, pixels - at)
            next = min(some, pixels - at - now)
            no_prefetch(&prefetch)
            if next:
                prefetch_pixels(source + (at + now) * item, g.channel, sample.cout, next * item, calls, &prefetch)
            if now < width:  # the last ones, with some that are written already
                at, now = pixels - width, width
            multiply_some_planes(run, t, &steps, source + at * item, pixel_of_tile(run, t, n * pixels) + at * item, now,
                                 &prefetch)
            at += now
