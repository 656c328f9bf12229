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


cdef void block_weight_amx_fused(const ConvProblem *problem, const SumOrder *order, int gradients, int threads,
                                 Blocking *blocking) noexcept nogil:
    """Fit a task's sums to the cache, then make tasks smaller where they are too few for the threads or uneven."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef WeightAmxFused *own = <WeightAmxFused *>blocking.own
    cdef AmxOutputTiles *tiles = &own.tiles
    cdef Scratch *local = &blocking.local
    block_amx_output(problem, order, tiles)
    own.panels = ceil_div(sample.cin * sample.taps, AMX_SIDE)
    own.task_panels = max(<int64_t>1, min(own.panels, <int64_t>AMX_SUM_BYTES // (tiles.rows * AMX_SIDE * 4)))
    while threads > 1 and own.task_panels > 1 and uneven_tasks(weight_amx_fused_tasks(sample, own), threads):
        own.task_panels = ceil_div(own.task_panels, 2)
    while threads > 1 and tiles.rows > AMX_SIDE and uneven_tasks(weight_amx_fused_tasks(sample, own), threads):
        tiles.rows = round_up(ceil_div(tiles.rows, 2), AMX_SIDE)
    if weight_amx_fused_tasks(sample, own) < threads and tiles.rows > AMX_HALF:
        tiles.rows = round_up(ceil_div(tiles.rows, 2), AMX_HALF)
    book(local, FUSED_X, tiles.x_pitch * sample.cin, 2 * sample.parts)
    book(local, FUSED_X_PAIRS, 2 * tiles.half_bytes, sample.parts)
    book(local, FUSED_G_PLANES, AMX_HALF * tiles.g_pitch, 2 * sample.parts)
    book(local, FUSED_G, ceil_div(tiles.rows, AMX_HALF), tiles.g_cells)
    book(local, FUSED_WEIGHT_SUMS, tiles.rows * own.task_panels * AMX_SIDE, 4)
    book(local, FUSED_BIAS, tiles.rows, sizeof(double))
    book(local, FUSED_PACKING, amx_packing_bytes(sample, tiles.rows), 1)
    book(local, FUSED_LISTED, tiles.g_pitch, sizeof(int64_t))
    blocking.tasks = weight_amx_fused_tasks(sample, own)


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


cdef void weight_amx_fused_task(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Sum task number (group, co, panels of (ci, tap)) over all samples and output pixels, one tile after the other."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvProblem *problem = run.problem
    cdef const WeightAmxFused *own = <const WeightAmxFused *>run.blocking.own
    cdef const AmxOutputTiles *tiles = &own.tiles
    cdef int64_t parts = ceil_div(own.panels, own.task_panels), down = ceil_div(sample.cout, tiles.rows)
    cdef int64_t group = number // parts // down, co_from = number // parts % down * tiles.rows
    cdef int64_t cos = min(tiles.rows, sample.cout - co_from)
    cdef int64_t panel_from = number % parts * own.task_panels, panels = min(own.task_panels, own.panels - panel_from)
    cdef int64_t columns = panels * AMX_SIDE, from_column = panel_from * AMX_SIDE
    cdef int64_t many = min(columns, sample.cin * sample.taps - from_column)
    cdef int64_t tile_number = 0, p, count
    cdef char *x = local_piece(run, FUSED_X, scratch)
    cdef char *sums = local_piece(run, FUSED_WEIGHT_SUMS, scratch)
    cdef bint fresh
    cdef int nonfinite
    cdef AmxPlanes planes
    cdef Box tile
    cdef InputBlock block
    cdef WeightSums nonfinite_sums
    cdef Prefetch prefetch
    cdef BiasShare bias = bias_share(run, group * sample.cout + co_from, cos, number % parts, parts,
                                     local_piece(run, FUSED_BIAS, scratch))
    memset(&block, 0, sizeof(block))
    memset(sums, 0, cos * columns * 4)
    planes.pitch, planes.part = tiles.x_pitch, sample.cin * tiles.x_pitch * 2
    if problem.accumulate:
        move_fused_weights(problem, group * sample.cout + co_from, cos, from_column, many, sums, columns, True)
    nonfinite_sums.group, nonfinite_sums.co_from, nonfinite_sums.cos = group, co_from, cos
    nonfinite_sums.co_pitch, nonfinite_sums.tap_pitch = columns, 1
    while next_amx_tile(run, tiles, tile_number, group, co_from, cos, panels, &tile, &block, &fresh, &prefetch):
        nonfinite = NONFINITE_OUTPUT if pack_amx_rows(
            run, tiles, &block, &tile, group * sample.cout + co_from, cos, fresh,
            local_piece(run, FUSED_G_PLANES, scratch), local_piece(run, FUSED_G, scratch),
            local_piece(run, FUSED_PACKING, scratch), <int64_t *>local_piece(run, FUSED_LISTED, scratch)) else 0
        add_bias(problem, &tile, &bias)
        planes.fresh = fresh
        if pack_amx_input(run, &block, &tile, group * sample.cin, sample.cin, &planes, x,
                          local_piece(run, FUSED_PACKING, scratch)):
            nonfinite |= NONFINITE_INPUT
        for p in range(panels):
            count = min(<int64_t>AMX_SIDE, many - p * AMX_SIDE)
            multiply_fused_columns(run, &block, from_column + p * AMX_SIDE, count, cos, amx_depth(&tile, &block),
                                   sums + p * AMX_SIDE * 4, columns, scratch, &prefetch)
            if nonfinite:
                add_nonfinite_columns(run, &tile, from_column + p * AMX_SIDE, count, nonfinite, &nonfinite_sums,
                                      sums + p * AMX_SIDE * 4)
        tile_number += 1
    move_fused_weights(problem, group * sample.cout + co_from, cos, from_column, many, sums, columns, False)
    save_bias(problem, &bias)


cdef void explain_weight_amx_fused(const SampleGeometry *sample, const SumOrder *order, const Blocking *blocking,
                                   char *text, size_t size) noexcept nogil:
    cdef const WeightAmxFused *own = <const WeightAmxFused *>blocking.own
    snprintf(text, size, b"products of matrices by AMX, of %lld bfloat16 to a number: rows are output channels, "
             b"columns %lld (input channel, tap); tiles of %lld x %lld x %lld x %lld pixels, %lld of %lld rows and "
             b"%lld columns a task", <long long>sample.parts, <long long>(sample.cin * sample.taps),
             <long long>own.tiles.tiling.samples, <long long>order.tile[0], <long long>order.tile[1],
             <long long>order.tile[2], <long long>own.tiles.rows, <long long>sample.cout,
             <long long>(own.task_panels * AMX_SIDE))


cdef ConvAlgorithm weight_amx_fused() noexcept nogil:
    cdef ConvAlgorithm row
    row.name, row.gradients = b"grad_weight:amx_fused", FOR_GRAD_WEIGHT
    row.accepts, row.order, row.block = accepts_weight_amx_fused, order_amx_output, block_weight_amx_fused
    row.prepare, row.task, row.explain = nothing_to_prepare, weight_amx_fused_task, explain_weight_amx_fused
    return row
