# What the two algorithms share whose register tiles of grad_weight have (ci, tap) as rows and co as columns, and whose
# steps go through output pixels: grad_output packed side by side, the sums, and the loop over tiles.
cdef enum:
    WEIGHT_PIXELS = 1024       # output pixels of a tile: the steps of a product
    WEIGHT_GROUPS = 256        # bytes of a pixel's groups that a task packs, at most, where they share cache lines
    SHORT_IMAGE = 65           # with fewer output pixels tiles hold several samples, products are added one by one

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
    WEIGHT_TAP_A_OFFSETS = 10
    WEIGHT_TAP_B_OFFSETS = 11


ctypedef struct WeightTiles:
    MicroPanels co
    int64_t task_panels   # micro-panels of a task
    int64_t rows          # (ci, tap) of a task
    bint taps_lead        # rows are those of one tap after the other, as grad_weight lies
    bint by_taps          # those of a tap are multiplied apart
    int64_t together      # groups of a task, whose operands are packed as one
    int64_t column_pixel  # columns from pixel to pixel of grad_output as it is packed
    Tiling tiling         # of output pixels
    WeightParts parts     # in two rounds


# A task's part: some (ci, tap) by the co of some micro-panels.
ctypedef struct WeightTile:
    int64_t group, row_from, rows, panels, co_from, cos
    int64_t groups        # of which `group` is the first, or the one that is multiplied
    int64_t ci_from, cis  # the channels that the rows read
    int64_t tap_from      # of the rows, where taps lead
    int64_t pitch         # elements from row to row of the sums
    char *input           # the packed input
    char *output          # room for grad_output, packed
    char *columns         # grad_output, packed or where it lies: panels of columns,
    int64_t column_panel, column_pixel  # so many elements from panel to panel, and from pixel to pixel
    char *sums
    char *chained         # the sums of a tile, while its products are added one by one
    bint by_pixels        # rows and columns are read where they lie, channels side by side
    bint chains           # products are added to the sums one by one
    char *staging
    int64_t *place
    int64_t *indirection
    int64_t *a_offset
    int64_t *b_offset
    int64_t *tap_a_offset  # of one tap
    int64_t *tap_b_offset


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


cdef bint taps_lie_apart(const ConvProblem *problem) noexcept nogil:
    """Say whether the channels of a tap are lines of grad_weight, which those of a task are best written as; short ones
    are not worth it, and neighbouring taps share lines of the input."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const ConvView *w = &problem.view[CONV_GRAD_WEIGHT]
    return sample.taps > 1 and sample.cin >= sample.lanes // 2 and w.channel == itemsize_of(sample.dtype) \
        and not weights_in_line(sample, w)


cdef int64_t weight_tasks(const SampleGeometry *sample, const WeightTiles *own) noexcept nogil:
    """Count the tasks of one group each."""
    return sample.groups * ceil_div(own.co.count, own.task_panels) * ceil_div(sample.cin * sample.taps, own.rows)


cdef void cut_weight_tiles(const ConvProblem *problem, const SumOrder *order, bint vnni, bint by_taps, int64_t max_rows,
                           int64_t max_samples, int threads, WeightTiles *own) noexcept nogil:
    """Make tasks of at most max_rows rows, and tiles of at most max_samples samples. by_taps: whether to multiply the
    rows of a tap apart, if a task may have enough of them."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t unit
    cdef int64_t size[3]
    output_size(sample, size)
    one_sample_tiling(order.tile, &own.tiling)
    if order.accumulate:
        join_samples(size, problem.batch, min(max_samples, WEIGHT_PIXELS // sample.pixels_out), &own.tiling)
    cut_columns(sample, sample.cout, vnni, &own.co)
    max_rows = min(max_rows, <int64_t>WEIGHT_ROWS)
    own.by_taps = by_taps and sample.taps * TAP_ROWS <= max_rows
    own.taps_lead = taps_lie_apart(problem) and sample.taps <= max_rows
    unit = register_tile(sample, &own.co, sample.cout).rows
    if own.taps_lead:
        unit = TAP_ROWS if own.by_taps else 1
    if own.by_taps or own.taps_lead:
        unit *= sample.taps
        max_rows -= max_rows % unit
    cut_weight_tasks(sample, &own.co, max_rows, unit, threads, &own.task_panels, &own.rows)
    own.parts.tasks = weight_tasks(sample, own)
    own.together, own.column_pixel = 1, own.co.columns


cdef void join_groups(const ConvProblem *problem, int threads, WeightTiles *own) noexcept nogil:
    """Let tasks that have all rows and columns of a group, in lines of channels of which several groups share one, take
    some groups each: their operands take little longer to pack than those of one. Threads keep enough tasks."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t item = itemsize_of(sample.dtype), group = item * max(<int64_t>1, max(sample.cin, sample.cout))
    if own.parts.bytes or own.parts.tasks != sample.groups or own.co.count > 1 or own.by_taps or sample.taps == 1 \
            or problem.view[CONV_INPUT].channel != item or problem.view[CONV_GRAD_OUTPUT].channel != item:
        return
    own.together = max(<int64_t>1, min(sample.groups // (4 * threads), WEIGHT_GROUPS // group))
    own.column_pixel = round_up((own.together - 1) * sample.cout, sample.lanes) + own.co.columns
    own.parts.tasks = ceil_div(sample.groups, own.together)


cdef int64_t summed_rows(const SampleGeometry *sample, const WeightTiles *own, int64_t rows) noexcept nogil:
    """Count the rows of sums that register tiles write: those behind a task's are read by nobody."""
    return rows + MAX_ROWS * (sample.taps if own.by_taps else 1)


cdef void book_weight_tiles(const SampleGeometry *sample, const WeightTiles *own, int64_t positions,
                            int64_t input_elements, int64_t input_item, Blocking *blocking) noexcept nogil:
    """Make room for so many packed elements of the input, of input_item bytes, at so many positions."""
    cdef int64_t pixels = tiling_pixels(&own.tiling), columns = own.task_panels * own.co.columns
    cdef int64_t summed = own.together * columns
    cdef int64_t rows = own.tiling.samples * own.tiling.extent[0] * own.tiling.extent[1]
    cdef Scratch *local = &blocking.local
    book(local, WEIGHT_INPUT, input_elements, input_item)
    # A row of n pixels makes at most n pairs, each of which takes the room of a float.
    book(local, WEIGHT_OUTPUT, pixels * own.task_panels * own.column_pixel, sample.item)
    book(local, WEIGHT_SUMMED, summed_rows(sample, own, own.rows) * summed, sample.item)
    book(local, WEIGHT_CHAINED, (own.rows + MAX_ROWS) * columns, sample.item)
    book(local, WEIGHT_STAGING, staging_elements(sample), sample.item)
    book(local, WEIGHT_PLACES, max(pixels, positions), sizeof(int64_t))
    book(local, WEIGHT_INDIRECTION, own.rows + MAX_ROWS, sizeof(int64_t))
    book(local, WEIGHT_A_OFFSETS, rows, sizeof(int64_t))
    book(local, WEIGHT_B_OFFSETS, rows, sizeof(int64_t))
    book(local, WEIGHT_TAP_A_OFFSETS, rows, sizeof(int64_t))
    book(local, WEIGHT_TAP_B_OFFSETS, rows, sizeof(int64_t))
    book(local, WEIGHT_BIAS, summed, sizeof(double))
    blocking.tasks = own.parts.tasks * own.parts.joins


cdef void begin_weight_tile(const ConvRun *run, int64_t number, char *scratch, WeightTile *t) noexcept nogil:
    """Begin task number (groups, rows, micro-panels)."""
    cdef const SampleGeometry *sample = run.sample
    cdef const WeightTiles *own = <const WeightTiles *>run.blocking.own
    cdef int64_t down = ceil_div(sample.cin * sample.taps, own.rows), parts = ceil_div(own.co.count, own.task_panels)
    cdef int64_t panel_from = number % parts * own.task_panels
    t.group = number // (parts * down) * own.together
    t.groups = min(own.together, sample.groups - t.group)
    t.row_from = number // parts % down * own.rows
    t.rows = min(own.rows, sample.cin * sample.taps - t.row_from)
    t.ci_from = t.row_from // sample.taps
    t.cis = (t.row_from + t.rows - 1) // sample.taps - t.ci_from + 1
    t.tap_from = 0
    t.panels = min(own.task_panels, own.co.count - panel_from)
    t.co_from = panel_from * own.co.columns
    t.cos = min(t.panels * own.co.columns, sample.cout - t.co_from)
    t.pitch = round_up(t.cos, sample.lanes)
    t.input, t.output = local_piece(run, WEIGHT_INPUT, scratch), local_piece(run, WEIGHT_OUTPUT, scratch)
    t.sums, t.staging = local_piece(run, WEIGHT_SUMMED, scratch), local_piece(run, WEIGHT_STAGING, scratch)
    t.chained = local_piece(run, WEIGHT_CHAINED, scratch)
    t.place = <int64_t *>local_piece(run, WEIGHT_PLACES, scratch)
    t.indirection = <int64_t *>local_piece(run, WEIGHT_INDIRECTION, scratch)
    t.a_offset = <int64_t *>local_piece(run, WEIGHT_A_OFFSETS, scratch)
    t.b_offset = <int64_t *>local_piece(run, WEIGHT_B_OFFSETS, scratch)
    t.tap_a_offset = <int64_t *>local_piece(run, WEIGHT_TAP_A_OFFSETS, scratch)
    t.tap_b_offset = <int64_t *>local_piece(run, WEIGHT_TAP_B_OFFSETS, scratch)
    t.chains = run.order.accumulate
    if t.groups * t.cos < own.column_pixel * t.panels:
        # Of columns without a channel: what memory held might be subnormal, which takes long to multiply.
        memset(t.output, 0, tiling_pixels(&own.tiling) * t.panels * own.column_pixel * sample.item)


cdef void next_weight_sums(const ConvRun *run, WeightTile *t) noexcept nogil:
    """Go on to the sums of the next of a task's groups, before or after any tile is read."""
    t.group += 1
    t.groups -= 1
    t.sums += summed_rows(run.sample, <const WeightTiles *>run.blocking.own, t.rows) * t.pitch * run.sample.item


cdef void next_weight_group(const ConvRun *run, WeightTile *t) noexcept nogil:
    """Go on to the next of a task's groups, in the tile that is read."""
    cdef const SampleGeometry *sample = run.sample
    cdef const WeightTiles *own = <const WeightTiles *>run.blocking.own
    next_weight_sums(run, t)
    t.input += sample.cin * (4 if own.co.vnni else sample.item)  # of lines, where pairs are of pixels
    t.columns += sample.cout * sample.item


cdef void clear_weight_sums(const ConvRun *run, const WeightTile *t) noexcept nogil:
    """Set the sums of one group to 0, also those of rows that nobody reads."""
    memset(t.sums, 0, summed_rows(run.sample, <const WeightTiles *>run.blocking.own, t.rows) * t.pitch
           * run.sample.item)


cdef void begin_weight_sums(const ConvRun *run, const WeightTile *t) noexcept nogil:
    """Begin with zeros or (accumulating) with what is there."""
    cdef WeightTile of_group = t[0]
    while of_group.groups:
        clear_weight_sums(run, &of_group)
        if run.problem.accumulate:
            move_weight_sums(run, &of_group, True)
        next_weight_sums(run, &of_group)


cdef void end_weight_sums(const ConvRun *run, const WeightTile *t) noexcept nogil:
    """Write a task's sums to grad_weight."""
    cdef WeightTile of_group = t[0]
    while of_group.groups:
        if (<const WeightTiles *>run.blocking.own).by_taps:
            add_zeros(run, &of_group)
        move_weight_sums(run, &of_group, False)
        next_weight_sums(run, &of_group)


cdef void move_weight_sums(const ConvRun *run, const WeightTile *t, bint loading) noexcept nogil:
    """Write the sums of one group to grad_weight, or (loading) read them."""
    if (<const WeightTiles *>run.blocking.own).taps_lead:
        move_weight_taps(run.problem, t.group, t.ci_from, t.cis, t.tap_from, t.rows // t.cis, t.co_from, t.cos, t.sums,
                         t.pitch, t.staging, loading)
    else:
        move_weight_rows(run.problem, t.group, t.row_from, t.rows, t.co_from, t.cos, t.sums, t.pitch, t.staging,
                         loading)


# The rows of a task that read one tap: every `step`-th from `first` on, before `end`, of the channels from ci on, which
# are counted from the task's first one.
ctypedef struct TapRows:
    int64_t tap, first, step, end, ci


cdef int64_t tap_count_of(const ConvRun *run, const WeightTile *t) noexcept nogil:
    """Count the taps that a task's rows read."""
    return min(t.rows, run.sample.taps)


cdef TapRows tap_rows(const ConvRun *run, const WeightTile *t, int64_t number) noexcept nogil:
    """Return the rows of the tap of that number of a task."""
    cdef int64_t taps = run.sample.taps
    cdef TapRows rows
    if (<const WeightTiles *>run.blocking.own).taps_lead:
        rows.tap, rows.ci, rows.first, rows.step, rows.end = number, 0, number * t.cis, 1, (number + 1) * t.cis
    else:
        rows.tap, rows.ci = (t.row_from + number) % taps, (t.row_from + number) // taps - t.ci_from
        rows.first, rows.step, rows.end = number, taps, t.rows
    return rows


cdef void pack_output_columns(const ConvRun *run, WeightTile *t, const Box *tile,
                              const BatchReduce *steps) noexcept nogil:
    """Pack grad_output of a tile as [micro-panel][pixel][co], or by pairs of pixels of each row, all groups of a task
    side by side; unless it can be read where it lies, and not once for each tap."""
    cdef const SampleGeometry *sample = run.sample
    cdef const WeightTiles *own = <const WeightTiles *>run.blocking.own
    cdef const ConvView *g = &run.problem.view[CONV_GRAD_OUTPUT]
    cdef int64_t columns = own.co.columns, pixel = own.column_pixel, first, count, p, s
    cdef int64_t panel_bytes = box_positions(tile) * pixel * sample.item
    cdef int64_t size[3]
    cdef PairTile pairs
    t.by_pixels = False
    if sample.taps == 1 and not own.co.vnni and lead_through_columns(run, t, tile, steps):
        t.by_pixels = t.rows < 2 or t.indirection[1] == 1
        return
    t.columns, t.column_panel, t.column_pixel = t.output, box_positions(tile) * pixel, pixel
    for s in range(steps.count):
        t.b_offset[s] = s * steps.depth * pixel
    output_size(sample, size)
    make_pair_tile(run, tile, &pairs)
    for p in range(t.panels):
        first, count = t.group * sample.cout + t.co_from + p * columns, min(columns, t.cos - p * columns) * t.groups
        if own.co.vnni:
            pack_pair_columns(g, pairs.output_size, &pairs.tile, first, count, t.output + p * panel_bytes, pixel,
                              t.staging)
        else:
            pack_channels(run.problem, g, size, tile, first, count, t.output + p * panel_bytes, pixel, False, t.staging,
                          t.place)


cdef void multiply_columns(const ConvRun *run, const WeightTile *t, const Box *tile, BatchReduce *steps,
                           Prefetch *prefetch) noexcept nogil:
    """Add the products of the rows and columns of a tile of one group."""
    cdef const SampleGeometry *sample = run.sample
    cdef const WeightTiles *own = <const WeightTiles *>run.blocking.own
    cdef int64_t item = sample.item, p
    steps.a_offset, steps.b_offset, steps.b_step = t.a_offset, t.b_offset, t.column_pixel
    if t.by_pixels:
        multiply_chunks(run, t, steps, prefetch)
        return
    if multiply_taps(run, t, tile, steps, prefetch):
        return
    for p in range(t.panels):
        multiply(register_tile(sample, &own.co, t.cos - p * own.co.columns), steps, t.input, t.indirection, t.rows,
                 t.columns + p * t.column_panel * item, t.sums + p * own.co.columns * item, t.pitch, item, t.chains,
                 prefetch)


cdef void add_nonfinite_rows(const ConvRun *run, const WeightTile *t, const Box *tile) noexcept nogil:
    """Add the products with inf and NaN of the input that PackRows has replaced."""
    cdef int64_t number, i, ci
    cdef TapRows rows
    cdef WeightSums sums
    sums.group, sums.co_from, sums.cos, sums.co_pitch, sums.tap_pitch = t.group, t.co_from, t.cos, 1, t.pitch
    for number in range(tap_count_of(run, t)):
        rows = tap_rows(run, t, number)
        i, ci = rows.first, t.ci_from + rows.ci
        while i < rows.end:
            sums.data = t.sums + i * t.pitch * run.sample.item
            add_nonfinite_products(run.problem, tile, ci, rows.tap, rows.tap + 1, NONFINITE_INPUT, &sums)
            i, ci = i + rows.step, ci + 1


cdef void plan_weight_prefetch(const ConvRun *run, const WeightTile *t, int64_t number, Prefetch *prefetch) noexcept \
        nogil:
    """Plan to prefetch what the tile of that number will be packed from, a part with every register tile: lines of
    grad_output's channels, or, where channels lie side by side, those of a task in each pixel of both images. prefetch:
    two."""
    cdef const SampleGeometry *sample = run.sample
    cdef const WeightTiles *own = <const WeightTiles *>run.blocking.own
    cdef const ConvView *g = &run.problem.view[CONV_GRAD_OUTPUT]
    cdef const ConvView *x = &run.problem.view[CONV_INPUT]
    cdef int64_t stored = itemsize_of(sample.dtype)
    cdef int64_t calls = t.panels * ceil_div(t.rows, register_tile(sample, &own.co, t.cos).rows)
    cdef int64_t size[3]
    cdef InputBlock block
    cdef Box next, box
    no_prefetch(prefetch)
    output_size(sample, size)
    if not nth_tile(&own.tiling, run.problem.batch, size, number, &next):
        return
    if g.channel != stored or x.channel != stored:
        plan_prefetch(run.problem, size, &next, t.group * sample.cout + t.co_from, t.cos, calls, prefetch)
        return
    if not plan_pixels(g, size, &next, t.group * sample.cout + t.co_from, t.groups * t.cos * stored, &prefetch[1]):
        return
    input_size(sample, size)
    fill_input_block(sample, next.extent, 1, True, 1, MAX_CHANNELS, &block)
    class_box(sample, &block, &next, 0, &box)
    if not plan_pixels(x, size, &box, t.group * sample.cin + t.ci_from, t.groups * t.cis * stored, prefetch):
        return
    prefetch.then = &prefetch[1]
    prefetch.lines = prefetch[1].lines = ceil_div(prefetch.lines + prefetch[1].lines, t.groups * calls)


cdef void sum_weight_tile(const ConvRun *run, WeightTile *t, const Box *tile, int64_t next_tile,
                          PackRows pack_rows) noexcept nogil:
    """Add the products of a tile to a task's sums, and ask for the tile of that number meanwhile. inf and NaN that are
    added apart come where they do if the tile has but one sample, which may be so in another layout; and, to a sum of
    tiles, before this one's, as where those are joined (weight_parts.pxi)."""
    cdef bint nonfinite
    cdef Prefetch prefetch[2]
    cdef BatchReduce steps
    cdef WeightTile of_group
    cdef Box one
    steps.a_ahead = steps.b_ahead = 0
    nonfinite = pack_rows(run, t, tile, &steps)
    if nonfinite and tile.samples > 1:
        one, one.samples = tile[0], 1
        for one.n in range(tile.n, tile.n + tile.samples):
            sum_weight_tile(run, t, &one, next_tile, pack_rows)
        return
    repeat_last(t.indirection, t.rows)
    pack_output_columns(run, t, tile, &steps)
    plan_weight_prefetch(run, t, next_tile, prefetch)
    of_group = t[0]
    while of_group.groups:
        if nonfinite and not t.chains:
            add_nonfinite_rows(run, &of_group, tile)
        multiply_columns(run, &of_group, tile, &steps, prefetch)
        if nonfinite and t.chains:
            add_nonfinite_rows(run, &of_group, tile)
        next_weight_group(run, &of_group)


cdef BiasShare tile_bias_share(const ConvRun *run, const WeightTile *t, int64_t join, double *totals) noexcept nogil:
    """Start a task's share of grad_bias: the tasks of the same columns take one each, and of those units that join a
    task's sums the first one."""
    cdef int64_t rows = (<const WeightTiles *>run.blocking.own).rows
    return bias_share(run, t.group * run.sample.cout + t.co_from, 0 if join else t.groups * t.cos, t.row_from // rows,
                      ceil_div(run.sample.cin * run.sample.taps, rows), <char *>totals)


cdef void block_weight_tiles(const ConvProblem *problem, const SumOrder *order, bint vnni, bint by_taps,
                             int64_t max_rows, int64_t max_samples, int threads, WeightTiles *own,
                             Blocking *blocking) noexcept nogil:
    """Make tasks of at most max_rows rows, and tiles of at most max_samples samples, for two rounds or one."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t columns
    cdef double time
    cdef WeightTiles one_round = own[0]
    cut_weight_tiles(problem, order, vnni, by_taps, max_rows, max_samples, threads, &one_round)
    one_round.parts.bytes, one_round.parts.joins = 0, 1
    time = one_round_time(sample, one_round.rows, one_round.task_panels * one_round.co.columns, threads)
    cut_weight_tiles(problem, order, vnni, by_taps, max_rows, max_samples, 1, own)
    columns = own.task_panels * own.co.columns
    if time <= two_rounds_time(sample, own.rows, columns, tiling_pixels(&own.tiling), threads) \
            or not book_parts(problem, order, &own.tiling, threads, PARTS_BYTES,
                              summed_rows(sample, own, own.rows) * columns * sample.item,
                              sample.taps if own.taps_lead else own.rows, columns, &own.parts, blocking):
        own[0] = one_round


cdef bint prepare_weight_tiles(const ConvRun *run, int64_t number, char *scratch, PackRows pack_rows) noexcept nogil:
    """Sum one tile for one task, from 0, products one by one; keep the sums, and grad_bias's."""
    cdef const WeightTiles *own = <const WeightTiles *>run.blocking.own
    cdef int64_t task = number % own.parts.tasks, tile_number = number // own.parts.tasks
    cdef int64_t size[3]
    cdef WeightTile t
    cdef Box tile
    cdef BiasShare bias
    output_size(run.sample, size)
    if not nth_tile(&own.tiling, run.problem.batch, size, tile_number, &tile):
        return False
    begin_weight_tile(run, task, scratch, &t)
    bias = tile_bias_share(run, &t, 0, part_bias(run, &own.parts, number))
    keep_bias(run.problem, &tile, &bias)
    t.sums, t.chains = part_sums(run, &own.parts, number), True
    clear_weight_sums(run, &t)
    sum_weight_tile(run, &t, &tile, tile_number + 1, pack_rows)
    return False


cdef int64_t take_joined_rows(const ConvRun *run, int64_t join, WeightTile *t) noexcept nogil:
    """Leave those rows of a task that a join adds; return the sums before them."""
    cdef const WeightTiles *own = <const WeightTiles *>run.blocking.own
    cdef int64_t each = t.cis if own.taps_lead else 1, pieces = t.rows // each
    cdef int64_t first = piece_from(&own.parts, join, pieces), count = piece_from(&own.parts, join + 1, pieces) - first
    if own.taps_lead:
        t.tap_from = first
    else:
        t.row_from += first
    t.rows = count * each
    return first * each * t.pitch


cdef void weight_tiles_task(const ConvRun *run, int64_t number, char *scratch, PackRows pack_rows) noexcept nogil:
    """Sum some (ci, tap) by some co over all samples and output pixels, or join the sums of the first round. Samples
    are added one after the other to what is there, so a batch cut anywhere and accumulated gives the same bits."""
    cdef const WeightTiles *own = <const WeightTiles *>run.blocking.own
    cdef int64_t tile_number = 0, task = number // own.parts.joins, join = number % own.parts.joins, first
    cdef int64_t size[3]
    cdef WeightTile t
    cdef Box tile
    cdef BiasShare bias
    output_size(run.sample, size)
    begin_weight_tile(run, task, scratch, &t)
    bias = tile_bias_share(run, &t, join, <double *>local_piece(run, WEIGHT_BIAS, scratch))
    first = take_joined_rows(run, join, &t)
    begin_weight_sums(run, &t)
    if own.parts.bytes:
        join_parts(run, &own.parts, &own.tiling, task, first, t.rows * t.pitch, t.sums, &bias)
    while not own.parts.bytes and not is_stopped(run) \
            and nth_tile(&own.tiling, run.problem.batch, size, tile_number, &tile):
        add_bias(run.problem, &tile, &bias)
        tile_number += 1
        sum_weight_tile(run, &t, &tile, tile_number, pack_rows)
    end_weight_sums(run, &t)
    save_bias(run.problem, &bias)
