# grad_input by AMX: rows are ci, columns are positions of a packed block of grad_output, steps are (panel of co, tap,
# co). The phases of a stride are done one after the other over one block.
cdef enum:
    AMX_BLOCK_CHANNELS = 1024    # of grad_output, packed at once
    AMX_TASK_CHANNELS = 512      # ci of a task

    # pieces of scratch; shared:
    AMX_WEIGHTS = 0
    # of a thread:
    AMX_PREPARED = 0
    AMX_PREPARED_PLACES = 1
    AMX_OUTPUT = 2
    AMX_SUMMED = 3
    AMX_STAGING = 4
    AMX_A_OFFSETS = 5
    AMX_B_OFFSETS = 6


ctypedef struct InputAmx:
    Tiling tiling        # of the phases' grid
    int64_t tiles
    int64_t panels       # of AMX_SIDE ci
    int64_t task_panels
    int64_t plane        # pairs, or floats of sums, from channel to channel


cdef void order_input_amx(const SampleGeometry *sample, SumOrder *order) noexcept nogil:
    """Sum blocks of about AMX_BLOCK_CHANNELS co under all taps, one block after the other."""
    cdef int64_t panel = amx_panel(sample, sample.taps) * AMX_STEPS
    order.channels = min(sample.cout, max(<int64_t>1, AMX_BLOCK_CHANNELS // panel) * panel)
    order.taps = sample.taps


cdef int64_t input_amx_pixels(const SampleGeometry *sample, int64_t channels) noexcept nogil:
    """Return the pixels of a tile, where there is no need for more tasks."""
    cdef int64_t task_channels = min(round_up(sample.cin, AMX_SIDE), <int64_t>AMX_TASK_CHANNELS)
    return max(<int64_t>AMX_MIN_PIXELS, min(<int64_t>AMX_MAX_PIXELS,
                                            AMX_INPUT_BYTES // (2 * channels + 4 * task_channels)))


cdef bint accepts_input_amx(const SampleGeometry *sample, const char **why) noexcept nogil:
    cdef int64_t grid[3]
    cdef int64_t positions
    cdef SumOrder order
    cdef Tiling tiling
    if not suits_amx(sample, why):
        return False
    if sample.cin < AMX_MIN_CHANNELS:
        why[0] = b"few input channels to a group would leave most of an instruction empty"
        return False
    order_input_amx(sample, &order)
    phase_grid(sample, grid)
    tile_grid(grid, input_amx_pixels(sample, order.channels), &tiling)
    positions = halo_positions(sample, tiling.extent, AMX_POSITIONS)
    if positions > AMX_POSITIONS or positions > sample.taps * tiling_pixels(&tiling) + 3 * AMX_SIDE:
        why[0] = b"the block that the taps of a tile reach is too large"
        return False
    return True


cdef int64_t cut_input_amx(const ConvProblem *problem, int64_t pixels, InputAmx *own) noexcept nogil:
    """Make tiles of at most `pixels` pixels; return the number of tasks."""
    own.tiles = tile_phases(problem, pixels, AMX_POSITIONS, &own.tiling)
    return problem.sample.groups * ceil_div(own.panels, own.task_panels) * own.tiles


cdef void block_input_amx(const ConvProblem *problem, const SumOrder *order, int gradients, int threads,
                          Blocking *blocking) noexcept nogil:
    """Make the tiles smaller, then the tasks narrower, while there are too few tasks for the threads."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef InputAmx *own = <InputAmx *>blocking.own
    cdef Scratch *local = &blocking.local
    cdef int64_t pixels = input_amx_pixels(sample, order.channels), tasks, offsets
    own.panels = ceil_div(sample.cin, AMX_SIDE)
    own.task_panels = min(own.panels, <int64_t>AMX_TASK_CHANNELS // AMX_SIDE)
    tasks = cut_input_amx(problem, pixels, own)
    while threads > 1 and pixels > AMX_MIN_PIXELS and tasks < 4 * threads:
        pixels //= 2
        tasks = cut_input_amx(problem, pixels, own)
    while threads > 1 and own.task_panels > 1 and tasks < 2 * threads:
        own.task_panels = ceil_div(own.task_panels, 2)
        tasks = sample.groups * ceil_div(own.panels, own.task_panels) * own.tiles
    own.plane = odd_lines(own.tiling.samples * halo_positions(sample, own.tiling.extent, AMX_POSITIONS))
    offsets = ceil_div(order.channels, AMX_STEPS) * sample.taps
    book(&blocking.shared, AMX_WEIGHTS, sample.groups * 2 * own.panels, amx_half_bytes(sample, sample.taps))
    book(local, AMX_PREPARED, AMX_STEPS * AMX_HALF * sample.taps, 2)
    book(local, AMX_PREPARED_PLACES, AMX_HALF * sample.taps, sizeof(int64_t))
    book(local, AMX_OUTPUT, own.plane * round_up(order.channels, AMX_STEPS) + 2 * AMX_SIDE, 2)
    book(local, AMX_SUMMED, own.plane * own.task_panels * AMX_SIDE, 4)
    book(local, AMX_STAGING, staging_elements(sample), 4)
    book(local, AMX_A_OFFSETS, offsets, sizeof(int64_t))
    book(local, AMX_B_OFFSETS, offsets, sizeof(int64_t))
    blocking.prepares = sample.groups * ceil_div(sample.cin, AMX_HALF) * amx_chunks(sample)
    blocking.tasks = tasks


cdef const char *contiguous_weights(const ConvProblem *problem, const char *source, int64_t cis, int64_t cos, char *to,
                                    int64_t *line) noexcept nogil:
    """Find the (ci, tap) of `cos` co from `source` on, each co in a line, copied to `to` where they do not lie so;
    line: bytes from one line to the next."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const ConvView *w = &problem.view[CONV_WEIGHT]
    cdef int64_t kx = sample.axis[2].kernel, co, ci, row
    cdef char *at = to
    line[0] = w.n
    if weights_in_line(sample, w):
        return source
    line[0] = cis * sample.taps * 2
    for co in range(cos):
        for ci in range(cis):
            for row in range(sample.taps // kx):
                kernels.convert[DTYPE_BF16][DTYPE_BF16](source + co * w.n + ci * w.channel
                                                        + tap_offset(sample, w, row * kx), w.space[2], at, 2, kx)
                at += kx * 2
    return to


cdef bint prepare_input_amx(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Pack the cells of unit number (group, 16 ci, chunk of co), under all taps. inf and NaN become tiny; return
    whether there were any."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputAmx *own = <const InputAmx *>run.blocking.own
    cdef const ConvView *w = &run.problem.view[CONV_WEIGHT]
    cdef int64_t chunks = amx_chunks(sample), halves = ceil_div(sample.cin, AMX_HALF), taps = sample.taps, tap, ci, line
    cdef int64_t chunk = number % chunks, half = number // chunks % halves, group = number // chunks // halves
    cdef int64_t cis = min(<int64_t>AMX_HALF, sample.cin - half * AMX_HALF)
    cdef int64_t cos = min(<int64_t>AMX_STEPS, sample.cout - chunk * AMX_STEPS)
    cdef char *cells = shared_piece(run, AMX_WEIGHTS) + (group * 2 * own.panels + half) * amx_half_bytes(sample, taps)
    cdef const char *source = w.data + (group * sample.cout + chunk * AMX_STEPS) * w.n + half * AMX_HALF * w.channel
    cdef int64_t *place = <int64_t *>local_piece(run, AMX_PREPARED_PLACES, scratch)
    cdef bint nonfinite = False
    for tap in range(taps):
        place[tap] = amx_cell(sample, taps, chunk, packed_tap(sample, tap))
        if cis < AMX_HALF or cos < AMX_STEPS:
            memset(cells + place[tap], 0, AMX_CELL)
    for ci in range(1, cis):
        for tap in range(taps):
            place[ci * taps + tap] = place[tap] + ci * AMX_STEPS * 2
    source = contiguous_weights(run.problem, source, cis, cos, local_piece(run, AMX_PREPARED, scratch), &line)
    kernels.transpose_to[DTYPE_BF16](source, line, cells, place, cis * taps, cos)
    for tap in range(taps):
        nonfinite |= kernels.vnni.replace_nonfinite(cells + place[tap], AMX_CELL // 2)
    return nonfinite


cdef void multiply_phase_amx(const ConvRun *run, const Phase *phase, const Box *part, const Box *block,
                             const Halo *halo, int64_t group, int64_t panel_from, int64_t panels, int64_t co,
                             char *scratch, Prefetch *prefetch) noexcept nogil:
    """Add the products of one block of co and a part of one phase to those of the blocks before."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputAmx *own = <const InputAmx *>run.blocking.own
    cdef int64_t taps = sample.taps, positions = positions_of(part, block), panel = amx_panel(sample, taps), p, i, tap
    cdef int64_t at
    cdef int64_t co_panels = ceil_div(min(run.order.channels, sample.cout - co), AMX_STEPS * panel)
    cdef int64_t *a_offset = <int64_t *>local_piece(run, AMX_A_OFFSETS, scratch)
    cdef int64_t *b_offset = <int64_t *>local_piece(run, AMX_B_OFFSETS, scratch)
    cdef char *cells = shared_piece(run, AMX_WEIGHTS) \
        + (group * own.panels + panel_from) * 2 * amx_half_bytes(sample, taps)
    cdef char *b = local_piece(run, AMX_OUTPUT, scratch)
    cdef char *sums = local_piece(run, AMX_SUMMED, scratch)
    cdef int64_t output[3]
    cdef int64_t k[3]
    cdef AmxBatchReduce steps
    amx_input_steps(sample, taps, own.plane, &steps)
    steps.a_offset, steps.b_offset, steps.count = a_offset, b_offset, co_panels * phase.tap_count
    for tap in range(phase.tap_count):
        phase_tap(sample, phase, tap, output, k)
        for i in range(co_panels):
            a_offset[i * phase.tap_count + tap] = amx_cell(sample, taps, co // AMX_STEPS + i * panel,
                                                           phase.first_packed + tap)
            b_offset[i * phase.tap_count + tap] = (i * panel * AMX_STEPS // 2 * own.plane
                                                   + block_offset(block, output, halo.low)) * 4
    for p in range(panels):
        at = 0
        while at < positions:
            prefetch_some(prefetch)
            kernels.amx.multiply(&steps, cells + p * 2 * amx_half_bytes(sample, taps),
                                 min(<int64_t>AMX_SIDE, sample.cin - (panel_from + p) * AMX_SIDE), b + at * 4,
                                 positions - at, sums + (p * AMX_SIDE * own.plane + at) * 4, own.plane * 4, co > 0)
            at += AMX_SIDE


cdef void input_amx_task(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Run task number (group, panels of ci, tile), all phases of it."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputAmx *own = <const InputAmx *>run.blocking.own
    cdef int64_t parts = ceil_div(own.panels, own.task_panels), group = number // own.tiles // parts
    cdef int64_t panel_from = number // own.tiles % parts * own.task_panels
    cdef int64_t panels = min(own.task_panels, own.panels - panel_from)
    cdef int64_t phases = phase_count(sample), p, co, packed = -1
    cdef int64_t grid[3]
    cdef char *staging = local_piece(run, AMX_STAGING, scratch)
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
    prefetch_next_block(run, &own.tiling, &halo, number % own.tiles + 1, group,
                        phases * panels * ceil_div(positions_of(&tile, &block), AMX_SIDE), &prefetch)
    sums.data = local_piece(run, AMX_SUMMED, scratch)
    sums.group, sums.ci_from = group, panel_from * AMX_SIDE
    sums.channels = min(panels * AMX_SIDE, sample.cin - sums.ci_from)
    sums.extent, sums.pixel_pitch, sums.ci_pitch = block.extent, 1, own.plane
    for p in range(phases):
        make_phase(sample, p, &phase)
        if not phase_part(&phase, &tile, &part):
            continue
        if not phase.tap_count:
            memset(sums.data, 0, own.plane * sums.channels * 4)
        co = 0
        while phase.tap_count and co < sample.cout:
            if packed != co:
                pack_amx_output(run, &block, group * sample.cout + co, min(run.order.channels, sample.cout - co),
                                local_piece(run, AMX_OUTPUT, scratch), own.plane, staging)
                packed = co
            multiply_phase_amx(run, &phase, &part, &block, &halo, group, panel_from, panels, co, scratch, &prefetch)
            co += run.order.channels
        if run.nonfinite:
            add_nonfinite_weights(run.problem, &phase, &part, &sums)
        save_planes(run.problem, &phase, &part, &sums, True, staging)


cdef void explain_input_amx(const SampleGeometry *sample, const SumOrder *order, const Blocking *blocking, char *text,
                            size_t size) noexcept nogil:
    cdef const InputAmx *own = <const InputAmx *>blocking.own
    snprintf(text, size, b"products of bfloat16 matrices by AMX: rows are input channels, columns positions of a "
             b"packed block; tiles of %lld x %lld x %lld x %lld pixels, %lld of %lld rows a task",
             <long long>own.tiling.samples, <long long>own.tiling.extent[0], <long long>own.tiling.extent[1],
             <long long>own.tiling.extent[2], <long long>(own.task_panels * AMX_SIDE),
             <long long>(own.panels * AMX_SIDE))


cdef ConvAlgorithm input_amx() noexcept nogil:
    cdef ConvAlgorithm row
    row.name, row.gradients = b"grad_input:amx", FOR_GRAD_INPUT
    row.accepts, row.order, row.block = accepts_input_amx, order_input_amx, block_input_amx
    row.prepare, row.task, row.explain = prepare_input_amx, input_amx_task, explain_input_amx
    return row
