# grad_input of late layers by AMX: all pixels of the batch are one tile, and weights are many. There grad_output is
# packed once, for all tasks, and each task packs the weights of its columns, which nobody else needs: they are
# multiplied while they are in its cache.
cdef enum:
    LATE_WEIGHT_BYTES = 5 << 17   # of a task's panels and a chain of steps
    LATE_PAGE = 1 << 12           # bytes
    LATE_TASKS = 3                # a thread, where there are as many panels
    LATE_PIXELS = 128             # with more of which weights had better be packed line by line; measured


cdef int64_t late_chunks(const SampleGeometry *sample, const SumOrder *order) noexcept nogil:
    """Count the chunks of co whose weights are in scratch at the same time: those that a chain of steps meets."""
    return min(ceil_div(order.channels, AMX_STEPS), (most_chain_steps(sample) - 1) // sample.taps + 2)


cdef int64_t late_panel_bytes(const SampleGeometry *sample, const SumOrder *order) noexcept nogil:
    """Count the bytes of a panel's weights of a chain."""
    return late_chunks(sample, order) * sample.taps * amx_step_bytes(sample)


cdef bint has_one_phase(const SampleGeometry *sample) noexcept nogil:
    """Say whether all taps are those of one phase; of an image smaller than the stride, others meet no phase."""
    cdef Phase phase
    make_phase(sample, 0, &phase)
    return sample.taps == 1 or (phase_count(sample) == 1 and phase.tap_count == sample.taps)


cdef bint is_late_input(const ConvProblem *problem, const SumOrder *order, const InputAmx *own) noexcept nogil:
    """Say whether a layer is late: one tile has all pixels, packing takes no more room than the weights' would, the
    taps of all weights are those of one phase, and those of a panel lie together or pixels are few."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const ConvView *w = &problem.view[CONV_WEIGHT]
    cdef int64_t positions = block_positions(sample, &own.tiling)
    return own.tiles == 1 and own.together == 1 and has_one_phase(sample) \
        and positions * AMX_LINE * sample.parts <= own.panels * sample.taps * amx_step_bytes(sample) \
        and late_panel_bytes(sample, order) <= LATE_WEIGHT_BYTES and (w.channel >= w.n or positions <= LATE_PIXELS)


cdef void cut_late_input(const SampleGeometry *sample, const SumOrder *order, int threads,
                         InputAmx *own) noexcept nogil:
    """Give tasks as many panels as their caches hold the weights of, and threads several tasks."""
    cdef int64_t most = max(<int64_t>1, sample.groups * own.panels // (LATE_TASKS * threads))
    own.task_panels = min(own.task_panels, most, LATE_WEIGHT_BYTES // late_panel_bytes(sample, order))


cdef void book_late_input(const SampleGeometry *sample, const SumOrder *order, const InputAmx *own,
                          Blocking *blocking) noexcept nogil:
    """Make room for the packed grad_output, and for the weights of a chain."""
    book(&blocking.shared, AMX_LATE_PIXELS, sample.groups * amx_chunks(sample), sample.parts * own.positions * AMX_LINE)
    book(&blocking.shared, AMX_LATE_FOUND, sample.groups * amx_chunks(sample), 1)
    book(&blocking.local, AMX_LATE_WEIGHTS, own.task_panels, late_panel_bytes(sample, order))
    blocking.prepares = sample.groups * amx_chunks(sample)


cdef bint shares_late_pixels(const ConvRun *run) noexcept nogil:
    """Say whether tasks find grad_output packed: not where float32's samples were looked at, of which a run may take
    some only."""
    return run.sample.dtype != DTYPE_F32 or run.unfit != NULL


cdef AmxRows late_rows(const ConvRun *run, int64_t group, int64_t co) noexcept nogil:
    """Find the packed grad_output of a group from one co on, a multiple of AMX_STEPS."""
    cdef const InputAmx *own = <const InputAmx *>run.blocking.own
    cdef int64_t number = group * amx_chunks(run.sample) + co // AMX_STEPS
    return packed_rows(run.sample, shared_piece(run, AMX_LATE_PIXELS)
                       + number * run.sample.parts * own.positions * AMX_LINE, own.positions)


cdef bint late_pixels_found(const ConvRun *run, int64_t group) noexcept nogil:
    """Say whether the packed grad_output of a group had inf or NaN of float16, which became tiny."""
    cdef const char *found = shared_piece(run, AMX_LATE_FOUND) + group * amx_chunks(run.sample)
    cdef int64_t chunk
    cdef bint any = False
    for chunk in range(amx_chunks(run.sample)):
        any |= found[chunk] != 0
    return any


cdef bint late_weights_unfit(const ConvRun *run, int64_t group, int64_t chunk, char *scratch) noexcept nogil:
    """Pack the weights of a chunk only to say whether they have inf, NaN or float32 numbers out of bounds."""
    cdef const InputAmx *own = <const InputAmx *>run.blocking.own
    cdef int64_t panel
    cdef bint found = False
    for panel in range(own.panels):
        found |= pack_amx_weights(run, group, panel, chunk, local_piece(run, AMX_LATE_WEIGHTS, scratch),
                                  local_piece(run, AMX_PREPARED, scratch))
    return found


cdef bint prepare_late_input(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Pack unit number (group, chunk of co) of grad_output, or look at its weights, where samples were looked at."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputAmx *own = <const InputAmx *>run.blocking.own
    cdef int64_t group = number // amx_chunks(sample), chunk = number % amx_chunks(sample), behind
    cdef int64_t grid[3]
    cdef int found
    cdef Box tile, block
    cdef Halo halo
    if not shares_late_pixels(run):
        return late_weights_unfit(run, group, chunk, scratch)
    phase_grid(sample, grid)
    if is_stopped(run) or not nth_tile(&own.tiling, run.problem.batch, grid, 0, &tile):
        return False
    all_phases_halo(sample, &halo)
    block_under(&tile, &halo, &block)
    behind = share_source_zeros(sample, &halo, &block)
    found = pack_amx_pixels(run, &block, behind, group, chunk * AMX_STEPS,
                            min(<int64_t>AMX_STEPS, sample.cout - chunk * AMX_STEPS),
                            <char *>late_rows(run, group, chunk * AMX_STEPS).first, own.positions,
                            local_piece(run, AMX_STAGING, scratch))
    shared_piece(run, AMX_LATE_FOUND)[number] = became_tiny(run, found, UNFIT_GRADIENT)
    return False


cdef void ask_for_weights(const ConvRun *run, int64_t group, int64_t panel, int64_t chunk, int64_t chunks,
                          AmxAhead *ahead) noexcept nogil:
    """Find the lines of the weights of a panel and some chunks of co, where these are rows at even distances. Short
    rows whole pages apart are not asked for: they share cache sets, and would push each other out."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvView *w = &run.problem.view[CONV_WEIGHT]
    cdef int64_t item = itemsize_of(sample.dtype), cis = min(<int64_t>AMX_SIDE, sample.cin - panel * AMX_SIDE)
    cdef int64_t cos = min(chunks * AMX_STEPS, sample.cout - chunk * AMX_STEPS)
    ahead.rows = ahead.row = ahead.bytes = 0
    if sample.folded > 1 or cos <= 0:
        return
    ahead.at = w.data + group * w.group + panel * AMX_SIDE * w.channel + chunk * AMX_STEPS * w.n
    if w.channel == sample.taps * item and taps_in_line(sample, w):
        ahead.rows, ahead.row, ahead.bytes = cos, w.n, cis * w.channel
    elif w.channel == item and taps_lie_evenly(sample, w, w.space[2]) and w.n == sample.taps * w.space[2]:
        ahead.rows, ahead.row, ahead.bytes = cos * sample.taps, w.space[2], cis * item
    if ahead.row % LATE_PAGE == 0 and ahead.bytes < LATE_PAGE:
        ahead.rows = 0


cdef void pack_late_chunk(ConvRun *run, int64_t group, int64_t panel, int64_t chunk, char *to,
                          char *scratch) noexcept nogil:
    """Pack the weights of a panel and a chunk of co; note in the run where they have inf or NaN, and give it up where
    they have float32 numbers out of bounds."""
    cdef bint found = pack_amx_weights(run, group, panel, chunk, to, local_piece(run, AMX_PREPARED, scratch))
    if run.sample.dtype != DTYPE_F32:
        run.nonfinite |= found
    elif found and run.unfit != NULL:
        shared_set(run.unfit, 1)


cdef void multiply_late(ConvRun *run, const AmxPixelSteps *all, int64_t positions, int64_t group, int64_t panel_from,
                        int64_t panels, int64_t co, char *scratch) noexcept nogil:
    """Add the products of some panels and a block of co to those of the blocks before, chain by chain, as
    multiply_amx_pixels does; the weights of a chain are packed just before."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputAmx *own = <const InputAmx *>run.blocking.own
    cdef int64_t each = chain_steps(sample, all.count), places = late_chunks(sample, run.order)
    cdef int64_t step = amx_step_bytes(sample), pitch = late_panel_bytes(sample, run.order)
    cdef int64_t first = co // AMX_STEPS, packed = 0, then, s = 0, p
    cdef char *weights = local_piece(run, AMX_LATE_WEIGHTS, scratch)
    cdef AmxBatchReduce steps
    amx_pixel_steps(sample, &all.rows, &steps)
    while s < all.count:
        steps.a_offset, steps.b_offset, steps.count = all.a_offset + s, all.b_offset + s, min(each, all.count - s)
        while packed < ceil_div(s + steps.count, sample.taps):
            for p in range(panels):
                pack_late_chunk(run, group, panel_from + p, first + packed,
                                weights + p * pitch + packed % places * sample.taps * step, scratch)
            packed += 1
        then = places
        if s + each < all.count:
            then = ceil_div(min(s + 2 * each, all.count), sample.taps) - packed
        for p in range(panels):
            ask_for_weights(run, group, panel_from + p, first + packed, then, &steps.ahead)
            kernels.amx.multiply(&steps, all.rows.first, positions, weights + p * pitch,
                                 min(<int64_t>AMX_SIDE, sample.cin - (panel_from + p) * AMX_SIDE),
                                 local_piece(run, AMX_SUMMED, scratch) + p * own.positions * AMX_SUM_ROW, AMX_SUM_ROW,
                                 AMX_ADD_SUM if co > 0 or s > 0 else AMX_SET)
        s += each
