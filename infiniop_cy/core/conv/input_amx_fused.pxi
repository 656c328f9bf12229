# grad_input by AMX for few input channels to a group, its phases fused: rows are (phase, ci), so that all phases of a
# tile are one product over one block. A tap is a position of the halo; where a phase has no such tap, its weight is 0,
# which inf and NaN of grad_output may not meet.
cdef enum:
    FUSED_CHANNELS = 1024     # output channels, all packed at once

    # pieces of scratch; shared:
    FUSED_WEIGHTS = 0
    # of a thread:
    FUSED_OUTPUT = 0
    FUSED_SUMMED = 1
    FUSED_STAGING = 2
    FUSED_A_OFFSETS = 3
    FUSED_B_OFFSETS = 4


ctypedef struct InputAmxFused:
    Tiling tiling        # of the phases' grid
    int64_t tiles
    int64_t plane        # pairs, or floats of sums, from row to row


cdef int64_t halo_taps(const SampleGeometry *sample) noexcept nogil:
    """Count the output pixels that any phase reaches from one step; more than AMX_MAX_TAPS if there are too many."""
    cdef int64_t one[3]
    cdef int d
    for d in range(3):
        one[d] = 1
    return halo_positions(sample, one, AMX_MAX_TAPS)


cdef bint accepts_input_amx_fused(const SampleGeometry *sample, const char **why) noexcept nogil:
    cdef int64_t grid[3]
    cdef int64_t positions, phases = phase_count(sample)
    cdef Tiling tiling
    if not suits_amx(sample, why):
        return False
    if sample.cout > FUSED_CHANNELS or sample.cin >= AMX_MIN_CHANNELS or phases > AMX_SIDE \
            or phases * sample.cin > AMX_SIDE:
        why[0] = b"phases of the stride by input channels do not fit an instruction, or output channels are too many"
        return False
    if halo_taps(sample) > AMX_MAX_TAPS or 2 * sample.taps < halo_taps(sample):
        why[0] = b"the taps are too far apart"
        return False
    phase_grid(sample, grid)
    tile_grid(grid, input_fused_pixels(sample), &tiling)
    positions = halo_positions(sample, tiling.extent, AMX_POSITIONS)
    if positions > AMX_POSITIONS or positions > sample.taps * tiling_pixels(&tiling) + 3 * AMX_SIDE:
        why[0] = b"the block that the taps of a tile reach is too large"
        return False
    return True


cdef int64_t input_fused_pixels(const SampleGeometry *sample) noexcept nogil:
    """Return the pixels of a tile, where there is no need for more tasks."""
    return max(<int64_t>AMX_MIN_PIXELS, min(<int64_t>AMX_MAX_PIXELS,
                                            <int64_t>AMX_INPUT_BYTES // (2 * sample.cout + 4 * AMX_SIDE)))


cdef void order_input_amx_fused(const SampleGeometry *sample, SumOrder *order) noexcept nogil:
    """Sum all co under all positions of the halo at once."""
    order.channels, order.taps = sample.cout, halo_taps(sample)


cdef void block_input_amx_fused(const ConvProblem *problem, const SumOrder *order, int gradients, int threads,
                                Blocking *blocking) noexcept nogil:
    """Make the tiles smaller while there are too few tasks for the threads."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef InputAmxFused *own = <InputAmxFused *>blocking.own
    cdef Scratch *local = &blocking.local
    cdef int64_t pixels = input_fused_pixels(sample), offsets = amx_chunks(sample) * order.taps
    own.tiles = tile_phases(problem, pixels, AMX_POSITIONS, &own.tiling)
    while threads > 1 and pixels > AMX_MIN_PIXELS and sample.groups * own.tiles < 4 * threads:
        pixels //= 2
        own.tiles = tile_phases(problem, pixels, AMX_POSITIONS, &own.tiling)
    blocking.tasks = sample.groups * own.tiles
    own.plane = odd_lines(own.tiling.samples * halo_positions(sample, own.tiling.extent, AMX_POSITIONS))
    book(&blocking.shared, FUSED_WEIGHTS, sample.groups * 2, amx_half_bytes(sample, order.taps))
    book(local, FUSED_OUTPUT, own.plane * round_up(sample.cout, AMX_STEPS) + 2 * AMX_SIDE, 2)
    book(local, FUSED_SUMMED, own.plane * AMX_SIDE, 4)
    book(local, FUSED_STAGING, staging_elements(sample), 4)
    book(local, FUSED_A_OFFSETS, offsets, sizeof(int64_t))
    book(local, FUSED_B_OFFSETS, offsets, sizeof(int64_t))
    blocking.prepares = sample.groups * ceil_div(sample.cin * phase_count(sample), AMX_HALF) * amx_chunks(sample)


cdef void halo_box(const Halo *halo, Box *box) noexcept nogil:
    """Make the box of the halo's positions of one step."""
    cdef int d
    box.n, box.samples = 0, 1
    for d in range(3):
        box.first[d], box.step[d], box.extent[d] = halo.low[d], 1, 1 + halo.extra[d]


cdef bint prepare_input_amx_fused(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Pack the cells of unit number (group, 16 of (phase, ci), chunk of co), with zeros under taps that a phase lacks.
    inf and NaN become tiny; return whether there were any."""
    cdef const SampleGeometry *sample = run.sample
    cdef const ConvView *w = &run.problem.view[CONV_WEIGHT]
    cdef int64_t rows = sample.cin * phase_count(sample), halves = ceil_div(rows, AMX_HALF), chunks = amx_chunks(sample)
    cdef int64_t chunk = number % chunks, half = number // chunks % halves, group = number // chunks // halves
    cdef int64_t taps = run.order.taps
    cdef int64_t cos = min(<int64_t>AMX_STEPS, sample.cout - chunk * AMX_STEPS), tap, row
    cdef char *cells = shared_piece(run, FUSED_WEIGHTS) + (group * 2 + half) * amx_half_bytes(sample, taps)
    cdef const char *source = w.data + (group * sample.cout + chunk * AMX_STEPS) * w.n
    cdef char *cell
    cdef int64_t output[3]
    cdef int64_t k[3]
    cdef Halo halo
    cdef Box box
    cdef Phase phase
    cdef bint nonfinite = False
    all_phases_halo(sample, &halo)
    halo_box(&halo, &box)
    for tap in range(taps):
        memset(cells + amx_cell(sample, taps, chunk, tap), 0, AMX_CELL)
    for row in range(half * AMX_HALF, min(half * AMX_HALF + AMX_HALF, rows)):
        make_phase(sample, row // sample.cin, &phase)
        for tap in range(phase.tap_count):
            phase_tap(sample, &phase, tap, output, k)
            cell = cells + amx_cell(sample, taps, chunk, block_offset(&box, output, halo.low)) \
                + row % AMX_HALF * AMX_STEPS * 2
            kernels.convert[DTYPE_BF16][DTYPE_BF16](
                source + row % sample.cin * w.channel + k[0] * w.space[0] + k[1] * w.space[1] + k[2] * w.space[2],
                w.n, cell, 2, cos)
            nonfinite |= kernels.vnni.replace_nonfinite(cell, cos)
    return nonfinite


cdef void multiply_fused(const ConvRun *run, const Box *tile, const Box *block, const Halo *halo, int64_t group,
                         char *scratch, Prefetch *prefetch) noexcept nogil:
    """Compute the sums of all (phase, ci)."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputAmxFused *own = <const InputAmxFused *>run.blocking.own
    cdef int64_t taps = run.order.taps, positions = positions_of(tile, block), panel = amx_panel(sample, taps), i, tap
    cdef int64_t at = 0
    cdef int64_t panels = amx_chunks(sample) // panel, rows = sample.cin * phase_count(sample)
    cdef int64_t *a_offset = <int64_t *>local_piece(run, FUSED_A_OFFSETS, scratch)
    cdef int64_t *b_offset = <int64_t *>local_piece(run, FUSED_B_OFFSETS, scratch)
    cdef char *cells = shared_piece(run, FUSED_WEIGHTS) + group * 2 * amx_half_bytes(sample, taps)
    cdef int64_t output[3]
    cdef Box box
    cdef AmxBatchReduce steps
    halo_box(halo, &box)
    amx_input_steps(sample, taps, own.plane, &steps)
    steps.a_offset, steps.b_offset, steps.count = a_offset, b_offset, panels * taps
    for tap in range(taps):
        output[0] = halo.low[0] + tap // (box.extent[1] * box.extent[2])
        output[1] = halo.low[1] + tap // box.extent[2] % box.extent[1]
        output[2] = halo.low[2] + tap % box.extent[2]
        for i in range(panels):
            a_offset[i * taps + tap] = amx_cell(sample, taps, i * panel, tap)
            b_offset[i * taps + tap] = (i * panel * AMX_STEPS // 2 * own.plane
                                        + block_offset(block, output, halo.low)) * 4
    while at < positions:
        prefetch_some(prefetch)
        kernels.amx.multiply(&steps, cells, rows, local_piece(run, FUSED_OUTPUT, scratch) + at * 4, positions - at,
                             local_piece(run, FUSED_SUMMED, scratch) + at * 4, own.plane * 4, False)
        at += AMX_SIDE


cdef void input_amx_fused_task(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Run task number (group, tile)."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputAmxFused *own = <const InputAmxFused *>run.blocking.own
    cdef int64_t group = number // own.tiles, p, i
    cdef int64_t grid[3]
    cdef char *output = local_piece(run, FUSED_OUTPUT, scratch)
    cdef char *staging = local_piece(run, FUSED_STAGING, scratch)
    cdef bint nonfinite_output = False
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
    pack_amx_output(run, &block, group * sample.cout, sample.cout, output, own.plane, staging)
    for i in range(ceil_div(sample.cout, 2)):
        nonfinite_output |= kernels.vnni.replace_nonfinite(output + i * own.plane * 4, 2 * box_positions(&block))
    prefetch_next_block(run, &own.tiling, &halo, number % own.tiles + 1, group,
                        ceil_div(positions_of(&tile, &block), AMX_SIDE), &prefetch)
    multiply_fused(run, &tile, &block, &halo, group, scratch, &prefetch)
    sums.group, sums.ci_from, sums.channels = group, 0, sample.cin
    sums.extent, sums.pixel_pitch, sums.ci_pitch = block.extent, 1, own.plane
    for p in range(phase_count(sample)):
        make_phase(sample, p, &phase)
        if not phase_part(&phase, &tile, &part):
            continue
        sums.data = local_piece(run, FUSED_SUMMED, scratch) + p * sample.cin * own.plane * 4
        if run.nonfinite:
            add_nonfinite_weights(run.problem, &phase, &part, &sums)
        if nonfinite_output:
            add_nonfinite_outputs(run.problem, &phase, &part, &sums)
        save_planes(run.problem, &phase, &part, &sums, True, staging)


cdef void explain_input_amx_fused(const SampleGeometry *sample, const SumOrder *order, const Blocking *blocking,
                                  char *text, size_t size) noexcept nogil:
    cdef const InputAmxFused *own = <const InputAmxFused *>blocking.own
    snprintf(text, size, b"products of bfloat16 matrices by AMX: rows are %lld phases of the stride by %lld input "
             b"channels, columns positions of a packed block; tiles of %lld x %lld x %lld x %lld pixels",
             <long long>phase_count(sample), <long long>sample.cin, <long long>own.tiling.samples,
             <long long>own.tiling.extent[0], <long long>own.tiling.extent[1], <long long>own.tiling.extent[2])


cdef ConvAlgorithm input_amx_fused() noexcept nogil:
    cdef ConvAlgorithm row
    row.name, row.gradients = b"grad_input:amx_fused", FOR_GRAD_INPUT
    row.accepts, row.order, row.block = accepts_input_amx_fused, order_input_amx_fused, block_input_amx_fused
    row.prepare, row.task, row.explain = prepare_input_amx_fused, input_amx_fused_task, explain_input_amx_fused
    return row
