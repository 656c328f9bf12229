# grad_input by AMX for few input channels to a group, its phases fused: columns are (phase, ci), so that the phases of
# a tile, as many as fit an instruction, are one product over one block. A tap is a position of the halo; where a phase
# has no such tap, its weight is 0, which inf and NaN of grad_output may not meet.
cdef enum:
    FUSED_CHANNELS = 1024     # output channels, all packed at once
    FUSED_MIN_TAPS = 25       # where an element is several bfloat16: measured
    FUSED_PANELS = 4          # of phases

    # pieces of scratch; shared:
    FUSED_WEIGHTS = 0
    # of a thread:
    FUSED_PREPARED = 0
    FUSED_OUTPUT = 1
    FUSED_SUMMED = 2
    FUSED_STAGING = 3
    FUSED_A_OFFSETS = 4
    FUSED_B_OFFSETS = 5


ctypedef struct InputAmxFused:
    Tiling tiling        # of the phases' grid
    int64_t tiles
    int64_t positions    # of a block
    int64_t panels       # of phases
    int64_t phases       # of a panel


cdef int64_t fused_panels(const SampleGeometry *sample) noexcept nogil:
    """Count the panels that the phases make, each with all input channels; one where there is nothing."""
    return max(<int64_t>1, ceil_div(phase_count(sample), AMX_SIDE // max(<int64_t>1, sample.cin)))


cdef int64_t halo_taps(const SampleGeometry *sample) noexcept nogil:
    """Count the output pixels that any phase reaches from one step; more than AMX_MAX_TAPS if there are too many."""
    cdef int64_t one[3]
    cdef int d
    for d in range(3):
        one[d] = 1
    return halo_positions(sample, one, AMX_MAX_TAPS)


cdef int64_t input_fused_pixels(const SampleGeometry *sample, Tiling *tiling, int64_t *positions) noexcept nogil:
    """Cut tiles as fit_amx_tiles does; return their pixels, at most."""
    cdef int64_t bytes = amx_element_bytes(sample) * sample.cout + 4 * AMX_SIDE * fused_panels(sample)
    return fit_amx_tiles(sample, bytes, tiling, positions)


cdef bint accepts_input_amx_fused(const SampleGeometry *sample, const char **why) noexcept nogil:
    cdef int64_t positions, phases = phase_count(sample)
    cdef Tiling tiling
    if not suits_amx(sample, why) or not has_few_inputs(sample, why):
        return False
    if sample.parts > 1 and (sample.taps < FUSED_MIN_TAPS or sample.cout < AMX_STEPS):
        why[0] = b"few taps or channels to a group do not pay for taking numbers apart"
        return False
    if sample.parts == 3 and (phases == 1 or sample.axis[0].dilation * sample.axis[1].dilation
                              * sample.axis[2].dilation > 1):
        why[0] = b"without a stride, or with dilation, columns are too empty to pay for taking numbers apart"
        return False
    if sample.cout > FUSED_CHANNELS or fused_panels(sample) > (FUSED_PANELS if sample.parts == 1 else 1):
        why[0] = b"phases of the stride by input channels do not fit few instructions, or output channels are too many"
        return False
    if halo_taps(sample) > AMX_MAX_TAPS or 2 * sample.taps < halo_taps(sample):
        why[0] = b"the taps are too far apart"
        return False
    input_fused_pixels(sample, &tiling, &positions)
    return amx_block_fits(sample, &tiling, positions, why)


cdef void order_input_amx_fused(const SampleGeometry *sample, SumOrder *order) noexcept nogil:
    """Sum all co under all positions of the halo at once."""
    order.channels, order.taps = sample.cout, halo_taps(sample)


cdef void block_input_amx_fused(const ConvProblem *problem, const SumOrder *order, int gradients, int threads,
                                Blocking *blocking) noexcept nogil:
    """Make the tiles smaller while there are too few tasks for the threads, or their blocks are too large."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef InputAmxFused *own = <InputAmxFused *>blocking.own
    cdef Scratch *local = &blocking.local
    cdef int64_t pixels = input_fused_pixels(sample, &own.tiling, &own.positions)
    cdef int64_t steps = amx_chunks(sample) * order.taps
    own.panels = fused_panels(sample)
    own.phases = ceil_div(phase_count(sample), own.panels)
    own.tiles = tile_phases(problem, pixels, AMX_POSITIONS, AMX_POSITIONS, &own.tiling)
    while threads > 1 and pixels > AMX_MIN_PIXELS and sample.groups * own.tiles < 4 * threads:
        pixels //= 2
        own.tiles = tile_phases(problem, pixels, AMX_POSITIONS, AMX_POSITIONS, &own.tiling)
    while pixels > AMX_SIDE and amx_block_is_large(sample, &own.tiling, amx_chunks(sample), own.panels):
        pixels //= 2
        own.tiles = tile_phases(problem, pixels, AMX_POSITIONS, AMX_POSITIONS, &own.tiling)
    blocking.tasks = sample.groups * own.tiles
    own.positions = block_positions(sample, &own.tiling)
    book(&blocking.shared, FUSED_WEIGHTS, sample.groups * own.panels * steps, amx_step_bytes(sample))
    book(local, FUSED_PREPARED, AMX_STEPS * AMX_SIDE, itemsize_of(sample.dtype))
    book(local, FUSED_OUTPUT, own.positions * amx_chunks(sample) * sample.parts, AMX_LINE)
    book(local, FUSED_SUMMED, own.panels * own.positions, AMX_SUM_ROW)
    book(local, FUSED_STAGING, 2 * staging_elements(sample), 4)
    book(local, FUSED_A_OFFSETS, steps, sizeof(int64_t))
    book(local, FUSED_B_OFFSETS, steps, sizeof(int64_t))
    blocking.prepares = sample.groups * own.panels * amx_chunks(sample)


cdef void halo_box(const Halo *halo, Box *box) noexcept nogil:
    """Make the box of the halo's positions of one step."""
    cdef int d
    box.n, box.samples = 0, 1
    for d in range(3):
        box.first[d], box.step[d], box.extent[d] = halo.low[d], 1, 1 + halo.extra[d]


cdef void stage_halo_tap(const ConvRun *run, const char *source, int64_t panel, int64_t tap, int64_t cos,
                         char *staged) noexcept nogil:
    """Copy the weights of some co under a position of the halo as [co][(phase of the panel, ci)], with zeros where a
    phase has no such tap."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputAmxFused *own = <const InputAmxFused *>run.blocking.own
    cdef int64_t first = panel * own.phases
    cdef const ConvView *w = &run.problem.view[CONV_WEIGHT]
    cdef int64_t item = itemsize_of(sample.dtype), p, i, ci
    cdef int64_t output[3]
    cdef int64_t k[3]
    cdef Halo halo
    cdef Box box
    cdef Phase phase
    all_phases_halo(sample, &halo)
    halo_box(&halo, &box)
    memset(staged, 0, AMX_STEPS * AMX_SIDE * item)
    for p in range(first, min(first + own.phases, phase_count(sample))):
        make_phase(sample, p, &phase)
        for i in range(phase.tap_count):
            phase_tap(sample, &phase, i, output, k)
            if block_offset(&box, output, halo.low) != tap:
                continue
            for ci in range(sample.cin):
                kernels.convert[sample.dtype][sample.dtype](
                    source + ci * w.channel + k[0] * w.space[0] + k[1] * w.space[1] + k[2] * w.space[2], w.n,
                    staged + ((p - first) * sample.cin + ci) * item, AMX_SIDE * item, cos)


cdef bint prepare_input_amx_fused(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Pack the weights of unit number (group, panel, chunk of co) under all positions of the halo. inf and NaN become
    tiny; return whether there were any, or float32 numbers out of bounds."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputAmxFused *own = <const InputAmxFused *>run.blocking.own
    cdef const ConvView *w = &run.problem.view[CONV_WEIGHT]
    cdef int64_t chunks = amx_chunks(sample), chunk = number % chunks, tap, half
    cdef int64_t panel = number // chunks % own.panels, group = number // chunks // own.panels
    cdef int64_t cos = min(<int64_t>AMX_STEPS, sample.cout - chunk * AMX_STEPS), item = itemsize_of(sample.dtype)
    cdef const char *source = w.data + group * w.group + chunk * AMX_STEPS * w.n
    cdef char *to = shared_piece(run, FUSED_WEIGHTS) + number * run.order.taps * amx_step_bytes(sample)
    cdef char *staged = local_piece(run, FUSED_PREPARED, scratch)
    cdef bint found = False
    for tap in range(run.order.taps):
        stage_halo_tap(run, source, panel, tap, cos, staged)
        for half in range(2):
            found |= put_weights(run, staged + half * AMX_HALF * item, AMX_SIDE * item, AMX_HALF,
                                 to + half * AMX_CELL)
        to += amx_step_bytes(sample)
    return found


cdef char *fused_phase_sums(const ConvRun *run, int64_t phase, char *scratch) noexcept nogil:
    """Find the sums of a phase: its columns of its panel."""
    cdef const InputAmxFused *own = <const InputAmxFused *>run.blocking.own
    return local_piece(run, FUSED_SUMMED, scratch) + phase // own.phases * own.positions * AMX_SUM_ROW \
        + phase % own.phases * run.sample.cin * 4


cdef void multiply_fused(const ConvRun *run, const Box *tile, const Box *block, const Halo *halo, int64_t group,
                         char *scratch, Prefetch *prefetch) noexcept nogil:
    """Compute the sums of all (phase, ci)."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputAmxFused *own = <const InputAmxFused *>run.blocking.own
    cdef int64_t taps = run.order.taps, chunks = amx_chunks(sample), i, tap, at, panel, phases
    cdef int64_t panel_bytes = chunks * taps * amx_step_bytes(sample)
    cdef const char *weights = shared_piece(run, FUSED_WEIGHTS) + group * own.panels * panel_bytes
    cdef int64_t output[3]
    cdef Box box
    cdef AmxPixelSteps steps
    halo_box(halo, &box)
    steps.a_offset = <int64_t *>local_piece(run, FUSED_A_OFFSETS, scratch)
    steps.b_offset = <int64_t *>local_piece(run, FUSED_B_OFFSETS, scratch)
    steps.count = chunks * taps
    steps.rows = packed_rows(sample, local_piece(run, FUSED_OUTPUT, scratch), own.positions)
    for tap in range(taps):
        output[0] = halo.low[0] + tap // (box.extent[1] * box.extent[2])
        output[1] = halo.low[1] + tap // box.extent[2] % box.extent[1]
        output[2] = halo.low[2] + tap % box.extent[2]
        for i in range(chunks):
            at = i * taps + tap
            steps.a_offset[at] = i * steps.rows.chunk + block_offset(block, output, halo.low) * AMX_LINE
            steps.b_offset[at] = at * amx_step_bytes(sample)
    for panel in range(own.panels):
        phases = min(own.phases, phase_count(sample) - panel * own.phases)
        multiply_amx_pixels(sample, &steps, positions_of(tile, block), weights + panel * panel_bytes,
                            sample.cin * phases, fused_phase_sums(run, panel * own.phases, scratch), False, NULL,
                            own.panels - panel, prefetch)


cdef bint pack_finite_pixels(const ConvRun *run, const Box *block, int64_t behind, int64_t group,
                             char *scratch) noexcept nogil:
    """Pack all co under a tile. inf and NaN become tiny; return whether there were any."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputAmxFused *own = <const InputAmxFused *>run.blocking.own
    cdef char *output = local_piece(run, FUSED_OUTPUT, scratch)
    cdef int found = pack_amx_pixels(run, block, behind, group, 0, sample.cout, output, own.positions,
                                     local_piece(run, FUSED_STAGING, scratch))
    cdef bint nonfinite = became_tiny(run, found, UNFIT_GRADIENT)
    cdef int64_t chunk
    for chunk in range(amx_chunks(sample) if sample.parts == 1 else 0):
        nonfinite |= kernels.vnni.replace_nonfinite(output + chunk * own.positions * AMX_LINE,
                                                    box_positions(block) * AMX_STEPS)
    return nonfinite


cdef void input_amx_fused_task(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Run task number (group, tile)."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputAmxFused *own = <const InputAmxFused *>run.blocking.own
    cdef int64_t group = number // own.tiles, p, behind
    cdef int64_t grid[3]
    cdef bint nonfinite_output
    cdef Box tile, block, part
    cdef Halo halo
    cdef Phase phase
    cdef InputSums sums
    cdef Prefetch prefetch
    phase_grid(sample, grid)
    if not nth_tile(&own.tiling, run.problem.batch, grid, number % own.tiles, &tile):
        return
    all_phases_halo(sample, &halo)
    block_under(&tile, &halo, &block)
    behind = share_source_zeros(sample, &halo, &block)
    nonfinite_output = pack_finite_pixels(run, &block, behind, group, scratch)
    prefetch_next_block(run, &own.tiling, &halo, number % own.tiles + 1, group,
                        own.panels * ceil_div(positions_of(&tile, &block), AMX_SIDE), &prefetch)
    multiply_fused(run, &tile, &block, &halo, group, scratch, &prefetch)
    sums.group, sums.ci_from, sums.channels = group, 0, sample.cin
    memcpy(sums.extent, block.extent, sizeof(sums.extent))
    sums.pixel_pitch, sums.ci_pitch = AMX_SIDE, 1
    for p in range(phase_count(sample)):
        make_phase(sample, p, &phase)
        if not phase_part(&phase, &tile, &part):
            continue
        sums.data = fused_phase_sums(run, p, scratch)
        if run.nonfinite:
            add_nonfinite_weights(run.problem, &phase, &part, &sums)
        if nonfinite_output:
            add_nonfinite_outputs(run.problem, &phase, &part, &sums)
        save_positions(run.problem, &phase, &part, &sums, local_piece(run, FUSED_STAGING, scratch))


cdef void explain_input_amx_fused(const SampleGeometry *sample, const SumOrder *order, const Blocking *blocking,
                                  char *text, size_t size) noexcept nogil:
    cdef const InputAmxFused *own = <const InputAmxFused *>blocking.own
    snprintf(text, size, b"products of matrices by AMX, of %lld bfloat16 to a number: rows are positions of a packed "
             b"block, columns %lld phases of the stride by %lld input channels; tiles of %lld x %lld x %lld x %lld "
             b"pixels", <long long>sample.parts, <long long>phase_count(sample), <long long>sample.cin,
             <long long>own.tiling.samples,
             <long long>own.tiling.extent[0], <long long>own.tiling.extent[1], <long long>own.tiling.extent[2])


cdef ConvAlgorithm input_amx_fused() noexcept nogil:
    cdef ConvAlgorithm row
    row.name, row.gradients = b"grad_input:amx_fused", FOR_GRAD_INPUT
    row.accepts, row.order, row.block = accepts_input_amx_fused, order_input_amx_fused, block_input_amx_fused
    row.prepare, row.task, row.explain = prepare_input_amx_fused, input_amx_fused_task, explain_input_amx_fused
    return row
