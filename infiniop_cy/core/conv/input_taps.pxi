# grad_input tap by tap, for any convolution: where the taps lie so far apart that their common block would be large,
# each packs the grad_output that it meets by itself. A tap that meets nothing but padding costs nothing.
cdef enum:
    TAP_CHANNELS = 512   # output channels of a panel


cdef bint accepts_input_taps(const SampleGeometry *sample, const char **why) noexcept nogil:
    return True


cdef void order_input_taps(const SampleGeometry *sample, SumOrder *order) noexcept nogil:
    """Sum each tap by itself."""
    order.channels, order.taps = even_channels(sample.cout, TAP_CHANNELS), 1


cdef void block_input_taps(const ConvProblem *problem, const SumOrder *order, int gradients, int threads,
                           Blocking *blocking) noexcept nogil:
    """Join small samples in one tile, and make tasks narrower while they are too few for the threads."""
    cdef InputTiles *own = <InputTiles *>blocking.own
    cdef int64_t grid[3]
    block_input_columns(&problem.sample, order, own)
    phase_grid(&problem.sample, grid)
    tile_grid(grid, MIN_TILE_PIXELS, &own.tiling)
    join_samples(grid, problem.batch, MIN_TILE_PIXELS // tiling_pixels(&own.tiling), &own.tiling)
    while threads > 1 and own.task_panels > 1 and input_tile_tasks(problem, own) < 4 * threads:
        own.task_panels = ceil_div(own.task_panels, 2)
    book_input_tiles(problem, order, tiling_pixels(&own.tiling), own, blocking)


cdef void input_taps_task(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """For each panel of co and each tap, pack the grad_output that the tile meets and add its products."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputTiles *own = <const InputTiles *>run.blocking.own
    cdef int64_t pitch = block_pitch(sample, run.order), co = 0, count, tap
    cdef int64_t size[3]
    cdef int64_t output[3]
    cdef int64_t k[3]
    cdef InputTile t
    cdef Box block
    cdef Prefetch prefetch
    cdef BatchReduce steps
    cdef int d
    if not begin_input_tile(run, number, scratch, &t):
        return
    output_size(sample, size)
    no_prefetch(&prefetch)
    fill_indirection(&t.tile, t.tile.extent, pitch, t.indirection)
    begin_steps(run, &t, &steps)
    steps.count, t.a_offset[0], t.b_offset[0] = 1, 0, 0
    while co < sample.cout:
        count = min(run.order.channels, sample.cout - co)
        steps.depth = ceil_div(count, 2) if own.weights.ci.vnni else count
        for tap in range(t.phase.tap_count):
            phase_tap(sample, &t.phase, tap, output, k)
            block = t.tile
            for d in range(3):
                block.first[d] += output[d]
            if not meets_output(sample, &block):
                continue
            pack_channels(run.problem, &run.problem.view[CONV_GRAD_OUTPUT], size, &block,
                          t.sums.group * sample.cout + co, count, t.block, pitch, own.weights.ci.vnni, t.staging,
                          t.place)
            multiply_panels(run, &t, &steps, co, tap, &prefetch)
        co += run.order.channels
    end_input_tile(run, &t)


cdef void explain_input_taps(const SampleGeometry *sample, const SumOrder *order, const Blocking *blocking, char *text,
                             size_t size) noexcept nogil:
    cdef const InputTiles *own = <const InputTiles *>blocking.own
    snprintf(text, size, b"tap by tap, each packing the grad_output that it meets; tiles of %lld x %lld x %lld x %lld "
             b"pixels, %lld of %lld columns a task; panels of %lld channels%s", <long long>own.tiling.samples,
             <long long>own.tiling.extent[0], <long long>own.tiling.extent[1], <long long>own.tiling.extent[2],
             <long long>(own.task_panels * own.weights.ci.columns),
             <long long>(own.weights.ci.count * own.weights.ci.columns), <long long>order.channels,
             b"; pairs of bfloat16" if own.weights.ci.vnni else b"")


cdef ConvAlgorithm input_taps() noexcept nogil:
    cdef ConvAlgorithm row
    row.name, row.gradients = b"grad_input:taps", FOR_GRAD_INPUT
    row.accepts, row.order, row.block = accepts_input_taps, order_input_taps, block_input_taps
    row.prepare, row.task, row.explain = prepare_input_weights, input_taps_task, explain_input_taps
    return row
