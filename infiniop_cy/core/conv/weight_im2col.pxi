# grad_weight by im2col, for any convolution: where the taps lie so far apart that their common block would be large,
# the input under each (ci, tap) is packed as a row of its own.

cdef bint accepts_weight_im2col(const SampleGeometry *sample, const char **why) noexcept nogil:
    return True


cdef void block_weight_im2col(const ConvProblem *problem, const SumOrder *order, int gradients, int threads,
                              Blocking *blocking) noexcept nogil:
    """Make room for a packed row of each (ci, tap)."""
    cdef WeightTiles *own = <WeightTiles *>blocking.own
    block_weight_tiles(problem, order, False, taps_meet_padding(&problem.sample), WEIGHT_ROWS, WEIGHT_PIXELS, threads,
                       own, blocking)
    book_weight_tiles(&problem.sample, own, tiling_pixels(&own.tiling), own.rows * tiling_pixels(&own.tiling),
                      problem.sample.item, blocking)


cdef bint pack_input_rows(const ConvRun *run, WeightTile *t, const Box *tile, BatchReduce *steps) noexcept nogil:
    """Pack a row for each (ci, tap); see PackRows."""
    cdef const SampleGeometry *sample = run.sample
    cdef int64_t pixels = box_positions(tile), number, i, ci
    cdef int64_t size[3]
    cdef Box box = tile[0]
    cdef TapRows rows
    cdef int d
    input_size(sample, size)
    for d in range(3):
        box.step[d] = sample.axis[d].stride
    for number in range(tap_count_of(run, t)):
        rows = tap_rows(run, t, number)
        input_pixel(sample, tile.first, rows.tap, box.first)
        i, ci = rows.first, t.group * sample.cin + t.ci_from + rows.ci
        while i < rows.end:
            pack_planes(sample.dtype, sample.compute, &run.problem.view[CONV_INPUT], size, &box, ci, 1,
                        t.input + i * pixels * sample.item, pixels)
            t.indirection[i] = i * pixels
            i, ci = i + rows.step, ci + 1
    steps.count, steps.depth, steps.a_step, t.a_offset[0] = 1, pixels, 1, 0
    if (<const WeightTiles *>run.blocking.own).by_taps:  # of which parts of rows are left out
        steps.count, steps.depth = pixels // tile.extent[2], tile.extent[2]
        for i in range(steps.count):
            t.a_offset[i] = i * steps.depth
    return False


cdef bint prepare_weight_im2col(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    return prepare_weight_tiles(run, number, scratch, pack_input_rows)


cdef void weight_im2col_task(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    weight_tiles_task(run, number, scratch, pack_input_rows)


cdef void explain_weight_im2col(const SampleGeometry *sample, const SumOrder *order, const Blocking *blocking,
                                char *text, size_t size) noexcept nogil:
    cdef const WeightTiles *own = <const WeightTiles *>blocking.own
    snprintf(text, size, b"im2col: the input under each (input channel, tap) is packed as a row; tiles of %lld x %lld "
             b"x %lld x %lld pixels, %lld of %lld rows and %lld of %lld columns a task%s%s",
             <long long>own.tiling.samples, <long long>own.tiling.extent[0], <long long>own.tiling.extent[1],
             <long long>own.tiling.extent[2], <long long>own.rows, <long long>(sample.cin * sample.taps),
             <long long>(own.task_panels * own.co.columns), <long long>(own.co.count * own.co.columns),
             b"; products are added one by one, since images are short" if order.accumulate else b"",
             b"; tile by tile, then joined" if own.parts.bytes else b"")


cdef ConvAlgorithm weight_im2col() noexcept nogil:
    cdef ConvAlgorithm row
    row.name, row.gradients = b"grad_weight:im2col", FOR_GRAD_WEIGHT | FOR_FAR_PIXELS
    row.accepts, row.order, row.block = accepts_weight_im2col, order_weight_pixels, block_weight_im2col
    row.prepare, row.task, row.explain = prepare_weight_im2col, weight_im2col_task, explain_weight_im2col
    return row
