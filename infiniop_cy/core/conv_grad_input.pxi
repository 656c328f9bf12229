# grad_input: rows are the input pixels of a tile, columns are ci, and the steps go through (block of co, tap, co) of
# grad_output, packed with its channels side by side, and of the weights, packed once for all tiles.

cdef void add_nonfinite(const ConvPlan *plan, int64_t group, const Phase *phase, const Box *tile, const Box *block,
                        int64_t ci_from, int64_t channels, char *sums, int64_t pixel_pitch, int64_t ci_pitch) noexcept nogil:
    """Add the products with inf and NaN weights, which pack_weight left out, where they really exist. The sums are laid
    out as the positions of the block."""
    cdef const ConvView *w = &plan.view[CONV_WEIGHT]
    cdef const ConvView *g = &plan.view[CONV_GRAD_OUTPUT]
    cdef int64_t tap, co, ci, n, z, y, x, pixel
    cdef int64_t base[3]
    cdef int64_t k[3]
    cdef int64_t o[3]
    cdef double weight
    for tap in range(phase.tap_count):
        tap_base(plan, phase, tap, base, k)
        for co in range(plan.cout):
            for ci in range(channels):
                weight = load_one(plan, w.data + (group * plan.cout + co) * w.n + (ci_from + ci) * w.channel
                                  + k[0] * w.space[0] + k[1] * w.space[1] + k[2] * w.space[2])
                if weight - weight == 0:
                    continue
                for n in range(tile.samples):
                    for z in range(tile.extent[0]):
                        for y in range(tile.extent[1]):
                            for x in range(tile.extent[2]):
                                pixel = ((n * block.extent[0] + z) * block.extent[1] + y) * block.extent[2] + x
                                o[0], o[1] = tile.first[0] + z + base[0], tile.first[1] + y + base[1]
                                o[2] = tile.first[2] + x + base[2]
                                if 0 <= o[0] < plan.size_out[0] and 0 <= o[1] < plan.size_out[1] and 0 <= o[2] < plan.size_out[2]:
                                    add_to(plan, sums + (pixel * pixel_pitch + ci * ci_pitch) * plan.item, weight * load_one(
                                        plan, g.data + (tile.n + n) * g.n + (group * plan.cout + co) * g.channel + o[0] * g.space[0]
                                        + o[1] * g.space[1] + o[2] * g.space[2]))


cdef void save_pixels(const ConvPlan *plan, const char *sums, int64_t pitch, int64_t pixels, int64_t channels, char *out,
                      int64_t step, int64_t channel, char *stage) noexcept nogil:
    """A row of `pixels` sums, [pixel][pitch], to pixels `step` and channels `channel` bytes apart, or added to them."""
    cdef int64_t item = plan.item, lanes = kernels.gemm[plan.compute].lanes, first, n, c, i
    cdef char *row
    if step == item and plan.dtype == plan.compute and not plan.accumulate:
        kernels.transpose[plan.compute](sums, pitch * item, out, channel, channels, pixels)
        return
    if channel == itemsize_of(plan.dtype) and not plan.accumulate:
        for i in range(pixels):
            plan.save(sums + i * pitch * item, item, out + i * step, channel, channels)
        return
    first = 0
    while first < pixels:
        n = min(<int64_t>CONV_STAGE // 2, pixels - first)
        c = 0
        while c < channels:
            kernels.transpose[plan.compute](sums + (first * pitch + c) * item, pitch * item, stage, CONV_STAGE_LINE * item,
                                            min(lanes, channels - c), n)
            for i in range(min(lanes, channels - c)):
                row = stage + i * CONV_STAGE_LINE * item
                if plan.accumulate:  # into the row's second half
                    plan.load(out + (c + i) * channel + first * step, step, row + CONV_STAGE // 2 * item, item, n)
                    add_values(plan, row + CONV_STAGE // 2 * item, row, n)
                plan.save(row, item, out + (c + i) * channel + first * step, step, n)
            c += lanes
        first += CONV_STAGE // 2


cdef char *tile_row(const ConvPlan *plan, int64_t group, const Phase *phase, const Box *tile, int64_t ci, int64_t n, int64_t z,
                    int64_t y) noexcept nogil:
    """Where a row of a tile begins in grad_input."""
    cdef const ConvView *out = &plan.view[CONV_GRAD_INPUT]
    return out.data + (tile.n + n) * out.n + (group * plan.cin + ci) * out.channel \
        + (phase.first[0] + (tile.first[0] + z) * plan.stride[0]) * out.space[0] \
        + (phase.first[1] + (tile.first[1] + y) * plan.stride[1]) * out.space[1] \
        + (phase.first[2] + tile.first[2] * plan.stride[2]) * out.space[2]


cdef void save_grad_input(const ConvPlan *plan, int64_t group, const Phase *phase, const Box *tile, int64_t ci_from,
                          int64_t channels, const char *sums, int64_t pitch, char *stage) noexcept nogil:
    cdef const ConvView *out = &plan.view[CONV_GRAD_INPUT]
    cdef int64_t n, z, y, rows = tile.extent[1], pixels = tile.extent[2], step = plan.stride[2] * out.space[2]
    if tile.extent[2] == plan.size_in[2] and out.space[1] * plan.stride[1] == tile.extent[2] * step:  # one row
        rows, pixels = 1, pixels * rows
    for n in range(tile.samples):
        for z in range(tile.extent[0]):
            for y in range(rows):
                save_pixels(plan, sums, pitch, pixels, channels, tile_row(plan, group, phase, tile, ci_from, n, z, y), step,
                            out.channel, stage)
                sums += pixels * pitch * plan.item


cdef void tile_rows(const Box *tile, const Box *block, int64_t scale, int64_t *row) noexcept nogil:
    """Where each pixel of the tile lies in the block, in units of `scale`."""
    cdef int64_t n, z, y, x, i = 0
    for n in range(tile.samples):
        for z in range(tile.extent[0]):
            for y in range(tile.extent[1]):
                for x in range(tile.extent[2]):
                    row[i] = (((n * block.extent[0] + z) * block.extent[1] + y) * block.extent[2] + x) * scale
                    i += 1
    repeat_last(row, i)


cdef void phase_block(const ConvPlan *plan, const Phase *phase, const Box *tile, Box *block, int64_t *low) noexcept nogil:
    """The grad_output positions that the phase's taps reach from a tile; low: the least tap_base along each axis."""
    cdef int64_t base[3]
    cdef int64_t k[3]
    cdef int64_t tap
    cdef int d
    block[0] = tile[0]
    low[0] = low[1] = low[2] = 0
    for tap in range(phase.tap_count):
        tap_base(plan, phase, tap, base, k)
        for d in range(3):
            low[d] = min(low[d], base[d]) if tap else base[d]
            block.extent[d] = max(block.extent[d], base[d] + tile.extent[d]) if tap else base[d] + tile.extent[d]
    for d in range(3):
        block.first[d] = tile.first[d] + low[d]
        block.extent[d] -= low[d]


cdef void phases_reach(const ConvPlan *plan, Box *reach, int64_t *low) noexcept nogil:
    """The grad_output positions that any phase reaches from one pixel; low: the least tap_base along each axis."""
    cdef Phase phase
    cdef Box pixel, one
    cdef int64_t one_low[3]
    cdef int64_t high[3]
    cdef int64_t number
    cdef bint any_taps = False
    cdef int d
    pixel.n, pixel.samples = 0, 1
    for d in range(3):
        pixel.first[d], pixel.step[d], pixel.extent[d] = 0, 1, 1
        low[d], high[d] = 0, 1
    for number in range(phase_count(plan)):
        make_phase(plan, number, &phase)
        if not phase.tap_count:
            continue
        phase_block(plan, &phase, &pixel, &one, one_low)
        for d in range(3):
            high[d] = max(high[d], one_low[d] + one.extent[d]) if any_taps else one_low[d] + one.extent[d]
            low[d] = min(low[d], one_low[d]) if any_taps else one_low[d]
        any_taps = True
    reach[0] = pixel
    for d in range(3):
        reach.first[d], reach.extent[d] = low[d], high[d] - low[d]


cdef void block_under(const Box *tile, const Box *reach, Box *block) noexcept nogil:
    """The positions that all phases reach from a tile."""
    cdef int d
    block[0] = tile[0]
    for d in range(3):
        block.first[d] += reach.first[d]
        block.extent[d] += reach.extent[d] - 1


cdef void phases_grid(const ConvPlan *plan, int64_t *size) noexcept nogil:
    """Pixels of the largest phase along each axis."""
    cdef int d
    for d in range(3):
        size[d] = pieces(plan.size_in[d], plan.stride[d])


cdef bint phase_part(const Phase *phase, const Box *tile, Box *part) noexcept nogil:
    """A tile of the phases' grid without what lies outside of this one; whether anything is left."""
    cdef bint left = True
    cdef int d
    part[0] = tile[0]
    for d in range(3):
        part.extent[d] = min(tile.extent[d], phase.size[d] - tile.first[d])
        left = left and part.extent[d] > 0
    return left


cdef int64_t tap_shift(const Box *block, const int64_t *base, const int64_t *low) noexcept nogil:
    """Positions of the block from a pixel at low to the one at base."""
    return ((base[0] - low[0]) * block.extent[1] + base[1] - low[1]) * block.extent[2] + base[2] - low[2]


cdef void grad_input_tile(const ConvPlan *plan, int64_t group, int64_t phase_number, int64_t number, int64_t sliver_from,
                          char *packed, bint nonfinite, char *scratch) noexcept nogil:
    """One tile of input pixels by the channels of some slivers."""
    cdef const ConvCut *cut = &plan.for_input
    cdef const ConvView *g = &plan.view[CONV_GRAD_OUTPUT]
    cdef const GemmTile *wide = wide_tile(plan, cut, cut.pairs)
    cdef int64_t item = plan.item, pitch = round_up(cut.channels, kernels.gemm[plan.compute].lanes)
    cdef int64_t slivers = min(cut.task_slivers, cut.slivers - sliver_from), c_row = slivers * cut.columns
    cdef int64_t ci_from = sliver_from * cut.columns, channels = min(c_row, plan.cin - ci_from)
    cdef int64_t co, count, tap, taps, t, s, pixels, calls
    cdef int64_t low[3]
    cdef int64_t base[3]
    cdef int64_t k[3]
    cdef Box tile, block, next
    cdef Ahead ahead
    cdef Phase phase
    cdef GemmSteps steps
    cdef char *a = take(&scratch, scratch_bytes(plan, (cut.positions if cut.shifted else cut.pixels * cut.taps) * pitch))
    cdef char *sums = take(&scratch, scratch_bytes(plan, (cut.pixels + CONV_ROWS) * cut.task_slivers * cut.columns))
    cdef char *stage = take(&scratch, stage_bytes(plan))
    cdef int64_t *place = <int64_t *>take(&scratch, table_bytes(max(cut.positions, cut.pixels)))
    cdef int64_t *row = <int64_t *>take(&scratch, table_bytes(cut.pixels + CONV_ROWS))
    cdef int64_t *a_segment = <int64_t *>take(&scratch, table_bytes(cut.taps))
    cdef int64_t *b_segment = <int64_t *>take(&scratch, table_bytes(cut.taps))
    cdef int d
    cdef uint64_t float_state
    make_phase(plan, phase_number, &phase)
    if not nth_tile(cut, plan.batch, phase.size, number, &tile):
        return
    float_state = enter_float_state()
    pixels = box_size(&tile)
    block = tile
    if cut.shifted:
        phase_block(plan, &phase, &tile, &block, low)
        tile_rows(&tile, &block, pitch, row)
    else:
        low[0] = low[1] = low[2] = 0
        tile_rows(&tile, &tile, cut.taps * pitch, row)
    memset(sums, 0, pixels * c_row * item)
    steps.a_segment, steps.b_segment = a_segment, b_segment
    steps.a_step, steps.b_step = 2 if cut.pairs else 1, cut.columns
    co = 0
    while phase.tap_count and co < plan.cout:
        count = min(cut.channels, plan.cout - co)
        steps.length = pieces(count, 2) if cut.pairs else count
        if cut.shifted:
            pack_channels(plan, g, plan.size_out, &block, group * plan.cout + co, count, a, pitch, cut.pairs, stage, place)
        calls = pieces(phase.tap_count, cut.taps) * slivers * pieces(pixels, wide.rows)
        if co + cut.channels < plan.cout:
            look_ahead(plan, g, plan.size_out, &block, group * plan.cout + co + cut.channels,
                       min(cut.channels, plan.cout - co - cut.channels), calls, &ahead)
        elif nth_tile(cut, plan.batch, phase.size, number + 1, &next):
            for d in range(3):
                next.first[d] += low[d]
                next.extent[d] += block.extent[d] - tile.extent[d]
            look_ahead(plan, g, plan.size_out, &next, group * plan.cout, min(cut.channels, plan.cout), calls, &ahead)
        else:
            ahead.channels = 0
        tap = 0
        while tap < phase.tap_count:
            taps = steps.segments = min(cut.taps, phase.tap_count - tap)
            for t in range(taps):
                tap_base(plan, &phase, tap + t, base, k)
                b_segment[t] = t * steps.length * cut.columns
                if cut.shifted:
                    a_segment[t] = tap_shift(&block, base, low) * pitch
                else:
                    a_segment[t] = t * pitch
                    for d in range(3):
                        block.first[d] = tile.first[d] + base[d]
                    pack_channels(plan, g, plan.size_out, &block, group * plan.cout + co, count,
                                  a + t * pitch * (2 if cut.pairs else item), cut.taps * pitch, cut.pairs, stage, place)
            for s in range(slivers):
                multiply(plan, wide, &steps, a, row, pixels,
                         packed_panel(plan, packed, group, sliver_from + s, co)
                         + (phase.tap_offset + tap) * steps.length * cut.columns * item,
                         sums + s * cut.columns * item, c_row, False, &ahead)
            tap += cut.taps
        co += cut.channels
    if nonfinite:
        add_nonfinite(plan, group, &phase, &tile, &tile, ci_from, channels, sums, c_row, 1)
    save_grad_input(plan, group, &phase, &tile, ci_from, channels, sums, c_row, stage)
    leave_float_state(float_state)


cdef void turn_across(const ConvPlan *plan, int64_t group, const Phase *phase, const Box *tile, const Box *block, int64_t ci_from,
                      int64_t channels, const char *sums, int64_t pitch, char *stage) noexcept nogil:
    """[ci][position] sums to grad_input, or added to it, where its channels lie side by side."""
    cdef const ConvView *out = &plan.view[CONV_GRAD_INPUT]
    cdef int64_t item = plan.item, lanes = kernels.gemm[plan.compute].lanes, step = plan.stride[2] * out.space[2]
    cdef int64_t row, n, z, y, x, c, i, count, many
    cdef char *to
    cdef char *pixel
    for row in range(tile.samples * tile.extent[0] * tile.extent[1]):
        n, z, y = row // (tile.extent[0] * tile.extent[1]), row // tile.extent[1] % tile.extent[0], row % tile.extent[1]
        to = tile_row(plan, group, phase, tile, ci_from, n, z, y)
        x = 0
        while x < tile.extent[2]:
            count = min(<int64_t>CONV_STAGE // 2, tile.extent[2] - x)
            c = 0
            while c < channels:
                many = min(lanes, channels - c)
                kernels.transpose[plan.compute](
                    sums + (c * pitch + ((n * block.extent[0] + z) * block.extent[1] + y) * block.extent[2] + x) * item,
                    pitch * item, stage, lanes * item, count, many)
                if plan.for_input.amx and not plan.accumulate:
                    kernels.amx.narrow_rows(stage, lanes * item, to + x * step + c * out.channel, step, count, many)
                else:
                    for i in range(count):
                        pixel = stage + i * lanes * item
                        if plan.accumulate:
                            plan.load(to + (x + i) * step + c * out.channel, out.channel, stage + count * lanes * item, item, many)
                            add_values(plan, stage + count * lanes * item, pixel, many)
                        plan.save(pixel, item, to + (x + i) * step + c * out.channel, out.channel, many)
                c += lanes
            x += count


cdef void save_across(const ConvPlan *plan, int64_t group, const Phase *phase, const Box *tile, const Box *block, int64_t ci_from,
                      int64_t channels, char *sums, int64_t pitch, char *stage) noexcept nogil:
    """[ci][position] sums to grad_input, or added to it."""
    cdef const ConvView *out = &plan.view[CONV_GRAD_INPUT]
    cdef int64_t item = plan.item, step = plan.stride[2] * out.space[2], ci, n, z, y, x, count
    cdef char *to
    cdef char *row
    if out.channel == itemsize_of(plan.dtype) and step != out.channel and channels > 1:
        turn_across(plan, group, phase, tile, block, ci_from, channels, sums, pitch, stage)
        return
    cdef bint narrow = plan.for_input.amx and step == itemsize_of(plan.dtype) and not plan.accumulate
    for ci in range(channels):
        for n in range(tile.samples):
            for z in range(tile.extent[0]):
                if narrow:
                    kernels.amx.narrow_rows(
                        sums + (ci * pitch + (n * block.extent[0] + z) * block.extent[1] * block.extent[2]) * item,
                        block.extent[2] * item, tile_row(plan, group, phase, tile, ci_from + ci, n, z, 0), plan.stride[1] * out.space[1], tile.extent[1], tile.extent[2])
                    continue
                for y in range(tile.extent[1]):
                    row = sums + (ci * pitch + ((n * block.extent[0] + z) * block.extent[1] + y) * block.extent[2]) * item
                    to = tile_row(plan, group, phase, tile, ci_from + ci, n, z, y)
                    x = 0
                    while plan.accumulate and x < tile.extent[2]:
                        count = min(<int64_t>CONV_STAGE, tile.extent[2] - x)
                        plan.load(to + x * step, step, stage, item, count)
                        add_values(plan, stage, row + x * item, count)
                        x += CONV_STAGE
                    plan.save(row, item, to, step, tile.extent[2])


cdef const GemmTile *across_tile(const ConvPlan *plan) noexcept nogil:
    if plan.for_input.pairs and plan.cin == 1:
        return &kernels.pairs.line
    if plan.for_input.pairs:
        return &kernels.pairs.flat
    if plan.cin == 1:
        return &kernels.gemm[plan.compute].line
    return &kernels.gemm[plan.compute].flat


cdef void grad_input_across(const ConvPlan *plan, int64_t group, int64_t number, char *packed, bint nonfinite,
                            char *scratch) noexcept nogil:
    """One tile, in all phases, for few ci: they are the rows, and the columns are positions of the block, those between the
    pixels too."""
    cdef const ConvCut *cut = &plan.for_input
    cdef const ConvView *g = &plan.view[CONV_GRAD_OUTPUT]
    cdef const GemmTiles *tiles = &kernels.gemm[plan.compute]
    cdef const GemmTile *kernel = across_tile(plan)
    cdef int64_t item = plan.item, plane = plane_pitch(cut), pitch = across_pitch(plan), width = kernel.vectors * tiles.lanes
    cdef int64_t units = 2 if cut.pairs else 1, rows = cut.slivers * cut.columns, co, count, tap, t, s, at, p
    cdef int64_t low[3]
    cdef int64_t base[3]
    cdef int64_t k[3]
    cdef int64_t size[3]
    cdef int64_t row[CONV_ROWS]
    cdef Box tile, reach, block, part
    cdef Phase phase
    cdef GemmSteps steps
    cdef char *b = take(&scratch, scratch_bytes(plan, plane * cut.channels + across_width(tiles)))
    cdef char *sums = take(&scratch, scratch_bytes(plan, phase_count(plan) * pitch * rows))
    cdef char *stage = take(&scratch, stage_bytes(plan))
    cdef int64_t *a_segment = <int64_t *>take(&scratch, table_bytes(cut.taps))
    cdef int64_t *b_segment = <int64_t *>take(&scratch, table_bytes(cut.taps))
    cdef char *sum
    cdef uint64_t float_state
    phases_grid(plan, size)
    if not nth_tile(cut, plan.batch, size, number, &tile):
        return
    float_state = enter_float_state()
    phases_reach(plan, &reach, low)
    block_under(&tile, &reach, &block)
    memset(sums, 0, phase_count(plan) * pitch * rows * item)
    for t in range(CONV_ROWS):
        row[t] = units * t
    steps.a_segment, steps.b_segment = a_segment, b_segment
    steps.a_step, steps.b_step = units * cut.columns, plane
    co = 0
    while co < plan.cout:
        count = min(cut.channels, plan.cout - co)
        steps.length = pieces(count, 2) if cut.pairs else count
        if cut.pairs:
            pack_pair_planes(g, plan.size_out, &block, group * plan.cout + co, count, b, plane, True, stage)
        else:
            pack_planes(plan.dtype, plan.compute, g, plan.size_out, &block, group * plan.cout + co, count, b, plane)
        for p in range(phase_count(plan)):
            make_phase(plan, p, &phase)
            if not phase_part(&phase, &tile, &part):
                continue
            sum = sums + p * pitch * rows * item
            tap = 0
            while tap < phase.tap_count:
                steps.segments = min(cut.taps, phase.tap_count - tap)
                for t in range(steps.segments):
                    tap_base(plan, &phase, tap + t, base, k)
                    a_segment[t] = t * steps.length * cut.columns * units
                    b_segment[t] = tap_shift(&block, base, low)
                at = 0
                while at < positions_under(&part, &block):
                    for s in range(cut.slivers):
                        kernel.kernel(&steps, packed_panel(plan, packed, group, s, co)
                                      + (phase.tap_offset + tap) * steps.length * cut.columns * item, row, b + at * item,
                                      sum + (s * cut.columns * pitch + at) * item, pitch, False)
                    at += width
                tap += cut.taps
        co += cut.channels
    for p in range(phase_count(plan)):
        make_phase(plan, p, &phase)
        if not phase_part(&phase, &tile, &part):
            continue
        sum = sums + p * pitch * rows * item
        if nonfinite:
            add_nonfinite(plan, group, &phase, &part, &block, 0, plan.cin, sum, 1, pitch)
        save_across(plan, group, &phase, &part, &block, 0, plan.cin, sum, pitch, stage)
    leave_float_state(float_state)


cdef void grad_input_task(const ConvPlan *plan, int64_t task, int64_t tiles, int64_t phases, char *packed, bint nonfinite,
                          char *scratch) noexcept nogil:
    """Task number (group, slivers, phase, tile), or across (group, tile)."""
    cdef const ConvCut *cut = &plan.for_input
    cdef int64_t across = pieces(cut.slivers, cut.task_slivers), outer = task // (phases * tiles)
    if cut.across:
        grad_input_across(plan, task // tiles, task % tiles, packed, nonfinite, scratch)
    else:
        grad_input_tile(plan, outer // across, task // tiles % phases, task % tiles, outer % across * cut.task_slivers, packed,
                        nonfinite, scratch)


cdef void run_grad_input(const ConvPlan *plan, char *workspace, int threads) noexcept nogil:
    cdef const ConvCut *cut = &plan.for_input
    cdef char *scratch = workspace + plan.packed_bytes
    cdef int64_t phases = phase_count(plan), tiles = phase_tiles(plan)
    cdef int64_t blocks = pieces(plan.cout, cut.channels), panels = plan.groups * cut.slivers * blocks, tasks = grad_input_tasks(plan), i
    cdef int nonfinite = 0
    if threads == 1:  # no OpenMP region at all: a forked child must not enter one
        for i in range(panels):
            nonfinite |= pack_weight(plan, i // blocks // cut.slivers, i // blocks % cut.slivers, i % blocks * cut.channels,
                                     workspace, scratch)
        for i in range(tasks):
            grad_input_task(plan, i, tiles, phases, workspace, nonfinite, scratch)
        return
    for i in prange(panels, schedule="static", num_threads=threads):
        nonfinite |= pack_weight(plan, i // blocks // cut.slivers, i // blocks % cut.slivers, i % blocks * cut.channels,
                                 workspace, scratch + omp_get_thread_num() * plan.thread_bytes)
    for i in prange(tasks, schedule="dynamic", chunksize=max(1, min(4, tasks // (8 * threads))), num_threads=threads):
        grad_input_task(plan, i, tiles, phases, workspace, nonfinite, scratch + omp_get_thread_num() * plan.thread_bytes)
