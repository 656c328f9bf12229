# bfloat16 by AMX: both gradients from planes as they lie, with taps as shifts within them.
#
# grad_input: rows are ci, columns are positions of a packed block of grad_output, steps are (panel of co, tap, co).
# grad_weight: rows are co, columns are ci, steps are positions of a block of the input; one product for every tap.
#
# Columns go on over the positions between the rows of a tile: their sums are not saved (grad_input), or meet zeros of
# grad_output (grad_weight).
cdef enum:
    AMX_LEAST_CHANNELS = 9       # in and out; fewer leave most of an instruction empty
    AMX_MOST_TAPS = 512
    AMX_PIXELS = 896             # of a tile
    AMX_LEAST_PIXELS = 224       # for the sake of more tasks
    AMX_INPUT_BYTES = 1 << 19    # of grad_input's block and sums, or about
    AMX_BLOCK_CHANNELS = 1024    # of grad_output, packed at once
    AMX_INPUT_CHANNELS = 512     # ci of a task
    AMX_WEIGHT_CHANNELS = 256    # co of a task
    AMX_WEIGHT_BYTES = 5 << 17   # of its sums
    AMX_WEIGHT_PIXELS = 2048     # of a tile, with samples together
    AMX_OUTPUT_BYTES = 1 << 19   # of grad_weight's block of grad_output
    AMX_COLUMNS = 32             # AMX_SIDE, as a constant
    AMX_CELL = 1024              # bytes of 16 rows of a by 32 steps


cdef bint suits_amx(const ConvPlan *plan) noexcept nogil:
    return plan.dtype == DTYPE_BF16 and plan.cin > 0 and plan.cout >= AMX_LEAST_CHANNELS and plan.taps <= AMX_MOST_TAPS \
        and infiniop_amx()


cdef int64_t amx_pitch(int64_t positions) noexcept nogil:
    """From channel to channel of a block, in pairs or floats: an odd number of cache lines, since powers of two share sets."""
    return round_up(positions, AMX_SIDE) + 16


cdef int64_t amx_chunks(const ConvPlan *plan) noexcept nogil:
    """Of AMX_STEPS co."""
    return pieces(plan.cout, AMX_STEPS)


cdef int64_t amx_panel(const ConvPlan *plan) noexcept nogil:
    """Chunks that follow each other under one tap: what their taps read stays in the first-level cache."""
    cdef int64_t panel = 2 if plan.for_input.taps > 1 else 16
    while amx_chunks(plan) % panel:
        panel -= 1
    return panel


cdef bint cut_amx_input(ConvPlan *plan) noexcept nogil:
    """Whether grad_input runs by AMX; its cut then."""
    cdef ConvCut *cut = &plan.for_input
    cdef int64_t size[3]
    cdef int64_t span[3]
    cdef int64_t one[3]
    cdef int64_t low[3]
    cdef int64_t pixels
    cdef Box reach
    cdef int d
    if not suits_amx(plan):
        return False
    cut.amx = True
    cut.taps = plan.taps
    cut.merged = plan.cin < AMX_LEAST_CHANNELS
    if cut.merged:
        if max(phase_count(plan), plan.cin) > AMX_SIDE or plan.cin * phase_count(plan) > AMX_SIDE:
            return False
        phases_reach(plan, &reach, low)
        if one_sample(&reach) > AMX_MOST_TAPS or 2 * plan.taps < one_sample(&reach):
            return False  # taps too far apart
        cut.taps = one_sample(&reach)
    for d in range(3):
        size[d] = pieces(max(<int64_t>1, plan.size_in[d]), plan.stride[d])
        span[d] = (plan.dilation[d] * (plan.kernel[d] - 1) + plan.stride[d] - 1) // plan.stride[d]  # of all phases
        one[d] = 1
    cut.columns = AMX_SIDE
    cut.slivers = pieces(plan.cin, AMX_SIDE)
    cut.task_slivers = min(cut.slivers, <int64_t>AMX_INPUT_CHANNELS // AMX_SIDE)
    if cut.merged and plan.cout > AMX_BLOCK_CHANNELS:
        return False
    cut.channels = min(plan.cout, max(AMX_BLOCK_CHANNELS // (amx_panel(plan) * AMX_STEPS), <int64_t>1) * amx_panel(plan) * AMX_STEPS)
    pixels = max(<int64_t>AMX_LEAST_PIXELS, min(<int64_t>AMX_PIXELS, AMX_INPUT_BYTES // (
        2 * cut.channels + 4 * cut.task_slivers * AMX_SIDE)))
    cut_pixels(size, plan.batch, pixels, cut)
    while plan.threads > 1 and pixels > AMX_LEAST_PIXELS and grad_input_tasks(plan) < 4 * plan.threads:
        pixels //= 2
        cut_pixels(size, plan.batch, pixels, cut)
    while plan.threads > 1 and cut.task_slivers > 1 and grad_input_tasks(plan) < 2 * plan.threads:
        cut.task_slivers = pieces(cut.task_slivers, 2)
    cut.positions = block_positions(cut, one, span, CONV_POSITIONS)
    if cut.positions > CONV_POSITIONS or cut.positions > plan.taps * cut.pixels + 3 * AMX_SIDE:
        return False
    cut.shifted = True
    cut.bytes = amx_pitch(cut.positions) * (round_up(cut.channels, AMX_STEPS) // 2 + cut.task_slivers * AMX_SIDE) * 4 \
        + 4 * AMX_SIDE * 4 + 2 * table_bytes(pieces(cut.channels, AMX_STEPS) * cut.taps) + stage_bytes(plan)
    cut.bytes = max(cut.bytes, table_bytes(16 * plan.taps) + round_up(AMX_STEPS * 16 * plan.taps * 2, CONV_ALIGN))
    return True


cdef int64_t amx_packed_bytes(const ConvPlan *plan) noexcept nogil:
    """The weights as [group][16 rows][panel of co][tap][chunk] cells; they fit, for weight itself does."""
    return plan.groups * plan.for_input.slivers * 2 * plan.for_input.taps * amx_chunks(plan) * AMX_CELL


cdef int64_t amx_cell(const ConvPlan *plan, int64_t chunk, int64_t tap) noexcept nogil:
    """Bytes from the first cell of 16 rows to that of a chunk of co under a tap, in the packed order of taps."""
    cdef int64_t panel = amx_panel(plan)
    return (chunk // panel * panel * plan.for_input.taps + tap * panel + chunk % panel) * AMX_CELL


cdef char *amx_cells(const ConvPlan *plan, char *packed, int64_t group, int64_t half) noexcept nogil:
    """The first cell of the half-th 16 rows."""
    return packed + (group * plan.for_input.slivers * 2 + half) * plan.for_input.taps * amx_chunks(plan) * AMX_CELL


cdef bint pack_amx_weight(const ConvPlan *plan, int64_t group, int64_t half, int64_t chunk, char *packed,
                          char *scratch) noexcept nogil:
    """16 ci by AMX_STEPS co under all taps. inf and NaN become tiny, since they would meet padding's zeros; the result says
    whether add_nonfinite has to make up for that."""
    cdef const ConvView *w = &plan.view[CONV_WEIGHT]
    cdef int64_t ci_from = half * 16, co_from = chunk * AMX_STEPS, cis = min(<int64_t>16, plan.cin - ci_from)
    cdef int64_t cos = min(<int64_t>AMX_STEPS, plan.cout - co_from), taps = plan.taps, tap, co, ci, k0, k1, line = w.n
    cdef char *cells = amx_cells(plan, packed, group, half)
    cdef char *source = w.data + (group * plan.cout + co_from) * w.n + ci_from * w.channel
    cdef int64_t *place = <int64_t *>take(&scratch, table_bytes(16 * taps))
    cdef char *at = scratch
    cdef bint nonfinite = False
    if plan.for_input.merged:
        return pack_merged_weight(plan, group, half, chunk, packed)
    for tap in range(taps):
        place[tap] = amx_cell(plan, chunk, packed_tap(plan, tap // (plan.kernel[1] * plan.kernel[2]),
                                                      tap // plan.kernel[2] % plan.kernel[1], tap % plan.kernel[2]))
        if cis < 16 or cos < AMX_STEPS:
            memset(cells + place[tap], 0, AMX_CELL)
    for ci in range(1, cis):
        for tap in range(taps):
            place[ci * taps + tap] = place[tap] + ci * AMX_STEPS * 2
    if not weight_in_line(plan, w):
        line = cis * taps * 2
        for co in range(cos):
            for ci in range(cis):
                for k0 in range(plan.kernel[0]):
                    for k1 in range(plan.kernel[1]):
                        kernels.convert[DTYPE_BF16][DTYPE_BF16](source + co * w.n + ci * w.channel + k0 * w.space[0] + k1 * w.space[1],
                                                                w.space[2], at, 2, plan.kernel[2])
                        at += plan.kernel[2] * 2
        source = scratch
    kernels.transpose_to[DTYPE_BF16](source, line, cells, place, cis * taps, cos)
    for tap in range(taps):
        nonfinite |= kernels.amx.replace_nonfinite(cells + place[tap], AMX_CELL // 2)
    return nonfinite


cdef bint pack_merged_weight(const ConvPlan *plan, int64_t group, int64_t half, int64_t chunk, char *packed) noexcept nogil:
    """The same for 16 of (phase, ci), with zeros under taps that a phase has not. A tap is a position of phases_reach."""
    cdef const ConvView *w = &plan.view[CONV_WEIGHT]
    cdef int64_t co_from = chunk * AMX_STEPS, cos = min(<int64_t>AMX_STEPS, plan.cout - co_from), tap, row
    cdef char *cells = amx_cells(plan, packed, group, half)
    cdef char *cell
    cdef int64_t low[3]
    cdef int64_t base[3]
    cdef int64_t k[3]
    cdef Box reach
    cdef Phase phase
    cdef bint nonfinite = False
    phases_reach(plan, &reach, low)
    for tap in range(plan.for_input.taps):
        memset(cells + amx_cell(plan, chunk, tap), 0, AMX_CELL)
    for row in range(half * 16, min(half * 16 + 16, phase_count(plan) * plan.cin)):
        make_phase(plan, row // plan.cin, &phase)
        for tap in range(phase.tap_count):
            tap_base(plan, &phase, tap, base, k)
            cell = cells + amx_cell(plan, chunk, tap_shift(&reach, base, low)) + row % 16 * AMX_STEPS * 2
            kernels.convert[DTYPE_BF16][DTYPE_BF16](
                w.data + (group * plan.cout + co_from) * w.n + row % plan.cin * w.channel + k[0] * w.space[0] + k[1] * w.space[1]
                + k[2] * w.space[2], w.n, cell, 2, cos)
            nonfinite |= kernels.amx.replace_nonfinite(cell, cos)
    return nonfinite


cdef void pack_amx_block(const ConvPlan *plan, const Box *block, int64_t channel, int64_t channels, char *to, int64_t plane,
                         char *stage) noexcept nogil:
    """grad_output as [pair of co][position]; zeros up to AMX_STEPS co."""
    cdef int64_t pair
    pack_pair_planes(&plan.view[CONV_GRAD_OUTPUT], plan.size_out, block, channel, channels, to, plane, False, stage)
    for pair in range(pieces(channels, 2), round_up(channels, AMX_STEPS) // 2):
        memset(to + pair * plane * 4, 0, plane * 4)


cdef void grad_input_amx(const ConvPlan *plan, int64_t group, int64_t number, int64_t sliver_from, char *packed, bint nonfinite,
                         char *scratch) noexcept nogil:
    """One tile of input pixels, in all phases, by the channels of some slivers. Phases are done one after the other, or
    (merged) as rows of one product."""
    cdef const ConvCut *cut = &plan.for_input
    cdef int64_t plane = amx_pitch(cut.positions), slivers = min(cut.task_slivers, cut.slivers - sliver_from)
    cdef int64_t ci_from = sliver_from * AMX_SIDE, channels = min(slivers * AMX_SIDE, plan.cin - ci_from)
    cdef int64_t panel = amx_panel(plan), phases = phase_count(plan), p, q, co, count, positions, tap, taps, cell, i, panels, s, at, calls
    cdef int64_t rows = channels * phases if cut.merged else channels, at_once = phases if cut.merged else 1
    cdef int64_t low[3]
    cdef int64_t base[3]
    cdef int64_t k[3]
    cdef int64_t size[3]
    cdef Box tile, block, part, reach, next
    cdef Ahead ahead
    cdef Phase phase
    cdef AmxSteps steps
    cdef char *b = take(&scratch, plane * round_up(cut.channels, AMX_STEPS) * 2 + AMX_SIDE * 4)
    cdef char *sums = take(&scratch, plane * cut.task_slivers * AMX_SIDE * 4)
    cdef char *stage = take(&scratch, stage_bytes(plan))
    cdef int64_t *a_segment = <int64_t *>take(&scratch, table_bytes(pieces(cut.channels, AMX_STEPS) * cut.taps))
    cdef int64_t *b_segment = <int64_t *>take(&scratch, table_bytes(pieces(cut.channels, AMX_STEPS) * cut.taps))
    cdef char *sum
    cdef bint in_place = False
    cdef uint64_t float_state
    phases_grid(plan, size)
    if not nth_tile(cut, plan.batch, size, number, &tile):
        return
    float_state = enter_float_state()
    phases_reach(plan, &reach, low)
    block_under(&tile, &reach, &block)
    steps.a_segment, steps.b_segment = a_segment, b_segment
    steps.a_row, steps.a_step = AMX_STEPS * 2, AMX_CELL
    steps.a_down = cut.taps * amx_chunks(plan) * AMX_CELL
    steps.b_row, steps.b_right, steps.c_right = plane * 4, AMX_SIDE // 2 * 4, AMX_SIDE // 2 * 4
    steps.length = panel
    if cut.merged:
        pack_amx_block(plan, &block, group * plan.cout, plan.cout, b, plane, stage)
        in_place = True
        for i in range(pieces(plan.cout, 2)):  # inf and NaN must not meet the zeros of taps that a phase has not
            if kernels.pairs.has_nonfinite(b + i * plane * 4, 2 * box_size(&block)):
                at_once = 1
    p = 0
    while p < phases:
        make_phase(plan, p, &phase)
        if not phase_part(&phase, &tile, &part) and at_once == 1:
            p += 1
            continue
        positions = positions_under(&part if at_once == 1 else &tile, &block)
        taps = phase.tap_count if at_once == 1 else cut.taps
        if not taps:
            memset(sums, 0, plane * rows * 4)
        co = 0
        while taps and co < plan.cout:
            count = min(cut.channels, plan.cout - co)
            if not in_place or cut.channels < plan.cout:
                pack_amx_block(plan, &block, group * plan.cout + co, count, b, plane, stage)
                in_place = True
            panels = pieces(count, AMX_STEPS * panel)
            steps.segments = panels * taps
            for tap in range(taps):
                if at_once > 1:
                    base[0] = low[0] + tap // (reach.extent[1] * reach.extent[2])
                    base[1] = low[1] + tap // reach.extent[2] % reach.extent[1]
                    base[2] = low[2] + tap % reach.extent[2]
                else:
                    tap_base(plan, &phase, tap, base, k)
                cell = tap_shift(&reach, base, low) if cut.merged else phase.tap_offset + tap
                for i in range(panels):
                    a_segment[i * taps + tap] = amx_cell(plan, co // AMX_STEPS + i * panel, cell)
                    b_segment[i * taps + tap] = (i * panel * AMX_STEPS // 2 * plane + tap_shift(&block, base, low)) * 4
            calls = phases // at_once * slivers * pieces(positions, AMX_SIDE)
            ahead.channels = 0
            if p == 0 and nth_tile(cut, plan.batch, size, number + 1, &next):
                block_under(&next, &reach, &next)
                look_ahead(plan, &plan.view[CONV_GRAD_OUTPUT], plan.size_out, &next, group * plan.cout, cut.channels, calls, &ahead)
            for s in range(slivers):
                at = 0
                while at < positions:
                    go_ahead(&ahead)
                    kernels.amx.multiply(&steps, amx_cells(plan, packed, group, (sliver_from + s) * 2),
                                         min(<int64_t>AMX_SIDE, rows - s * AMX_SIDE), b + at * 4, positions - at,
                                         sums + (s * AMX_SIDE * plane + at) * 4, plane * 4, co > 0)
                    at += AMX_SIDE
            co += cut.channels
        for q in range(p, p + at_once):
            make_phase(plan, q, &phase)
            if not phase_part(&phase, &tile, &part):
                continue
            sum = sums + q * channels * plane * 4 if cut.merged else sums
            if nonfinite:
                add_nonfinite(plan, group, &phase, &part, &block, ci_from, channels, sum, 1, plane)
            save_across(plan, group, &phase, &part, &block, ci_from, channels, sum, plane, stage)
        p += at_once
    leave_float_state(float_state)


cdef void run_grad_input_amx(const ConvPlan *plan, char *workspace, int threads) noexcept nogil:
    cdef const ConvCut *cut = &plan.for_input
    cdef char *scratch = workspace + plan.packed_bytes
    cdef int64_t halves = pieces(plan.cin * phase_count(plan) if cut.merged else plan.cin, 16), chunks = amx_chunks(plan), cells = plan.groups * halves * chunks
    cdef int64_t tiles = phase_tiles(plan), across = pieces(cut.slivers, cut.task_slivers), tasks = grad_input_tasks(plan), i
    cdef int nonfinite = 0
    if threads == 1:
        for i in range(cells):
            nonfinite |= pack_amx_weight(plan, i // chunks // halves, i // chunks % halves, i % chunks, workspace, scratch)
        for i in range(tasks):
            grad_input_amx(plan, i // tiles // across, i % tiles, i // tiles % across * cut.task_slivers, workspace, nonfinite, scratch)
        return
    for i in prange(cells, schedule="static", num_threads=threads):
        nonfinite |= pack_amx_weight(plan, i // chunks // halves, i // chunks % halves, i % chunks, workspace,
                                     scratch + omp_get_thread_num() * plan.thread_bytes)
    for i in prange(tasks, schedule="dynamic", num_threads=threads):
        grad_input_amx(plan, i // tiles // across, i % tiles, i // tiles % across * cut.task_slivers, workspace, nonfinite,
                       scratch + omp_get_thread_num() * plan.thread_bytes)


# The input's phases that grad_weight's taps read, each with rows of an even number of positions.
ctypedef struct AmxBlock:
    Box box               # of one phase, its steps the strides; extents are positions
    int64_t step[3]       # phases along each axis
    int64_t plane         # positions of a phase


cdef void amx_block(const ConvPlan *plan, const int64_t *extent, int64_t samples, AmxBlock *block) noexcept nogil:
    """For a tile of so many output pixels."""
    cdef int d
    block.plane = block.box.samples = samples
    for d in range(3):
        block.step[d] = plan.stride[d] // sample_step(plan, d)
        block.box.step[d] = plan.stride[d]
        block.box.extent[d] = extent[d]
        if plan.kernel[d] > 1:
            block.box.extent[d] += (plan.kernel[d] - 1) * (plan.dilation[d] // sample_step(plan, d)) // block.step[d]
        if d == 2:
            block.box.extent[d] = round_up(block.box.extent[d], 2)
        if mul_overflows(block.plane, block.box.extent[d], &block.plane):
            block.plane = MAX_CHANNELS  # more than any limit


cdef int64_t amx_tap(const ConvPlan *plan, const AmxBlock *block, int64_t tap) noexcept nogil:
    """Positions from the block's first one to that which the tile's first pixel meets under a tap."""
    cdef int64_t k[3]
    cdef int64_t phase = 0, shift = 0
    cdef int d
    for d in range(2, -1, -1):
        k[d] = tap % plan.kernel[d] * (plan.dilation[d] // sample_step(plan, d)) if plan.kernel[d] > 1 else 0
        tap //= plan.kernel[d]
    for d in range(3):
        phase = phase * block.step[d] + k[d] % block.step[d]
        shift = shift * block.box.extent[d] + k[d] // block.step[d]
    return phase * block.plane + shift


cdef bint cut_amx_weight(ConvPlan *plan) noexcept nogil:
    """Whether grad_weight runs by AMX; its cut then."""
    cdef ConvCut *cut = &plan.for_weight
    cdef int64_t pixels, columns, taps
    if not suits_amx(plan):
        return False
    cut.rows = min(plan.cout, <int64_t>AMX_WEIGHT_CHANNELS)
    cut.columns = AMX_SIDE
    cut.merged = plan.cin < AMX_LEAST_CHANNELS
    columns = plan.cin * plan.taps if cut.merged else plan.cin
    taps = 1 if cut.merged else plan.taps
    if columns < AMX_LEAST_CHANNELS:
        return False
    pixels = min(<int64_t>AMX_WEIGHT_PIXELS, AMX_OUTPUT_BYTES // (2 * cut.rows))
    while not fits_amx_weight(plan, pixels):
        pixels //= 2
        if pixels < AMX_LEAST_PIXELS:
            return False
    cut.slivers = pieces(columns, AMX_SIDE)
    cut.task_slivers = max(<int64_t>1, min(cut.slivers, AMX_WEIGHT_BYTES // (cut.rows * taps * AMX_SIDE * 4)))
    while cut.rows > AMX_SIDE and cut.rows * taps * AMX_SIDE * 4 > 2 * AMX_WEIGHT_BYTES:
        cut.rows = round_up(pieces(cut.rows, 2), AMX_SIDE)
    while plan.threads > 1 and cut.task_slivers > 1 and amx_weight_tasks(plan) % plan.threads and amx_weight_tasks(plan) < 4 * plan.threads:
        cut.task_slivers = pieces(cut.task_slivers, 2)
    while plan.threads > 1 and cut.rows > AMX_SIDE and amx_weight_tasks(plan) % plan.threads and amx_weight_tasks(plan) < 4 * plan.threads:
        cut.rows = round_up(pieces(cut.rows, 2), AMX_SIDE)
    if amx_weight_tasks(plan) < plan.threads and cut.rows > AMX_SIDE // 2:
        cut.rows = round_up(pieces(cut.rows, 2), AMX_SIDE // 2)
    cut.amx = cut.shifted = True
    cut.bytes = amx_input_pitch(cut) * amx_input_channels(plan) * 2 + 2 * amx_panel_bytes(cut) + cut.rows * amx_output_pitch(cut) * 2 \
        + cut.rows * taps * cut.task_slivers * AMX_SIDE * 4 + 2 * table_bytes(plan.taps) + bias_bytes(cut.rows) \
        + round_up(plan.taps * AMX_SIDE * 4, CONV_ALIGN)
    return True


cdef bint fits_amx_weight(ConvPlan *plan, int64_t pixels) noexcept nogil:
    """Cut tiles of at most so many pixels; whether the input's block under one is small enough."""
    cdef ConvCut *cut = &plan.for_weight
    cdef AmxBlock block
    cut_pixels(plan.size_out, plan.batch, pixels, cut)
    amx_block(plan, &cut.tile[1], cut.tile[0], &block)
    if block.plane > CONV_WEIGHT_POSITIONS or max(block.step[0], max(block.step[1], block.step[2])) > CONV_DOT_STEP:
        return False
    cut.phases = block.step[0] * block.step[1] * block.step[2]
    cut.positions = block.plane
    return cut.phases * cut.positions <= CONV_WEIGHT_POSITIONS


cdef int64_t amx_input_channels(const ConvPlan *plan) noexcept nogil:
    """Of the input, packed at once."""
    return plan.cin if plan.for_weight.merged else AMX_SIDE


cdef int64_t amx_input_pitch(const ConvCut *cut) noexcept nogil:
    """bfloat16 from channel to channel of the input's block, with zeros at its end."""
    return 2 * amx_pitch(pieces(cut.phases * cut.positions + AMX_STEPS, 2))


cdef int64_t amx_panel_bytes(const ConvCut *cut) noexcept nogil:
    """Of pairs of positions by AMX_SIDE ci, with zeros at the end."""
    return (cut.phases * cut.positions + AMX_STEPS) // 2 * AMX_SIDE * 4


cdef int64_t amx_output_pitch(const ConvCut *cut) noexcept nogil:
    """bfloat16 from channel to channel of grad_output's block."""
    return 2 * amx_pitch(pieces(round_up(cut.positions, AMX_STEPS), 2))


cdef int64_t amx_weight_tasks(const ConvPlan *plan) noexcept nogil:
    cdef const ConvCut *cut = &plan.for_weight
    return plan.groups * pieces(cut.slivers, cut.task_slivers) * pieces(plan.cout, cut.rows)


cdef void add_nonfinite_input(const ConvPlan *plan, int64_t group, const Box *tile, int64_t co_from, int64_t cos, int64_t ci,
                              int64_t tap_from, int64_t tap_to, char *sums, int64_t co_pitch, int64_t tap_pitch) noexcept nogil:
    """Add the products with inf and NaN of one ci, which were packed as tiny, under some taps; sums: of the first of them."""
    cdef const ConvView *x = &plan.view[CONV_INPUT]
    cdef const ConvView *g = &plan.view[CONV_GRAD_OUTPUT]
    cdef int64_t tap, co, n, rest, pixel
    cdef int64_t o[3]
    cdef int64_t i[3]
    cdef double value
    cdef bint inside
    cdef int d
    for tap in range(tap_from, tap_to):
        for n in range(tile.n, tile.n + tile.samples):
            for pixel in range(tile.extent[0] * tile.extent[1] * tile.extent[2]):
                rest = pixel
                inside = True
                for d in range(2, -1, -1):
                    o[d] = tile.first[d] + rest % tile.extent[d]
                    rest //= tile.extent[d]
                rest = tap
                for d in range(2, -1, -1):
                    i[d] = o[d] * plan.stride[d] + rest % plan.kernel[d] * plan.dilation[d] - plan.before[d]
                    rest //= plan.kernel[d]
                    inside = inside and 0 <= i[d] < plan.size_in[d]
                if not inside:
                    continue
                value = load_one(plan, x.data + n * x.n + (group * plan.cin + ci) * x.channel + i[0] * x.space[0]
                                 + i[1] * x.space[1] + i[2] * x.space[2])
                if value - value == 0:
                    continue
                for co in range(cos):
                    add_to(plan, sums + (co * co_pitch + (tap - tap_from) * tap_pitch) * 4, value * load_one(
                        plan, g.data + n * g.n + (group * plan.cout + co_from + co) * g.channel + o[0] * g.space[0]
                        + o[1] * g.space[1] + o[2] * g.space[2]))


cdef void add_nonfinite_columns(const ConvPlan *plan, int64_t group, const Box *tile, int64_t co_from, int64_t cos, int64_t column,
                                int64_t count, char *sums, int64_t columns) noexcept nogil:
    """The same for some columns of a task."""
    cdef int64_t c = 0, many, taps = plan.taps
    while c < count:
        if plan.for_weight.merged:
            many = min(count - c, taps - (column + c) % taps)
            add_nonfinite_input(plan, group, tile, co_from, cos, (column + c) // taps, (column + c) % taps,
                                (column + c) % taps + many, sums + c * 4, columns, 1)
        else:
            many = 1
            add_nonfinite_input(plan, group, tile, co_from, cos, column + c, 0, taps, sums + c * 4, taps * columns, columns)
        c += many


cdef void amx_weight_elements(const ConvPlan *plan, int64_t co_from, int64_t cos, int64_t from_column, int64_t count, char *sums,
                              int64_t columns, char *line, bint loading) noexcept nogil:
    """[co][tap][columns] sums, or (merged) [co][columns], to grad_weight, or (loading) from it. line: room for AMX_SIDE ci."""
    cdef char *weights = plan.view[CONV_GRAD_WEIGHT].data + co_from * plan.view[CONV_GRAD_WEIGHT].n
    cdef int64_t co, c, many
    for co in range(cos):
        c = 0
        if plan.for_weight.merged:
            move_weights(plan, from_column, count, sums + co * columns * 4, weights, loading)
            c = count
        while c < count:
            many = min(<int64_t>AMX_SIDE, count - c)
            if not loading:
                kernels.transpose[DTYPE_F32](sums + (co * plan.taps * columns + c) * 4, columns * 4, line, plan.taps * 4, many, plan.taps)
            move_weights(plan, (from_column + c) * plan.taps, many * plan.taps, line, weights, loading)
            if loading:
                kernels.transpose[DTYPE_F32](line, plan.taps * 4, sums + (co * plan.taps * columns + c) * 4, columns * 4, plan.taps, many)
            c += AMX_SIDE
        weights += plan.view[CONV_GRAD_WEIGHT].n


cdef void pack_amx_input(const ConvPlan *plan, const int64_t *size, const AmxBlock *block, const Box *tile, int64_t channel,
                         int64_t channels, int64_t pitch, char *to) noexcept nogil:
    """As [ci][phase][position], zeros up to `pitch`."""
    cdef Box phase = block.box
    cdef int64_t phases = block.step[0] * block.step[1] * block.step[2], r, rest, c
    cdef int d
    phase.n = tile.n
    for r in range(phases):
        rest = r
        for d in range(2, -1, -1):
            phase.first[d] = tile.first[d] * plan.stride[d] - plan.before[d] + rest % block.step[d] * sample_step(plan, d)
            rest //= block.step[d]
        pack_planes(DTYPE_BF16, DTYPE_BF16, &plan.view[CONV_INPUT], size, &phase, channel, channels,
                    to + r * block.plane * 2, pitch)
    for c in range(channels):
        memset(to + (c * pitch + phases * block.plane) * 2, 0, (pitch - phases * block.plane) * 2)


cdef void pack_amx_output(const ConvPlan *plan, const AmxBlock *block, const Box *tile, int64_t channel, int64_t channels,
                          int64_t pitch, char *to) noexcept nogil:
    """As [co][position], zeros where the block has no pixel of the tile."""
    cdef Box box = block.box
    cdef int64_t end[3]
    cdef int64_t c
    cdef int d
    box.n = tile.n
    for d in range(3):
        box.first[d], box.step[d] = tile.first[d], 1
        end[d] = tile.first[d] + tile.extent[d]
    pack_planes(DTYPE_BF16, DTYPE_BF16, &plan.view[CONV_GRAD_OUTPUT], end, &box, channel, channels, to, pitch)
    for c in range(channels):
        memset(to + (c * pitch + block.plane) * 2, 0, (pitch - block.plane) * 2)


cdef void grad_weight_amx(const ConvPlan *plan, int64_t group, int64_t row_from, int64_t sliver_from, char *scratch) noexcept nogil:
    """Some co by the columns of some slivers, summed over all samples and output pixels, one tile after the other. Columns are
    ci, with a product for every tap, or (merged) (ci, tap)."""
    cdef const ConvCut *cut = &plan.for_weight
    cdef int64_t slivers = min(cut.task_slivers, cut.slivers - sliver_from), columns = slivers * AMX_SIDE
    cdef int64_t from_column = sliver_from * AMX_SIDE, cos = min(cut.rows, plan.cout - row_from)
    cdef int64_t taps = 1 if cut.merged else plan.taps, all_columns = plan.cin * plan.taps // taps
    cdef int64_t many = min(columns, all_columns - from_column)
    cdef int64_t x_pixels = cut.phases * cut.positions + AMX_STEPS, x_pitch = amx_input_pitch(cut), g_pitch = amx_output_pitch(cut)
    cdef int64_t number = 0, s, count, tap, many_taps, co, c, column
    cdef int64_t size_in[3]
    cdef int64_t apart[AMX_COLUMNS]
    cdef int64_t zero = 0
    cdef bint line = rows_in_line(plan), odd, two_taps, nonfinite = False
    cdef char *x = take(&scratch, x_pitch * amx_input_channels(plan) * 2)
    cdef char *panel = take(&scratch, 2 * amx_panel_bytes(cut))
    cdef char *g = take(&scratch, cut.rows * g_pitch * 2)
    cdef char *sums = take(&scratch, cut.rows * taps * cut.task_slivers * AMX_SIDE * 4)
    cdef int64_t *shift = <int64_t *>take(&scratch, table_bytes(plan.taps))
    cdef int64_t *start = <int64_t *>take(&scratch, table_bytes(plan.taps))
    cdef char *out_line = take(&scratch, round_up(plan.taps * AMX_SIDE * 4, CONV_ALIGN))
    cdef BiasShare bias = bias_share(plan, group * plan.cout + row_from, cos, sliver_from // cut.task_slivers,
                                     pieces(cut.slivers, cut.task_slivers), <double *>scratch)
    cdef Box tile, whole, next
    cdef AmxBlock block
    cdef Ahead ahead
    cdef AmxSteps steps
    cdef int d
    cdef uint64_t float_state = enter_float_state()
    for d in range(3):
        size_in[d] = plan.size_in[d]
    if line:
        size_in[2], size_in[1] = size_in[1] * size_in[2], 1
    steps.segments, steps.a_segment, steps.b_segment = 1, &zero, &zero
    steps.a_row, steps.a_down, steps.a_step = g_pitch * 2, g_pitch * 32, AMX_STEPS * 2
    steps.b_row, steps.b_right, steps.c_right = AMX_SIDE * 4, AMX_SIDE // 2 * 4, AMX_SIDE // 2 * 4
    memset(sums, 0, cos * taps * columns * 4)
    if plan.accumulate:
        amx_weight_elements(plan, group * plan.cout + row_from, cos, from_column, many, sums, columns, out_line, True)
    while plan.pixels_out and nth_tile(cut, plan.batch, plan.size_out, number, &whole):
        tile = whole
        if line:
            tile.first[2], tile.extent[2] = tile.first[1] * plan.size_out[2], tile.extent[1] * tile.extent[2]
            tile.first[1], tile.extent[1] = 0, 1
        amx_block(plan, tile.extent, tile.samples, &block)
        steps.length = pieces(positions_under(&tile, &block.box), AMX_STEPS)
        odd = False
        for tap in range(plan.taps):
            shift[tap] = amx_tap(plan, &block, tap)
            start[tap] = 0 if cut.merged else shift[tap] // 2 * AMX_SIDE * 4 + shift[tap] % 2 * amx_panel_bytes(cut)
            odd |= shift[tap] % 2
        pack_amx_output(plan, &block, &tile, group * plan.cout + row_from, cos, g_pitch, g)
        add_bias(plan, &whole, bias.channel, bias.channels, bias.totals)
        if cut.merged:
            pack_amx_input(plan, size_in, &block, &tile, group * plan.cin, plan.cin, x_pitch, x)
            nonfinite = kernels.amx.replace_nonfinite(x, plan.cin * x_pitch)
        ahead.channels = 0
        if nth_tile(cut, plan.batch, plan.size_out, number + 1, &next):
            look_ahead(plan, &plan.view[CONV_GRAD_OUTPUT], plan.size_out, &next, group * plan.cout + row_from, cos,
                       slivers * pieces(cos, AMX_SIDE) * taps, &ahead)
        for s in range(slivers):
            column = from_column + s * AMX_SIDE
            count = min(<int64_t>AMX_SIDE, all_columns - column)
            if not cut.merged:
                pack_amx_input(plan, size_in, &block, &tile, group * plan.cin + column, count, x_pitch, x)
                nonfinite = kernels.amx.replace_nonfinite(x, count * x_pitch)
            for c in range(count):
                apart[c] = ((column + c) // plan.taps * x_pitch + shift[(column + c) % plan.taps]) * 2 if cut.merged else c * x_pitch * 2
            kernels.pairs.of_pixels[0](x, apart, panel, AMX_SIDE * 4, steps.length * AMX_STEPS if cut.merged else x_pixels, count)
            if odd and not cut.merged:
                kernels.pairs.of_pixels[0](x + 2, apart, panel + amx_panel_bytes(cut), AMX_SIDE * 4, x_pixels - 2, count)
            two_taps = count <= AMX_SIDE // 2 and taps > 1  # few columns: those of the next tap beside them
            steps.c_right = columns * 4 if two_taps else AMX_SIDE // 2 * 4
            steps.b_right = AMX_SIDE // 2 * 4
            co = 0
            while co < cos:
                tap = 0
                while tap < taps:
                    go_ahead(&ahead)
                    many_taps = min(taps - tap, <int64_t>(2 if two_taps else 1))
                    if two_taps and many_taps == 2:
                        steps.b_right = start[tap + 1] - start[tap]
                    kernels.amx.multiply(&steps, g + co * g_pitch * 2, min(<int64_t>AMX_SIDE, cos - co), panel + start[tap],
                                         many_taps * AMX_SIDE // 2 if two_taps else count,
                                         sums + ((co * taps + tap) * columns + s * AMX_SIDE) * 4, taps * columns * 4, True)
                    tap += many_taps
                co += AMX_SIDE
            if nonfinite:
                add_nonfinite_columns(plan, group, &whole, row_from, cos, column, count, sums + s * AMX_SIDE * 4, columns)
        number += 1
    amx_weight_elements(plan, group * plan.cout + row_from, cos, from_column, many, sums, columns, out_line, False)
    save_bias(plan, bias.channel, bias.channels, bias.totals)
    leave_float_state(float_state)


cdef void run_grad_weight_amx(const ConvPlan *plan, char *workspace, int threads) noexcept nogil:
    """Tasks number (group, co, slivers)."""
    cdef const ConvCut *cut = &plan.for_weight
    cdef char *scratch = workspace + plan.packed_bytes
    cdef int64_t across = pieces(cut.slivers, cut.task_slivers), down = pieces(plan.cout, cut.rows), tasks = amx_weight_tasks(plan), i
    if threads == 1:
        for i in range(tasks):
            grad_weight_amx(plan, i // across // down, i // across % down * cut.rows, i % across * cut.task_slivers, scratch)
        return
    for i in prange(tasks, schedule="dynamic", num_threads=threads):
        grad_weight_amx(plan, i // across // down, i // across % down * cut.rows, i % across * cut.task_slivers,
                        scratch + omp_get_thread_num() * plan.thread_bytes)
