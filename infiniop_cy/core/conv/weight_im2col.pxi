# grad_weight by im2col, for any convolution: where the taps lie so far apart that their common block would be large,
# the input under each (ci, tap) is packed as a row of its own.

cdef bint accepts_weight_im2col(const SampleGeometry *sample, const char **why) noexcept nogil:
    return True


cdef void block_weight_im2col(const ConvProblem *problem, const SumOrder *order, int gradients, int threads,
                              Blocking *blocking) noexcept nogil:
    """Make room for a packed row of each (ci, tap)."""
    cdef WeightTiles *own = <WeightTiles *>blocking.own
    block_weight_tiles(problem, order, False, WEIGHT_ROWS, WEIGHT_PIXELS, threads, own)
    book_weight_tiles(&problem.sample, own, own.rows * tiling_pixels(&own.tiling), problem.sample.item, blocking)


cdef bint pack_input_rows(const ConvRun *run, WeightTile *t, const Box *tile, BatchReduce *steps) noexcept nogil:
    """Pack a row for each (ci, tap); see PackRows."""
    cdef const SampleGeometry *sample = run.sample
    cdef int64_t pixels = box_positions(tile), i
    cdef int64_t size[3]
    cdef Box box = tile[0]
    cdef int d
    input_size(sample, size)
    for i in range(t.rows):
        input_pixel(sample, tile.first, (t.row_from + i) % sample.taps, box.first)
        for d in range(3):
            box.step[d] = sample.axis[d].stride
        pack_planes(sample.dtype, sample.compute, &run.problem.view[CONV_INPUT], size, &box,
                    t.group * sample.cin + (t.row_from + i) // sample.taps, 1, t.input + i * pixels * sample.item,
                    pixels)
        t.indirection[i] = i * pixels
    steps.count, steps.depth, steps.a_step, t.a_offset[0] = 1, pixels, 1, 0
    return False


cdef void weight_im2col_task(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    weight_tiles_task(run, number, scratch, pack_input_rows)


cdef void explain_weight_im2col(const SampleGeometry *sample, const SumOrder *order, const Blocking *blocking,
                                char *text, size_t size) noexcept nogil:
    cdef const WeightTiles *own = <const WeightTiles *>blocking.own
    snprintf(text, size, b"im2col: the input under each (input channel, tap) is packed as a row; tiles of %lld x %lld "
             b"x %lld x %lld pixels, %lld of %lld rows and %lld of %lld columns a task%s",
             <long long>own.tiling.samples, <long long>own.tiling.extent[0], <long long>own.tiling.extent[1],
             <long long>own.tiling.extent[2], <long long>own.rows, <long long>(sample.cin * sample.taps),
             <long long>(own.task_panels * own.co.columns), <long long>(own.co.count * own.co.columns),
             b"; products are added one by one, since images are short" if order.accumulate else b"")


cdef ConvAlgorithm weight_im2col() noexcept nogil:
    cdef ConvAlgorithm row
    row.name, row.gradients = b"grad_weight:im2col", FOR_GRAD_WEIGHT
    row.accepts, row.order, row.block = accepts_weight_im2col, order_weight_pixels, block_weight_im2col
    row.prepare, row.task, row.explain = nothing_to_prepare, weight_im2col_task, explain_weight_im2col
    return row
