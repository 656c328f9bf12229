# grad_weight by AMX for few input channels to a group, their taps fused: rows are co, columns are (ci, tap), each
# packed from where its tap begins, and steps are positions of a block of the input. Where the channels of a pixel of
# grad_output lie side by side, rows and columns change places: then its pixels are interleaved by pairs, which takes a
# fraction of the time of transposing them, and a (ci, tap) is a copy of a plane. The products, and the order of their
# sums, are the same.
cdef enum:
    # pieces of a thread's scratch
    FUSED_X = 0
    FUSED_X_PAIRS = 1
    FUSED_G = 2
    FUSED_WEIGHT_SUMS = 3
    FUSED_BIAS = 4
    FUSED_PACKING = 5
    FUSED_G_PLANES = 6
    FUSED_LISTED = 7
    FUSED_WEIGHT_LINES = 8


ctypedef struct WeightAmxFused:
    AmxOutputTiles tiles
    int64_t panels       # of AMX_SIDE (ci, tap)
    int64_t task_panels
    bint turned          # whether rows are (ci, tap), and columns co
    WeightParts parts    # in two rounds


# A task's part: some co by some panels of (ci, tap).
ctypedef struct WeightAmxFusedTask:
    int64_t group, co_from, cos       # co_from counts the group's
    int64_t column_from, many         # (ci, tap)
    int64_t panels, columns           # of sums: whole panels
    int64_t co_pitch, column_pitch    # floats from sum to sum
    char *sums                        # [co][columns], or turned
    char *scratch


cdef bint accepts_weight_amx_fused(const SampleGeometry *sample, const char **why) noexcept nogil:
    if not suits_amx(sample, why) or not has_few_inputs(sample, why):
        return False
    if sample.parts > 1:
        why[0] = b"few channels to a group do not pay for taking numbers apart"
        return False
    if sample.cin * sample.taps <= AMX_FEW_INPUTS:
        why[0] = b"few input channels to a group, by few taps, would leave most of an instruction empty"
        return False
    return fits_amx_output(sample, why)


cdef int64_t weight_amx_fused_tasks(const SampleGeometry *sample, const WeightAmxFused *own) noexcept nogil:
    """Count the tasks."""
    return sample.groups * ceil_div(own.panels, own.task_panels) * ceil_div(sample.cout, own.tiles.rows)


cdef double fused_task_time(int64_t rows, int64_t columns) noexcept nogil:
    """Estimate the time of a task, as amx_task_time does: a column is packed once from where its tap begins, and each
    row."""
    return <double>round_up(rows, AMX_HALF) * round_up(columns, AMX_HALF) + AMX_PACK_TIME * (columns + rows)


cdef bint two_fused_rounds_pay(const SampleGeometry *sample, const WeightAmxFused *own, int threads) noexcept nogil:
    """Say whether tasks are slower than tiles that any thread takes, whose sums are kept and joined."""
    cdef int64_t all_columns = sample.cin * sample.taps
    cdef double one = fused_task_time(min(sample.cout, own.tiles.rows), min(all_columns, own.task_panels * AMX_SIDE)) \
        * ceil_div(weight_amx_fused_tasks(sample, own), threads)
    cdef int64_t pixels = max(<int64_t>1, tiling_pixels(&own.tiles.tiling))
    cdef double keeping = AMX_KEEP_TIME * (<double>sample.cout * all_columns / pixels)
    return sample.groups * (fused_task_time(sample.cout, all_columns) + keeping) < threads * one


cdef void most_fused_sums(const SampleGeometry *sample, WeightAmxFused *own) noexcept nogil:
    """Make tasks of as many rows and panels as have room for their sums."""
    own.tiles.rows = min(sample.cout, <int64_t>AMX_OUTPUT_ROWS)
    own.task_panels = max(<int64_t>1, min(own.panels, <int64_t>AMX_SUM_BYTES // (own.tiles.rows * AMX_SIDE * 4)))


cdef void cut_fused_tasks(const SampleGeometry *sample, int threads, WeightAmxFused *own) noexcept nogil:
    """Make tasks smaller where they are too few for the threads or uneven."""
    cdef AmxOutputTiles *tiles = &own.tiles
    while threads > 1 and own.task_panels > 1 and uneven_tasks(weight_amx_fused_tasks(sample, own), threads):
        own.task_panels = ceil_div(own.task_panels, 2)
    while threads > 1 and tiles.rows > AMX_SIDE and uneven_tasks(weight_amx_fused_tasks(sample, own), threads):
        tiles.rows = round_up(ceil_div(tiles.rows, 2), AMX_SIDE)
    if weight_amx_fused_tasks(sample, own) < threads and tiles.rows > AMX_HALF:
        tiles.rows = round_up(ceil_div(tiles.rows, 2), AMX_HALF)


cdef int64_t fused_sums(const WeightAmxFused *own) noexcept nogil:
    """Count the floats of a task's sums, whole vectors of them."""
    return round_up(own.tiles.rows, AMX_HALF) * own.task_panels * AMX_SIDE


cdef void book_fused_pieces(const SampleGeometry *sample, const WeightAmxFused *own, Scratch *local) noexcept nogil:
    """Make room for what a thread packs and sums."""
    cdef const AmxOutputTiles *tiles = &own.tiles
    memset(local, 0, sizeof(Scratch))
    book(local, FUSED_X, tiles.x_pitch * sample.cin, 2 * sample.parts)
    book(local, FUSED_X_PAIRS, max(2 * tiles.half_bytes, AMX_SIDE * 2 * tiles.g_pitch), sample.parts)
    book(local, FUSED_G_PLANES, AMX_HALF * tiles.g_pitch, 2 * sample.parts)
    book(local, FUSED_G, ceil_div(tiles.rows, AMX_HALF), tiles.g_cells)
    book(local, FUSED_WEIGHT_SUMS, fused_sums(own), 4)
    book(local, FUSED_WEIGHT_LINES, fused_sums(own) if own.turned else 0, 4)
    book(local, FUSED_BIAS, tiles.rows, sizeof(double))
    book(local, FUSED_PACKING, amx_packing_bytes(sample, tiles.rows), 1)
    book(local, FUSED_LISTED, tiles.g_pitch, sizeof(int64_t))


cdef void block_weight_amx_fused(const ConvProblem *problem, const SumOrder *order, int gradients, int threads,
                                 Blocking *blocking) noexcept nogil:
    """Cut the work into tasks, or let threads share the tiles."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef WeightAmxFused *own = <WeightAmxFused *>blocking.own
    cdef Scratch *local = &blocking.local
    cdef WeightAmxFused two_rounds
    block_amx_output(problem, order, &own.tiles)
    own.tiles.half_bytes = own.tiles.g_cells  # a column has the positions under its tap, and not those of all classes
    own.panels, own.parts.bytes, own.parts.joins = ceil_div(sample.cin * sample.taps, AMX_SIDE), 0, 1
    own.turned = problem.view[CONV_GRAD_OUTPUT].channel == itemsize_of(sample.dtype)
    most_fused_sums(sample, own)
    two_rounds = own[0]
    cut_fused_tasks(sample, threads, own)
    if two_fused_rounds_pay(sample, own, threads):
        book_fused_pieces(sample, &two_rounds, local)
        two_rounds.parts.tasks = weight_amx_fused_tasks(sample, &two_rounds)
        if book_parts(problem, order, &two_rounds.tiles.tiling, threads,
                      THREAD_BYTES - max(local.bytes, blocking.others_bytes),
                      4 * fused_sums(&two_rounds), 1 if own.turned else two_rounds.tiles.rows, two_rounds.tiles.rows,
                      &two_rounds.parts, blocking):
            own[0] = two_rounds
    book_fused_pieces(sample, own, local)
    own.parts.tasks = weight_amx_fused_tasks(sample, own)
    blocking.tasks = own.parts.tasks * own.parts.joins


cdef void move_fused_weights(const ConvRun *run, const WeightAmxFusedTask *t, bint loading) noexcept nogil:
    """Move a task's sums to grad_weight, or (loading) from it."""
    cdef const WeightAmxFused *own = <const WeightAmxFused *>run.blocking.own
    cdef const ConvView *w = &run.problem.view[CONV_GRAD_WEIGHT]
    cdef int64_t first = t.group * run.sample.cout + t.co_from, row = t.columns * 4, turned_row = t.column_pitch * 4, co
    cdef char *lines = local_piece(run, FUSED_WEIGHT_LINES, t.scratch) if own.turned else t.sums
    if own.turned and not loading:
        kernels.transpose[DTYPE_F32](t.sums, turned_row, lines, row, t.cos, t.many)
    for co in range(t.cos):
        move_weights(run.problem, t.column_from, t.many, lines + co * row, w.data + (first + co) * w.n, loading)
    if own.turned and loading:
        kernels.transpose[DTYPE_F32](lines, row, t.sums, turned_row, t.many, t.cos)


cdef bint pack_fused_outputs(const ConvRun *run, const WeightAmxFusedTask *t, const InputBlock *block, const Box *tile,
                             bint fresh) noexcept nogil:
    """Pack a tile of grad_output as the algorithm multiplies it; return whether there were inf or NaN that became
    tiny."""
    cdef const WeightAmxFused *own = <const WeightAmxFused *>run.blocking.own
    cdef const ConvView *view = &run.problem.view[CONV_GRAD_OUTPUT]
    cdef int64_t channel = t.group * run.sample.cout + t.co_from
    cdef int64_t *line = <int64_t *>local_piece(run, FUSED_LISTED, t.scratch)
    cdef char *to = local_piece(run, FUSED_G, t.scratch)
    cdef int64_t end[3]
    cdef Box box
    if not own.turned:
        return pack_amx_rows(run, &own.tiles, block, tile, channel, t.cos, fresh,
                             local_piece(run, FUSED_G_PLANES, t.scratch), to,
                             local_piece(run, FUSED_PACKING, t.scratch), line)
    block_of_outputs(tile, block, &box, end)
    list_lines(view, end, &box, block.sample, line)
    return pair_listed_lines(run, line, view.data + channel * view.channel, block.plane, t.cos, own.tiles.g_cells, to)


cdef void multiply_fused_rows(const ConvRun *run, const WeightAmxFusedTask *t, const int64_t *apart, int64_t count,
                              int64_t depth, char *sums) noexcept nogil:
    """Add the products of `count` (ci, tap), which begin that many bytes from the first plane, with all co."""
    cdef const WeightAmxFused *own = <const WeightAmxFused *>run.blocking.own
    cdef const char *x = local_piece(run, FUSED_X, t.scratch)
    cdef const char *g = local_piece(run, FUSED_G, t.scratch)
    cdef char *rows = local_piece(run, FUSED_X_PAIRS, t.scratch)
    cdef int64_t row = 2 * own.tiles.g_pitch, zero = 0, c, co = 0
    cdef AmxBatchReduce steps
    for c in range(count):
        memcpy(rows + c * row, x + apart[c], depth * AMX_STEPS * 2)
    amx_weight_steps(run.sample, &own.tiles, depth, &zero, &steps)
    steps.a_row, steps.a_down, steps.a_step = row, AMX_HALF * row, AMX_STEPS * 2
    while co < t.cos:
        add_amx_products(run, &steps, rows, count, g + co // AMX_HALF * own.tiles.g_cells,
                         min(<int64_t>AMX_SIDE, t.cos - co), sums + co * 4, t.column_pitch * 4, False)
        co += AMX_SIDE


cdef void multiply_fused_columns(const ConvRun *run, const WeightAmxFusedTask *t, const InputBlock *block,
                                 int64_t column, int64_t count, int64_t depth, char *sums,
                                 Prefetch *prefetch) noexcept nogil:
    """Add the products of `count` (ci, tap) from `column` on, each packed from where its tap begins."""
    cdef const SampleGeometry *sample = run.sample
    cdef const WeightAmxFused *own = <const WeightAmxFused *>run.blocking.own
    cdef int64_t c, zero = 0
    cdef int64_t apart[AMX_COLUMNS]
    cdef char *pairs = local_piece(run, FUSED_X_PAIRS, t.scratch)
    cdef AmxBatchReduce steps
    cdef AmxPlanes planes
    for c in range(count):
        apart[c] = ((column + c) // sample.taps * own.tiles.x_pitch
                    + amx_tap_position(sample, block, (column + c) % sample.taps)) * 2
    prefetch_some(prefetch)
    if own.turned:
        multiply_fused_rows(run, t, apart, count, depth, sums)
        return
    planes.part = sample.cin * own.tiles.x_pitch * 2
    pair_positions(run, &own.tiles, &planes, local_piece(run, FUSED_X, t.scratch), apart, depth * AMX_STEPS, count,
                   pairs)
    amx_weight_steps(sample, &own.tiles, depth, &zero, &steps)
    add_amx_products(run, &steps, local_piece(run, FUSED_G, t.scratch), t.cos, pairs, count, sums, t.co_pitch * 4,
                     False)


cdef void add_nonfinite_columns(const ConvRun *run, const Box *tile, int64_t column, int64_t count, int nonfinite,
                                int64_t pitch, WeightSums *sums, char *data) noexcept nogil:
    """Add the products with inf and NaN of `count` (ci, tap) from `column` on, whose sums begin at data, so many floats
    apart."""
    cdef int64_t c = 0, many, taps = run.sample.taps
    while c < count:
        many = min(count - c, taps - (column + c) % taps)
        sums.data = data + c * pitch * 4
        add_nonfinite_products(run.problem, tile, (column + c) // taps, (column + c) % taps,
                               (column + c) % taps + many, nonfinite, sums)
        c += many


cdef void begin_weight_amx_fused(const ConvRun *run, int64_t number, char *scratch,
                                 WeightAmxFusedTask *t) noexcept nogil:
    """Begin task number (group, co, panels of (ci, tap)), which has no sums yet."""
    cdef const SampleGeometry *sample = run.sample
    cdef const WeightAmxFused *own = <const WeightAmxFused *>run.blocking.own
    cdef int64_t parts = ceil_div(own.panels, own.task_panels), down = ceil_div(sample.cout, own.tiles.rows)
    cdef int64_t panel_from = number % parts * own.task_panels
    t.group, t.co_from = number // parts // down, number // parts % down * own.tiles.rows
    t.cos, t.panels = min(own.tiles.rows, sample.cout - t.co_from), min(own.task_panels, own.panels - panel_from)
    t.column_from, t.columns = panel_from * AMX_SIDE, t.panels * AMX_SIDE
    t.many = min(t.columns, sample.cin * sample.taps - t.column_from)
    t.co_pitch, t.column_pitch = t.columns, 1
    if own.turned:
        t.co_pitch, t.column_pitch = 1, round_up(t.cos, AMX_HALF)
    t.sums, t.scratch = local_piece(run, FUSED_WEIGHT_SUMS, scratch), scratch


cdef int64_t fused_task_sums(const WeightAmxFusedTask *t) noexcept nogil:
    """Count the floats of a task's sums."""
    return t.columns * (t.cos if t.column_pitch == 1 else t.column_pitch)


cdef int64_t take_joined_outputs(const ConvRun *run, int64_t join, WeightAmxFusedTask *t) noexcept nogil:
    """Leave those co of a task that a join adds, all of them where rows are (ci, tap); return the sums before them."""
    cdef const WeightAmxFused *own = <const WeightAmxFused *>run.blocking.own
    cdef int64_t first = piece_from(&own.parts, join, t.cos)
    t.cos = piece_from(&own.parts, join + 1, t.cos) - first
    t.co_from += first
    return first * t.co_pitch


cdef BiasShare fused_bias_share(const ConvRun *run, const WeightAmxFusedTask *t, int64_t number, int64_t join,
                                char *totals) noexcept nogil:
    """Start the share of grad_bias of task `number`, as amx_bias_share does."""
    cdef const WeightAmxFused *own = <const WeightAmxFused *>run.blocking.own
    cdef int64_t parts = ceil_div(own.panels, own.task_panels)
    return bias_share(run, t.group * run.sample.cout + t.co_from, 0 if join else t.cos, number % parts, parts, totals)


cdef bint sum_amx_fused_tile(const ConvRun *run, const WeightAmxFusedTask *t, int64_t number, const BiasShare *bias,
                             bint keeping, InputBlock *block) noexcept nogil:
    """Add the products of the tile of that number to a task's sums, and its pixels to grad_bias, or (keeping) begin
    that with them; return False if there are fewer tiles. block: that of the tile before. inf and NaN come before the
    tile's sum as in sum_amx_tile."""
    cdef const SampleGeometry *sample = run.sample
    cdef const WeightAmxFused *own = <const WeightAmxFused *>run.blocking.own
    cdef const AmxOutputTiles *tiles = &own.tiles
    cdef int64_t p, count
    cdef char *x = local_piece(run, FUSED_X, t.scratch)
    cdef char *packing = local_piece(run, FUSED_PACKING, t.scratch)
    cdef char *sums
    cdef bint fresh, before = not keeping and not run.order.accumulate
    cdef int nonfinite
    cdef AmxPlanes planes
    cdef Box tile
    cdef WeightSums nonfinite_sums
    cdef Prefetch prefetch
    if not next_amx_tile(run, tiles, number, t.group, t.co_from, t.cos, t.panels, &tile, block, &fresh, &prefetch):
        return False
    nonfinite_sums.group, nonfinite_sums.co_from, nonfinite_sums.cos = t.group, t.co_from, t.cos
    nonfinite_sums.co_pitch, nonfinite_sums.tap_pitch = t.co_pitch, t.column_pitch
    nonfinite = NONFINITE_OUTPUT if pack_fused_outputs(run, t, block, &tile, fresh) else 0
    if keeping:
        keep_bias(run.problem, &tile, bias)
    else:
        add_bias(run.problem, &tile, bias)
    planes.pitch, planes.part, planes.fresh = tiles.x_pitch, sample.cin * tiles.x_pitch * 2, fresh
    if pack_amx_input(run, block, &tile, t.group * sample.cin, sample.cin, &planes, x, packing):
        nonfinite |= NONFINITE_INPUT
    for p in range(t.panels):
        count = min(<int64_t>AMX_SIDE, t.many - p * AMX_SIDE)
        sums = t.sums + p * AMX_SIDE * t.column_pitch * 4
        if nonfinite and before:
            add_nonfinite_columns(run, &tile, t.column_from + p * AMX_SIDE, count, nonfinite, t.column_pitch,
                                  &nonfinite_sums, sums)
        multiply_fused_columns(run, t, block, t.column_from + p * AMX_SIDE, count, amx_depth(&tile, block), sums,
                               &prefetch)
        if nonfinite and not before:
            add_nonfinite_columns(run, &tile, t.column_from + p * AMX_SIDE, count, nonfinite, t.column_pitch,
                                  &nonfinite_sums, sums)
    return True


cdef bint prepare_weight_amx_fused(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Sum one tile for one task, and keep the sums, and grad_bias's."""
    cdef const WeightAmxFused *own = <const WeightAmxFused *>run.blocking.own
    cdef WeightAmxFusedTask t
    cdef InputBlock block
    cdef BiasShare bias
    begin_weight_amx_fused(run, number % own.parts.tasks, scratch, &t)
    t.sums = part_sums(run, &own.parts, number)
    memset(t.sums, 0, fused_task_sums(&t) * 4)
    bias = fused_bias_share(run, &t, number % own.parts.tasks, 0, <char *>part_bias(run, &own.parts, number))
    memset(&block, 0, sizeof(block))
    sum_amx_fused_tile(run, &t, number // own.parts.tasks, &bias, True, &block)
    return False


cdef void weight_amx_fused_task(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Sum a task over all samples and output pixels, one tile after the other, or join the sums of the first round."""
    cdef const WeightAmxFused *own = <const WeightAmxFused *>run.blocking.own
    cdef int64_t task = number // own.parts.joins, join = number % own.parts.joins, tile = 0, first
    cdef WeightAmxFusedTask t
    cdef InputBlock block
    cdef BiasShare bias
    begin_weight_amx_fused(run, task, scratch, &t)
    bias = fused_bias_share(run, &t, task, join, local_piece(run, FUSED_BIAS, scratch))
    first = take_joined_outputs(run, join, &t)
    memset(t.sums, 0, fused_task_sums(&t) * 4)
    if run.problem.accumulate:
        move_fused_weights(run, &t, True)
    memset(&block, 0, sizeof(block))
    if own.parts.bytes:
        join_parts(run, &own.parts, &own.tiles.tiling, task, first, fused_task_sums(&t), t.sums, &bias)
    else:
        while sum_amx_fused_tile(run, &t, tile, &bias, False, &block):
            tile += 1
    move_fused_weights(run, &t, False)
    save_bias(run.problem, &bias)


cdef void explain_weight_amx_fused(const SampleGeometry *sample, const SumOrder *order, const Blocking *blocking,
                                   char *text, size_t size) noexcept nogil:
    cdef const WeightAmxFused *own = <const WeightAmxFused *>blocking.own
    snprintf(text, size, b"products of matrices by AMX, of %lld bfloat16 to a number: %s are output channels, "
             b"%s %lld (input channel, tap); tiles of %lld x %lld x %lld x %lld pixels, %lld of %lld output "
             b"channels and %lld of these a task%s", <long long>sample.parts, b"columns" if own.turned else b"rows",
             b"rows" if own.turned else b"columns", <long long>(sample.cin * sample.taps),
             <long long>own.tiles.tiling.samples, <long long>order.tile[0], <long long>order.tile[1],
             <long long>order.tile[2], <long long>own.tiles.rows, <long long>sample.cout,
             <long long>(own.task_panels * AMX_SIDE), b"; tile by tile, then joined" if own.parts.bytes else b"")


cdef ConvAlgorithm weight_amx_fused() noexcept nogil:
    cdef ConvAlgorithm row
    row.name, row.gradients = b"grad_weight:amx_fused", FOR_GRAD_WEIGHT
    row.accepts, row.order, row.block = accepts_weight_amx_fused, order_amx_output, block_weight_amx_fused
    row.prepare, row.task, row.explain = prepare_weight_amx_fused, weight_amx_fused_task, explain_weight_amx_fused
    return row
