# grad_weight by AMX for few input channels to a group, their taps fused: rows are co, columns are (ci, tap), each
# packed from where its tap begins, and steps are positions of a block of the input.
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


ctypedef struct WeightAmxFused:
    AmxOutputTiles tiles
    int64_t panels       # of AMX_SIDE (ci, tap)
    int64_t task_panels
    WeightParts parts    # in two rounds


# A task's part: some co by some panels of (ci, tap).
ctypedef struct WeightAmxFusedTask:
    int64_t group, co_from, cos       # co_from counts the group's
    int64_t column_from, many         # (ci, tap)
    int64_t panels, columns           # of sums: whole panels
    char *sums                        # [co][columns]
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
    cdef double keeping = AMX_KEEP_TIME * (<double>sample.cout * all_columns / tiling_pixels(&own.tiles.tiling))
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


cdef void book_fused_pieces(const SampleGeometry *sample, const WeightAmxFused *own, Scratch *local) noexcept nogil:
    """Make room for what a thread packs and sums."""
    cdef const AmxOutputTiles *tiles = &own.tiles
    memset(local, 0, sizeof(Scratch))
    book(local, FUSED_X, tiles.x_pitch * sample.cin, 2 * sample.parts)
    book(local, FUSED_X_PAIRS, 2 * tiles.half_bytes, sample.parts)
    book(local, FUSED_G_PLANES, AMX_HALF * tiles.g_pitch, 2 * sample.parts)
    book(local, FUSED_G, ceil_div(tiles.rows, AMX_HALF), tiles.g_cells)
    book(local, FUSED_WEIGHT_SUMS, tiles.rows * own.task_panels * AMX_SIDE, 4)
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
    own.panels, own.parts.bytes, own.parts.joins = ceil_div(sample.cin * sample.taps, AMX_SIDE), 0, 1
    most_fused_sums(sample, own)
    two_rounds = own[0]
    cut_fused_tasks(sample, threads, own)
    if two_fused_rounds_pay(sample, own, threads):
        book_fused_pieces(sample, &two_rounds, local)
        two_rounds.parts.tasks = weight_amx_fused_tasks(sample, &two_rounds)
        if book_parts(problem, order, &two_rounds.tiles.tiling, threads,
                      THREAD_BYTES - max(local.bytes, blocking.others_bytes),
                      two_rounds.tiles.rows * two_rounds.task_panels * AMX_SIDE * 4, two_rounds.tiles.rows,
                      two_rounds.tiles.rows, &two_rounds.parts, blocking):
            own[0] = two_rounds
    book_fused_pieces(sample, own, local)
    own.parts.tasks = weight_amx_fused_tasks(sample, own)
    blocking.tasks = own.parts.tasks * own.parts.joins


cdef void move_fused_weights(const ConvProblem *problem, int64_t co_from, int64_t cos, int64_t from_column,
                             int64_t count, char *sums, int64_t columns, bint loading) noexcept nogil:
    """Move [co][columns] sums to grad_weight, or (loading) from it."""
    cdef const ConvView *w = &problem.view[CONV_GRAD_WEIGHT]
    cdef int64_t co
    for co in range(cos):
        move_weights(problem, from_column, count, sums + co * columns * 4, w.data + (co_from + co) * w.n, loading)


cdef void multiply_fused_columns(const ConvRun *run, const InputBlock *block, int64_t column, int64_t count,
                                 int64_t cos, int64_t depth, char *sums, int64_t columns, char *scratch,
                                 Prefetch *prefetch) noexcept nogil:
    """Add the products of `count` (ci, tap) from `column` on, each packed from where its tap begins."""
    cdef const SampleGeometry *sample = run.sample
    cdef const WeightAmxFused *own = <const WeightAmxFused *>run.blocking.own
    cdef int64_t c, zero = 0
    cdef int64_t apart[AMX_COLUMNS]
    cdef char *pairs = local_piece(run, FUSED_X_PAIRS, scratch)
    cdef AmxBatchReduce steps
    cdef AmxPlanes planes
    for c in range(count):
        apart[c] = ((column + c) // sample.taps * own.tiles.x_pitch
                    + amx_tap_position(sample, block, (column + c) % sample.taps)) * 2
    planes.part = sample.cin * own.tiles.x_pitch * 2
    pair_positions(run, &own.tiles, &planes, local_piece(run, FUSED_X, scratch), apart, depth * AMX_STEPS, count, pairs)
    amx_weight_steps(sample, &own.tiles, depth, &zero, &steps)
    prefetch_some(prefetch)
    add_amx_products(run, &steps, local_piece(run, FUSED_G, scratch), cos, pairs, count, sums, columns * 4,
                     False)


cdef void add_nonfinite_columns(const ConvRun *run, const Box *tile, int64_t column, int64_t count, int nonfinite,
                                WeightSums *sums, char *data) noexcept nogil:
    """Add the products with inf and NaN of `count` (ci, tap) from `column` on, whose sums begin at data."""
    cdef int64_t c = 0, many, taps = run.sample.taps
    while c < count:
        many = min(count - c, taps - (column + c) % taps)
        sums.data = data + c * 4
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
    t.sums, t.scratch = local_piece(run, FUSED_WEIGHT_SUMS, scratch), scratch


cdef int64_t take_joined_outputs(const ConvRun *run, int64_t join, WeightAmxFusedTask *t) noexcept nogil:
    """Leave those co of a task that a join adds; return the sums before them."""
    cdef const WeightAmxFused *own = <const WeightAmxFused *>run.blocking.own
    cdef int64_t first = piece_from(&own.parts, join, t.cos)
    t.cos = piece_from(&own.parts, join + 1, t.cos) - first
    t.co_from += first
    return first * t.columns


cdef BiasShare fused_bias_share(const ConvRun *run, const WeightAmxFusedTask *t, int64_t co_from, int64_t cos,
                                int64_t number, char *totals) noexcept nogil:
    """Start the share of grad_bias of task `number`, of those co: the tasks of the same co take one each."""
    cdef const WeightAmxFused *own = <const WeightAmxFused *>run.blocking.own
    cdef int64_t parts = ceil_div(own.panels, own.task_panels)
    return bias_share(run, t.group * run.sample.cout + co_from, cos, number % parts, parts, totals)


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
    nonfinite_sums.co_pitch, nonfinite_sums.tap_pitch = t.columns, 1
    nonfinite = NONFINITE_OUTPUT if pack_amx_rows(
        run, tiles, block, &tile, t.group * sample.cout + t.co_from, t.cos, fresh,
        local_piece(run, FUSED_G_PLANES, t.scratch), local_piece(run, FUSED_G, t.scratch), packing,
        <int64_t *>local_piece(run, FUSED_LISTED, t.scratch)) else 0
    if keeping:
        keep_bias(run.problem, &tile, bias)
    else:
        add_bias(run.problem, &tile, bias)
    planes.pitch, planes.part, planes.fresh = tiles.x_pitch, sample.cin * tiles.x_pitch * 2, fresh
    if pack_amx_input(run, block, &tile, t.group * sample.cin, sample.cin, &planes, x, packing):
        nonfinite |= NONFINITE_INPUT
    for p in range(t.panels):
        count = min(<int64_t>AMX_SIDE, t.many - p * AMX_SIDE)
        sums = t.sums + p * AMX_SIDE * 4
        if nonfinite and before:
            add_nonfinite_columns(run, &tile, t.column_from + p * AMX_SIDE, count, nonfinite, &nonfinite_sums, sums)
        multiply_fused_columns(run, block, t.column_from + p * AMX_SIDE, count, t.cos, amx_depth(&tile, block), sums,
                               t.columns, t.scratch, &prefetch)
        if nonfinite and not before:
            add_nonfinite_columns(run, &tile, t.column_from + p * AMX_SIDE, count, nonfinite, &nonfinite_sums, sums)
    return True


cdef bint prepare_weight_amx_fused(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Sum one tile for one task, and keep the sums, and grad_bias's."""
    cdef const WeightAmxFused *own = <const WeightAmxFused *>run.blocking.own
    cdef WeightAmxFusedTask t
    cdef InputBlock block
    cdef BiasShare bias
    begin_weight_amx_fused(run, number % own.parts.tasks, scratch, &t)
    t.sums = part_sums(run, &own.parts, number)
    memset(t.sums, 0, t.cos * t.columns * 4)
    bias = fused_bias_share(run, &t, t.co_from, t.cos, number % own.parts.tasks,
                            <char *>part_bias(run, &own.parts, number))
    memset(&block, 0, sizeof(block))
    sum_amx_fused_tile(run, &t, number // own.parts.tasks, &bias, True, &block)
    return False


cdef void weight_amx_fused_task(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Sum a task over all samples and output pixels, one tile after the other, or join the sums of the first round."""
    cdef const SampleGeometry *sample = run.sample
    cdef const WeightAmxFused *own = <const WeightAmxFused *>run.blocking.own
    cdef int64_t task = number // own.parts.joins, join = number % own.parts.joins, tile = 0, first
    cdef WeightAmxFusedTask t
    cdef InputBlock block
    cdef BiasShare bias
    begin_weight_amx_fused(run, task, scratch, &t)
    bias = fused_bias_share(run, &t, t.co_from, 0 if join else t.cos, task, local_piece(run, FUSED_BIAS, scratch))
    first = take_joined_outputs(run, join, &t)
    memset(t.sums, 0, t.cos * t.columns * 4)
    if run.problem.accumulate:
        move_fused_weights(run.problem, t.group * sample.cout + t.co_from, t.cos, t.column_from, t.many, t.sums,
                           t.columns, True)
    memset(&block, 0, sizeof(block))
    if own.parts.bytes:
        join_parts(run, &own.parts, &own.tiles.tiling, task, first, t.cos * t.columns, t.sums, &bias)
    else:
        while sum_amx_fused_tile(run, &t, tile, &bias, False, &block):
            tile += 1
    move_fused_weights(run.problem, t.group * sample.cout + t.co_from, t.cos, t.column_from, t.many, t.sums, t.columns,
                       False)
    save_bias(run.problem, &bias)


cdef void explain_weight_amx_fused(const SampleGeometry *sample, const SumOrder *order, const Blocking *blocking,
                                   char *text, size_t size) noexcept nogil:
    cdef const WeightAmxFused *own = <const WeightAmxFused *>blocking.own
    snprintf(text, size, b"products of matrices by AMX, of %lld bfloat16 to a number: rows are output channels, "
             b"columns %lld (input channel, tap); tiles of %lld x %lld x %lld x %lld pixels, %lld of %lld rows and "
             b"%lld columns a task%s", <long long>sample.parts, <long long>(sample.cin * sample.taps),
             <long long>own.tiles.tiling.samples, <long long>order.tile[0], <long long>order.tile[1],
             <long long>order.tile[2], <long long>own.tiles.rows, <long long>sample.cout,
             <long long>(own.task_panels * AMX_SIDE), b"; tile by tile, then joined" if own.parts.bytes else b"")


cdef ConvAlgorithm weight_amx_fused() noexcept nogil:
    cdef ConvAlgorithm row
    row.name, row.gradients = b"grad_weight:amx_fused", FOR_GRAD_WEIGHT
    row.accepts, row.order, row.block = accepts_weight_amx_fused, order_amx_output, block_weight_amx_fused
    row.prepare, row.task, row.explain = prepare_weight_amx_fused, weight_amx_fused_task, explain_weight_amx_fused
    return row
