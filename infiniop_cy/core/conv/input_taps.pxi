# grad_input tap by tap, for any convolution: where the taps lie so far apart that their common block would be large,
# each packs the grad_output that it meets by itself. A tap that meets nothing but padding costs nothing.
cdef enum:
    TAP_CHANNELS = 512   # output channels of a panel


cdef bint accepts_input_taps(const SampleGeometry *sample, const char **why) noexcept nogil:
    return True


cdef void order_input_taps(const SampleGeometry *sample, SumOrder *order) noexcept nogil:
    """Sum each tap by itself."""
    order.channels, order.taps = even_channels(sample.cout, TAP_CHANNELS), 1


cdef void tile_pixels(const ConvProblem *problem, int64_t pixels, Tiling *tiling) noexcept nogil:
    """Make tiles of at most so many pixels, of several samples where these are small."""
    cdef int64_t grid[3]
    phase_grid(&problem.sample, grid)
    tile_grid(grid, pixels, tiling)
    join_evenly(grid, problem.batch, pixels // tiling_pixels(tiling), tiling)


cdef void block_input_taps(const ConvProblem *problem, const SumOrder *order, int gradients, int threads,
                           Blocking *blocking) noexcept nogil:
    """Make tasks narrower, then tiles smaller, while there are too few for the threads."""
    cdef InputTiles *own = <InputTiles *>blocking.own
    cdef int64_t pixels = MIN_TILE_PIXELS
    block_input_columns(problem, order, own)
    tile_pixels(problem, pixels, &own.tiling)
    while threads > 1 and own.task_panels > 1 and input_tile_shares(problem, own) < 4 * threads:
        own.task_panels = ceil_div(own.task_panels, 2)
    while pixels >= 2 * LEAST_TILE_PIXELS and input_tile_shares(problem, own) < threads:
        pixels //= 2
        tile_pixels(problem, pixels, &own.tiling)
    book_input_tiles(problem, order, tiling_pixels(&own.tiling) + 1, threads, own, blocking)


cdef bint part_that_meets(const SampleGeometry *sample, const Box *tile, const int64_t *output, const int64_t *k,
                          Box *part) noexcept nogil:
    """Cut from a tile the pixels that meet only padding under tap k; return whether any are left. output: what the
    phase's first pixel meets."""
    cdef int64_t first, last
    cdef int d
    part[0] = tile[0]
    for d in range(3):
        pixels_that_meet(sample, d, output[d], k[d], &first, &last)
        first, last = max(tile.first[d], first), min(tile.first[d] + tile.extent[d], last)
        if last <= first:
            return False
        part.first[d], part.extent[d] = first, last - first
    return True


cdef void multiply_part(const ConvRun *run, const InputTile *t, const BatchReduce *steps, int64_t co, int64_t tap,
                        const Box *part) noexcept nogil:
    """Add the products of a packed part of the tile, row of pixels by row, or all at once where it is the whole tile.
    Register tiles run over into rows of zeros, as the sums behind are other pixels'."""
    cdef const InputTiles *own = <const InputTiles *>run.blocking.own
    cdef int64_t pitch = block_pitch(run.sample, run.order), pixels = box_positions(part), length = part.extent[2], i
    cdef int64_t from_row = 0, zeros = pixels * pitch, plane, line
    cdef InputTile piece = t[0]
    cdef Prefetch prefetch
    no_prefetch(&prefetch)
    if part.extent[2] == t.tile.extent[2] and part.extent[1] == t.tile.extent[1]:
        length *= part.extent[1]
        if part.extent[0] == t.tile.extent[0]:
            length = pixels
    memset(t.block + zeros * own_step(run), 0, pitch * own_step(run))
    for i in range(length):
        piece.indirection[i] = i * pitch
    piece.pixels = length
    while from_row < pixels:
        line = from_row // part.extent[2]
        plane = line // part.extent[1]  # of all samples
        for i in range(MAX_ROWS):
            piece.indirection[length + i] = zeros - from_row * pitch
        piece.block = t.block + from_row * pitch * own_step(run)
        line = (plane // part.extent[0] * t.tile.extent[0] + plane % part.extent[0] + part.first[0] - t.tile.first[0]) \
            * t.tile.extent[1] + line % part.extent[1] + part.first[1] - t.tile.first[1]
        piece.sums.data = t.sums.data + (line * t.tile.extent[2] + part.first[2] - t.tile.first[2]) \
            * t.sums.pixel_pitch * run.sample.item
        multiply_panels(run, &piece, steps, co, tap, &prefetch)
        from_row += length


cdef int64_t own_step(const ConvRun *run) noexcept nogil:
    """Return the bytes of an element of a packed block."""
    return 2 if (<const InputTiles *>run.blocking.own).weights.ci.vnni else run.sample.item


cdef void input_taps_task(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """For each panel of co and each tap, pack the grad_output that the tile meets and add its products."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputTiles *own = <const InputTiles *>run.blocking.own
    cdef int64_t co = 0, count, tap
    cdef int64_t output[3]
    cdef int64_t k[3]
    cdef InputTile t
    cdef Box part, block, box
    cdef BatchReduce steps
    cdef int d
    if not begin_input_tile(run, number, scratch, &t):
        return
    clear_input_sums(run, &t)
    begin_steps(run, &t, &steps)
    steps.count, t.a_offset[0], t.b_offset[0] = 1, 0, 0
    while co < sample.cout:
        count = min(run.order.channels, sample.cout - co)
        steps.depth = ceil_div(count, 2) if own.weights.ci.vnni else count
        for tap in range(t.phase.tap_count):
            phase_tap(sample, &t.phase, tap, output, k)
            if not part_that_meets(sample, &t.tile, output, k, &part):
                continue
            block = part
            for d in range(3):
                block.first[d] += output[d]
            source_box(sample, &block, tap_class(sample, k), &box)
            pack_folded_channels(run.problem, &box, t.sums.group, co, count, t.block, own.pitch, own.weights.ci.vnni,
                                 t.staging, t.place)
            multiply_part(run, &t, &steps, co, tap, &part)
        co += run.order.channels
    end_input_tile(run, &t, NULL)


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
    row.name, row.gradients = b"grad_input:taps", FOR_GRAD_INPUT | FOR_FAR_PIXELS
    row.accepts, row.order, row.block = accepts_input_taps, order_input_taps, block_input_taps
    row.prepare, row.task, row.explain = prepare_input_weights, input_taps_task, explain_input_taps
    return row
