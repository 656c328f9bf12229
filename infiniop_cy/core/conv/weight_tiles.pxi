# What the two algorithms share whose register tiles of grad_weight have (ci, tap) as rows and co as columns, and whose
# steps go through output pixels: grad_output packed side by side, the sums, and the loop over tiles.
cdef enum:
    WEIGHT_PIXELS = 1024       # output pixels of a tile: the steps of a product
    SHORT_IMAGE = 64           # with fewer output pixels tiles hold several samples, products are added one by one
    WEIGHT_CO = 128            # columns of a task
    WEIGHT_ROWS = 576          # rows of a task
    WEIGHT_CHUNK = 64          # pixels that all rows and columns meet before the next ones, where these are not packed

    # pieces of a thread's scratch
    WEIGHT_INPUT = 0
    WEIGHT_OUTPUT = 1
    WEIGHT_SUMMED = 2
    WEIGHT_STAGING = 3
    WEIGHT_PLACES = 4
    WEIGHT_INDIRECTION = 5
    WEIGHT_A_OFFSETS = 6
    WEIGHT_B_OFFSETS = 7
    WEIGHT_BIAS = 8
    WEIGHT_CHAINED = 9


ctypedef struct WeightTiles:
    MicroPanels co
    int64_t task_panels   # micro-panels of a task
    int64_t rows          # (ci, tap) of a task
    Tiling tiling         # of output pixels


# A task's part: some (ci, tap) by the co of some micro-panels.
ctypedef struct WeightTile:
    int64_t group, row_from, rows, panels, co_from, cos
    int64_t pitch         # elements from row to row of the sums
    char *input           # the packed input
    char *output          # room for grad_output, packed
    char *columns         # grad_output, packed or where it lies: panels of columns,
    int64_t column_panel, column_pixel  # so many elements from panel to panel, and from pixel to pixel
    char *sums
    char *chained         # the sums of a tile, while its products are added one by one
    bint by_pixels        # rows and columns are read where they lie, channels side by side
    char *staging
    int64_t *place
    int64_t *indirection
    int64_t *a_offset
    int64_t *b_offset


# Packs the input under a task's rows by a tile's pixels: fills the indirection buffer, and the steps but for b. Returns
# whether it replaced inf or NaN, whose products are then to be added.
ctypedef bint (*PackRows)(const ConvRun *run, WeightTile *t, const Box *tile, BatchReduce *steps) noexcept nogil


cdef void order_weight_pixels(const SampleGeometry *sample, SumOrder *order) noexcept nogil:
    """Sum in tiles of at most WEIGHT_PIXELS output pixels; one by one where images are short."""
    cdef int64_t size[3]
    cdef Tiling tiling
    output_size(sample, size)
    tile_grid(size, WEIGHT_PIXELS, &tiling)
    order.tile = tiling.extent
    order.accumulate = sample.pixels_out < SHORT_IMAGE


cdef void block_weight_tiles(const ConvProblem *problem, const SumOrder *order, bint vnni, int64_t max_rows,
                             int64_t max_samples, int threads, WeightTiles *own) noexcept nogil:
    """Make tasks of at most max_rows rows, and tiles of at most max_samples samples."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t all_rows = sample.cin * sample.taps, tasks
    cdef int64_t size[3]
    output_size(sample, size)
    cut_columns(sample, sample.cout, vnni, &own.co)
    own.task_panels = min(own.co.count, max(<int64_t>1, WEIGHT_CO // own.co.columns))
    one_sample_tiling(order.tile, &own.tiling)
    if order.accumulate:
        join_samples(size, problem.batch, min(max_samples, WEIGHT_PIXELS // sample.pixels_out), &own.tiling)
    own.rows = max(<int64_t>1, min(min(all_rows, <int64_t>WEIGHT_ROWS), max_rows))
    tasks = sample.groups * ceil_div(all_rows, own.rows)
    while own.task_panels > 1 and threads > 1 and tasks * ceil_div(own.co.count, own.task_panels) < 2 * threads:
        own.task_panels = ceil_div(own.task_panels, 2)
    tasks = sample.groups * ceil_div(own.co.count, own.task_panels)
    if tasks * ceil_div(all_rows, own.rows) < threads:  # not more: each packs the same columns
        own.rows = max(<int64_t>1, min(own.rows, round_up(ceil_div(all_rows, ceil_div(threads, tasks)),
                                                          register_tile(sample, &own.co).rows)))


cdef void book_weight_tiles(const SampleGeometry *sample, const WeightTiles *own, int64_t input_elements,
                            int64_t input_item, Blocking *blocking) noexcept nogil:
    """Make room for so many packed elements of the input, of input_item bytes."""
    cdef int64_t pixels = tiling_pixels(&own.tiling), columns = own.task_panels * own.co.columns
    cdef int64_t rows = own.tiling.samples * own.tiling.extent[0] * own.tiling.extent[1]
    cdef Scratch *local = &blocking.local
    book(local, WEIGHT_INPUT, input_elements, input_item)
    # A row of n pixels makes at most n pairs, each of which takes the room of a float.
    book(local, WEIGHT_OUTPUT, pixels * columns, sample.item)
    book(local, WEIGHT_SUMMED, (own.rows + MAX_ROWS) * columns, sample.item)
    book(local, WEIGHT_CHAINED, (own.rows + MAX_ROWS) * columns, sample.item)
    book(local, WEIGHT_STAGING, staging_elements(sample), sample.item)
    book(local, WEIGHT_PLACES, pixels, sizeof(int64_t))
    book(local, WEIGHT_INDIRECTION, own.rows + MAX_ROWS, sizeof(int64_t))
    book(local, WEIGHT_A_OFFSETS, rows, sizeof(int64_t))
    book(local, WEIGHT_B_OFFSETS, rows, sizeof(int64_t))
    book(local, WEIGHT_BIAS, columns, sizeof(double))
    blocking.tasks = sample.groups * ceil_div(own.co.count, own.task_panels) \
        * ceil_div(sample.cin * sample.taps, own.rows)


cdef void begin_weight_tile(const ConvRun *run, int64_t number, char *scratch, WeightTile *t) noexcept nogil:
    """Begin task number (group, micro-panels, rows), its sums zero or (accumulating) what is there."""
    cdef const SampleGeometry *sample = run.sample
    cdef const WeightTiles *own = <const WeightTiles *>run.blocking.own
    cdef int64_t down = ceil_div(sample.cin * sample.taps, own.rows), parts = ceil_div(own.co.count, own.task_panels)
    cdef int64_t panel_from = number // down % parts * own.task_panels
    t.group = number // (parts * down)
    t.row_from = number % down * own.rows
    t.rows = min(own.rows, sample.cin * sample.taps - t.row_from)
    t.panels = min(own.task_panels, own.co.count - panel_from)
    t.pitch, t.co_from = t.panels * own.co.columns, panel_from * own.co.columns
    t.cos = min(t.pitch, sample.cout - t.co_from)
    t.input, t.output = local_piece(run, WEIGHT_INPUT, scratch), local_piece(run, WEIGHT_OUTPUT, scratch)
    t.sums, t.staging = local_piece(run, WEIGHT_SUMMED, scratch), local_piece(run, WEIGHT_STAGING, scratch)
    t.chained = local_piece(run, WEIGHT_CHAINED, scratch)
    t.place = <int64_t *>local_piece(run, WEIGHT_PLACES, scratch)
    t.indirection = <int64_t *>local_piece(run, WEIGHT_INDIRECTION, scratch)
    t.a_offset = <int64_t *>local_piece(run, WEIGHT_A_OFFSETS, scratch)
    t.b_offset = <int64_t *>local_piece(run, WEIGHT_B_OFFSETS, scratch)
    memset(t.sums, 0, (t.rows + MAX_ROWS) * t.pitch * sample.item)
    if t.cos < t.pitch:  # columns without a channel: what memory held might be subnormal, which takes long to multiply
        memset(t.output, 0, tiling_pixels(&own.tiling) * t.pitch * sample.item)
    if run.problem.accumulate:
        move_weight_rows(run.problem, t.group, t.row_from, t.rows, t.co_from, t.cos, t.sums, t.pitch, t.staging, True)


cdef void pack_output_columns(const ConvRun *run, WeightTile *t, const Box *tile,
                              const BatchReduce *steps) noexcept nogil:
    """Pack grad_output of a tile as [micro-panel][pixel][co], or by pairs of pixels of each row; unless it can be read
    where it lies."""
    cdef const SampleGeometry *sample = run.sample
    cdef const WeightTiles *own = <const WeightTiles *>run.blocking.own
    cdef const ConvView *g = &run.problem.view[CONV_GRAD_OUTPUT]
    cdef int64_t columns = own.co.columns, first, count, p, s, panel_bytes = box_positions(tile) * columns * sample.item
    cdef int64_t size[3]
    t.by_pixels = not own.co.vnni and lead_through_columns(run, t, tile, steps)
    if t.by_pixels:
        t.by_pixels = t.rows < 2 or t.indirection[1] == 1
        return
    t.columns, t.column_panel, t.column_pixel = t.output, box_positions(tile) * columns, columns
    for s in range(steps.count):
        t.b_offset[s] = s * steps.depth * columns
    output_size(sample, size)
    for p in range(t.panels):
        first, count = t.group * sample.cout + t.co_from + p * columns, min(columns, t.cos - p * columns)
        if own.co.vnni:
            pack_vnni_pixels(g, size, tile, first, count, t.output + p * panel_bytes, columns, t.staging)
        else:
            pack_channels(run.problem, g, size, tile, first, count, t.output + p * panel_bytes, columns, False,
                          t.staging, t.place)


cdef void chunk_steps(const WeightTile *t, const BatchReduce *steps, int64_t first, int64_t *offset,
                      BatchReduce *some) noexcept nogil:
    """Take the steps from `first` on that make a chunk: pixels of the only stretch, or a row of pixels."""
    some[0] = steps[0]
    some.count, some.a_offset, some.b_offset = 1, offset, offset + 1
    if steps.count == 1:
        some.depth = min(<int64_t>WEIGHT_CHUNK, steps.depth - first)
        offset[0], offset[1] = t.a_offset[0] + first * steps.a_step, t.b_offset[0] + first * steps.b_step
    else:
        offset[0], offset[1] = t.a_offset[first], t.b_offset[first]


cdef void copy_columns(const ConvRun *run, const WeightTile *t, const BatchReduce *some) noexcept nogil:
    """Copy the columns of a chunk side by side, as [micro-panel][pixel][co]."""
    cdef const WeightTiles *own = <const WeightTiles *>run.blocking.own
    cdef int64_t item = run.sample.item, columns = own.co.columns, p
    for p in range(t.panels):
        kernels.pad_rows(t.columns + (some.b_offset[0] + p * columns) * item, some.b_step * item,
                         t.output + p * some.depth * columns * item, columns * item, some.depth, 0,
                         min(columns, t.cos - p * columns) * item, columns * item)


cdef void multiply_chunks(const ConvRun *run, const WeightTile *t, const BatchReduce *steps) noexcept nogil:
    """Add the products of the rows and columns of a tile where both lie pixel by pixel: all of some pixels, while the
    next ones are asked for. Unless products are added one by one anyway, a tile has sums of its own, so that no bit
    depends on where it is cut."""
    cdef const SampleGeometry *sample = run.sample
    cdef const WeightTiles *own = <const WeightTiles *>run.blocking.own
    cdef int64_t item = sample.item, first = 0, last = steps.depth if steps.count == 1 else steps.count, p
    cdef int64_t step = WEIGHT_CHUNK if steps.count == 1 else 1
    cdef int64_t calls = t.panels * ceil_div(t.rows, register_tile(sample, &own.co).rows)
    cdef int64_t offset[2]
    cdef char *sums = t.sums if run.order.accumulate else t.chained
    cdef bint copies = not spreads_over_sets(steps.b_step * item)
    cdef char *columns_from
    cdef int64_t panel
    cdef Prefetch rows, columns
    cdef BatchReduce some, next
    if not run.order.accumulate:
        memset(t.chained, 0, t.rows * t.pitch * item)
    while first < last:
        no_prefetch(&rows)
        if first + step < last:
            chunk_steps(t, steps, first + step, offset, &next)
            prefetch_pixels(t.input + offset[0] * item, next.a_step * item, next.depth, t.rows * item, calls, &rows)
            prefetch_pixels(t.columns + offset[1] * item, next.b_step * item, next.depth, t.cos * item, calls, &columns)
            rows.lines += columns.lines
            columns.lines, rows.then = rows.lines, &columns
        chunk_steps(t, steps, first, offset, &some)
        panel = t.column_panel * item
        columns_from = t.columns
        if copies:
            copy_columns(run, t, &some)
            panel, columns_from = some.depth * own.co.columns * item, t.output
            some.b_step, offset[1] = own.co.columns, 0
        for p in range(t.panels):
            multiply(register_tile(sample, &own.co), &some, t.input, t.indirection, t.rows,
                     columns_from + p * panel, sums + p * own.co.columns * item, t.pitch, item, True, &rows)
        first += step
    if not run.order.accumulate:
        add_values(sample, t.chained, t.sums, t.rows * t.pitch)


cdef void multiply_columns(const ConvRun *run, const WeightTile *t, BatchReduce *steps,
                           Prefetch *prefetch) noexcept nogil:
    """Add the products of the rows and columns of a tile."""
    cdef const SampleGeometry *sample = run.sample
    cdef const WeightTiles *own = <const WeightTiles *>run.blocking.own
    cdef int64_t item = sample.item, p
    steps.a_offset, steps.b_offset, steps.b_step = t.a_offset, t.b_offset, t.column_pixel
    if t.by_pixels:
        multiply_chunks(run, t, steps)
        return
    for p in range(t.panels):
        multiply(register_tile(sample, &own.co), steps, t.input, t.indirection, t.rows,
                 t.columns + p * t.column_panel * item, t.sums + p * own.co.columns * item, t.pitch, item,
                 run.order.accumulate, prefetch)


cdef void add_nonfinite_rows(const ConvRun *run, const WeightTile *t, const Box *tile) noexcept nogil:
    """Add the products with inf and NaN of the input that PackRows has replaced."""
    cdef int64_t taps = run.sample.taps, i = 0, many
    cdef WeightSums sums
    sums.group, sums.co_from, sums.cos, sums.co_pitch, sums.tap_pitch = t.group, t.co_from, t.cos, 1, t.pitch
    while i < t.rows:
        many = min(t.rows - i, taps - (t.row_from + i) % taps)
        sums.data = t.sums + i * t.pitch * run.sample.item
        add_nonfinite_products(run.problem, tile, (t.row_from + i) // taps, (t.row_from + i) % taps,
                               (t.row_from + i) % taps + many, NONFINITE_INPUT, &sums)
        i += many


cdef void weight_tiles_task(const ConvRun *run, int64_t number, char *scratch, PackRows pack_rows) noexcept nogil:
    """Sum some (ci, tap) by some co over all samples and output pixels. Samples are added one after the other to what
    is there, so a batch cut anywhere and accumulated gives the same bits."""
    cdef const SampleGeometry *sample = run.sample
    cdef const WeightTiles *own = <const WeightTiles *>run.blocking.own
    cdef int64_t down = ceil_div(sample.cin * sample.taps, own.rows), tile_number = 0
    cdef int64_t size[3]
    cdef bint nonfinite
    cdef WeightTile t
    cdef Box tile, next
    cdef Prefetch prefetch
    cdef BatchReduce steps
    cdef BiasShare bias
    output_size(sample, size)
    begin_weight_tile(run, number, scratch, &t)
    bias = bias_share(run, t.group * sample.cout + t.co_from, t.cos, number % down, down,
                      local_piece(run, WEIGHT_BIAS, scratch))
    while not is_stopped(run) and nth_tile(&own.tiling, run.problem.batch, size, tile_number, &tile):
        add_bias(run.problem, &tile, &bias)
        nonfinite = pack_rows(run, &t, &tile, &steps)
        repeat_last(t.indirection, t.rows)
        pack_output_columns(run, &t, &tile, &steps)
        tile_number += 1
        no_prefetch(&prefetch)
        if nth_tile(&own.tiling, run.problem.batch, size, tile_number, &next):
            plan_prefetch(run.problem, size, &next, t.group * sample.cout + t.co_from, t.cos,
                          t.panels * ceil_div(t.rows, register_tile(sample, &own.co).rows), &prefetch)
        multiply_columns(run, &t, &steps, &prefetch)
        if nonfinite:
            add_nonfinite_rows(run, &t, &tile)
    move_weight_rows(run.problem, t.group, t.row_from, t.rows, t.co_from, t.cos, t.sums, t.pitch, t.staging, False)
    save_bias(run.problem, &bias)
