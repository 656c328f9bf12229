# grad_weight by AMX: rows are co, columns are ci, steps are positions of a packed block of the input, and every tap is
# a product of its own over the same positions. Samples begin at multiples of the instruction's 32 positions, so a
# sample's products are the same alone and beside others.
cdef enum:
    # pieces of a thread's scratch
    AMX_X = 0
    AMX_X_PAIRS = 1
    AMX_G = 2
    AMX_WEIGHT_SUMS = 3
    AMX_STARTS = 4
    AMX_WEIGHT_LINE = 5
    AMX_BIAS = 6
    AMX_PACKING = 7
    AMX_G_PLANES = 8
    AMX_LISTED = 9

    AMX_AT_ONCE = 1 << 18        # bytes of columns that are packed together, at most


ctypedef struct WeightAmx:
    AmxOutputTiles tiles
    int64_t panels       # of AMX_SIDE ci
    int64_t task_panels
    WeightParts parts    # in two rounds
    bint one_tile        # of the batch
    int64_t at_once      # panels of columns that a task packs together
    int64_t panel_bytes  # of columns, packed, under several taps once from an odd position on, too
    int64_t shared_rows  # units of grad_output that are packed once for all tasks; 0: each packs its own


# A task's part: some co by the ci of some panels.
ctypedef struct WeightAmxTask:
    int64_t group, co_from, cos   # co_from counts all groups'
    int64_t ci_from, cis, panels
    char *sums           # [panel][tap][co][ci]
    int64_t panel, tap, row   # bytes from one to the next
    char *scratch


cdef bint reuses_parts(const SampleGeometry *sample, const char **why) noexcept nogil:
    """Say whether elements that are taken apart are multiplied often enough, in instructions that are not mostly
    empty."""
    cdef int64_t products = sample.cin * sample.cout * min(sample.taps, <int64_t>AMX_COLUMNS)
    cdef int64_t pixels, elements, reuse, steps
    cdef bint strided = False
    cdef Tiling tiling
    cdef InputBlock block
    cdef int d
    if sample.parts == 1:
        return True
    for d in range(3):
        strided = strided or sample.axis[d].stride > 1
    cut_amx_output(sample, &tiling)
    amx_input_block(sample, tiling.extent, 1, &block)
    pixels = tiling_pixels(&tiling)
    elements = sample.cin * class_count(&block) * block.plane + sample.cout * pixels
    reuse = HALF_MIN_REUSE if sample.parts == 2 else STRIDED_MIN_REUSE if strided else PART_MIN_REUSE
    if (strided and sample.taps > 1 and (sample.parts == 2 or sample.taps < STRIDED_MIN_TAPS)) \
            or (sample.parts == 3 and (4 * round_up(sample.cin, AMX_COLUMNS) > 5 * sample.cin
                                       or max(sample.cin, sample.cout) <= AMX_COLUMNS)) \
            or products * pixels < reuse * elements:
        why[0] = b"elements are not multiplied often enough to pay for taking them apart"
        return False
    why[0] = b"images are so small that most of an instruction would be empty"
    steps = round_up(positions_under_tile(&tiling, &block), AMX_STEPS)
    if 5 * pixels >= (4 if sample.parts == 3 else 3) * steps:
        return True
    return products >= SMALL_MIN_PRODUCTS and products * pixels >= SMALL_MIN_REUSE * elements \
        and (5 if products >= FULL_MIN_PRODUCTS else 4) * pixels >= 3 * steps


cdef bint accepts_weight_amx(const SampleGeometry *sample, const char **why) noexcept nogil:
    return suits_amx(sample, why) and has_amx_inputs(sample, why) and pays_in_parts(sample, why) \
        and fits_amx_output(sample, why) and reuses_parts(sample, why)


cdef int64_t weight_amx_tasks(const SampleGeometry *sample, const WeightAmx *own) noexcept nogil:
    """Count the tasks."""
    return sample.groups * ceil_div(own.panels, own.task_panels) * ceil_div(sample.cout, own.tiles.rows)


cdef void columns_at_once(const ConvProblem *problem, WeightAmx *own) noexcept nogil:
    """Decide how many panels of columns a task packs together: under one tap those whose channels lie side by side, so
    that memory is read from its beginning to its end, if they fit the cache."""
    cdef const SampleGeometry *sample = &problem.sample
    own.at_once = 1
    if sample.taps == 1 and problem.view[CONV_INPUT].channel == itemsize_of(sample.dtype) and not own.shared_rows:
        own.at_once = max(<int64_t>1, min(own.task_panels, AMX_AT_ONCE // own.panel_bytes))


cdef void book_amx_pieces(const ConvProblem *problem, WeightAmx *own, Scratch *local) noexcept nogil:
    """Make room for what a thread packs and sums."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const AmxOutputTiles *tiles = &own.tiles
    columns_at_once(problem, own)
    book(local, AMX_X, tiles.x_pitch * AMX_SIDE, 2 * sample.parts)
    book(local, AMX_X_PAIRS, own.at_once, own.panel_bytes)
    book(local, AMX_G_PLANES, AMX_HALF * tiles.g_pitch, 2 * sample.parts)
    book(local, AMX_G, ceil_div(tiles.rows, AMX_HALF), tiles.g_cells)
    book(local, AMX_WEIGHT_SUMS, own.task_panels * sample.taps, amx_tap_bytes(own))
    book(local, AMX_STARTS, sample.taps, sizeof(int64_t))
    book(local, AMX_WEIGHT_LINE, sample.taps * AMX_SIDE, 4)
    book(local, AMX_BIAS, tiles.rows, sizeof(double))
    book(local, AMX_PACKING, amx_packing_bytes(sample, max(tiles.rows, <int64_t>SHARED_ROWS)), 1)
    book(local, AMX_LISTED, tiles.x_pitch, sizeof(int64_t))


cdef void fit_amx_pieces(const ConvProblem *problem, WeightAmx *own, Scratch *local) noexcept nogil:
    """Make that room, and give tasks fewer rows while it would be too large."""
    while True:
        memset(local, 0, sizeof(Scratch))
        book_amx_pieces(problem, own, local)
        if local.bytes <= THREAD_BYTES or own.tiles.rows <= AMX_HALF:
            return
        own.tiles.rows = round_up(ceil_div(own.tiles.rows, 2), AMX_HALF)


cdef void block_weight_amx(const ConvProblem *problem, const SumOrder *order, int gradients, int threads,
                           Blocking *blocking) noexcept nogil:
    """Cut the work into tasks, or let threads share the tiles."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef WeightAmx *own = <WeightAmx *>blocking.own
    cdef AmxOutputTiles *tiles = &own.tiles
    cdef Scratch *local = &blocking.local
    cdef WeightAmx two_rounds
    cdef int64_t size[3]
    cdef int64_t most
    cdef double time
    block_amx_output(problem, order, tiles)
    own.panels, own.parts.bytes, own.parts.joins = ceil_div(sample.cin, AMX_SIDE), 0, 1
    own.shared_rows = 0
    own.panel_bytes = (4 if sample.taps > 1 else 2) * tiles.half_bytes * sample.parts
    output_size(sample, size)
    own.one_tile = count_tiles(&tiles.tiling, problem.batch, size) == 1
    most = AMX_MOST_ROWS if own.one_tile else AMX_OUTPUT_ROWS
    time = cut_amx_tasks(problem, threads, True, most, &tiles.rows, &own.task_panels)
    if two_amx_rounds_pay(problem, &tiles.tiling, threads, time):
        two_rounds = own[0]
        cut_amx_tasks(problem, 1, True, AMX_OUTPUT_ROWS, &two_rounds.tiles.rows, &two_rounds.task_panels)
        fit_amx_pieces(problem, &two_rounds, local)
        two_rounds.parts.tasks = weight_amx_tasks(sample, &two_rounds)
        if book_parts(problem, order, &tiles.tiling, threads, THREAD_BYTES - max(local.bytes, blocking.others_bytes),
                      two_rounds.task_panels * sample.taps * amx_tap_bytes(&two_rounds), two_rounds.task_panels,
                      two_rounds.tiles.rows, &two_rounds.parts, blocking):
            own[0] = two_rounds
    if own.one_tile:
        share_operands(problem, threads, time, own, blocking)
    fit_amx_pieces(problem, own, local)
    own.parts.tasks = weight_amx_tasks(sample, own)
    blocking.tasks = own.parts.tasks * own.parts.joins


cdef void list_input_lines(const ConvRun *run, const InputBlock *block, const Box *tile, int64_t positions,
                           int64_t *line) noexcept nogil:
    """Find the lines of so many positions of the input's block, class after class."""
    cdef int64_t size[3]
    cdef int64_t number, i
    cdef Box box
    input_size(run.sample, size)
    for number in range(class_count(block)):
        class_box(run.sample, block, tile, number, &box)
        list_lines(&run.problem.view[CONV_INPUT], size, &box, block.sample, line + number * block.plane)
    for i in range(class_count(block) * block.plane, positions):
        line[i] = NO_LINE


cdef int pack_amx_panel(const ConvRun *run, const InputBlock *block, const Box *tile, int64_t channel, int64_t count,
                        bint fresh, bint odd, bint listed, char *pairs, char *scratch) noexcept nogil:
    """Pack the input of `count` ci, at most AMX_SIDE, as pairs of positions, once from the first position on and (odd)
    once from the second. inf and NaN become tiny; return what was found (survey.pxi). listed: whether other ci of this
    tile were before, and its lines are known."""
    cdef const WeightAmx *own = <const WeightAmx *>run.blocking.own
    cdef const AmxOutputTiles *tiles = &own.tiles
    cdef int64_t positions = amx_block_positions(block), c
    cdef int64_t apart[AMX_COLUMNS]
    cdef char *x = local_piece(run, AMX_X, scratch)
    cdef int64_t *line = <int64_t *>local_piece(run, AMX_LISTED, scratch)
    cdef const ConvView *view = &run.problem.view[CONV_INPUT]
    cdef int found
    cdef AmxPlanes planes
    if has_channel_lines(run, view):
        if not listed:
            list_input_lines(run, block, tile, positions, line)
        return pack_listed_pairs(run, line, channel, count, positions, tiles.half_bytes, odd, pairs)
    planes.pitch, planes.part, planes.fresh = tiles.x_pitch, AMX_SIDE * tiles.x_pitch * 2, fresh
    found = pack_amx_input(run, block, tile, channel, count, &planes, x, local_piece(run, AMX_PACKING, scratch))
    for c in range(count):
        apart[c] = c * tiles.x_pitch * 2
    pair_positions(run, tiles, &planes, x, apart, positions, count, pairs)
    if odd:
        pair_positions(run, tiles, &planes, x + 2, apart, positions - 2, count,
                       pairs + run.sample.parts * 2 * tiles.half_bytes)
    return found


cdef int pack_amx_columns(const ConvRun *run, const InputBlock *block, const Box *tile, int64_t channel, int64_t count,
                          bint fresh, bint odd, bint listed, char *pairs, char *scratch) noexcept nogil:
    """Pack the input of `count` ci, panel after panel, as pack_amx_panel does one."""
    cdef const WeightAmx *own = <const WeightAmx *>run.blocking.own
    cdef int64_t size[3]
    cdef int64_t c = 0
    cdef int found = 0
    cdef PixelLines lines
    cdef Box box
    input_size(run.sample, size)
    class_box(run.sample, block, tile, 0, &box)
    if find_lines(run, &run.problem.view[CONV_INPUT], size, &box, block.sample, &lines):
        return pack_line_pairs(run, &lines, channel, count, amx_block_positions(block), own.tiles.half_bytes, pairs)
    while c < count:
        found |= pack_amx_panel(run, block, tile, channel + c, min(<int64_t>AMX_SIDE, count - c), fresh, odd,
                                listed or c > 0, pairs + c // AMX_SIDE * own.panel_bytes, scratch)
        c += AMX_SIDE
    return found


cdef void multiply_amx_taps(const ConvRun *run, const WeightAmxTask *t, const char *g, const char *pairs, int64_t count,
                            int64_t depth, char *sums, bint setting, Prefetch *prefetch) noexcept nogil:
    """Add the products of all taps for `count` ci to [tap][co][ci] sums, or (setting) begin sums. Where ci are few,
    those of the next tap fill the instruction."""
    cdef const WeightAmx *own = <const WeightAmx *>run.blocking.own
    cdef const int64_t *start = <const int64_t *>local_piece(run, AMX_STARTS, t.scratch)
    cdef int64_t taps = run.sample.taps, tap = 0, many, zero = 0
    cdef bint two_taps = count <= AMX_HALF and taps > 1
    cdef AmxBatchReduce steps
    amx_weight_steps(run.sample, &own.tiles, depth, &zero, &steps)
    if two_taps:
        steps.c_right = t.tap
    while tap < taps:
        prefetch_some(prefetch)
        many = min(taps - tap, <int64_t>(2 if two_taps else 1))
        if many == 2:
            steps.b_right = start[tap + 1] - start[tap]
        add_amx_products(run, &steps, g, t.cos, pairs + start[tap], many * AMX_HALF if two_taps else count,
                         sums + tap * t.tap, t.row, setting)
        tap += many


cdef bint place_amx_taps(const ConvRun *run, const InputBlock *block, char *scratch) noexcept nogil:
    """Find where the products of each tap begin in the pairs; return whether any begins at an odd position."""
    cdef const SampleGeometry *sample = run.sample
    cdef const WeightAmx *own = <const WeightAmx *>run.blocking.own
    cdef int64_t *start = <int64_t *>local_piece(run, AMX_STARTS, scratch)
    cdef int64_t tap, shift
    cdef bint odd = False
    for tap in range(sample.taps):
        shift = amx_tap_position(sample, block, tap)
        start[tap] = shift // 2 * AMX_HALF * 4 + shift % 2 * sample.parts * 2 * own.tiles.half_bytes
        odd |= shift % 2
    return odd


cdef void begin_weight_amx(const ConvRun *run, int64_t number, char *scratch, WeightAmxTask *t) noexcept nogil:
    """Begin task number (group, co, panels of ci), which has no sums yet."""
    cdef const SampleGeometry *sample = run.sample
    cdef const WeightAmx *own = <const WeightAmx *>run.blocking.own
    cdef int64_t parts = ceil_div(own.panels, own.task_panels), down = ceil_div(sample.cout, own.tiles.rows)
    cdef int64_t row = number // parts % down * own.tiles.rows
    t.group = number // parts // down
    t.co_from, t.cos = t.group * sample.cout + row, min(own.tiles.rows, sample.cout - row)
    t.ci_from = number % parts * own.task_panels * AMX_SIDE
    t.panels = min(own.task_panels, own.panels - number % parts * own.task_panels)
    t.cis = min(t.panels * AMX_SIDE, sample.cin - t.ci_from)
    t.sums, t.scratch = local_piece(run, AMX_WEIGHT_SUMS, scratch), scratch
    t.row, t.tap = AMX_SIDE * 4, amx_tap_bytes(own)
    t.panel = sample.taps * t.tap


cdef int64_t take_joined_panels(const ConvRun *run, int64_t join, WeightAmxTask *t) noexcept nogil:
    """Leave those panels of a task that a join adds; return the floats of sums before them."""
    cdef const WeightAmx *own = <const WeightAmx *>run.blocking.own
    cdef int64_t first = piece_from(&own.parts, join, t.panels)
    t.panels = piece_from(&own.parts, join + 1, t.panels) - first
    t.ci_from += first * AMX_SIDE
    t.cis = min(t.panels * AMX_SIDE, t.cis - first * AMX_SIDE)
    return first * t.panel // <int64_t>sizeof(float)


cdef BiasShare amx_bias_share(const ConvRun *run, const WeightAmxTask *t, int64_t number, int64_t join,
                              char *totals) noexcept nogil:
    """Start the share of grad_bias of task `number`: the tasks of the same co take one each, and of those units that
    join a task's sums the first one."""
    cdef const WeightAmx *own = <const WeightAmx *>run.blocking.own
    cdef int64_t parts = ceil_div(own.panels, own.task_panels)
    return bias_share(run, t.co_from, 0 if join else t.cos, number % parts, parts, totals)


cdef int pack_amx_cells(const ConvRun *run, const InputBlock *block, const Box *tile, int64_t co_from, int64_t cos,
                        bint fresh, char *to, char *scratch) noexcept nogil:
    """Pack some rows of grad_output; return NONFINITE_OUTPUT where there were inf or NaN."""
    cdef const WeightAmx *own = <const WeightAmx *>run.blocking.own
    cdef int found = pack_amx_rows(run, &own.tiles, block, tile, co_from, cos, fresh,
                                   local_piece(run, AMX_G_PLANES, scratch), to, local_piece(run, AMX_PACKING, scratch),
                                   <int64_t *>local_piece(run, AMX_LISTED, scratch))
    return NONFINITE_OUTPUT if became_tiny(run, found, UNFIT_GRADIENT) else 0


cdef int pack_amx_pairs(const ConvRun *run, const InputBlock *block, const Box *tile, int64_t channel, int64_t count,
                        bint fresh, bint odd, bint listed, char *to, char *scratch) noexcept nogil:
    """Pack some columns of the input; return NONFINITE_INPUT where there were inf or NaN."""
    cdef int found = pack_amx_columns(run, block, tile, channel, count, fresh, odd, listed, to, scratch)
    return NONFINITE_INPUT if became_tiny(run, found, UNFIT_FACTOR) else 0


cdef int task_cells(const ConvRun *run, const WeightAmxTask *t, const InputBlock *block, const Box *tile, bint fresh,
                    const char **g) noexcept nogil:
    """Find a task's rows of grad_output, packed; return NONFINITE_OUTPUT where there were inf or NaN."""
    cdef const WeightAmx *own = <const WeightAmx *>run.blocking.own
    cdef char *to = local_piece(run, AMX_G, t.scratch)
    if own.shared_rows:
        return shared_task_cells(run, t, g)
    g[0] = to
    return pack_amx_cells(run, block, tile, t.co_from, t.cos, fresh, to, t.scratch)


cdef int task_pairs(const ConvRun *run, const WeightAmxTask *t, const InputBlock *block, const Box *tile, int64_t panel,
                    bint fresh, bint odd, int found, const char **pairs) noexcept nogil:
    """Find the columns of a task's panel, packed; return NONFINITE_INPUT where there were inf or NaN among those that
    are packed together, for the panel before: `found`."""
    cdef const WeightAmx *own = <const WeightAmx *>run.blocking.own
    cdef char *to = local_piece(run, AMX_X_PAIRS, t.scratch)
    if own.shared_rows:
        return shared_task_pairs(run, t, panel, pairs)
    pairs[0] = to + panel % own.at_once * own.panel_bytes
    if panel % own.at_once:
        return found
    return pack_amx_pairs(run, block, tile, t.group * run.sample.cin + t.ci_from + panel * AMX_SIDE,
                          min(own.at_once * AMX_SIDE, t.cis - panel * AMX_SIDE), fresh, odd, panel > 0, to, t.scratch)


cdef void add_nonfinite_panel(const ConvRun *run, const WeightAmxTask *t, const Box *tile, int64_t panel,
                              int64_t count, int found, const WeightSums *panel_sums) noexcept nogil:
    """Add the products with inf and NaN that packing has found, NONFINITE_..., and replaced, to a panel's sums."""
    cdef WeightSums sums = panel_sums[0]
    cdef int64_t c
    for c in range(count if found else 0):
        sums.data = panel_sums.data + c * 4
        add_nonfinite_products(run.problem, tile, t.ci_from + panel * AMX_SIDE + c, 0, run.sample.taps, found, &sums)


cdef bint sum_amx_tile(const ConvRun *run, const WeightAmxTask *t, int64_t number, const BiasShare *bias, bint keeping,
                       InputBlock *block) noexcept nogil:
    """Add the products of the tile of that number to a task's sums, and its pixels to grad_bias, or (keeping) begin
    both with them; return False if there are fewer tiles. block: that of the tile before. inf and NaN that are added
    apart come before the tile's sum, where that is added to one of others, as where tiles are joined."""
    cdef const SampleGeometry *sample = run.sample
    cdef const WeightAmx *own = <const WeightAmx *>run.blocking.own
    cdef int64_t p, count
    cdef char *sums = t.sums
    cdef const char *g
    cdef const char *pairs
    cdef bint odd, fresh, setting = keeping or (number == 0 and begins_with_tile(run))
    cdef bint before = not keeping and not run.order.accumulate
    cdef int nonfinite_input = 0, nonfinite_output
    cdef Box tile
    cdef WeightSums nonfinite_sums
    cdef Prefetch prefetch
    if not next_amx_tile(run, &own.tiles, number, t.group, t.co_from - t.group * sample.cout, t.cos,
                         t.panels * sample.taps, &tile, block, &fresh, &prefetch):
        return False
    nonfinite_sums.group, nonfinite_sums.co_from = t.group, t.co_from - t.group * sample.cout
    nonfinite_sums.cos, nonfinite_sums.co_pitch, nonfinite_sums.tap_pitch = t.cos, t.row // 4, t.tap // 4
    odd = place_amx_taps(run, block, t.scratch)
    nonfinite_output = task_cells(run, t, block, &tile, fresh, &g)
    if keeping:
        keep_bias(run.problem, &tile, bias)
    else:
        add_bias(run.problem, &tile, bias)
    for p in range(t.panels):
        count = min(<int64_t>AMX_SIDE, t.cis - p * AMX_SIDE)
        nonfinite_input = task_pairs(run, t, block, &tile, p, fresh, odd, nonfinite_input, &pairs)
        nonfinite_sums.data = sums
        if before:
            add_nonfinite_panel(run, t, &tile, p, count, nonfinite_output | nonfinite_input, &nonfinite_sums)
        multiply_amx_taps(run, t, g, pairs, count, amx_depth(&tile, block), sums, setting, &prefetch)
        if not before:
            add_nonfinite_panel(run, t, &tile, p, count, nonfinite_output | nonfinite_input, &nonfinite_sums)
        sums += t.panel
    return True


cdef bint prepare_weight_amx(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Pack a unit of what tasks share, or sum one tile for one task, and keep the sums, and grad_bias's."""
    cdef const WeightAmx *own = <const WeightAmx *>run.blocking.own
    cdef int64_t task = number % own.parts.tasks
    cdef WeightAmxTask t
    cdef InputBlock block
    cdef BiasShare bias
    if own.shared_rows:
        pack_shared_unit(run, number, scratch)
        return False
    begin_weight_amx(run, task, scratch, &t)
    t.sums = part_sums(run, &own.parts, number)
    bias = amx_bias_share(run, &t, task, 0, <char *>part_bias(run, &own.parts, number))
    memset(&block, 0, sizeof(block))
    sum_amx_tile(run, &t, number // own.parts.tasks, &bias, True, &block)
    return False


cdef void weight_amx_task(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Sum a task over all samples and output pixels, one tile after the other, or join the sums of the first round."""
    cdef const WeightAmx *own = <const WeightAmx *>run.blocking.own
    cdef int64_t tile = 0, task = number // own.parts.joins, join = number % own.parts.joins, first
    cdef WeightAmxTask t
    cdef InputBlock block
    cdef BiasShare bias
    begin_weight_amx(run, task, scratch, &t)
    bias = amx_bias_share(run, &t, task, join, local_piece(run, AMX_BIAS, scratch))
    first = take_joined_panels(run, join, &t)
    begin_amx_sums(run, &t)
    memset(&block, 0, sizeof(block))
    if own.parts.bytes:
        join_parts(run, &own.parts, &own.tiles.tiling, task, first, amx_task_sums(run, &t), t.sums, &bias)
    else:
        while sum_amx_tile(run, &t, tile, &bias, False, &block):
            tile += 1
    save_amx_sums(run, &t)
    save_bias(run.problem, &bias)


cdef void explain_weight_amx(const SampleGeometry *sample, const SumOrder *order, const Blocking *blocking, char *text,
                             size_t size) noexcept nogil:
    cdef const WeightAmx *own = <const WeightAmx *>blocking.own
    snprintf(text, size, b"products of matrices by AMX, of %lld bfloat16 to a number, one for each tap: rows are "
             b"output channels, columns input channels; tiles of %lld x %lld x %lld x %lld pixels, %lld of %lld rows "
             b"and %lld of %lld columns a task%s", <long long>sample.parts, <long long>own.tiles.tiling.samples,
             <long long>order.tile[0], <long long>order.tile[1], <long long>order.tile[2],
             <long long>own.tiles.rows, <long long>sample.cout,
             <long long>(own.task_panels * AMX_SIDE), <long long>(own.panels * AMX_SIDE),
             b"; tile by tile, then joined" if own.parts.bytes else
             b"; of what is packed once, before them" if own.shared_rows else b"")


cdef ConvAlgorithm weight_amx() noexcept nogil:
    cdef ConvAlgorithm row
    row.name, row.gradients = b"grad_weight:amx", FOR_GRAD_WEIGHT
    row.accepts, row.order, row.block = accepts_weight_amx, order_amx_output, block_weight_amx
    row.prepare, row.task, row.explain = prepare_weight_amx, weight_amx_task, explain_weight_amx
    return row
