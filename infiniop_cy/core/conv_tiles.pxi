# How a convolution's gradients are cut into tasks, tiles and panels. What decides the order of a sum (channels and taps of
# a panel, pixels of a grad_weight tile) follows from the geometry of one sample; the rest may follow batch and threads.
cdef enum:
    # grad_input
    CONV_DEPTH = 1024          # steps of a panel, at most: with a sliver of 64 floats 256 kB, read once for every row tile
    CONV_CHANNELS = 64         # of grad_output in a panel of several taps
    CONV_FEW_TAPS = 128        # taps by channels, at least
    CONV_PIXELS = 896          # of a tile: the more, the less of its edge is packed twice
    CONV_LEAST_PIXELS = 224    # for the sake of more tasks
    CONV_BLOCK = 1 << 16       # elements of a packed block, or about
    CONV_INPUT_COLUMNS = 256   # of a task
    CONV_ACROSS_PIXELS = 1792  # of a tile across
    CONV_ACROSS_SUMS = 1 << 15 # elements, or about, of all phases
    CONV_ACROSS_ROWS = 128     # of them
    # grad_weight
    CONV_WEIGHT_DEPTH = 1024   # output pixels of a tile: its steps
    CONV_WEIGHT_COLUMNS = 128  # of a task
    CONV_WEIGHT_ROWS = 576
    CONV_WEIGHT_POSITIONS = 8192  # of a channel in a packed block: above, taps are packed one by one
    CONV_WEIGHT_BLOCK = 1 << 18   # of all its channels
    CONV_DOT_PIXELS = 2048     # of a tile across
    CONV_DOT_POSITIONS = 1 << 17  # of all its channels
    CONV_DOT_STEP = 64         # the largest stride that is taken apart into phases
    CONV_SHORT_IMAGE = 64      # fewer output pixels than this: panels span samples
    # both
    CONV_SLIVER = 64           # columns of a sliver, at most
    CONV_ROWS = 8              # at least the rows of every register tile
    CONV_POSITIONS = 4096      # of a packed block, likewise
    CONV_STAGE = 256           # elements of a row on the stage, between conversion and transposition
    CONV_STAGE_LINE = 256 + 16 # from row to row: powers of two share cache sets
    CONV_STAGED_TAPS = 64      # of weights


cdef int64_t scratch_bytes(const ConvPlan *plan, int64_t elements) noexcept nogil:
    return round_up(elements * plan.item, CONV_ALIGN)


cdef int64_t table_bytes(int64_t entries) noexcept nogil:
    return round_up(entries * <int64_t>sizeof(int64_t), CONV_ALIGN)


cdef int64_t stage_bytes(const ConvPlan *plan) noexcept nogil:
    return scratch_bytes(plan, kernels.gemm[plan.compute].lanes * CONV_STAGE_LINE)


cdef void cut_columns(const ConvPlan *plan, int64_t columns, int64_t in_task, ConvCut *cut) noexcept nogil:
    """Slivers of equally many vectors, as wide as register tiles allow."""
    cdef const GemmTiles *tiles = &kernels.gemm[plan.compute]
    cdef int64_t vectors = max(<int64_t>1, pieces(columns, tiles.lanes))
    cut.slivers = pieces(vectors, tiles.most)
    cut.vectors = <int>pieces(vectors, cut.slivers)
    cut.columns = cut.vectors * tiles.lanes
    cut.slivers = pieces(vectors, cut.vectors)
    cut.task_slivers = min(cut.slivers, max(<int64_t>1, in_task // cut.columns))


cdef void cut_pixels(const int64_t *size, int64_t samples, int64_t pixels, ConvCut *cut) noexcept nogil:
    """A tile of at most so many pixels: whole rows, planes and samples as far as they fit, pieces of equal length else."""
    cdef int64_t left = pixels
    cdef int d
    for d in range(2, -1, -1):
        cut.tile[1 + d] = pieces(max(<int64_t>1, size[d]), pieces(max(<int64_t>1, size[d]), left))
        left //= cut.tile[1 + d]
    cut.tile[0] = max(<int64_t>1, min(samples, left))
    cut.pixels = cut.tile[0] * cut.tile[1] * cut.tile[2] * cut.tile[3]


cdef int64_t block_positions(const ConvCut *cut, const int64_t *step, const int64_t *span, int64_t limit) noexcept nogil:
    """Of the block that the taps of a tile reach; limit + 1 if more."""
    cdef int64_t positions = cut.tile[0], extent
    cdef int d
    for d in range(3):
        if mul_overflows(cut.tile[1 + d] - 1, step[d], &extent) or add_overflows(extent, span[d] + 1, &extent) \
                or mul_overflows(positions, extent, &positions) or positions > limit:
            return limit + 1
    return positions


cdef int64_t across_width(const GemmTiles *tiles) noexcept nogil:
    """Elements that the widest register tile can go past the pixels it is asked for."""
    return max(tiles.flat.vectors, tiles.line.vectors) * tiles.lanes


cdef int64_t plane_pitch(const ConvCut *cut) noexcept nogil:
    """From channel to channel of a block of planes: an odd number of cache lines, since powers of two share cache sets."""
    return round_up(cut.positions, 32) + 16


cdef int64_t across_pitch(const ConvPlan *plan) noexcept nogil:
    """From row to row of the sums across: positions up to a whole register tile."""
    return plane_pitch(&plan.for_input) + across_width(&kernels.gemm[plan.compute])


cdef int64_t grad_input_tasks(const ConvPlan *plan) noexcept nogil:
    cdef const ConvCut *cut = &plan.for_input
    return plan.groups * pieces(cut.slivers, cut.task_slivers) * phase_tiles(plan) \
        * (1 if cut.across or cut.amx else phase_count(plan))


cdef int64_t phase_tiles(const ConvPlan *plan) noexcept nogil:
    """Of the largest phase."""
    cdef int64_t tiles = pieces(plan.batch, plan.for_input.tile[0])
    cdef int d
    for d in range(3):
        tiles *= pieces(pieces(plan.size_in[d], plan.stride[d]), plan.for_input.tile[1 + d])
    return tiles


cdef int64_t phase_count(const ConvPlan *plan) noexcept nogil:
    return min(plan.stride[0], plan.size_in[0]) * min(plan.stride[1], plan.size_in[1]) \
        * min(plan.stride[2], plan.size_in[2])


cdef void cut_grad_input(ConvPlan *plan) noexcept nogil:
    """Rows are input pixels of one phase, columns are ci, steps are (block of co, tap, co)."""
    cdef ConvCut *cut = &plan.for_input
    cdef const GemmTiles *tiles = &kernels.gemm[plan.compute]
    cdef int d
    cdef int64_t size[3]
    cdef int64_t span[3]
    cdef int64_t one[3]
    cdef int64_t block, tables, pixels, rows
    if cut_amx_input(plan):
        return
    cut.amx = cut.merged = False
    for d in range(3):
        size[d] = pieces(max(<int64_t>1, plan.size_in[d]), plan.stride[d])
        span[d] = (plan.dilation[d] * (plan.kernel[d] - 1) + plan.stride[d] - 1) // plan.stride[d]  # of all phases
        one[d] = 1
    cut.channels = max(<int64_t>CONV_CHANNELS, CONV_FEW_TAPS // plan.taps)
    cut.channels = round_up(pieces(max(<int64_t>1, plan.cout), pieces(max(<int64_t>1, plan.cout), cut.channels)), 2)
    cut.taps = min(plan.taps, max(<int64_t>1, CONV_DEPTH // cut.channels))
    cut.across = 0 < plan.cin <= tiles.lanes  # few channels would leave lanes empty
    rows = 1
    if cut.across:
        cut.columns = tiles.line.rows if plan.cin == 1 else tiles.flat.rows
        cut.slivers = cut.task_slivers = pieces(plan.cin, cut.columns)
        rows = max(<int64_t>1, phase_count(plan) * cut.slivers * cut.columns)  # of sums
        cut.across = rows <= CONV_ACROSS_ROWS
    if cut.across:
        cut_pixels(size, plan.batch, min(<int64_t>CONV_ACROSS_PIXELS, CONV_ACROSS_SUMS // rows), cut)
        cut.positions = block_positions(cut, one, span, CONV_POSITIONS)
        cut.across = cut.positions <= CONV_POSITIONS
    if not cut.across:
        cut_columns(plan, plan.cin, CONV_INPUT_COLUMNS, cut)
        pixels = max(<int64_t>CONV_LEAST_PIXELS, min(<int64_t>CONV_PIXELS, CONV_BLOCK // cut.channels))
        cut_pixels(size, plan.batch, pixels, cut)
        while plan.threads > 1 and pixels > CONV_LEAST_PIXELS and grad_input_tasks(plan) < 4 * plan.threads:
            pixels //= 2
            cut_pixels(size, plan.batch, pixels, cut)
        while plan.threads > 1 and cut.task_slivers > 1 and grad_input_tasks(plan) < 4 * plan.threads:
            cut.task_slivers = pieces(cut.task_slivers, 2)
        cut.positions = block_positions(cut, one, span, CONV_POSITIONS)
    cut.shifted = cut.across or (cut.positions <= CONV_POSITIONS and cut.positions <= plan.taps * cut.pixels)
    if not cut.shifted:
        cut_pixels(size, plan.batch, CONV_LEAST_PIXELS, cut)
        cut.taps = min(cut.taps, max(<int64_t>1, CONV_DEPTH // round_up(cut.channels, tiles.lanes)))
    cut.pairs = plan.dtype == DTYPE_BF16 and bfloat16_pairs and (plan.cout > 1 or not cut.across)
    tables = 2 * table_bytes(cut.taps)
    if cut.across:
        cut.bytes = scratch_bytes(plan, plane_pitch(cut) * cut.channels + across_width(tiles)) \
            + scratch_bytes(plan, across_pitch(plan) * rows) + stage_bytes(plan) + tables
    else:
        block = (cut.positions if cut.shifted else cut.pixels * cut.taps) * round_up(cut.channels, tiles.lanes)
        cut.bytes = scratch_bytes(plan, block) + scratch_bytes(plan, (cut.pixels + CONV_ROWS) * cut.task_slivers * cut.columns) \
            + stage_bytes(plan) + table_bytes(cut.pixels + CONV_ROWS) + table_bytes(max(cut.positions, cut.pixels)) + tables
    cut.bytes = max(cut.bytes, 2 * scratch_bytes(plan, CONV_STAGED_TAPS * cut.columns))


cdef int64_t common_step(int64_t a, int64_t b) noexcept nogil:
    while b:
        a, b = b, a % b
    return a


cdef int64_t sample_step(const ConvPlan *plan, int d) noexcept nogil:
    """Distance of the input pixels along axis d that grad_weight's taps can reach."""
    return plan.stride[d] if plan.kernel[d] == 1 else common_step(plan.stride[d], plan.dilation[d])


cdef void cut_grad_weight(ConvPlan *plan) noexcept nogil:
    """Rows are (ci, tap), columns are co, steps are output pixels."""
    cdef ConvCut *cut = &plan.for_weight
    cdef const GemmTiles *tiles = &kernels.gemm[plan.compute]
    cdef int64_t step[3]
    cdef int64_t span[3]
    cdef int64_t one[3]
    cdef int64_t spread[3]
    cdef int64_t all_rows, tasks, rows_step
    cdef int d
    if cut_amx_weight(plan):
        return
    cut.merged = False
    for d in range(3):
        step[d] = plan.stride[d] // sample_step(plan, d)
        span[d] = (plan.kernel[d] - 1) * (plan.dilation[d] // sample_step(plan, d)) if plan.kernel[d] > 1 else 0
        one[d], spread[d] = 1, span[d] // step[d]
    if mul_overflows(plan.cin, plan.taps, &all_rows):
        all_rows = <int64_t>1 << 62
    cut.rows = min(max(<int64_t>1, all_rows), <int64_t>CONV_WEIGHT_ROWS)
    cut.across = 2 * plan.cout <= tiles.lanes  # few channels would leave lanes empty
    if cut.across:
        cut_pixels(plan.size_out, 1, CONV_DOT_PIXELS, cut)
        cut.phases = step[0] * step[1] * step[2]
        cut.positions = block_positions(cut, one, spread, CONV_POSITIONS)
        cut.across = max(step[0], max(step[1], step[2])) <= CONV_DOT_STEP and cut.phases * cut.positions <= CONV_POSITIONS
    if cut.across:
        cut.columns = cut.slivers = cut.task_slivers = 1
        cut.shifted = True
        rows_step = DOT_ROWS
        cut.rows = min(cut.rows, plan.taps * max(<int64_t>1, CONV_DOT_POSITIONS // (cut.phases * cut.positions)))
    else:
        cut_columns(plan, plan.cout, CONV_WEIGHT_COLUMNS, cut)
        cut_pixels(plan.size_out, plan.batch if plan.pixels_out < CONV_SHORT_IMAGE else 1, CONV_WEIGHT_DEPTH, cut)
        rows_step = tiles.wide[cut.vectors].rows
        cut.positions = block_positions(cut, step, span, CONV_WEIGHT_POSITIONS)
        cut.shifted = cut.positions <= CONV_WEIGHT_POSITIONS and cut.positions <= plan.taps * cut.pixels
        if cut.shifted:
            cut.rows = min(cut.rows, plan.taps * max(<int64_t>1, CONV_WEIGHT_BLOCK // cut.positions))
        # rows of the input apart by phases, and even: half as large elements, but not twice as many
        cut.pairs = plan.dtype == DTYPE_BF16 and bfloat16_pairs and cut.shifted and step[2] * (
            cut.tile[3] + 1 + span[2] // step[2]) <= 2 * ((cut.tile[3] - 1) * step[2] + span[2] + 1)
    tasks = plan.groups * pieces(all_rows, cut.rows)
    while cut.task_slivers > 1 and plan.threads > 1 and tasks * pieces(cut.slivers, cut.task_slivers) < 2 * plan.threads:
        cut.task_slivers = pieces(cut.task_slivers, 2)
    tasks = plan.groups * pieces(cut.slivers, cut.task_slivers)
    if tasks * pieces(all_rows, cut.rows) < plan.threads:  # not more: each packs the same columns
        cut.rows = min(cut.rows, round_up(pieces(all_rows, pieces(plan.threads, tasks)), rows_step))
    if cut.across:
        cut.bytes = scratch_bytes(plan, cut.phases * cut.positions * (cut.rows // plan.taps + 2) + tiles.lanes) \
            + scratch_bytes(plan, cut.pixels * plan.cout + tiles.lanes) + scratch_bytes(plan, cut.rows * plan.cout) \
            + table_bytes(cut.rows + DOT_ROWS) + bias_bytes(plan.cout)
    else:
        cut.bytes = scratch_bytes(plan, cut.pixels * cut.rows if not cut.shifted
                                  else cut.positions * (cut.rows // plan.taps + 2)) \
            + scratch_bytes(plan, cut.pixels * cut.task_slivers * cut.columns) \
            + scratch_bytes(plan, (cut.rows + CONV_ROWS) * cut.task_slivers * cut.columns) \
            + table_bytes(cut.rows + CONV_ROWS) + 3 * table_bytes(cut.pixels) + bias_bytes(cut.task_slivers * cut.columns)
    cut.bytes += stage_bytes(plan)


cdef int64_t grad_weight_tasks(const ConvPlan *plan) noexcept nogil:
    cdef const ConvCut *cut = &plan.for_weight
    if cut.amx:
        return amx_weight_tasks(plan)
    return plan.groups * pieces(cut.slivers, cut.task_slivers) * pieces(plan.cin * plan.taps, cut.rows)
