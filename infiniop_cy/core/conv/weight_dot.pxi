# grad_weight by dot products, for few output channels to a group: lanes are pixels of both factors, each (co, ci, tap)
# is a dot product of rows. A strided input is taken apart by classes of taps, so that all loads are dense. Tiles never
# hold two samples.
cdef enum:
    DOT_PIXELS = 2048          # of a tile
    DOT_POSITIONS = 1 << 15    # of a channel of the input's block, all classes together, at most
    DOT_BLOCK_ELEMENTS = 1 << 17
    DOT_TASK_ROWS = 576        # (ci, tap) of a task

    # pieces of a thread's scratch
    DOT_INPUT = 0
    DOT_OUTPUT = 1
    DOT_SUMMED = 2
    DOT_INDIRECTION = 3
    DOT_BIAS = 4


ctypedef struct WeightDot:
    int64_t rows    # (ci, tap) of a task


cdef void order_weight_dot(const SampleGeometry *sample, SumOrder *order) noexcept nogil:
    """Sum in tiles of at most DOT_PIXELS output pixels."""
    cdef int64_t size[3]
    cdef Tiling tiling
    output_size(sample, size)
    tile_grid(size, DOT_PIXELS, &tiling)
    order.tile, order.accumulate = tiling.extent, False


cdef bint accepts_weight_dot(const SampleGeometry *sample, const char **why) noexcept nogil:
    cdef SumOrder order
    cdef InputBlock block
    if 2 * sample.cout > sample.lanes:
        why[0] = b"the output channels of a group fill half a vector"
        return False
    order_weight_dot(sample, &order)
    if not fill_input_block(sample, order.tile, 1, False, 1, DOT_POSITIONS, &block):
        why[0] = b"the block that the taps of a tile reach is too large"
        return False
    if not dot_products_pay(sample):
        why[0] = b"short rows of output pixels leave some lanes empty"
        return False
    return True


cdef void block_weight_dot(const ConvProblem *problem, const SumOrder *order, int gradients, int threads,
                           Blocking *blocking) noexcept nogil:
    """Make tasks of at most DOT_TASK_ROWS rows, or of fewer where threads would idle."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef WeightDot *own = <WeightDot *>blocking.own
    cdef int64_t all_rows = sample.cin * sample.taps, positions, pixels = order.tile[0] * order.tile[1] * order.tile[2]
    cdef InputBlock block
    cdef Scratch *local = &blocking.local
    fill_input_block(sample, order.tile, 1, False, 1, DOT_POSITIONS, &block)
    positions = class_count(&block) * block.plane
    own.rows = max(<int64_t>1, min(min(all_rows, <int64_t>DOT_TASK_ROWS),
                                   sample.taps * max(<int64_t>1, DOT_BLOCK_ELEMENTS // positions)))
    if sample.groups * ceil_div(all_rows, own.rows) < threads:
        own.rows = max(<int64_t>1, min(own.rows, round_up(ceil_div(all_rows, ceil_div(threads, sample.groups)),
                                                          DOT_ROWS)))
    book(local, DOT_INPUT, positions * (own.rows // sample.taps + 2) + sample.lanes, sample.item)
    book(local, DOT_OUTPUT, pixels * sample.cout + sample.lanes, sample.item)
    book(local, DOT_SUMMED, own.rows * sample.cout, sample.item)
    book(local, DOT_INDIRECTION, own.rows + DOT_ROWS, sizeof(int64_t))
    book(local, DOT_BIAS, sample.cout, sizeof(double))
    blocking.tasks = sample.groups * ceil_div(all_rows, own.rows)


cdef void pack_input_classes(const ConvRun *run, int64_t group, int64_t row_from, int64_t rows, const Box *tile,
                             const InputBlock *block, int64_t *indirection, char *to) noexcept nogil:
    """Pack the input under the rows by a tile's pixels as [ci][class][position], and point each row at where it
    begins."""
    cdef const SampleGeometry *sample = run.sample
    cdef int64_t ci_from = row_from // sample.taps, cis = (row_from + rows - 1) // sample.taps - ci_from + 1
    cdef int64_t classes = class_count(block), c, i, tap_class, in_class
    cdef int64_t size[3]
    cdef Box box
    input_size(sample, size)
    for c in range(classes):
        class_box(sample, block, tile, c, &box)
        pack_planes(sample.dtype, sample.compute, &run.problem.view[CONV_INPUT], size, &box,
                    group * sample.cin + ci_from, cis, to + c * block.plane * sample.item, classes * block.plane)
    for i in range(rows):
        tap_class = tap_position(sample, block, (row_from + i) % sample.taps, &in_class)
        indirection[i] = (((row_from + i) // sample.taps - ci_from) * classes + tap_class) * block.plane + in_class
    for i in range(rows, rows + DOT_ROWS):
        indirection[i] = indirection[rows - 1]


cdef void multiply_rows(const ConvRun *run, const Box *tile, const InputBlock *block, int64_t rows,
                        const int64_t *indirection, const char *x, const char *g, char *sums) noexcept nogil:
    """Add the dot products of a tile to [co][row] sums."""
    cdef const SampleGeometry *sample = run.sample
    cdef int64_t item = sample.item, lines = tile.extent[1], length = tile.extent[2], x_line = block.extent[2], co, z, i
    cdef int64_t pixels = box_positions(tile), plane = tile.extent[1] * tile.extent[2]
    if x_line == length:
        lines, length = 1, lines * length
    for co in range(sample.cout):
        for z in range(tile.extent[0]):
            i = 0
            while i < rows:
                kernels.dot[sample.compute](lines, length, g + (co * pixels + z * plane) * item, length,
                                            x + z * block.extent[1] * block.extent[2] * item, x_line, indirection + i,
                                            min(<int64_t>DOT_ROWS, rows - i), sums + (co * rows + i) * item)
                i += DOT_ROWS


cdef void weight_dot_task(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Sum task number (group, rows), some (ci, tap) by all output channels of the group."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvProblem *problem = run.problem
    cdef const WeightDot *own = <const WeightDot *>run.blocking.own
    cdef const ConvView *w = &problem.view[CONV_GRAD_WEIGHT]
    cdef int64_t down = ceil_div(sample.cin * sample.taps, own.rows), group = number // down
    cdef int64_t row_from = number % down * own.rows
    cdef int64_t rows = min(own.rows, sample.cin * sample.taps - row_from), tile_number = 0, co
    cdef int64_t size[3]
    cdef char *x = local_piece(run, DOT_INPUT, scratch)
    cdef char *g = local_piece(run, DOT_OUTPUT, scratch)
    cdef char *sums = local_piece(run, DOT_SUMMED, scratch)
    cdef char *weights = w.data + group * sample.cout * w.n
    cdef int64_t *indirection = <int64_t *>local_piece(run, DOT_INDIRECTION, scratch)
    cdef Tiling tiling
    cdef Box tile
    cdef InputBlock block
    cdef BiasShare bias = bias_share(run, group * sample.cout, sample.cout, number % down, down,
                                     local_piece(run, DOT_BIAS, scratch))
    output_size(sample, size)
    one_sample_tiling(run.order.tile, &tiling)
    memset(sums, 0, rows * sample.cout * sample.item)
    for co in range(sample.cout if problem.accumulate else 0):
        move_weights(problem, row_from, rows, sums + co * rows * sample.item, weights + co * w.n, True)
    while not is_stopped(run) and nth_tile(&tiling, problem.batch, size, tile_number, &tile):
        add_bias(problem, &tile, &bias)
        fill_input_block(sample, tile.extent, 1, False, 1, DOT_POSITIONS, &block)
        pack_input_classes(run, group, row_from, rows, &tile, &block, indirection, x)
        pack_planes(sample.dtype, sample.compute, &problem.view[CONV_GRAD_OUTPUT], size, &tile, group * sample.cout,
                    sample.cout, g, box_positions(&tile))
        multiply_rows(run, &tile, &block, rows, indirection, x, g, sums)
        tile_number += 1
    for co in range(sample.cout):
        move_weights(problem, row_from, rows, sums + co * rows * sample.item, weights + co * w.n, False)
    save_bias(problem, &bias)


cdef void explain_weight_dot(const SampleGeometry *sample, const SumOrder *order, const Blocking *blocking, char *text,
                             size_t size) noexcept nogil:
    cdef const WeightDot *own = <const WeightDot *>blocking.own
    snprintf(text, size, b"dot products of rows, since %lld channels to a group would leave some of %lld lanes empty; "
             b"tiles of 1 x %lld x %lld x %lld pixels, %lld of %lld rows a task", <long long>sample.cout,
             <long long>sample.lanes, <long long>order.tile[0], <long long>order.tile[1], <long long>order.tile[2],
             <long long>own.rows, <long long>(sample.cin * sample.taps))


cdef ConvAlgorithm weight_dot() noexcept nogil:
    cdef ConvAlgorithm row
    row.name, row.gradients = b"grad_weight:dot", FOR_GRAD_WEIGHT
    row.accepts, row.order, row.block = accepts_weight_dot, order_weight_dot, block_weight_dot
    row.prepare, row.task, row.explain = nothing_to_prepare, weight_dot_task, explain_weight_dot
    return row
