# grad_input as an implicit GEMM, for most convolutions: a task packs the grad_output under a tile of input pixels with
# its halo, channels side by side, once for all taps; a tap is an offset into that block, and a panel of taps by
# channels one batch-reduce product.
cdef enum:
    GEMM_TILE_PIXELS = 896      # the more, the less of a tile's edge is packed twice
    GEMM_BLOCK_ELEMENTS = 1 << 16
    GEMM_POSITIONS = 4096       # of a packed block, at most, or, of several classes of taps:
    GEMM_CLASS_POSITIONS = 8192
    GEMM_FEW_BYTES = 1 << 19    # of a block of few channels, which may have more positions
    CUT_READS = 2               # of a position, at least, where a tile is not of whole rows and planes


cdef int64_t joined_gemm_positions(const SampleGeometry *sample) noexcept nogil:
    """Return the most positions of a packed block of several samples."""
    return GEMM_POSITIONS if block_classes(sample) == 1 else GEMM_CLASS_POSITIONS


cdef int64_t most_gemm_positions(const SampleGeometry *sample) noexcept nogil:
    """Return the most positions of a packed block: more of few channels."""
    cdef SumOrder order
    if block_classes(sample) > 1:
        return GEMM_CLASS_POSITIONS
    order_panel(sample, &order)
    return max(<int64_t>GEMM_POSITIONS, GEMM_FEW_BYTES // max(<int64_t>1, block_pitch(sample, &order) * sample.item))


cdef int64_t gemm_pixels(int64_t channels) noexcept nogil:
    """Return the most pixels of a tile whose block has so many channels."""
    return max(<int64_t>MIN_TILE_PIXELS, min(<int64_t>GEMM_TILE_PIXELS, GEMM_BLOCK_ELEMENTS // channels))


cdef int64_t cut_gemm_rows(const SampleGeometry *sample, int64_t channels, Tiling *tiling,
                           int64_t *positions) noexcept nogil:
    """Make tiles of whole rows and planes, of fewer pixels where kernels with a stride reach too many positions. Return
    the pixels of a tile, where there is no need for more tasks; write the tile and how many positions it reaches."""
    cdef int64_t grid[3]
    cdef int64_t pixels = gemm_pixels(channels), most = most_gemm_positions(sample)
    phase_grid(sample, grid)
    tile_grid(grid, pixels, tiling)
    positions[0] = halo_positions(sample, tiling.extent, most)
    while positions[0] > most and pixels > MIN_TILE_PIXELS and block_classes(sample) > 1:
        pixels //= 2
        tile_grid(grid, pixels, tiling)
        positions[0] = halo_positions(sample, tiling.extent, most)
    return pixels


cdef int64_t input_gemm_pixels(const SampleGeometry *sample, int64_t channels, Tiling *tiling,
                               int64_t *positions) noexcept nogil:
    """Make tiles as cut_gemm_rows does, or of some rows of several planes where they would reach too many positions."""
    cdef int64_t pixels = cut_gemm_rows(sample, channels, tiling, positions), most = most_gemm_positions(sample)
    if positions[0] <= most:
        return pixels
    return fit_tiles(sample, gemm_pixels(channels), MIN_TILE_PIXELS, most, tiling, positions)


cdef bint block_is_cut(const SampleGeometry *sample, int64_t channels) noexcept nogil:
    """Say whether blocks of tiles of whole rows and planes would be too large."""
    cdef int64_t positions
    cdef Tiling tiling
    cut_gemm_rows(sample, channels, &tiling, &positions)
    return positions > most_gemm_positions(sample)


cdef bint accepts_input_gemm(const SampleGeometry *sample, const char **why) noexcept nogil:
    cdef int64_t positions
    cdef SumOrder order
    cdef Tiling tiling
    order_panel(sample, &order)
    input_gemm_pixels(sample, order.channels, &tiling, &positions)
    if positions > most_gemm_positions(sample):
        why[0] = b"the block that the taps of a tile reach is too large"
        return False
    if positions > sample.taps * tiling_pixels(&tiling) or (
            block_is_cut(sample, order.channels) and not blocks_are_read_often(sample, &tiling, CUT_READS)):
        why[0] = b"the block that the taps of a tile reach has more positions than they read"
        return False
    if padding_costs_more(sample):
        why[0] = b"taps one by one meet less padding"
        return False
    return True


cdef bint packs_small_blocks(const SampleGeometry *sample) noexcept nogil:
    """Say whether gemm accepts, and not for having few channels only."""
    cdef const char *why
    cdef int64_t positions
    cdef SumOrder order
    cdef Tiling tiling
    order_panel(sample, &order)
    input_gemm_pixels(sample, order.channels, &tiling, &positions)
    return positions <= joined_gemm_positions(sample) and accepts_input_gemm(sample, &why)


cdef bint packs_slowly(const ConvProblem *problem, bint vnni) noexcept nogil:
    """Say whether a block takes so long to pack that fewer tasks shall pack it anew, each for its columns."""
    cdef const ConvView *g = &problem.view[CONV_GRAD_OUTPUT]
    return block_classes(&problem.sample) > 1 or lies_in_stage(problem, g.space[2], g.channel, vnni)


cdef void block_input_gemm(const ConvProblem *problem, const SumOrder *order, int gradients, int threads,
                           Blocking *blocking) noexcept nogil:
    """Make the tiles smaller, then the tasks narrower, while there are too few tasks for the threads; tiles smaller
    still, if some thread would have none."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef InputTiles *own = <InputTiles *>blocking.own
    cdef int64_t positions, wanted, pixels = input_gemm_pixels(sample, order.channels, &own.tiling, &positions)
    block_input_columns(problem, order, own)
    own.ordered = part_in_order(sample, order) < 1
    if own.task_panels == own.weights.ci.count:
        own.together = most_groups_together(problem, order, own.weights.ci.vnni)
    if own.together > 1 and not has_wide_vectors(sample):  # the block of all of them, too, stays in the cache
        pixels = min(pixels, max(<int64_t>MIN_TILE_PIXELS // 2,
                                 GEMM_BLOCK_ELEMENTS // max(<int64_t>1, own.together * sample.cout)))
    tile_phases(problem, pixels, most_gemm_positions(sample), joined_gemm_positions(sample), &own.tiling)
    while threads > 1 and pixels > MIN_TILE_PIXELS and input_tile_shares(problem, own) < 4 * threads:
        pixels //= 2
        tile_phases(problem, pixels, most_gemm_positions(sample), joined_gemm_positions(sample), &own.tiling)
    while threads > 1 and own.together > 1 and input_tile_shares(problem, own) < 4 * threads:
        own.together = ceil_div(own.together, 2)
    wanted = (2 if packs_slowly(problem, own.weights.ci.vnni) else 4) * threads
    while threads > 1 and own.task_panels > 1 and input_tile_shares(problem, own) < wanted:
        own.task_panels = ceil_div(own.task_panels, 2)
    while pixels >= 2 * LEAST_TILE_PIXELS and input_tile_shares(problem, own) < threads:
        pixels //= 2
        tile_phases(problem, pixels, most_gemm_positions(sample), joined_gemm_positions(sample), &own.tiling)
    positions = block_positions(sample, &own.tiling)
    if own.together > 1:
        own.pitch = round_up(own.together * sample.cout, sample.lanes)
    elif packs_folded_lines(problem, order, own.weights.ci.vnni):
        own.lines, own.pitch = True, folded_step(sample)
        positions = positions // own.tiling.extent[2] * (own.tiling.extent[2] + folded_tail(sample))
    book_input_tiles(problem, order, positions, threads, own, blocking)


cdef void plan_input_prefetch(const ConvRun *run, const InputTile *t, const Halo *halo, const Box *block, int64_t co,
                              Prefetch *prefetch) noexcept nogil:
    """Plan to prefetch the next block of co, or after the last one the first of the phase's next tile, unless that is
    another task's before."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputTiles *own = <const InputTiles *>run.blocking.own
    cdef int64_t rows = register_tile(sample, &own.weights.ci, t.sums.channels).rows, channels = run.order.channels
    cdef int64_t calls = ceil_div(t.phase.tap_count, run.order.taps) * t.panels * ceil_div(t.pixels, rows)
    cdef int64_t size[3]
    cdef Box next
    cdef int d
    no_prefetch(prefetch)
    if sample.folded > 1:
        return
    output_size(sample, size)
    if co + channels < sample.cout:
        source_span(sample, block, &next)
        plan_prefetch(run.problem, size, &next, t.sums.group * sample.cout + co + channels,
                      min(channels, sample.cout - co - channels), calls, prefetch)
        return
    cdef int64_t grid[3]
    for d in range(3):
        grid[d] = t.phase.axis[d].size
    if (not panels_alternate(own) or t.panel_from + t.panels == own.weights.ci.count) \
            and nth_tile(&own.tiling, run.problem.batch, grid, t.number + 1, &next):
        block_under(&next, halo, &next)
        source_span(sample, &next, &next)
        plan_prefetch(run.problem, size, &next, t.sums.group * sample.cout, min(channels, sample.cout), calls, prefetch)


cdef void pack_tile_block(const ConvRun *run, const InputTile *t, const Box *block, int64_t co,
                          int64_t count) noexcept nogil:
    """Pack the block of a panel of co, or all co of some groups (count > cout), class after class of the taps that read
    it."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputTiles *own = <const InputTiles *>run.blocking.own
    cdef int64_t pitch = own.pitch, number
    cdef Box box
    cdef char *to
    for number in range(block_classes(sample)):
        source_box(sample, block, number, &box)
        to = t.block + number * box_positions(block) * pitch * own_step(run)
        if own.lines:
            pack_rows_as_lines(run.problem, &box, co, box.extent[2] * pitch, to)
        else:
            pack_folded_channels(run.problem, &box, t.sums.group, co, count, to, pitch, own.weights.ci.vnni, t.staging,
                                 t.place)


cdef void lead_through_taps(const ConvRun *run, const InputTile *t, const Box *block, const Halo *halo, int64_t tap,
                            bint in_place, BatchReduce *steps) noexcept nogil:
    """Lead the steps through the phase's taps from that number on, as many as a panel has."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputTiles *own = <const InputTiles *>run.blocking.own
    cdef int64_t columns = own.weights.ci.columns, s
    cdef int64_t output[3]
    cdef int64_t k[3]
    cdef int d
    steps.count = min(run.order.taps, t.phase.tap_count - tap)
    for s in range(steps.count):
        phase_tap(sample, &t.phase, tap + s, output, k)
        if in_place:
            for d in range(3):
                output[d] -= halo.low[d]
            t.a_offset[s] = elements_to(sample, &run.problem.view[CONV_GRAD_OUTPUT], output)
        else:
            t.a_offset[s] = tap_place(sample, block, output, k, halo.low) * own.pitch
        t.b_offset[s] = s * steps.depth * columns


cdef void multiply_blocks(const ConvRun *run, InputTile *t, const Box *block, const Halo *halo, bint in_place,
                          int64_t packed, bint puts, const PixelOrder *order, BatchReduce *steps) noexcept nogil:
    """Pack a block for each panel of co of so many groups, unless it is read where it lies, and add the products of one
    group under all taps, panel by panel: in an order (not NULL), or (puts) writing them."""
    cdef const SampleGeometry *sample = run.sample
    cdef int64_t co = 0, count, tap
    cdef Prefetch prefetch
    while t.phase.tap_count and co < sample.cout:
        count = min(run.order.channels, sample.cout - co)
        steps.depth = ceil_div(count, 2) if (<const InputTiles *>run.blocking.own).weights.ci.vnni else count
        if packed:
            pack_tile_block(run, t, block, co, packed * count)
        plan_input_prefetch(run, t, halo, block, co, &prefetch)
        tap = 0
        while tap < t.phase.tap_count and not is_stopped(run):
            lead_through_taps(run, t, block, halo, tap, in_place, steps)
            if puts:
                put_tile(run, t, steps, &prefetch)
            elif order != NULL:
                multiply_in_order(run, t, order, steps, co, tap, &prefetch)
            else:
                multiply_panels(run, t, steps, co, tap, &prefetch)
            tap += run.order.taps
        co += run.order.channels
        if in_place:
            t.block += run.order.channels * run.problem.view[CONV_GRAD_OUTPUT].channel


cdef void multiply_groups(const ConvRun *run, InputTile *t, const Box *block, const Halo *halo,
                          BatchReduce *steps) noexcept nogil:
    """Sum and save a tile of all groups of a task, from a block that is packed or read where it lies."""
    cdef const SampleGeometry *sample = run.sample
    cdef const InputTiles *own = <const InputTiles *>run.blocking.own
    cdef bint in_place = block_classes(sample) == 1 and sample.folded == 1 \
        and output_lies_ready(run.problem, block, t.sums.channels)
    cdef bint puts = puts_tile(run, t), ordered
    cdef int64_t number
    cdef PixelOrder order
    ordered = own.ordered and not (in_place or puts or run.nonfinite) and order_pixels(run, t, block, own.pitch, &order)
    if not (in_place or ordered):
        fill_indirection(&t.tile, block.extent, own.pitch, t.indirection)
    for number in range(t.groups):
        if in_place:
            lead_through_output(run, t, block, steps)
        if not puts:
            clear_input_sums(run, t)
        multiply_blocks(run, t, block, halo, in_place, 0 if in_place or number else t.groups, puts,
                        &order if ordered else NULL, steps)
        if not puts:
            end_input_tile(run, t, order.place if ordered else NULL)
        t.block += sample.cout * own_step(run)
        t.sums.group += 1


cdef void input_gemm_task(const ConvRun *run, int64_t number, char *scratch) noexcept nogil:
    """Compute a tile of some groups for some ci."""
    cdef InputTile t
    cdef Box block
    cdef Halo halo
    cdef BatchReduce steps
    cdef bint by_pixels
    if not begin_input_tile(run, number, scratch, &t):
        return
    phase_halo(run.sample, &t.phase, &halo)
    block_under(&t.tile, &halo, &block)
    if (<const InputTiles *>run.blocking.own).lines:
        block.extent[2] += folded_tail(run.sample)
    begin_steps(run, &t, &steps)
    by_pixels = both_lie_by_pixels(run, &t, &block)
    if not (by_pixels or both_lie_by_planes(run, &t, &block)):
        multiply_groups(run, &t, &block, &halo, &steps)
        return
    for number in range(t.groups):
        if by_pixels:
            multiply_by_pixels(run, &t, &block, &steps)
        else:
            multiply_by_planes(run, &t, &block)
        t.sums.group += 1


cdef void explain_input_gemm(const SampleGeometry *sample, const SumOrder *order, const Blocking *blocking, char *text,
                             size_t size) noexcept nogil:
    cdef const InputTiles *own = <const InputTiles *>blocking.own
    snprintf(text, size, b"implicit GEMM: taps are offsets into a packed block of grad_output; tiles of %lld x %lld x "
             b"%lld x %lld pixels, %lld of %lld columns a task; panels of %lld taps by %lld channels%s%s%s%s",
             <long long>own.tiling.samples, <long long>own.tiling.extent[0], <long long>own.tiling.extent[1],
             <long long>own.tiling.extent[2], <long long>(own.task_panels * own.weights.ci.columns),
             <long long>(own.weights.ci.count * own.weights.ci.columns), <long long>order.taps,
             <long long>order.channels, b"; pixels by the taps that they meet, without padding" if own.ordered else b"",
             b"; pairs of bfloat16" if own.weights.ci.vnni else b"",
             b"; weights where they lie" if own.weights.ready else b"",
             b"; a row packed as a line" if own.lines else b"")
    explain_groups(own.together, text, size)


cdef ConvAlgorithm input_gemm() noexcept nogil:
    cdef ConvAlgorithm row
    row.name, row.gradients = b"grad_input:gemm", FOR_GRAD_INPUT
    row.accepts, row.order, row.block = accepts_input_gemm, order_panel, block_input_gemm
    row.prepare, row.task, row.explain = prepare_input_weights, input_gemm_task, explain_input_gemm
    return row
