# grad_input by AMX: rows are positions of a packed block of grad_output, columns are ci, steps are (chunk of co, tap).
# The phases of a stride are done one after the other over one block. Small groups are joined (amx_groups.pxi).
cdef enum:
    AMX_BLOCK_CHANNELS = 1024    # of grad_output, packed at once
    AMX_MANY_JOINED = 3          # groups, with fewer of which those in the lanes of a vector are as fast; measured
    AMX_NEAR_WEIGHTS = 1 << 20   # bytes of a task's weights that are read again for some pixels; measured
    AMX_READY_PANELS = 2         # of a task, with more of which packing pays: lines that begin anywhere cost two

    AMX_TASK_PANELS = 16         # of a task, at most, if it does not write whole pixels
    AMX_FEW_PANELS = 8           # of a task, with as many of which packing takes as long as a third of the products

    MANY_CHANNELS = 72           # of both tensors, from which on taking them apart costs little

    # pieces of scratch; shared:
    AMX_WEIGHTS = 0
    AMX_LATE_PIXELS = 0
    AMX_LATE_FOUND = 1
    # of a thread:
    AMX_PREPARED = 0
    AMX_OUTPUT = 1
    AMX_SUMMED = 2
    AMX_STAGING = 3
    AMX_A_OFFSETS = 4
    AMX_B_OFFSETS = 5
    AMX_LATE_WEIGHTS = 6


ctypedef struct InputAmx:
    Tiling tiling        # of the phases' grid
    int64_t tiles
    int64_t panels       # of AMX_SIDE ci
    int64_t task_panels
    int64_t positions    # of a block
    int64_t together     # groups that are joined
    bint late            # whether grad_output is packed once and tasks pack weights (input_amx_late.pxi)


cdef void order_input_amx(const SampleGeometry *sample, SumOrder *order) noexcept nogil:
    """Sum blocks of at most AMX_BLOCK_CHANNELS co under all taps, chunk by chunk, one block after the other."""
    order.channels = min(sample.cout, <int64_t>AMX_BLOCK_CHANNELS if sample.parts == 1 else AMX_BLOCK_CHANNELS // 2)
    order.taps = sample.taps


cdef int64_t input_amx_pixels(const SampleGeometry *sample, int64_t channels, Tiling *tiling,
                              int64_t *positions) noexcept nogil:
    """Cut tiles as fit_amx_tiles does; return their pixels, at most."""
    cdef int64_t task_channels = min(round_up(sample.cin, AMX_SIDE), <int64_t>AMX_TASK_PANELS * AMX_SIDE)
    cdef int64_t bytes = amx_element_bytes(sample) * round_up(channels, AMX_STEPS) + 4 * task_channels
    return fit_amx_tiles(sample, bytes, tiling, positions)


cdef bint pointwise_pays(const SampleGeometry *sample) noexcept nogil:
    """Say whether float32 under one tap takes AMX less time than multiply-adds, by an estimate of their ratio: for
    products, of whole instructions, for taking grad_output and weights apart, and to begin. Fitted to 55 layers in both
    layouts, whose times it met within 11 %, root of mean square; since numbers are taken apart between products, layers
    of many channels take less than it says (1.0 to 1.2 times, of 17 measured)."""
    cdef double steps = <double>round_up(sample.cout, AMX_STEPS) / sample.cout
    cdef double columns = <double>round_up(sample.cin, AMX_HALF) / sample.cin
    cdef double pixels = max(<int64_t>1, min(sample.pixels_in, sample.pixels_out))
    cdef double ratio = 0.7 * steps * columns + 5.6 / sample.cin + 2.3 / pixels \
        + 4.5e4 / (pixels * sample.cin * sample.cout)
    return ratio <= (1.1 if min(sample.cin, sample.cout) >= MANY_CHANNELS else 0.9)


cdef bint accepts_input_amx(const SampleGeometry *sample, const char **why) noexcept nogil:
    cdef int64_t positions
    cdef SumOrder order
    cdef Tiling tiling
    if not suits_amx(sample, why) or not has_amx_inputs(sample, why) or not pays_in_parts(sample, why):
        return False
    if sample.parts == 3 and (not pointwise_pays(sample) if sample.taps == 1 else
                              sample.cin * sample.taps < PART_MIN_PRODUCTS
                              or sample.cout * sample.taps < PART_MIN_STEPS):
        why[0] = b"elements are not multiplied often enough to pay for taking them apart"
        return False
    if sample.parts == 3 and gaps_cost_more(sample):
        why[0] = b"gaps between rows and padding do not pay for taking numbers apart"
        return False
    order_input_amx(sample, &order)
    input_amx_pixels(sample, order.channels, &tiling, &positions)
    return amx_block_fits(sample, &tiling, positions, why)


cdef int64_t input_amx_tasks(const SampleGeometry *sample, const InputAmx *own) noexcept nogil:
    """Count the tasks."""
    return sample.groups * ceil_div(own.panels, own.task_panels) * own.tiles


cdef int64_t amx_panel_bytes(const SampleGeometry *sample) noexcept nogil:
    """Count the bytes of the packed weights of a panel of ci."""
    return amx_chunks(sample) * sample.taps * amx_step_bytes(sample)


cdef void cut_input_columns(const ConvProblem *problem, int threads, InputAmx *own) noexcept nogil:
    """Cut panels into tasks, about as many each, so that no thread waits for long; or into none where weights stay in
    a cache and whole pixels can be written past these."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t parts = ceil_div(own.panels, own.task_panels), tasks
    if channels_in_line(problem) and own.panels <= AMX_PANELS_COLUMNS // AMX_SIDE \
            and own.panels * amx_panel_bytes(sample) <= AMX_NEAR_WEIGHTS:
        parts = 1
    while True:
        own.task_panels = ceil_div(own.panels, parts)
        tasks = input_amx_tasks(sample, own)
        if threads == 1 or own.task_panels == 1 or tasks >= threads and (
                own.task_panels <= AMX_FEW_PANELS or tasks >= 2 * threads and not uneven_tasks(tasks, threads)):
            break
        parts += 1


cdef void block_input_amx(const ConvProblem *problem, const SumOrder *order, int gradients, int threads,
                          Blocking *blocking) noexcept nogil:
    """Make the tiles smaller, then the tasks narrower, while there are too few tasks for the threads."""
    cdef InputAmx *own = <InputAmx *>blocking.own
    cdef Scratch *local = &blocking.local
    cdef ConvProblem wide = problem[0]
    cdef const SampleGeometry *sample = &wide.sample
    cdef SumOrder sums = order[0]
    cdef int64_t pixels, chunks
    own.together = joined_groups(sample)
    widen_groups(&wide.sample, own.together, &sums)
    pixels = input_amx_pixels(sample, sums.channels, &own.tiling, &own.positions)
    own.panels = ceil_div(sample.cin, AMX_SIDE)
    own.task_panels = min(own.panels, <int64_t>AMX_TASK_PANELS)
    own.tiles = tile_phases(&wide, pixels, AMX_POSITIONS, AMX_POSITIONS, &own.tiling)
    own.late = is_late_input(&wide, &sums, own)
    if own.late:
        cut_late_input(sample, &sums, threads, own)
    while threads > 1 and pixels > AMX_MIN_PIXELS and input_amx_tasks(sample, own) < 4 * threads and not own.late:
        pixels //= 2
        own.tiles = tile_phases(&wide, pixels, AMX_POSITIONS, AMX_POSITIONS, &own.tiling)
    if not own.late:
        cut_input_columns(&wide, threads, own)
    chunks = ceil_div(sums.channels, AMX_STEPS)
    while not own.late and pixels > AMX_SIDE and amx_block_is_large(sample, &own.tiling, chunks, own.task_panels):
        pixels //= 2
        own.tiles = tile_phases(&wide, pixels, AMX_POSITIONS, AMX_POSITIONS, &own.tiling)
    while own.task_panels > 1 and amx_block_is_large(sample, &own.tiling, chunks, own.task_panels):
        own.task_panels = ceil_div(own.task_panels, 2)
    own.positions = block_positions(sample, &own.tiling)
    book(local, AMX_PREPARED, AMX_STEPS * AMX_SIDE * min(sample.taps, <int64_t>AMX_STAGED_TAPS),
         itemsize_of(sample.dtype))
    book(local, AMX_OUTPUT, max(own.positions * chunks, 2 * AMX_SIDE * amx_chunks(sample)) * sample.parts, AMX_LINE)
    if own.late:
        book_late_input(sample, &sums, own, blocking)
    else:
        book(&blocking.shared, AMX_WEIGHTS, sample.groups * own.panels, amx_panel_bytes(sample))
        blocking.prepares = sample.groups * own.panels * amx_chunks(sample)
    book(local, AMX_SUMMED, own.positions * own.task_panels, AMX_SUM_ROW)
    book(local, AMX_STAGING, 2 * staging_elements(sample), 4)
    book(local, AMX_A_OFFSETS, amx_chunks(sample) * sample.taps, sizeof(int64_t))
    book(local, AMX_B_OFFSETS, amx_chunks(sample) * sample.taps, sizeof(int64_t))
    blocking.tasks = input_amx_tasks(sample, own)
    blocking.in_order = blocking.tasks == own.tiles


cdef void stage_chunk(const ConvRun *run, const char *panel, int64_t co_from, int64_t tap, int64_t taps, int64_t cos,
                      int64_t cis, char *staged) noexcept nogil:
    """Copy some taps of a chunk of co by a panel of ci as [co][tap][ci]."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvView *w = &run.problem.view[CONV_WEIGHT]
    cdef int64_t item = itemsize_of(sample.dtype), row = AMX_SIDE * item, co, i
    cdef bint in_line = taps > 1 and taps_in_line(sample, w)
    cdef const char *source
    if w.n == taps * item and taps == sample.taps and sample.folded == 1 and (taps == 1 or in_line):
        kernels.transpose[sample.dtype](panel + co_from * w.n, w.channel, staged, row, cos * taps, cis)
        return
    if w.n == item and sample.folded == 1:
        for i in range(taps):
            kernels.transpose[sample.dtype](panel + co_from * item + tap_offset(sample, w, tap + i), w.channel,
                                            staged + i * row, taps * row, cos, cis)
        return
    for co in range(cos):
        source = panel + weight_row(sample, w, co_from + co)
        if in_line:
            kernels.transpose[sample.dtype](source + tap * item, w.channel, staged, row, taps, cis)
        else:
            for i in range(taps):
                kernels.convert[sample.dtype][sample.dtype](source + tap_offset(sample, w, tap + i), w.channel,
                                                            staged + i * row, item, cis)
        staged += taps * row


cdef bint pack_amx_weights(const ConvRun *run, int64_t unit, int64_t panel, int64_t chunk, char *to,
                           char *staged) noexcept nogil:
    """Pack the weights of joined groups, a panel of ci and a chunk of co, under all taps, with zeros where there are
    none. inf and NaN become tiny; return whether there were any, or float32 numbers out of bounds. staged: room for
    some taps."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputAmx *own = <const InputAmx *>run.blocking.own
    cdef const ConvView *w = &run.problem.view[CONV_WEIGHT]
    cdef int64_t item = itemsize_of(sample.dtype), tap = 0, taps, i, half, at
    cdef int64_t first = unit * own.together
    cdef int64_t many = min(own.together, sample.groups - first)
    cdef int64_t cis = min(<int64_t>AMX_SIDE, sample.cin - panel * AMX_SIDE)
    cdef int64_t cos = min(<int64_t>AMX_STEPS, sample.cout - chunk * AMX_STEPS)
    cdef int64_t halves = ceil_div(many * cis, AMX_HALF)
    cdef const char *source = w.data + first * w.group + panel * AMX_SIDE * w.channel
    cdef bint found = False
    if own.together == 1 and cos == AMX_STEPS and w.channel == item and sample.folded == 1:  # ci side by side
        source += chunk * AMX_STEPS * w.n
        for tap in range(sample.taps):
            at = packed_tap(sample, tap) * amx_step_bytes(sample)
            for half in range(halves):
                found |= put_weights(run, source + tap_offset(sample, w, tap) + half * AMX_HALF * item, w.n,
                                     min(<int64_t>AMX_HALF, cis - half * AMX_HALF), to + at + half * AMX_CELL)
        return found
    while tap < sample.taps:
        taps = min(<int64_t>AMX_STAGED_TAPS, sample.taps - tap)
        if own.together > 1 or cos < AMX_STEPS or cis < AMX_SIDE:
            memset(staged, 0, AMX_STEPS * taps * AMX_SIDE * item)
        for i in range(many):
            stage_chunk(run, source + i * w.group, chunk * AMX_STEPS, tap, taps, cos, cis,
                        staged + i * (cos * taps * AMX_SIDE + cis) * item)
        for i in range(taps):
            at = packed_tap(sample, tap + i) * amx_step_bytes(sample)
            for half in range(halves):
                found |= put_weights(run, staged + (i * AMX_SIDE + half * AMX_HALF) * item, taps * AMX_SIDE * item,
                                     AMX_HALF, to + at + half * AMX_CELL)
        tap += AMX_STAGED_TAPS
    return found


cdef bint prepare_input_amx(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Pack the weights of unit number (group, panel of ci, chunk of co), or a unit of a late layer's grad_output;
    return whether weights had inf or NaN, or float32 numbers out of bounds."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputAmx *own = <const InputAmx *>run.blocking.own
    cdef WeightUnit unit
    if own.late:
        return prepare_late_input(run, number, scratch)
    unit = weight_unit(run.problem, number, own.panels, amx_chunks(sample))
    return pack_amx_weights(run, unit.group, unit.panel, unit.block, panel_weights(run, unit.group, unit.panel)
                            + unit.block * sample.taps * amx_step_bytes(sample),
                            local_piece(run, AMX_PREPARED, scratch))


cdef void find_phase_steps(const ConvRun *run, const Phase *phase, const Box *block, const AmxRows *rows,
                           const Halo *halo, int64_t co, char *scratch, AmxPixelSteps *steps) noexcept nogil:
    """Find what a phase's products of one block of co are of: (chunk of co, tap)."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputAmx *own = <const InputAmx *>run.blocking.own
    cdef int64_t chunks = ceil_div(min(run.order.channels, sample.cout - co), AMX_STEPS), i, tap, at
    # Weights of a late layer take the places of those before them.
    cdef int64_t first = 0 if own.late else co // AMX_STEPS
    cdef int64_t places = late_chunks(sample, run.order) if own.late else chunks
    cdef int64_t output[3]
    cdef int64_t k[3]
    steps.a_offset = <int64_t *>local_piece(run, AMX_A_OFFSETS, scratch)
    steps.b_offset = <int64_t *>local_piece(run, AMX_B_OFFSETS, scratch)
    steps.count, steps.rows = chunks * phase.tap_count, rows[0]
    for tap in range(phase.tap_count):
        phase_tap(sample, phase, tap, output, k)
        for i in range(chunks):
            at = i * phase.tap_count + tap
            steps.a_offset[at] = i * rows.chunk + tap_place(sample, block, output, k, halo.low) * rows.row
            steps.b_offset[at] = ((first + i % places) * sample.taps + phase.first_packed + tap) \
                * amx_step_bytes(sample)


cdef char *panel_weights(const ConvRun *run, int64_t unit, int64_t panel) noexcept nogil:
    """Find the packed weights of a panel of ci of a unit, joined groups."""
    cdef const InputAmx *own = <const InputAmx *>run.blocking.own
    return shared_piece(run, AMX_WEIGHTS) + (unit * own.panels + panel) * amx_panel_bytes(run.sample)


cdef void multiply_phase_amx(const ConvRun *run, const AmxPixelSteps *steps, int64_t positions, int64_t unit,
                             int64_t panel_from, int64_t panels, int64_t co, char *scratch,
                             Prefetch *prefetch) noexcept nogil:
    """Add the products of one block of co and a phase to those of the blocks before. unit: of joined groups."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputAmx *own = <const InputAmx *>run.blocking.own
    cdef int64_t p, at, near_bytes = panels * (amx_panel_bytes(sample) + 2 * own.positions * AMX_SUM_ROW)
    cdef bint near = near_bytes <= AMX_NEAR_WEIGHTS  # with sums, and with what these become in memory
    cdef char *weights = panel_weights(run, unit, panel_from)
    cdef char *sums = local_piece(run, AMX_SUMMED, scratch)
    cdef const char *then
    for p in range(panels):
        then = weights + (p + 1) * amx_panel_bytes(sample) + steps.b_offset[0]
        if p + 1 == panels:  # the next block of co, or the next tile
            at = (co + run.order.channels) // AMX_STEPS * sample.taps if co + run.order.channels < sample.cout else 0
            then = weights + at * amx_step_bytes(sample)
        if near:
            then = NULL
        multiply_amx_pixels(sample, steps, positions, weights + p * amx_panel_bytes(sample),
                            min(<int64_t>AMX_SIDE, sample.cin - (panel_from + p) * AMX_SIDE),
                            sums + p * own.positions * AMX_SUM_ROW, co > 0, then, panels - p, prefetch)


cdef bint puts_rows(const JoinedGroups *joined, const Box *part) noexcept nogil:
    """Say whether a tile's sums may be saved some pixels at a time: those under one tap, of pixels that follow each
    other in the block and in memory, with their channels side by side. Weights are read again for every AMX_SIDE
    pixels, so they have to stay in a cache."""
    cdef const ConvRun *run = &joined.run
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvView *out = &run.problem.view[CONV_GRAD_INPUT]
    cdef const InputAmx *own = <const InputAmx *>run.blocking.own
    return not own.late and own.together == 1 and sample.taps == 1 and phase_count(sample) == 1 \
        and own.task_panels * amx_panel_bytes(sample) <= AMX_NEAR_WEIGHTS \
        and channels_in_line(run.problem) and not has_output_bias(run.problem) \
        and follow_evenly(part, out.n, out.space)


cdef bint puts_at_once(const JoinedGroups *joined, const Box *part) noexcept nogil:
    """Say whether a tile's sums of bfloat16 are saved as they come: those of one chain. float32's weights take longer
    to read than its sums."""
    cdef const ConvRun *run = &joined.run
    return run.sample.parts == 1 and run.sample.cout <= run.order.channels and puts_rows(joined, part)


cdef void put_tile_amx(const ConvRun *run, const AmxPixelSteps *all, const Phase *phase, const Box *part, int64_t unit,
                       int64_t panel_from, int64_t panels, char *scratch) noexcept nogil:
    """Multiply and save a tile, some pixels of all panels at a time."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvView *out = &run.problem.view[CONV_GRAD_INPUT]
    cdef int64_t first = panel_from * AMX_SIDE, channels = min(panels * AMX_SIDE, sample.cin - first)
    cdef char *to = tile_row(run.problem, unit, phase, part, first, 0, 0, 0)
    cdef AmxBatchReduce steps
    amx_pixel_steps(sample, &all.rows, &steps)
    steps.a_offset, steps.b_offset, steps.count = all.a_offset, all.b_offset, all.count
    steps.ahead.rows = 0
    kernels.amx.multiply_panels(&steps, all.rows.first, box_positions(part), panel_weights(run, unit, panel_from),
                                amx_panel_bytes(sample), channels, local_piece(run, AMX_SUMMED, scratch), to,
                                out.space[2], sample.dtype == DTYPE_BF16,
                                fills_lines(run.problem, to, out.space[2], channels * out.channel))


cdef bint find_float_lines(const JoinedGroups *joined, const Box *part, const Box *block, const char **first,
                           int64_t *step) noexcept nogil:
    """Find the pixels of grad_output under a tile of float32, as find_pixels does, where they can be taken apart while
    those before them are multiplied."""
    cdef const ConvRun *run = &joined.run
    return run.sample.dtype == DTYPE_F32 and not run.nonfinite and puts_rows(joined, part) \
        and find_pixels(run, block, first, step)


cdef void put_lines_amx(const ConvRun *run, const char *first, int64_t step, const Phase *phase, const Box *part,
                        int64_t group, int64_t panel_from, int64_t panels, char *scratch) noexcept nogil:
    """Multiply and save a tile, some pixels of all panels at a time, and take the next ones' numbers apart
    meanwhile."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvView *out = &run.problem.view[CONV_GRAD_INPUT]
    cdef int64_t from_channel = panel_from * AMX_SIDE, channels = min(panels * AMX_SIDE, sample.cin - from_channel), s
    cdef char *to = tile_row(run.problem, group, phase, part, from_channel, 0, 0, 0)
    cdef int64_t *line = <int64_t *>local_piece(run, AMX_A_OFFSETS, scratch)
    cdef int64_t *weight = <int64_t *>local_piece(run, AMX_B_OFFSETS, scratch)
    cdef AmxRows rows = packed_rows(sample, NULL, AMX_SIDE)
    cdef AmxBatchReduce steps
    cdef int found
    amx_pixel_steps(sample, &rows, &steps)
    steps.count, steps.a_offset, steps.b_offset = amx_chunks(sample), line, weight
    for s in range(steps.count):
        line[s], weight[s] = s * rows.chunk, s * amx_step_bytes(sample)
    found = kernels.amx.multiply_lines(
        &steps, first + group * sample.cout * 4, step, box_positions(part), sample.cout,
        chain_steps(sample, ceil_div(run.order.channels, AMX_STEPS)), local_piece(run, AMX_OUTPUT, scratch),
        panel_weights(run, group, panel_from), amx_panel_bytes(sample), channels,
        local_piece(run, AMX_SUMMED, scratch), to, out.space[2],
        fills_lines(run.problem, to, out.space[2], channels * out.channel))
    became_tiny(run, found, UNFIT_GRADIENT)


cdef void save_phase_amx(const JoinedGroups *joined, const Phase *phase, const Box *part, const Box *block,
                         int64_t group, int64_t panel_from, int64_t panels, bint nonfinite_output,
                         char *scratch) noexcept nogil:
    """Save the sums of a phase, after adding the products of inf and NaN."""
    cdef const ConvRun *run = &joined.run
    cdef const InputAmx *own = <const InputAmx *>run.blocking.own
    cdef InputSums sums
    cdef int64_t p
    cdef bint by_pixels = channels_in_line(run.problem)
    memcpy(sums.extent, block.extent, sizeof(sums.extent))
    sums.group, sums.pixel_pitch, sums.ci_pitch = group, AMX_SIDE, 1
    for p in range(panels):
        sums.data = local_piece(run, AMX_SUMMED, scratch) + p * own.positions * AMX_SUM_ROW
        sums.ci_from = (panel_from + p) * AMX_SIDE
        sums.channels = min(<int64_t>AMX_SIDE, run.sample.cin - sums.ci_from)
        if not phase.tap_count:
            memset(sums.data, 0, own.positions * AMX_SUM_ROW)
        if run.nonfinite or nonfinite_output:
            add_nonfinite_of_groups(joined, phase, part, &sums, nonfinite_output)
        if by_pixels:
            add_output_bias(run.problem, &sums, part, run.sample.dtype == DTYPE_BF16)
        else:
            save_positions(run.problem, phase, part, &sums, local_piece(run, AMX_STAGING, scratch))
    if by_pixels:
        sums.data, sums.ci_from = local_piece(run, AMX_SUMMED, scratch), panel_from * AMX_SIDE
        sums.channels = min(panels * AMX_SIDE, run.sample.cin - sums.ci_from)
        save_channels_of_panels(run.problem, phase, part, &sums, own.positions * AMX_SUM_ROW)


cdef bint pack_tile_rows(const ConvRun *run, const Box *block, int64_t behind, int64_t group, int64_t co, char *scratch,
                         AmxRows *rows) noexcept nogil:
    """Pack a block of co of a tile's grad_output; return whether there were inf or NaN, which became tiny."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputAmx *own = <const InputAmx *>run.blocking.own
    cdef char *pixels = local_piece(run, AMX_OUTPUT, scratch)
    cdef int found = pack_amx_pixels(run, block, behind, group, co, min(run.order.channels, sample.cout - co), pixels,
                                     own.positions, local_piece(run, AMX_STAGING, scratch))
    cdef bint nonfinite = became_tiny(run, found, UNFIT_GRADIENT)
    rows[0] = packed_rows(sample, pixels, own.positions)
    if own.together > 1:  # an inf would be NaN under the zeros of other groups
        nonfinite |= kernels.vnni.replace_nonfinite(
            pixels, (block_classes(sample) * box_positions(block) + behind) * AMX_STEPS)
    return nonfinite


cdef void input_amx_task(const ConvRun *whole, int64_t number, char *scratch) noexcept nogil:
    """Run task number (joined groups, panels of ci, tile), all phases of it."""
    cdef const InputAmx *own = <const InputAmx *>whole.blocking.own
    cdef JoinedGroups joined
    cdef const ConvRun *run = &joined.run
    cdef int64_t parts = ceil_div(own.panels, own.task_panels), unit = number // own.tiles // parts
    cdef int64_t group = join_groups_of(whole, own.together, unit, &joined)
    cdef const SampleGeometry *sample = run.sample
    cdef int64_t panel_from = number // own.tiles % parts * own.task_panels
    cdef int64_t panels = min(own.task_panels, own.panels - panel_from)
    cdef int64_t phases = phase_count(sample), p, co, behind, packed = -1
    cdef const char *first
    cdef int64_t grid[3]
    cdef int64_t step
    cdef bint nonfinite = False, put = False
    cdef AmxPixelSteps steps
    cdef Box tile, block, part
    cdef Halo halo
    cdef Phase phase
    cdef AmxRows rows
    cdef Prefetch prefetch
    phase_grid(sample, grid)
    if not nth_tile(&own.tiling, run.problem.batch, grid, number % own.tiles, &tile):
        return
    all_phases_halo(sample, &halo)
    block_under(&tile, &halo, &block)
    behind = share_source_zeros(sample, &halo, &block)
    prefetch_next_block(run, &own.tiling, &halo, number % own.tiles + 1, group,
                        phases * panels * ceil_div(positions_of(&tile, &block), AMX_SIDE), &prefetch)
    for p in range(phases):
        make_phase(sample, p, &phase)
        if not phase_part(&phase, &tile, &part):
            continue
        if find_float_lines(&joined, &part, &block, &first, &step):
            put_lines_amx(run, first, step, &phase, &part, group, panel_from, panels, scratch)
            continue
        co = 0
        while phase.tap_count and co < sample.cout and not is_stopped(run):
            if own.late and shares_late_pixels(run):
                rows = late_rows(run, group, co)
                nonfinite = late_pixels_found(run, group)
            elif packed != co and not (own.together == 1 and own.task_panels <= AMX_READY_PANELS
                                       and find_rows(run, &block, group * sample.cout + co, &rows)):
                nonfinite |= pack_tile_rows(run, &block, behind, group, co, scratch, &rows)
            packed = co
            find_phase_steps(run, &phase, &block, &rows, &halo, co, scratch, &steps)
            put = not (nonfinite or run.nonfinite) and puts_at_once(&joined, &part)
            if own.late:
                multiply_late(&joined.run, &steps, positions_of(&part, &block), group, panel_from, panels, co, scratch)
            elif put:
                put_tile_amx(run, &steps, &phase, &part, unit, panel_from, panels, scratch)
            else:
                multiply_phase_amx(run, &steps, positions_of(&part, &block), unit, panel_from, panels, co, scratch,
                                   &prefetch)
            co += run.order.channels
        if not put:
            save_phase_amx(&joined, &phase, &part, &block, group, panel_from, panels, nonfinite, scratch)


cdef void explain_input_amx(const SampleGeometry *sample, const SumOrder *order, const Blocking *blocking, char *text,
                            size_t size) noexcept nogil:
    cdef const InputAmx *own = <const InputAmx *>blocking.own
    snprintf(text, size, b"products of matrices by AMX, of %lld bfloat16 to a number: rows are positions of a packed "
             b"block, columns input channels; tiles of %lld x %lld x %lld x %lld pixels, %lld of %lld columns a task%s",
             <long long>sample.parts, <long long>own.tiling.samples, <long long>own.tiling.extent[0],
             <long long>own.tiling.extent[1], <long long>own.tiling.extent[2],
             <long long>(own.task_panels * AMX_SIDE), <long long>(own.panels * AMX_SIDE),
             b", which packs its weights" if own.late else b"")
    explain_groups(own.together, text, size)


cdef ConvAlgorithm input_amx() noexcept nogil:
    cdef ConvAlgorithm row
    row.name, row.gradients = b"grad_input:amx", FOR_GRAD_INPUT
    row.accepts, row.order, row.block = accepts_input_amx, order_input_amx, block_input_amx
    row.prepare, row.task, row.explain = prepare_input_amx, input_amx_task, explain_input_amx
    return row


cdef bint accepts_joined_amx(const SampleGeometry *sample, const char **why) noexcept nogil:
    if joined_groups(sample) < AMX_MANY_JOINED:
        why[0] = b"groups are not small enough for several to fill an instruction, or are not of bfloat16"
        return False
    if phase_count(sample) > 1:
        why[0] = b"the phases of a stride have few taps each"
        return False
    return accepts_input_amx(sample, why)


cdef ConvAlgorithm input_amx_joined() noexcept nogil:
    cdef ConvAlgorithm row = input_amx()
    row.name, row.accepts = b"grad_input:amx_joined", accepts_joined_amx
    return row
